"""E-mail against a real SMTP server in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from serve.notify.receiver import Context
from serve.notify.result import Delivered, GaveUp, Result, Retry
from tests.notify_support import free_port, make_note, only_receiver, settings_of
from tests.serve_support import START_NS

NOW = START_NS


class Mailbox:
    """Keeps what arrives; ``says`` is the answer to the data, ``refuses`` who is unknown."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.says = "250 OK"
        self.refuses: dict[str, str] = {}
        self.hang = threading.Event()

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        del server, session, options
        if address in self.refuses:
            return self.refuses[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        del server, session
        while self.hang.is_set():
            await asyncio.sleep(0.05)
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        if self.says.startswith("250"):
            self.mails.append(mail)
        return self.says


class Postman:
    """A running server."""

    def __init__(self, mailbox: Mailbox, port: int) -> None:
        self.mailbox = mailbox
        self.port = port

    def send(self, **fields: Any) -> Result:
        note = fields.pop("note", None) or make_note()
        settings = settings_of(
            {
                "type": "email",
                "name": "mail",
                "host": "127.0.0.1",
                "port": self.port,
                "security": "none",
                "sender": "weaklink@example.org",
                "recipients": ["a@example.org", "b@example.org"],
                "timeout_seconds": 5,
                **fields,
            }
        )
        result: Result = only_receiver(settings).send(note, Context(NOW))
        return result


def run(mailbox: Mailbox, **options: Any) -> Iterator[Postman]:
    port = free_port()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield Postman(mailbox, port)
    finally:
        mailbox.hang.clear()
        controller.stop()


@pytest.fixture
def postman() -> Iterator[Postman]:
    yield from run(Mailbox())


def test_a_mail_says_it_in_its_subject(postman: Postman) -> None:
    assert postman.send() == Delivered("taken")
    (mail,) = postman.mailbox.mails
    assert mail["Subject"] == (
        "[PAGE] llama: m-3 is slow since 22:12:50 UTC (0.0001 false alarms per job-week)"
    )
    assert mail["To"] == "a@example.org, b@example.org"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert "tensor activity 0.02, peers 0.55 since 22:12:50" in mail.get_content()


def test_an_incident_is_one_thread_and_an_attempt_no_new_mail(postman: Postman) -> None:
    postman.send()
    postman.send()
    postman.send(note=make_note("resolved", sequence=2))
    postman.send(note=make_note(machine="m-4"))
    first, again, over, other = postman.mailbox.mails
    assert first["Message-ID"] == again["Message-ID"] != over["Message-ID"]
    assert first["References"] == over["References"] != other["References"]


def test_a_hostile_name_adds_no_header(postman: Postman) -> None:
    postman.send(note=make_note(machine="m\r\nBcc: everybody@example.org\r\n\r\nhello"))
    (mail,) = postman.mailbox.mails
    assert mail["Bcc"] is None
    assert "Bcc: everybody@example.org" in mail["Subject"]


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("451 try later", Retry),
        ("452 no space", Retry),
        ("550 no", GaveUp),
        ("554 looks like spam", GaveUp),
    ],
)
def test_the_servers_answer_decides(postman: Postman, says: str, kind: type[Result]) -> None:
    postman.mailbox.says = says
    result = postman.send()
    assert isinstance(result, kind)
    assert result.reason == f"SMTP {says.replace(' ', ': ', 1)}"  # type: ignore[union-attr]


def test_one_recipient_is_enough_and_the_others_are_named(postman: Postman) -> None:
    postman.mailbox.refuses = {"b@example.org": "550 unknown"}
    assert postman.send() == Delivered("refused for b@example.org")


@pytest.mark.parametrize(("says", "kind"), [("550 unknown", GaveUp), ("450 busy", Retry)])
def test_without_any_recipient_the_answer_decides(
    postman: Postman, says: str, kind: type[Result]
) -> None:
    postman.mailbox.refuses = dict.fromkeys(("a@example.org", "b@example.org"), says)
    assert isinstance(postman.send(), kind)


def test_a_server_that_hangs_is_given_up_in_time_and_tried_again(postman: Postman) -> None:
    postman.mailbox.hang.set()
    result = postman.send(timeout_seconds=0.3)
    assert isinstance(result, Retry)
    assert result.whole_receiver


def test_no_server_is_tried_again(postman: Postman) -> None:
    result = postman.send(host="127.0.0.1", port=9)
    assert isinstance(result, Retry)
    assert result.whole_receiver
    assert "ConnectionRefusedError" in result.reason


def test_a_server_without_encryption_gets_no_mail_where_it_is_wanted(postman: Postman) -> None:
    result = postman.send(security="starttls")
    assert isinstance(result, Retry)
    assert result.whole_receiver
    assert postman.mailbox.mails == []


def test_a_wrong_password_is_tried_again_and_never_shown() -> None:
    def check(
        server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        del server, session, envelope, mechanism
        assert isinstance(data, LoginPassword)
        return AuthResult(success=data.password == b"right")

    mailbox = Mailbox()
    for postman in run(mailbox, authenticator=check, auth_require_tls=False):
        settings = settings_of(
            {
                "type": "email",
                "name": "mail",
                "host": "127.0.0.1",
                "port": postman.port,
                "sender": "weaklink@example.org",
                "recipients": ["a@example.org"],
                "username": "me",
                "password": "wr0ng",
            }
        )
        # Without encryption in this test only: the settings refuse it.
        receiver = only_receiver(settings)
        receiver.settings = settings.receivers[0].model_copy(update={"security": "none"})
        result = receiver.send(make_note(), Context(NOW))
        assert isinstance(result, Retry)
        assert result.whole_receiver
        assert "wr0ng" not in result.reason
        assert mailbox.mails == []
