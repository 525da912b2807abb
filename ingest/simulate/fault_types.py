"""How each type of fault shows itself; every instance draws its own signature."""

from __future__ import annotations

from collections.abc import Callable

from ingest.simulate.effects import Effect, Halt, Level, Observe, Stop
from ingest.simulate.faults import Scene, crash, fall_silent, hang, slow_compute, slow_down
from ingest.simulate.metrics import PROFILING
from ingest.simulate.phases import Group, Phase
from ingest.simulate.shapes import FOREVER, Envelope, pulse


def effects_of(scene: Scene) -> list[Effect]:
    """Everything that a fault does, its halt included."""
    out = _TYPES[scene.fault.type](scene)
    after = scene.fault.halt_after_s
    if after is not None:
        out.append(Halt(max(scene.onset_s, 0.0) + after, scene.u(0.5, 5.0)))
    return out


def _by_manifestation(
    scene: Scene, slow: Callable[[Scene, Envelope], list[Effect]]
) -> list[Effect]:
    """Crash, hang or silence at once; slow for the whole time; or slow, then a crash."""
    fault = scene.fault
    at = scene.onset_s + scene.u(0.0, 4.0)
    if fault.shows == "crash":
        return crash(scene, at)
    if fault.shows == "hang":
        return hang(scene, at)
    if fault.shows == "silent":
        return fall_silent(scene, at)
    out = slow(scene, scene.shape())
    if fault.shows == "slow_crash":
        out += crash(scene, max(scene.onset_s, 0.0) + scene.u(60.0, 360.0))
    return out


def _gpu_error(scene: Scene) -> list[Effect]:
    """ECC, CUDA and GPU execution errors: retries and remapped rows, or an abort."""

    def slow(scene: Scene, shape: Envelope) -> list[Effect]:
        out = slow_compute(scene, shape)
        if scene.maybe(0.4):
            out.append(scene.level("gpu_dram_active_ratio", shape, factor=scene.u(1.1, 1.8)))
        if scene.maybe(0.3):
            out.append(scene.level("cpu_usage_ratio", shape, factor=scene.u(1.1, 1.5)))
        return out

    return _by_manifestation(scene, slow)


def _paused(scene: Scene, shape: Envelope, low: float, high: float) -> Level:
    """The machine pauses its senders while there is traffic."""
    size = scene.log(low, high)
    return scene.level("pfc_tx_packets_per_second", shape, add=size, phase=Phase.COLLECTIVE)


def _pcie(scene: Scene) -> list[Effect]:
    """Fewer lanes or a lower generation: copies to the GPU take longer, the network card is
    not emptied in time and pauses its sender; every collective runs at its pace."""

    def slow(scene: Scene, shape: Envelope) -> list[Effect]:
        network = scene.u(0.3, 0.8)
        rest = 1.0 - network
        groups = {Group.COLLECTIVE: network}
        if scene.maybe(0.5):
            groups[Group.LOAD] = rest
        else:
            groups[Group.COMPUTE] = rest
        out: list[Effect] = [*slow_down(scene, groups, shape)]
        out.append(_paused(scene, shape, 200.0, 50_000.0))
        if scene.maybe(0.5):
            out.append(scene.level("pcie_rx_bytes_per_second", shape, factor=scene.u(0.6, 0.97)))
        if scene.maybe(0.4):
            out.append(scene.level("cpu_usage_ratio", shape, factor=scene.u(0.8, 1.3)))
        return out

    return _by_manifestation(scene, slow)


