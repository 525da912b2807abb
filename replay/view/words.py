"""Alerts in words: what a tired engineer reads first, on the page and in reports.

Everything here works on an alert's public JSON form (`detect.alert.Alert.to_json`), returns
plain text and escapes nothing: the templates escape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_TITLES = {
    "gpu_power_watts": "GPU power",
    "gpu_utilization_ratio": "GPU utilisation",
    "gpu_graphics_engine_active_ratio": "graphics-engine activity",
    "gpu_sm_active_ratio": "SM activity",
    "gpu_tensor_active_ratio": "tensor activity",
    "gpu_dram_active_ratio": "GPU memory activity",
    "gpu_sm_clock_hertz": "SM clock",
    "gpu_temperature_celsius": "GPU temperature",
    "gpu_memory_used_bytes": "GPU memory used",
    "pcie_tx_bytes_per_second": "PCIe sent",
    "pcie_rx_bytes_per_second": "PCIe received",
    "nvlink_tx_bytes_per_second": "NVLink sent",
    "nvlink_rx_bytes_per_second": "NVLink received",
    "ib_tx_bytes_per_second": "InfiniBand sent",
    "ib_rx_bytes_per_second": "InfiniBand received",
    "pfc_tx_packets_per_second": "PFC pauses sent",
    "pfc_rx_packets_per_second": "PFC pauses received",
    "cpu_usage_ratio": "CPU usage",
    "memory_usage_ratio": "memory usage",
    "step_time_seconds": "step time",
}

_UNIT_SUFFIXES = ("_ratio", "_bytes_per_second", "_per_second", "_watts", "_hertz", "_celsius")

_HEADLINES = {
    "fail_stop": "{name} stopped working",
    "fail_slow": "{name} is slow",
    "fail_hang": "{name} hangs",
    "silent": "{name} fell silent",
    "unknown": "{name} behaves unlike its peers",
}

_GROUP_HEADLINES = {
    "fail_stop": "{name} stopped working",
    "fail_slow": "{name} are slow",
    "fail_hang": "{name} hang",
    "silent": "{name} fell silent",
    "unknown": "{name} behave unlike their peers",
}

_MANIFESTATIONS = {
    "fail_stop": "stopped",
    "fail_slow": "slow",
    "fail_hang": "hanging",
    "silent": "silent",
    "unknown": "unlike its peers",
}

_FAULTS = {
    "ecc_error": "ECC error",
    "cuda_execution_error": "CUDA execution error",
    "gpu_execution_error": "GPU execution error",
    "pcie_downgrading": "PCIe downgrading",
    "nic_dropout": "NIC dropout",
    "hdfs_error": "HDFS error",
    "gpu_card_drop": "GPU card drop",
    "nvlink_error": "NVLink error",
    "aoc_error": "optical cable error",
    "cpu_contention": "CPU contention",
    "disk_slow": "slow disk",
}
_ENOUGH, _NOTABLE = 0.6, 0.15
"""So much probability together, and only a type as probable as that is named beside."""
_MOST_TYPES = 3

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_PREFIXES_OF = {
    "s": ((1.0, ""), (1e-3, "m"), (1e-6, "µ")),
    **dict.fromkeys(("°C", "1/s", "packets/s"), ((1.0, ""),)),
}
"""Of units that do not take all of them: nobody counts in kiloseconds."""


def metric_title(metric: str) -> str:
    """The metric's name for people: ``gpu_tensor_active_ratio`` is ``tensor activity``."""
    if metric in _TITLES:
        return _TITLES[metric]
    short = metric
    for suffix in _UNIT_SUFFIXES:
        short = short.removesuffix(suffix)
    return short.replace("_", " ").strip() or metric


def format_value(value: float | None, unit: str = "") -> str:
    """Three significant digits with an SI prefix and the unit; ``missing`` for None.

    Ratios (unit ``ratio``, ``1`` or empty) show no unit and from 0.01 to 10 two decimals.
    """
    if value is None or not math.isfinite(value):
        return "missing"
    # What is shown decides, not what is rounded: 999.9 W is 1 kW, and 9.999 is 10.
    size = abs(float(f"{value:.3g}"))
    if unit in ("", "1", "ratio"):
        return f"{value:.2f}" if 0.01 <= size < 10 or not size else _three_digits(value)
    prefixes = _PREFIXES_OF.get(unit, _PREFIXES)
    fitting = (p for p in prefixes if size >= p[0])
    factor, prefix = next(fitting, prefixes[-1]) if size else (1.0, "")
    return f"{_three_digits(value / factor)} {prefix}{unit}"


