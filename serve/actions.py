"""What to do about an alert: a proposal in words, and commands to copy.

Nothing here runs anything, talks to a scheduler or changes a machine; the result is text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from serve.section import Section

CERTAIN = 0.5
"""From this probability on, a fault type decides; below, only how the machine fails does."""

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


@dataclass(frozen=True, slots=True)
class _Advice:
    action: str
    look: str = ""
    """A command to look at the machine first; ``{gpu}`` becomes ``-i N`` where known."""
    drain: bool = True
    reset: bool = False


_BY_FAULT: dict[str, _Advice] = {
    "ecc_error": _Advice(
        "Drain the machine and reset the GPU; replace the GPU if row remapping has failed.",
        "nvidia-smi {gpu} -q -d ECC,ROW_REMAPPER",
        reset=True,
    ),
    "cuda_execution_error": _Advice(
        "Drain the machine, look for the XID in its kernel log, reset the GPU and run diagnostics.",
        "dmesg -T | grep -i xid | tail",
        reset=True,
    ),
    "gpu_execution_error": _Advice(
        "Drain the machine, look for the XID in its kernel log, reset the GPU and run diagnostics.",
        "dmesg -T | grep -i xid | tail",
        reset=True,
    ),
    "pcie_downgrading": _Advice(
        "Drain the machine and compare its PCIe link width and speed with its peers';"
        " reseat the card or riser.",
        "nvidia-smi {gpu} --query-gpu=index,pcie.link.gen.current,pcie.link.width.current"
        " --format=csv",
    ),
    "machine_unreachable": _Advice(
        "Look at the machine's console over its BMC; power-cycle it if it does not answer,"
        " and keep it drained.",
    ),
    "nic_dropout": _Advice(
        "Drain the machine and check the NIC's link, its driver's log and the switch port.",
        "ibstat; ip -s link",
    ),
    "hdfs_error": _Advice(
        "Check the storage client and its servers before the machine; do not replace hardware yet.",
        "df -h; mount | grep -E 'nfs|lustre|fuse'",
        drain=False,
    ),
    "gpu_card_drop": _Advice(
        "Drain the machine and power-cycle it; reseat or replace the GPU if it stays away.",
        "lspci | grep -i nvidia; nvidia-smi -L",
    ),
    "nvlink_error": _Advice(
        "Drain the machine and reset its GPUs; check NVLink and the fabric manager.",
        "nvidia-smi nvlink --status {gpu}",
        reset=True,
    ),
    "aoc_error": _Advice(
        "Clean or reseat the optical cable and compare its receive power; replace it if low.",
        "mlxlink -d mlx5_0 -m",
    ),
    "thermal_throttling": _Advice(
        "Check fans, airflow and inlet temperature; drain the machine if it stays hot.",
        "nvidia-smi {gpu} -q -d TEMPERATURE,PERFORMANCE",
    ),
    "cpu_contention": _Advice(
        "Find the foreign process on the machine and stop it; nothing has to be replaced.",
        "top -b -n 1 | head -20",
        drain=False,
    ),
    "disk_slow": _Advice(
        "Check the disk's SMART data and its I/O errors; drain the machine before replacing it.",
        "iostat -x 1 3; smartctl --scan",
    ),
    "switch_failure": _Advice(
        "Check the switch that the machines share; do not drain them one by one.", drain=False
    ),
    "memory_leak": _Advice(
        "Find the process that grows on the machine; restart it before memory runs out.",
        "ps aux --sort=-rss | head",
        drain=False,
    ),
}

_ALIASES = {
    "aoc": "aoc_error",
    "cuda_execution": "cuda_execution_error",
    "ecc": "ecc_error",
    "gpu_execution": "gpu_execution_error",
    "hdfs": "hdfs_error",
    "nvlink": "nvlink_error",
    "pcie": "pcie_downgrading",
}

_BY_MANIFESTATION: dict[str, _Advice] = {
    "fail_stop": _Advice(
        "Drain the machine, look at its kernel log, and restart the job without it.",
        "dmesg -T | tail -50",
    ),
    "fail_slow": _Advice(
        "Check clocks, temperature, link widths and foreign processes; drain the machine if"
        " it stays slow.",
        "nvidia-smi {gpu} -q -d CLOCK,PERFORMANCE,TEMPERATURE",
    ),
    "fail_hang": _Advice(
        "Take stack traces of the job's processes on the machine first, then drain it and"
        " restart the job.",
        "dmesg -T | tail -50",
    ),
    "silent": _Advice(
        "See whether the machine answers and whether its telemetry agent runs; drain it if"
        " it is gone.",
    ),
    "unknown": _Advice("Compare the machine with its peers before you take it out.", drain=False),
}


def propose(alert: Mapping[str, Any], settings: ActionSettings | None = None) -> Proposal:
    """The proposal for an alert in its public JSON form.

    The detector's own ``recommended_action`` stands first if it gave one. Commands are given
    for a single accused machine only: what several machines share is not mended by draining
    them, and an undetermined verdict accuses nobody.
    """
    settings = settings or ActionSettings()
    verdict = alert.get("verdict")
    own = str(alert.get("recommended_action") or "")
    if verdict == "group":
        shared = str(alert.get("shared") or "what the machines share")
        return Proposal(own or f"Check {shared} first; do not drain the machines one by one.")
    machine = alert.get("machine")
    if verdict != "machine" or not machine:
        text = "No machine is to blame as far as can be told; look at the job's page."
        return Proposal(own or text)
    advice = _advice(alert)
    commands = [Command("on the machine, look first", _for_gpu(advice.look, alert))]
    text = own or advice.action
    if advice.drain:
        name = _node(str(machine), settings)
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


def recommended_action(alert: Mapping[str, Any]) -> str:
    """The proposal's text alone, to fill in what the detector left open."""
    return propose(alert, ActionSettings(schedulers=())).text


def _advice(alert: Mapping[str, Any]) -> _Advice:
    types = alert.get("fault_types") or []
    if types:
        best = max(types, key=lambda item: item["probability"])
        name = _ALIASES.get(best["type"], best["type"])
        if best["probability"] >= CERTAIN and name in _BY_FAULT:
            return _BY_FAULT[name]
    manifestation = str(alert.get("manifestation"))
    return _BY_MANIFESTATION.get(manifestation, _BY_MANIFESTATION["unknown"])


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