def _network(scene: Scene) -> list[Effect]:
    """A network card or an optical cable: a link lost or full of errors."""

    def slow(scene: Scene, shape: Envelope) -> list[Effect]:
        out: list[Effect] = [*slow_down(scene, {Group.COLLECTIVE: 1.0}, shape)]
        out.append(_paused(scene, shape, 100.0, 30_000.0))
        if scene.maybe(0.35):  # falls back to the slow network
            left = scene.u(0.05, 0.6)
            for way in ("tx", "rx"):
                out.append(scene.level(f"ib_{way}_bytes_per_second", shape, factor=left))
                out.append(
                    scene.level(
                        f"tcp_{way}_bytes_per_second",
                        shape,
                        add=scene.log(1e8, 3e9),
                        phase=Phase.COLLECTIVE,
                    )
                )
            out.append(scene.level("cpu_usage_ratio", shape, factor=scene.u(1.2, 2.5)))
        else:  # sends again what was lost
            again = scene.u(1.05, 1.4)
            out.append(scene.level("ib_tx_bytes_per_second", shape, factor=again))
            if scene.maybe(0.5):
                out.append(scene.level("ib_rx_bytes_per_second", shape, factor=scene.u(0.8, 0.97)))
        return out

    fault = scene.fault
    if fault.shows == "crash":
        # Traffic stops first; the process gives up some seconds later.
        at = scene.onset_s + scene.u(0.0, 2.0)
        gives_up = at + scene.log(1.0, 25.0)
        out: list[Effect] = [Stop(fault.machines, at, Phase.WAIT)]
        out.append(Level(fault.machines, "cpu_usage_ratio", pulse(at), factor=scene.u(1.05, 1.8)))
        if scene.maybe(0.5):
            stuck = pulse(at, gives_up - at + scene.u(0.0, 60.0))
            size = scene.log(100.0, 30_000.0)
            out.append(scene.level("pfc_tx_packets_per_second", stuck, add=size, phase=Phase.WAIT))
        return out + crash(scene, gives_up)
    return _by_manifestation(scene, slow)


def _hdfs(scene: Scene) -> list[Effect]:
    """The input of one machine fails or crawls."""

    def slow(scene: Scene, shape: Envelope) -> list[Effect]:
        out: list[Effect] = [*slow_down(scene, {Group.LOAD: 1.0}, shape)]
        # Where peers wait on the host, a wait for input differs from theirs by the host alone.
        if scene.maybe(0.6) or scene.spec.wait == "host":
            more = scene.u(1.2, 1.6) if scene.maybe(0.5) else scene.u(0.5, 0.8)
            out.append(scene.level("cpu_usage_ratio", shape, factor=more))
        return out

    if scene.fault.shows == "hang":
        at = scene.onset_s + scene.u(0.0, 4.0)
        # Reading stops, or the checkpoint's upload does.
        where = Phase.LOAD if scene.maybe(0.75) else Phase.CHECKPOINT
        out: list[Effect] = [Stop(scene.fault.machines, at, where)]
        out.append(scene.level("disk_write_bytes_per_second", pulse(at), factor=0.02))
        out.append(scene.level("cpu_usage_ratio", pulse(at), factor=scene.u(0.2, 1.6)))
        out.append(scene.level("tcp_rx_bytes_per_second", pulse(at), factor=scene.u(0.0, 0.2)))
        return out
    return _by_manifestation(scene, slow)


def _card_drop(scene: Scene) -> list[Effect]:
    """A GPU falls off the bus: its metrics vanish, and the machine's processes die."""
    fault = scene.fault
    at = scene.onset_s + scene.u(0.0, 4.0)
    out = crash(scene, at)
    if fault.gpu is not None and scene.spec.per_gpu:
        seen = at + scene.u(0.0, 5.0)
        out.append(Observe(fault.machines, "missing", seen, FOREVER, None, 0.0, fault.gpu))
    return out


def _nvlink(scene: Scene) -> list[Effect]:
    """Links inside the machine retrain or drop: its GPUs exchange data more slowly."""

    def slow(scene: Scene, shape: Envelope) -> list[Effect]:
        out = slow_compute(scene, shape)
        resent = scene.u(1.08, 1.6) if scene.maybe(0.4) else scene.u(0.4, 0.9)
        for way in ("tx", "rx"):
            out.append(scene.level(f"nvlink_{way}_bytes_per_second", shape, factor=resent))
        return out

    return _by_manifestation(scene, slow)


def _thermal(scene: Scene) -> list[Effect]:
    """Hot: the clock is lowered, compute takes longer."""
    shape = scene.shape()
    out = slow_compute(scene, shape, same_cycles=True)
    out.append(scene.level("gpu_temperature_celsius", shape, add=scene.u(5.0, 22.0)))
    return out


def _contention(scene: Scene) -> list[Effect]:
    """Somebody else's processes take the machine's cores."""
    shape = scene.shape()
    into_compute = scene.u(0.0, 0.7)
    groups = {Group.LOAD: 1.0 - into_compute, Group.COMPUTE: into_compute}
    out: list[Effect] = [*slow_down(scene, groups, shape)]
    out.append(scene.level("cpu_usage_ratio", shape, add=scene.u(0.15, 0.6)))
    if scene.maybe(0.4):
        out.append(scene.level("memory_usage_ratio", shape, add=scene.u(0.02, 0.2)))
    return out


