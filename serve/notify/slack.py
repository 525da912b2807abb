"""Slack, through an incoming webhook, as blocks.

https://docs.slack.dev/reference/block-kit/blocks (limits) and
https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks. Everything that
comes from outside stands in plain-text or rich-text elements, where nothing is interpreted:
a machine called ``<!channel>`` wakes nobody.
"""

from __future__ import annotations

from typing import Any, Literal

import orjson

from serve.actions import ActionSettings
from serve.notify.http import HttpReceiver
from serve.notify.note import Note
from serve.notify.receiver import Context, Traits
from serve.notify.result import HttpRequest
from serve.notify.settings import HttpReceiverSettings, SecretUrl
from serve.notify.text import Message, message

_HEADER_CHARACTERS = 150
_TEXT_CHARACTERS = 2_900
_BUTTONS = 5

Block = dict[str, Any]


class SlackSettings(HttpReceiverSettings):
    """One channel of Slack (or of a server that speaks the same, such as Mattermost)."""

    type: Literal["slack"] = "slack"
    url: SecretUrl
    """The incoming webhook's URL, itself a secret."""
    show_picture: bool = False
    """Embed the picture. Slack's servers must reach it, or they refuse the whole message."""


class SlackReceiver(HttpReceiver[SlackSettings]):
    """One message a change; what happened while Slack was down comes as one message."""

    traits: Traits = Traits(pending="latest", past=True)

    def __init__(self, settings: SlackSettings, actions: ActionSettings | None = None) -> None:
        super().__init__(settings)
        self.actions = actions or ActionSettings()

    def render(self, note: Note, context: Context) -> list[HttpRequest]:
        """One message."""
        words = message(note, context.now_ns, self.actions)
        body = {"text": escape(words.title), "blocks": self._blocks(words)}
        headers = {"content-type": "application/json"}
        return [HttpRequest(context.secrets["url"], orjson.dumps(body), headers)]

    def _blocks(self, words: Message) -> list[Block]:
        blocks: list[Block] = [
            {"type": "header", "text": _plain(words.title, _HEADER_CHARACTERS)},
        ]
        if len(words.title) > _HEADER_CHARACTERS:
            blocks.append(_rich([_section(words.title)]))
        if words.notes:
            blocks.append(_rich([_section("\n".join(words.notes))]))
        if words.evidence:
            lines = [_section(line) for line in words.evidence]
            evidence = {"type": "rich_text_list", "style": "bullet", "elements": lines}
            blocks.append(_rich([_section("Evidence", bold=True), evidence]))
        if words.action:
            blocks.append(_rich([_section("Proposed: ", bold=True, then=words.action)]))
        for command in words.commands:
            code = {"type": "rich_text_preformatted", "elements": [_text(command.text)]}
            blocks.append(_rich([_section(command.purpose), code]))
        picture = dict(words.links).get("picture")
        if picture and self.settings.show_picture:
            blocks.append({"type": "image", "image_url": picture, "alt_text": "metrics over peers"})
        if words.links:
            buttons = [
                {"type": "button", "text": _plain(label.capitalize(), 75), "url": url}
                for label, url in words.links[:_BUTTONS]
            ]
            blocks.append({"type": "actions", "elements": buttons})
        return blocks


def escape(text: str) -> str:
    """Text for places where Slack interprets ``&``, ``<`` and ``>``."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain(text: str, limit: int) -> Block:
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return {"type": "plain_text", "text": short, "emoji": False}


def _text(text: str, bold: bool = False) -> Block:
    element: Block = {"type": "text", "text": text[:_TEXT_CHARACTERS]}
    return {**element, "style": {"bold": True}} if bold else element


def _section(text: str, *, bold: bool = False, then: str = "") -> Block:
    elements = [_text(text, bold)] + ([_text(then)] if then else [])
    return {"type": "rich_text_section", "elements": elements}


def _rich(elements: list[Block]) -> Block:
    return {"type": "rich_text", "elements": elements}