def _three_digits(value: float) -> str:
    exponent = int(f"{value:.2e}".partition("e")[2])
    if exponent >= 2 or not value:
        return f"{value:,.0f}"
    if exponent < -6:
        return f"{value:.3g}".replace("e-0", "e-")
    return f"{value:.{2 - exponent}f}".rstrip("0").rstrip(".")


def clock_time(stamp: str) -> str:
    """``12:03:41`` of an RFC 3339 time (the page states once that times are UTC)."""
    return stamp[11:19] if len(stamp) >= 19 and stamp[10] in "Tt " else stamp


def evidence_sentence(item: Mapping[str, Any]) -> str:
    """``tensor activity 0.02, peers 0.55 since 12:03:41``."""
    unit = str(item.get("unit") or "")
    subject = metric_title(str(item["metric"]))
    if item.get("gpu") is not None:
        subject = f"GPU {item['gpu']} {subject}"
    value = "missing" if item.get("direction") == "missing" else format_value(item["value"], unit)
    peers = item.get("peer_median")
    against = f", peers {format_value(peers, unit)}" if peers is not None else ""
    return f"{subject} {value}{against} since {clock_time(str(item['since']))}"


def alert_headline(alert: Mapping[str, Any]) -> str:
    """One line that says what is wrong with what."""
    verdict = alert["verdict"]
    kind = str(alert.get("manifestation") or "unknown")
    machines = list(alert.get("machines") or [])
    if verdict == "machine":
        name = str(alert.get("machine") or (machines[0] if machines else "a machine"))
        if alert.get("gpu") is not None:
            name = f"{name} GPU {alert['gpu']}"
        return _HEADLINES.get(kind, _HEADLINES["unknown"]).format(name=name)
    if verdict == "group":
        name = f"{len(machines)} machines"
        if alert.get("shared"):
            name += f" that share {alert['shared']}"
        return _GROUP_HEADLINES.get(kind, _GROUP_HEADLINES["unknown"]).format(name=name)
    if verdict == "job":
        return "The whole job changed; no machine is to blame"
    return "Something is wrong, but no single machine stands out"


def manifestation_word(alert: Mapping[str, Any]) -> str:
    """The way it fails, as an adjective: ``slow``, ``stopped``, ``hanging``, ``silent``."""
    return _MANIFESTATIONS.get(str(alert.get("manifestation")), _MANIFESTATIONS["unknown"])


def rate_sentence(rate: float | None) -> str:
    """How rare the score is in a healthy job, in words."""
    if rate is None:
        return ""
    if rate >= 1.5:
        return f"a healthy job would show this about {_three_digits(rate)} times a week"
    if rate <= 1e-6:
        return "a healthy job would show this less than once in a million weeks"
    weeks = 1 / rate
    if weeks < 1.5:
        return "a healthy job would show this about once a week"
    if weeks < 104:
        return f"a healthy job would show this about once in {weeks:.0f} weeks"
    return f"a healthy job would show this about once in {weeks / 52:,.0f} years"


def fault_title(kind: str) -> str:
    """A type of fault for people: ``pcie_downgrading`` is ``PCIe downgrading``."""
    return _FAULTS.get(kind) or plain_words(kind)


def fault_sentence(alert: Mapping[str, Any]) -> str:
    """``probably ECC error or CUDA execution error (41 %, 33 %)``; empty where nothing is known."""
    given = sorted(alert.get("fault_types") or [], key=lambda t: -(t["probability"] or 0.0))
    names, chances, total = [], [], 0.0
    for item in given[:_MOST_TYPES]:
        chance = float(item["probability"] or 0.0)
        if total >= _ENOUGH and chance < _NOTABLE:
            break
        names.append(fault_title(str(item["type"])))
        chances.append(f"{chance * 100:.0f} %")
        total += chance
    if not names:
        return ""
    listed = " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
    return f"probably {listed} ({', '.join(chances)})"


def plain_words(identifier: str) -> str:
    """``pcie_downgrading`` as ``pcie downgrading``."""
    return identifier.replace("_", " ")


FILTERS = {
    "metric_title": metric_title,
    "evidence_sentence": evidence_sentence,
    "alert_headline": alert_headline,
    "manifestation_word": manifestation_word,
    "rate_sentence": rate_sentence,
    "clock_time": clock_time,
    "fault_title": fault_title,
    "fault_sentence": fault_sentence,
    "plain_words": plain_words,
    "format_value": format_value,
}
"""Jinja filters of both template sets."""
