"""The metrics a simulated agent reports: resolution, limits and noise of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal["gpu", "machine"]


@dataclass(frozen=True, slots=True)
class Metric:
    """How one metric is measured.

    ``noise`` is relative white noise, ``floor`` absolute white noise (canonical unit),
    ``wander`` the relative size of slow fluctuation (minutes); ``quantum`` is the resolution
    in the canonical unit. Reported values stay within ``low`` and ``high``.
    """

    name: str
    scope: Scope
    quantum: float
    low: float
    high: float
    noise: float
    floor: float = 0.0
    wander: float = 0.0


METRICS: tuple[Metric, ...] = (
    Metric("gpu_power_watts", "gpu", 0.01, 0.0, 1500.0, 0.010, 1.0, 0.004),
    Metric("gpu_utilization_ratio", "gpu", 0.01, 0.0, 1.0, 0.004, 0.002),
    Metric("gpu_graphics_engine_active_ratio", "gpu", 1e-4, 0.0, 1.0, 0.004, 0.001),
    Metric("gpu_sm_active_ratio", "gpu", 1e-4, 0.0, 1.0, 0.006, 0.001),
    Metric("gpu_tensor_active_ratio", "gpu", 1e-4, 0.0, 1.0, 0.010, 0.0003),
    Metric("gpu_dram_active_ratio", "gpu", 1e-4, 0.0, 1.0, 0.010, 0.0005),
    Metric("gpu_sm_clock_hertz", "gpu", 15e6, 0.0, 3e9, 0.002, 2e6),
    Metric("gpu_temperature_celsius", "gpu", 1.0, 0.0, 110.0, 0.0, 0.2),
    Metric("gpu_memory_used_bytes", "gpu", 2.0**20, 0.0, 2.0**38, 0.0, 0.0),
    Metric("pcie_tx_bytes_per_second", "gpu", 1e4, 0.0, 2e11, 0.03, 1e5),
    Metric("pcie_rx_bytes_per_second", "gpu", 1e4, 0.0, 2e11, 0.03, 1e5),
    Metric("nvlink_tx_bytes_per_second", "gpu", 1e5, 0.0, 2e12, 0.01, 1e5),
    Metric("nvlink_rx_bytes_per_second", "gpu", 1e5, 0.0, 2e12, 0.01, 1e5),
    Metric("ib_tx_bytes_per_second", "machine", 1e4, 0.0, 1e12, 0.01, 2e4),
    Metric("ib_rx_bytes_per_second", "machine", 1e4, 0.0, 1e12, 0.01, 2e4),
    Metric("pfc_tx_packets_per_second", "machine", 1.0, 0.0, 1e8, 0.3, 0.0, 0.2),
    Metric("cpu_usage_ratio", "machine", 1e-4, 0.0, 1.0, 0.04, 0.002, 0.02),
    Metric("memory_usage_ratio", "machine", 1e-4, 0.0, 1.0, 0.0, 0.0003, 0.003),
    Metric("disk_read_bytes_per_second", "machine", 512.0, 0.0, 1e11, 0.15, 2e4, 0.05),
    Metric("disk_write_bytes_per_second", "machine", 512.0, 0.0, 1e11, 0.2, 5e4, 0.05),
    Metric("tcp_tx_bytes_per_second", "machine", 10.0, 0.0, 1e11, 0.15, 2e3, 0.05),
    Metric("tcp_rx_bytes_per_second", "machine", 10.0, 0.0, 1e11, 0.15, 2e3, 0.05),
)
"""Every metric the simulator knows, canonical names and units."""

NAMES: tuple[str, ...] = tuple(m.name for m in METRICS)
INDEX: dict[str, int] = {name: i for i, name in enumerate(NAMES)}

PROFILING: tuple[str, ...] = (
    "gpu_graphics_engine_active_ratio",
    "gpu_sm_active_ratio",
    "gpu_tensor_active_ratio",
    "gpu_dram_active_ratio",
    "pcie_tx_bytes_per_second",
    "pcie_rx_bytes_per_second",
    "nvlink_tx_bytes_per_second",
    "nvlink_rx_bytes_per_second",
)
"""The profiling fields: they go blank or zero together when another profiler attaches."""

SIXTEEN: tuple[str, ...] = (
    "gpu_power_watts",
    "gpu_utilization_ratio",
    "gpu_graphics_engine_active_ratio",
    "gpu_sm_active_ratio",
    "gpu_tensor_active_ratio",
    "gpu_dram_active_ratio",
    "gpu_sm_clock_hertz",
    "gpu_temperature_celsius",
    "pcie_rx_bytes_per_second",
    "nvlink_tx_bytes_per_second",
    "ib_tx_bytes_per_second",
    "ib_rx_bytes_per_second",
    "pfc_tx_packets_per_second",
    "cpu_usage_ratio",
    "memory_usage_ratio",
    "disk_read_bytes_per_second",
)

SEVEN: tuple[str, ...] = (
    "pfc_tx_packets_per_second",
    "cpu_usage_ratio",
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "gpu_graphics_engine_active_ratio",
    "gpu_tensor_active_ratio",
    "nvlink_tx_bytes_per_second",
)
"""The seven metrics that Minder (arXiv 2411.01791) ended up using."""

FOURS: tuple[tuple[str, ...], ...] = (
    (
        "gpu_utilization_ratio",
        "gpu_power_watts",
        "gpu_temperature_celsius",
        "cpu_usage_ratio",
    ),
    (
        "gpu_sm_active_ratio",
        "gpu_tensor_active_ratio",
        "ib_tx_bytes_per_second",
        "cpu_usage_ratio",
    ),
    (
        "gpu_power_watts",
        "gpu_tensor_active_ratio",
        "nvlink_tx_bytes_per_second",
        "pfc_tx_packets_per_second",
    ),
    (
        "gpu_power_watts",
        "gpu_sm_clock_hertz",
        "gpu_sm_active_ratio",
        "pfc_tx_packets_per_second",
    ),
)
"""What poorly instrumented clusters have."""
