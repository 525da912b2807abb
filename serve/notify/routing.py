"""Which receivers hear of a notice. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase

from detect.alert import Alert
from serve.notice import Notice
from serve.notify.config import NotifySettings, RouteSettings
from serve.notify.note import Severity


def severity(alert: Alert | None, ticket_score: float = 0.0) -> Severity:
    """``page``: somebody should get up. ``ticket``: worth a look by day. ``info``: the rest."""
    if alert is None or alert.pages:
        return "page"
    accuses = alert.verdict in {"machine", "group"}
    return "ticket" if accuses and alert.score >= ticket_score else "info"


def receivers_for(notice: Notice, settings: NotifySettings) -> list[str]:
    """Names of the receivers that the routes choose, in the order of the configuration."""
    names = [r.name for r in settings.receivers]
    if not settings.routes:
        return names
    level = severity(notice.alert, settings.ticket_score)
    chosen = {
        name
        for route in settings.routes
        if _matches(route, notice, level)
        for name in route.receivers
    }
    return [name for name in names if name in chosen]


def _matches(route: RouteSettings, notice: Notice, level: Severity) -> bool:
    if level not in route.severities or not any(fnmatchcase(notice.job, p) for p in route.jobs):
        return False
    # A storm stands for many verdicts; the breaker for all.
    if notice.alert is None or notice.kind == "storm":
        return True
    return notice.alert.verdict in route.verdicts
