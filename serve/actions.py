"""What to do about an alert: its proposal in words, and commands to copy.

Nothing here runs anything, talks to a scheduler or changes a machine; the result is text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from detect.advice import advise
from serve.section import Section

_REASON_CHARACTERS = 160
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class ActionSettings(Section):
    """Which commands are proposed."""

    schedulers: tuple[Literal["slurm", "kubernetes"], ...] = ("slurm", "kubernetes")
    node_name: Literal["as_is", "short"] = "as_is"
    """``short``: the schedulers know machines without their domain."""
    taint_key: str = Field(
        default="weaklink/fault",
        pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9_.-]{1,63}$",
    )


@dataclass(frozen=True, slots=True)
class Command:
    """One command line to copy, safe to paste into a POSIX shell; what it is for."""

    purpose: str
    text: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to do (one sentence or two) and the commands that would do it."""

    text: str
    commands: tuple[Command, ...] = ()


def propose(alert: Mapping[str, Any], settings: ActionSettings | None = None) -> Proposal:
    """The proposal for an alert in its public JSON form.

    Words and commands come from the same advice (`detect.advice`); the alert carries the words.
    Commands are given for a single accused machine only: what several machines share is not
    mended by draining them, and an undetermined verdict accuses nobody.
    """
    settings = settings or ActionSettings()
    advice = advise(
        alert["verdict"],
        alert["manifestation"],
        [(item["type"], item["probability"]) for item in alert.get("fault_types") or ()],
        gpu=alert.get("gpu"),
        shared=alert.get("shared"),
        strongest=next((item["metric"] for item in alert.get("evidence") or ()), ""),
    )
    text = alert.get("recommended_action") or advice.action
    if alert["verdict"] != "machine":
        return Proposal(text)
    commands = [Command("on the machine, look first", _for_gpu(advice.look, alert))]
    if advice.drain:
        name = _node(str(alert["machine"]), settings)
        for scheduler in settings.schedulers:
            if scheduler == "slurm":
                found = _slurm(name, alert)
            else:
                found = _kubernetes(name, alert, settings.taint_key)
            commands += found
            if not found:
                text += f" (No command for {scheduler}: {name!r} is no single node's name there.)"
    if advice.reset and alert.get("gpu") is not None:
        reset = _for_gpu("nvidia-smi --gpu-reset {gpu}", alert)
        commands.append(Command("on the machine, once nothing runs on the GPU", reset))
    return Proposal(text, tuple(command for command in commands if command.text))


def _for_gpu(command: str, alert: Mapping[str, Any]) -> str:
    gpu = alert.get("gpu")
    return " ".join(command.replace("{gpu}", f"-i {int(gpu)}" if gpu is not None else "").split())


def _reason(alert: Mapping[str, Any]) -> str:
    words = [str(alert.get("manifestation", "fault")), "job", str(alert.get("job", ""))]
    text = f"weaklink {alert.get('id', '')}: {' '.join(words)}"
    return "".join(c if c.isprintable() else " " for c in text)[:_REASON_CHARACTERS].strip()


def _node(machine: str, settings: ActionSettings) -> str:
    return machine.split(".", 1)[0] if settings.node_name == "short" else machine


def _slurm(name: str, alert: Mapping[str, Any]) -> list[Command]:
    # scontrol reads lists and ranges in a node's name (a,b or n[1-9]) and the word ALL.
    if not name.isprintable() or set("[],") & set(name) or name.upper() == "ALL" or name[:1] == "-":
        return []
    drain = (
        f"scontrol update nodename={shlex.quote(name)} state=drain reason={_quoted(_reason(alert))}"
    )
    return [Command("Slurm: no new jobs on the machine", drain)]


def _kubernetes(name: str, alert: Mapping[str, Any], taint_key: str) -> list[Command]:
    if not _NODE.fullmatch(name):
        return []
    value = re.sub(r"[^A-Za-z0-9_.-]", "-", str(alert.get("manifestation") or "fault"))
    taint = f"kubectl taint nodes {name} {taint_key}={value}:NoSchedule --overwrite"
    return [
        Command("Kubernetes: no new pods on the machine", f"kubectl cordon {name}"),
        Command("Kubernetes: the same as a taint", taint),
    ]


def _quoted(text: str) -> str:
    """Double quotes where nothing in the text means anything to a shell, else `shlex.quote`."""
    return f'"{text}"' if re.fullmatch(r"[\w .,:;/=+@%()-]*", text, re.ASCII) else shlex.quote(text)