def _disk(scene: Scene) -> list[Effect]:
    """One machine's disk answers slowly."""
    shape = scene.shape()
    out: list[Effect] = [*slow_down(scene, {Group.LOAD: 1.0}, shape)]
    # Waiting for the disk counts as busy on some systems.
    if scene.maybe(0.5) or scene.spec.wait == "host":
        out.append(scene.level("cpu_usage_ratio", shape, add=scene.u(0.01, 0.1)))
    out.append(scene.level("disk_write_bytes_per_second", shape, factor=scene.u(0.2, 0.8)))
    return out


def _switch(scene: Scene) -> list[Effect]:
    """Everything behind one leaf switch is cut off, or slow."""
    fault = scene.fault
    at = scene.onset_s + scene.u(0.0, 1.0)
    if fault.shows == "slow":
        shape = scene.shape()
        out: list[Effect] = [*slow_down(scene, {Group.COLLECTIVE: 1.0}, shape)]
        for machine in fault.machines:
            size = scene.log(500.0, 30_000.0)
            out.append(
                Level(
                    (machine,),
                    "pfc_tx_packets_per_second",
                    shape,
                    add=size,
                    phase=Phase.COLLECTIVE,
                )
            )
            resent = scene.u(1.05, 1.3)
            out.append(Level((machine,), "ib_tx_bytes_per_second", shape, factor=resent))
            if scene.maybe(0.7):
                more = scene.u(1.05, 1.4)
                out.append(Level((machine,), "cpu_usage_ratio", shape, factor=more))
        return out
    out = [Stop(fault.machines, at, Phase.WAIT)]
    silent = fault.shows == "silent"
    for machine in fault.machines:
        if silent:
            last = at + scene.u(0.0, 3.0)
            out.append(Observe((machine,), "missing", last, FOREVER))
        else:
            out.append(Stop((machine,), at + scene.u(0.5, 20.0), Phase.IDLE))
    return out


def _leak(scene: Scene) -> list[Effect]:
    """Memory fills, the machine begins to swap, the process is killed at last."""
    fill = max(scene.fault.ramp_s, 120.0)
    start = scene.onset_s
    full = start + fill
    end = full + scene.u(10.0, 90.0) if scene.maybe(0.6) else FOREVER
    grow = Envelope((start, full, end, end + 1.0), (0.0, 1.0, 1.0, 0.0))
    swap = Envelope((start + 0.7 * fill, full, end, end + 1.0), (0.0, 1.0, 1.0, 0.0))
    out: list[Effect] = [scene.level("memory_usage_ratio", grow, add=0.9)]
    groups = {Group.LOAD: 0.5, Group.COMPUTE: 0.5}
    out += slow_down(scene, groups, swap)
    out.append(scene.level("disk_write_bytes_per_second", swap, add=scene.log(1e7, 1e9)))
    out.append(scene.level("cpu_usage_ratio", swap, add=scene.u(0.02, 0.2)))
    return out if end == FOREVER else out + crash(scene, end)


def _exporter(scene: Scene) -> list[Effect]:
    """Only the measurement fails: frozen, gone, or its profiling fields zero."""
    fault = scene.fault
    until = scene.onset_s + scene.log(180.0, 1800.0)
    start = max(scene.onset_s, 0.0)
    if fault.type == "exporter_frozen":
        return [Observe(fault.machines, "frozen", start, until)]
    if fault.type == "exporter_missing":
        return [Observe(fault.machines, "missing", start, until)]
    if scene.maybe(0.6):
        return [Observe(fault.machines, "zero", start, until, PROFILING)]
    return [Observe(fault.machines, "missing", start, until, PROFILING)]


_TYPES: dict[str, Callable[[Scene], list[Effect]]] = {
    "ecc_error": _gpu_error,
    "cuda_execution_error": _gpu_error,
    "gpu_execution_error": _gpu_error,
    "pcie_downgrading": _pcie,
    "machine_unreachable": _gpu_error,
    "nic_dropout": _network,
    "aoc_error": _network,
    "hdfs_error": _hdfs,
    "gpu_card_drop": _card_drop,
    "nvlink_error": _nvlink,
    "thermal_throttling": _thermal,
    "cpu_contention": _contention,
    "disk_slow": _disk,
    "switch_failure": _switch,
    "memory_leak": _leak,
    "exporter_frozen": _exporter,
    "exporter_missing": _exporter,
    "profiling_zeroed": _exporter,
}
