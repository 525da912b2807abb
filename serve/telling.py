"""From decisions to notices: pages, corrections, storms and the circuit breaker.

A `Telling` lives for one transaction. It reads what the decision of `serve.paging` depends
on, writes the outcome to the alert's row, and collects the notices for the outbox.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detect.alert import Alert
from replay.view.words import alert_headline, evidence_sentence
from serve.config import AlertSettings
from serve.links import Links
from serve.notice import Notice, NoticeKind
from serve.paging import TIMELY, Reason, Situation, decide
from serve.silences import active_silences, covering
from serve.store.codec import alert_from_row
from serve.store.events import append_event
from serve.store.tables import AlertRow, OffenderRow, ServiceStateRow, SilenceRow, StormRow

_BREAKER = "breaker"
_SHOWN = 20


def nanoseconds(seconds: float) -> int:
    """Seconds of the configuration as nanoseconds."""
    return round(seconds * 1e9)


@dataclass(slots=True)
class Telling:
    """Decides and words what people are told within one transaction."""

    session: Session
    settings: AlertSettings
    links: Links
    now_ns: int
    notices: list[Notice] = field(default_factory=list)
    decisions: Counter[Reason] = field(default_factory=Counter)
    _silences: list[SilenceRow] = field(init=False)

    def __post_init__(self) -> None:
        self._silences = active_silences(self.session, self.now_ns)

    def consider(self, row: AlertRow, evidence_at_ns: int, *, new: bool = True) -> None:
        """Decide on an alert whose job's evidence is as of ``evidence_at_ns``.

        ``new`` counts the decision; reconsidering an old one counts only if it differs.
        """
        alert = alert_from_row(row)
        settings, now = self.settings, self.now_ns
        told = None if row.told_machines is None else tuple(sorted(row.told_machines))
        # Counting pages costs queries; it matters only where a page is at stake.
        at_stake = row.paged_at_ns is None and alert.pages and row.status == "open"
        reason = decide(
            Situation(
                pages=alert.pages,
                over=row.status == "resolved",
                acknowledged=row.status == "acknowledged",
                machines=tuple(sorted(alert.machines)),
                told=told,
                told_ago_ns=now - (row.paged_at_ns or 0),
                settle_ns=nanoseconds(settings.settle_seconds),
                paged=row.paged_at_ns is not None,
                shadow=any(fnmatchcase(row.job, p) for p in settings.shadow_jobs),
                covered=covering(self._silences, alert),
                age_ns=now - evidence_at_ns,
                age_limit_ns=nanoseconds(settings.age_limit_seconds),
                storm=at_stake
                and (self._storm_of(row.job) is not None or self._storm_begins(row.job)),
                breaker=at_stake and (self._breaker()["open"] or self._breaker_trips()),
            )
        )
        row.settled = reason not in TIMELY
        lasting = reason in {"known", "settling", "resolved"}
        first = row.page_reason != reason
        if new or (first and not lasting):
            self.decisions[reason] += 1
        if reason == "page":
            self._tell(row, alert, "opened" if row.episode == 1 else "reopened")
        elif reason == "corrected":
            self._tell(row, alert, "corrected")
        elif reason == "storm":
            self._join_storm(row)
        elif reason == "breaker":
            self._hold(first=first)
        if not lasting and reason != "corrected":
            row.page_reason = reason  # else how people came to know, or why not, stays on record

    def tell_end(self, row: AlertRow) -> None:
        """The alert is over, and people who were told of it should know."""
        row.resolve_due_ns = None
        if row.told_machines is not None:
            self._notice(row, alert_from_row(row), "resolved", resolves=True)

    def tell_acknowledged(self, row: AlertRow, by: str) -> None:
        """Somebody is on it; said where the alert was told."""
        if row.told_machines is not None:
            self._notice(row, alert_from_row(row), "acknowledged", f"Acknowledged by {by}.")

    def pass_time(self) -> None:
        """Storms that grew or ended, and a breaker that may close."""
        settings, now = self.settings, self.now_ns
        for storm in self.session.scalars(
            select(StormRow).where(StormRow.resolved_at_ns.is_(None))
        ):
            members = self._members(storm)
            if not any(m.status != "resolved" for m in members):
                storm.resolved_at_ns = now
                self._tell_storm(storm, members, resolves=True)
            elif storm.alerts > storm.told_alerts and self._storm_due(storm):
                self._tell_storm(storm, members)
        state = self._breaker()
        quiet = now - state.get("last_ns", now) >= nanoseconds(settings.breaker_window_seconds)
        if state["open"] and quiet:
            self._close_breaker(state)

    # One alert, one message.

    def _tell(self, row: AlertRow, alert: Alert, kind: NoticeKind) -> None:
        known = "" if row.told_machines is None else f"Told before: {_names(row.told_machines)}."
        row.paged_at_ns = self.now_ns
        row.told_machines = list(alert.machines)
        self._notice(row, alert, kind, known)

    def _notice(
        self,
        row: AlertRow,
        alert: Alert,
        kind: NoticeKind,
        extra: str = "",
        *,
        resolves: bool = False,
    ) -> None:
        row.notices += 1
        links = self.links.alert(row.id, row.job, self.now_ns)
        public = alert.to_json(links)
        lines = [extra] if extra else []
        lines += [evidence_sentence(item) for item in public["evidence"][:5]]
        lines += [alert.recommended_action] if alert.recommended_action else []
        lines += self._repeat_offenders(alert)
        lines += [alert.note] if alert.note else []
        prefix = {"corrected": "Corrected: ", "resolved": "Resolved: ", "reopened": "Again: "}
        self.notices.append(
            Notice(
                key=row.id if row.episode == 1 else f"{row.id}.{row.episode}",
                sequence=row.notices,
                kind=kind,
                alert=alert,
                title=f"{prefix.get(kind, '')}{alert_headline(public)} in job {row.job}",
                text="\n".join(lines),
                job=row.job,
                at_ns=self.now_ns,
                machines=alert.machines,
                resolves=resolves,
                links=links,
            )
        )

    def _repeat_offenders(self, alert: Alert) -> list[str]:
        if not alert.machines:
            return []
        query = select(OffenderRow).where(
            OffenderRow.machine.in_(alert.machines[:_SHOWN]), OffenderRow.incidents > 1
        )
        rows = self.session.scalars(query.order_by(OffenderRow.machine))
        return [f"{r.machine} was named in {r.incidents - 1} earlier incident(s)." for r in rows]

    # Storms: many alerts of one job, one message.

    def _storm_of(self, job: str) -> StormRow | None:
        since = self.now_ns - nanoseconds(self.settings.storm_window_seconds)
        query = select(StormRow).where(
            StormRow.job == job, StormRow.last_at_ns > since, StormRow.resolved_at_ns.is_(None)
        )
        return self.session.scalars(query.order_by(StormRow.started_at_ns.desc())).first()

    def _storm_begins(self, job: str) -> bool:
        since = self.now_ns - nanoseconds(self.settings.storm_window_seconds)
        return self._paged_since(since, job) + 1 >= self.settings.storm_alerts

    def _join_storm(self, row: AlertRow) -> None:
        storm = self._storm_of(row.job)
        if storm is None:
            storm = StormRow(
                id=f"storm:{row.id}.{row.episode}",
                job=row.job,
                started_at_ns=self.now_ns,
                last_at_ns=self.now_ns,
                alerts=0,
                told_alerts=0,
                told_at_ns=0,
                notices=0,
            )
            self.session.add(storm)
        storm.alerts += 1
        storm.last_at_ns = self.now_ns
        row.storm_id = storm.id
        row.paged_at_ns = self.now_ns
        self.session.flush()
        if storm.told_alerts == 0 or self._storm_due(storm):
            self._tell_storm(storm, self._members(storm))

    def _storm_due(self, storm: StormRow) -> bool:
        waited = self.now_ns - storm.told_at_ns
        grown = storm.alerts >= 2 * storm.told_alerts + self.settings.storm_alerts
        return grown or waited >= nanoseconds(self.settings.storm_update_seconds)

    def _members(self, storm: StormRow) -> list[AlertRow]:
        query = select(AlertRow).where(AlertRow.storm_id == storm.id).order_by(AlertRow.id)
        return list(self.session.scalars(query))

    def _tell_storm(
        self, storm: StormRow, members: list[AlertRow], *, resolves: bool = False
    ) -> None:
        alerts = [alert_from_row(m) for m in members]
        machines = tuple(sorted({name for a in alerts for name in a.machines}))
        still = sum(m.status != "resolved" for m in members)
        storm.told_alerts, storm.told_at_ns = storm.alerts, self.now_ns
        storm.notices += 1
        title = f"{storm.alerts} more alerts in job {storm.job}"
        self.notices.append(
            Notice(
                key=storm.id,
                sequence=storm.notices,
                kind="storm",
                alert=max(alerts, key=lambda a: a.score, default=None),
                title=f"Over: {title}" if resolves else title,
                text=f"{still} of them open. Machines: {_names(machines)}.\n"
                "So many at once are mostly one cause: maintenance, a switch, a shared service.",
                job=storm.job,
                at_ns=self.now_ns,
                machines=machines,
                count=storm.alerts,
                resolves=resolves,
                links=self.links.job(storm.job),
            )
        )
        body = {"id": storm.id, "alerts": storm.alerts, "open": still, "machines": machines}
        append_event(self.session, "storm", body, at_ns=self.now_ns, job=storm.job)

    # The circuit breaker: pages of all jobs together.

    def _paged_since(self, since_ns: int, job: str | None = None) -> int:
        query = select(func.count()).select_from(AlertRow)
        query = query.where(AlertRow.paged_at_ns > since_ns, AlertRow.page_reason == "page")
        if job is not None:
            query = query.where(AlertRow.job == job)
        return self.session.scalar(query) or 0

    def _breaker_trips(self) -> bool:
        since = self.now_ns - nanoseconds(self.settings.breaker_window_seconds)
        storms = select(func.count()).select_from(StormRow).where(StormRow.started_at_ns > since)
        pages = self._paged_since(since) + (self.session.scalar(storms) or 0)
        return pages >= self.settings.breaker_pages

    def _breaker(self) -> dict[str, Any]:
        row = self.session.get(ServiceStateRow, _BREAKER)
        return dict(row.value) if row else {"open": False}

    def _hold(self, *, first: bool) -> None:
        state = self._breaker()
        if not state["open"]:
            state = {"open": True, "since_ns": self.now_ns, "last_ns": self.now_ns, "held": 0}
            self._tell_breaker(state, opens=True)
        if first:
            state["held"] += 1
            state["last_ns"] = self.now_ns
        self._store_breaker(state)

    def _close_breaker(self, state: dict[str, Any]) -> None:
        held = list(
            self.session.scalars(
                select(AlertRow)
                .where(AlertRow.page_reason == "breaker", AlertRow.paged_at_ns.is_(None))
                .where(AlertRow.status != "resolved")
            )
        )
        # The closing message speaks for them all: no flood when the breaker closes.
        for row in held:
            row.paged_at_ns, row.settled = self.now_ns, True
        self._tell_breaker(state, opens=False, held=held)
        self._store_breaker({"open": False})

    def _store_breaker(self, state: dict[str, Any]) -> None:
        row = ServiceStateRow(key=_BREAKER, value=state, at_ns=self.now_ns)
        self.session.merge(row)
        self.session.flush()

    def _tell_breaker(
        self, state: dict[str, Any], *, opens: bool, held: list[AlertRow] | None = None
    ) -> None:
        minutes = self.settings.breaker_window_seconds / 60
        pages = self.settings.breaker_pages
        if opens:
            title = f"Paging is held: {pages} pages within {minutes:g} minutes"
            text = (
                "Detection goes on and every alert is on the page, but no further machine is "
                f"paged until {minutes:g} minutes pass without a new one."
            )
        else:
            names = [f"{r.machine or r.verdict} ({r.job})" for r in held or []]
            title = f"Paging goes on; {state['held']} alerts were held"
            text = f"Still open of those: {_names(names) if names else 'none'}."
        self.notices.append(
            Notice(
                key=f"breaker:{state['since_ns']}",
                sequence=1 if opens else 2,
                kind="breaker_open" if opens else "breaker_closed",
                alert=None,
                title=title,
                text=text,
                job="",
                at_ns=self.now_ns,
                count=pages if opens else state["held"],
                resolves=not opens,
                links={"page": f"{self.links.base_url}/"},
            )
        )
        append_event(self.session, "breaker", {"open": opens, "title": title}, at_ns=self.now_ns)


def _names(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) or "no machine"
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
