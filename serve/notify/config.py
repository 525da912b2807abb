"""The ``notify`` section of the configuration: receivers, and which incident goes where."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from serve.actions import ActionSettings
from serve.notify.alertmanager import AlertmanagerReceiver, AlertmanagerSettings
from serve.notify.apprise import AppriseReceiver, AppriseSettings
from serve.notify.cloudevents import CloudEventsReceiver, CloudEventsSettings
from serve.notify.mail import MailReceiver, MailSettings
from serve.notify.note import Severity
from serve.notify.pagerduty import PagerDutyReceiver, PagerDutySettings
from serve.notify.receiver import Receiver
from serve.notify.slack import SlackReceiver, SlackSettings
from serve.notify.webhook import WebhookReceiver, WebhookSettings
from serve.section import Section

AnyReceiverSettings = Annotated[
    WebhookSettings
    | CloudEventsSettings
    | AlertmanagerSettings
    | PagerDutySettings
    | SlackSettings
    | MailSettings
    | AppriseSettings,
    Field(discriminator="type"),
]


class RouteSettings(Section):
    """One route: what matches all of it goes to its receivers. Every route is looked at."""

    jobs: tuple[str, ...] = ("*",)
    """Patterns (``*``, ``?``); one must match. Notices of no job match ``*`` only."""
    severities: tuple[Severity, ...] = ("page", "ticket", "info")
    verdicts: tuple[Literal["machine", "group", "job", "undetermined"], ...] = (
        "machine",
        "group",
        "job",
        "undetermined",
    )
    receivers: tuple[str, ...] = Field(min_length=1)
    """Names of receivers."""


class NotifySettings(Section):
    """Who is told of what."""

    receivers: tuple[AnyReceiverSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()
    """Without any, everything goes to every receiver."""
    ticket_score: float = 0.0
    """An alert that does not page but scores at least this is a ticket (0 = a healthy job
    would reach it once a week), below it is only information."""
    poll_seconds: float = Field(default=1.0, gt=0, le=60)
    """How often the outbox is looked at."""
    actions: ActionSettings = ActionSettings()

    @model_validator(mode="after")
    def _names(self) -> Self:
        counts = Counter(r.name for r in self.receivers)
        if twice := sorted(name for name, n in counts.items() if n > 1):
            raise ValueError(f"receivers: the name {twice[0]!r} is used twice")
        for number, route in enumerate(self.routes):
            if unknown := sorted(set(route.receivers) - set(counts)):
                known = ", ".join(sorted(counts)) or "none"
                raise ValueError(
                    f"routes.{number}: no receiver {unknown[0]!r} (there are: {known})"
                )
        return self


def build_receiver(settings: Any, actions: ActionSettings) -> Receiver:
    """The receiver of one entry of ``receivers``."""
    match settings:
        case WebhookSettings():
            return WebhookReceiver(settings)
        case CloudEventsSettings():
            return CloudEventsReceiver(settings)
        case AlertmanagerSettings():
            return AlertmanagerReceiver(settings, actions)
        case PagerDutySettings():
            return PagerDutyReceiver(settings, actions)
        case SlackSettings():
            return SlackReceiver(settings, actions)
        case MailSettings():
            return MailReceiver(settings, actions)
        case AppriseSettings():
            return AppriseReceiver(settings, actions)
    raise TypeError(f"no receiver for {type(settings).__name__}")


def build_receivers(settings: NotifySettings) -> dict[str, Receiver]:
    """Every configured receiver, by name."""
    return {r.name: build_receiver(r, settings.actions) for r in settings.receivers}
