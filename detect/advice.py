"""What to do about an alert, in words: the one source for detection, messages and the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from detect.alert import Alert

CERTAIN = 0.5
"""From this probability on, a fault type decides; below, only how the machine fails does."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The proposal in words, and which commands go with it for a single accused machine."""

    action: str
    look: str = ""
    """A command to look at the machine first; ``{gpu}`` becomes ``-i N`` where known."""
    drain: bool = True
    reset: bool = False


_BY_FAULT: dict[str, Advice] = {
    "ecc_error": Advice(
        "Drain the machine and reset the GPU; replace the GPU if row remapping has failed.",
        "nvidia-smi {gpu} -q -d ECC,ROW_REMAPPER",
        reset=True,
    ),
    "cuda_execution_error": Advice(
        "Drain the machine, look for the XID in its kernel log, reset the GPU and run diagnostics.",
        "dmesg -T | grep -i xid | tail",
        reset=True,
    ),
    "gpu_execution_error": Advice(
        "Drain the machine, look for the XID in its kernel log, reset the GPU and run diagnostics.",
        "dmesg -T | grep -i xid | tail",
        reset=True,
    ),
    "pcie_downgrading": Advice(
        "Drain the machine and compare its PCIe link width and speed with its peers';"
        " reseat the card or riser.",
        "nvidia-smi {gpu} --query-gpu=index,pcie.link.gen.current,pcie.link.width.current"
        " --format=csv",
    ),
    "machine_unreachable": Advice(
        "Look at the machine's console over its BMC; power-cycle it if it does not answer,"
        " and keep it drained.",
    ),
    "nic_dropout": Advice(
        "Drain the machine and check the NIC's link, its driver's log and the switch port.",
        "ibstat; ip -s link",
    ),
    "hdfs_error": Advice(
        "Check the storage client and its servers before the machine; do not replace hardware yet.",
        "df -h; mount | grep -E 'nfs|lustre|fuse'",
        drain=False,
    ),
    "gpu_card_drop": Advice(
        "Drain the machine and power-cycle it; reseat or replace the GPU if it stays away.",
        "lspci | grep -i nvidia; nvidia-smi -L",
    ),
    "nvlink_error": Advice(
        "Drain the machine and reset its GPUs; check NVLink and the fabric manager.",
        "nvidia-smi nvlink --status {gpu}",
        reset=True,
    ),
    "aoc_error": Advice(
        "Drain the machine, clean or reseat the optical cable and compare its receive power;"
        " replace it if low.",
        "mlxlink -d mlx5_0 -m",
    ),
    "thermal_throttling": Advice(
        "Check fans, airflow and inlet temperature; drain the machine if it stays hot.",
        "nvidia-smi {gpu} -q -d TEMPERATURE,PERFORMANCE",
    ),
    "cpu_contention": Advice(
        "Find the foreign process on the machine and stop it; nothing has to be replaced.",
        "top -b -n 1 | head -20",
        drain=False,
    ),
    "disk_slow": Advice(
        "Check the disk's SMART data and its I/O errors; drain the machine before replacing it.",
        "iostat -x 1 3; smartctl --scan",
    ),
    "switch_failure": Advice(
        "Check the switch that the machines share; do not drain the machines one by one.",
        drain=False,
    ),
    "memory_leak": Advice(
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

_BY_ERROR = {
    "gpu_ecc_correctable_errors": "ecc_error",
    "gpu_ecc_correctable_errors_ever": "ecc_error",
    "gpu_ecc_uncorrectable_errors": "ecc_error",
    "gpu_ecc_uncorrectable_errors_ever": "ecc_error",
    "gpu_rows_remapped_correctable": "ecc_error",
    "gpu_rows_remapped_uncorrectable": "ecc_error",
    "nvlink_crc_data_errors": "nvlink_error",
    "nvlink_crc_flit_errors": "nvlink_error",
    "nvlink_recovery_errors": "nvlink_error",
    "nvlink_replay_errors": "nvlink_error",
    "pcie_replays": "pcie_downgrading",
    "ib_symbol_errors": "aoc_error",
    "ib_link_downed": "nic_dropout",
}
"""What to look at where a machine's own count of errors is the strongest evidence."""

_BY_MANIFESTATION: dict[str, Advice] = {
    "fail_stop": Advice(
        "Drain the machine and restart the job without it; check its kernel log for Xid.",
        "dmesg -T | tail -50",
    ),
    "fail_slow": Advice(
        "Drain the machine at the next checkpoint; check clocks, heat, PCIe, links.",
        "nvidia-smi {gpu} -q -d CLOCK,PERFORMANCE,TEMPERATURE",
    ),
    "fail_hang": Advice(
        "Drain the machine and restart the job without it; collect stacks there first.",
        "dmesg -T | tail -50",
    ),
    "silent": Advice(
        "Check that the machine answers; drain it and restart the job without it.",
    ),
    "unknown": Advice("Compare the machine with its peers before you take it out.", drain=False),
}

_LOST_GPU = Advice(
    "Check that the GPU answers (Xid 79); drain the machine and restart the job without it.",
    "nvidia-smi -L; dmesg -T | grep -i xid | tail",
)
_WHOLE_JOB = Advice(
    "No machine is to blame: check what the whole job shares (storage, network, its own code).",
    drain=False,
)
_NOBODY = Advice(
    "No single machine stands out: look at the job's machines before you take one out.",
    drain=False,
)


def advise(
    verdict: str,
    manifestation: str,
    fault_types: Iterable[tuple[str, float]],
    *,
    gpu: int | None = None,
    shared: str | None = None,
    strongest: str = "",
) -> Advice:
    """Advice by verdict first, then by the likely fault or by the errors that the ``strongest``
    evidence counts, then by how the machine fails.
    """
    if verdict == "group":
        what = shared or "what the machines share"
        return Advice(f"Check {what} first; do not drain the machines one by one.", drain=False)
    if verdict != "machine":
        return _WHOLE_JOB if verdict == "job" else _NOBODY
    name, probability = max(fault_types, key=lambda item: item[1], default=("", 0.0))
    name = _ALIASES.get(name, name)
    if probability >= CERTAIN and name in _BY_FAULT:
        return _BY_FAULT[name]
    if strongest in _BY_ERROR:
        return _BY_FAULT[_BY_ERROR[strongest]]
    if manifestation == "silent" and gpu is not None:
        return _LOST_GPU
    return _BY_MANIFESTATION.get(manifestation, _BY_MANIFESTATION["unknown"])


def advised(alert: Alert) -> Alert:
    """The alert with the words that its verdict and evidence call for."""
    advice = advise(
        alert.verdict,
        alert.manifestation,
        alert.fault_types,
        gpu=alert.gpu,
        shared=alert.shared,
        strongest=alert.evidence[0].metric if alert.evidence else "",
    )
    return replace(alert, recommended_action=advice.action)
