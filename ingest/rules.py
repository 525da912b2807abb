"""How telemetry is read: whose labels name what, what is left out, and how much is accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Mig = Literal["drop", "sum"]
TimeUnit = Literal["auto", "s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Which columns or labels say when, who and for whom; the first one with a value wins.

    Names that begin with ``series_`` are for the formats of single, labelled series; there
    ``job`` is the name of the scrape configuration. ``series_gpu`` comes after ``gpu``, and in
    series only: a column ``index`` of rows is hardly ever a GPU's. ``refused`` names no host at
    all; ``labels`` are texts and never metrics.
    """

    time: tuple[str, ...] = ("ts", "timestamp", "time", "@timestamp")
    machine: tuple[str, ...] = (
        "machine", "Hostname", "hostname", "host", "host.name", "host_name", "node",
        "nodename", "k8s.node.name", "instance",
    )  # fmt: skip
    row_job: tuple[str, ...] = ("job", "hpc_job", "slurm_job_id", "slurmjobid", "job_id")
    series_job: tuple[str, ...] = (
        "hpc_job", "slurm_job_id", "slurmjobid", "training_job", "job_id", "exported_job",
        "weaklink.job", "slurm.job.id", "k8s.job.name",
        "label_training_kubeflow_org_job_name", "training_kubeflow_org_job_name",
    )  # fmt: skip
    gpu: tuple[str, ...] = ("gpu", "gpu_id", "gpu_index")
    series_gpu: tuple[str, ...] = ("index", "minor_number", "hw.gpu.index")
    mig: tuple[str, ...] = ("GPU_I_ID", "gpu_i_id", "gpu_instance_id")
    labels: tuple[str, ...] = (
        "UUID", "uuid", "device", "modelName", "name", "pci_bus_id", "GPU_I_PROFILE", "cluster",
        "namespace", "pod", "container", "user", "account", "driver_version",
        "DCGM_FI_DRIVER_VERSION",
    )  # fmt: skip
    refused: frozenset[str] = frozenset(
        {"localhost", "localhost.localdomain", "127.0.0.1", "::1", "0.0.0.0"}
    )

    def key_names(self) -> frozenset[str]:
        """Every name that is part of a row's key and never a metric."""
        return frozenset((*self.time, *self.machine, *self.row_job, *self.gpu, *self.mig))


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything about reading telemetry that a configuration may change.

    Attributes
    ----------
    identity
        See `Identity`.
    mig
        Rows or series of one MIG instance (they carry an instance id): ``drop`` leaves them out
        and keeps what is measured for the whole GPU; ``sum`` folds the instances of a GPU into
        one value by each metric's own rule (`Metric.fold`: watts and bytes add up, ratios,
        clocks and temperatures do not).
    time_unit
        Unit of time stamps that arrive as bare numbers; ``auto`` takes the only one of the four
        that puts the number between the years 2000 and 2100.
    dcgm_ids
        Whether a column called ``155`` means DCGM field 155.
    max_message_bytes
        Longer messages are rejected unread.
    max_rows_per_message
        Messages that hold more rows are rejected.
    max_unknown_metrics
        How many names outside the catalogue one decoder accepts over its life; a hostile
        producer cannot make the schema explode. Values of further names are dropped, counted.
    max_series
        How many series (name and labels) one decoder of series formats remembers.
    max_name_length
        Longer metric names are dropped, counted.
    """

    identity: Identity = field(default_factory=Identity)
    mig: Mig = "drop"
    time_unit: TimeUnit = "auto"
    dcgm_ids: bool = False
    max_message_bytes: int = 16 * 1024 * 1024
    max_rows_per_message: int = 1_000_000
    max_unknown_metrics: int = 256
    max_series: int = 500_000
    max_name_length: int = 200


@dataclass(slots=True)
class NameBudget:
    """The unknown metric names accepted so far, at most ``limit``; lives as long as a decoder."""

    limit: int
    max_length: int = 200
    names: set[str] = field(default_factory=set)

    def admits(self, name: str) -> bool:
        """Whether an unknown name is, or still can be, accepted.

        A name is printable text of bounded length without quotes and backslashes.
        """
        if name not in self.names:
            odd = not name or not name.isprintable() or '"' in name or "\\" in name
            if odd or len(name) > self.max_length or len(self.names) >= self.limit:
                return False
            self.names.add(name)
        return True

    @classmethod
    def of(cls, rules: Rules) -> NameBudget:
        """A fresh budget with the rules' bounds."""
        return cls(rules.max_unknown_metrics, rules.max_name_length)
