"""The sections ``[telemetry]`` and ``[align]``: how samples are read and put on ticks."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal

from pydantic import Field

from ingest.align_settings import AlignSettings
from ingest.rules import Identity, Rules
from serve.section import Section

_IDENTITY = Identity()
_RULES = Rules()
_ALIGN = AlignSettings()

Names = tuple[str, ...]


class TelemetrySettings(Section):
    """Which columns and labels name what; bounds. See `ingest.rules`."""

    time_names: Names = _IDENTITY.time
    machine_names: Names = _IDENTITY.machine
    row_job_names: Names = _IDENTITY.row_job
    series_job_names: Names = _IDENTITY.series_job
    gpu_names: Names = _IDENTITY.gpu
    mig_names: Names = _IDENTITY.mig
    label_names: Names = _IDENTITY.labels
    refused_machines: Names = tuple(sorted(_IDENTITY.refused))
    job_of_machine: dict[str, str] = Field(default_factory=dict)
    """Machine pattern (``*``, ``?``) = job, where the samples do not say."""
    mig: Literal["drop", "sum"] = _RULES.mig
    time_unit: Literal["auto", "s", "ms", "us", "ns"] = _RULES.time_unit
    dcgm_ids: bool = _RULES.dcgm_ids
    message_bytes: int = Field(default=_RULES.max_message_bytes, ge=1024)
    message_rows: int = Field(default=_RULES.max_rows_per_message, ge=1)
    unknown_metrics: int = Field(default=_RULES.max_unknown_metrics, ge=0)
    remembered_series: int = Field(default=_RULES.max_series, ge=1)
    name_characters: int = Field(default=_RULES.max_name_length, ge=1)

    def rules(self) -> Rules:
        """As `ingest` takes them."""
        return Rules(
            identity=Identity(
                time=self.time_names,
                machine=self.machine_names,
                row_job=self.row_job_names,
                series_job=self.series_job_names,
                gpu=self.gpu_names,
                mig=self.mig_names,
                labels=self.label_names,
                refused=frozenset(self.refused_machines),
            ),
            mig=self.mig,
            time_unit=self.time_unit,
            dcgm_ids=self.dcgm_ids,
            max_message_bytes=self.message_bytes,
            max_rows_per_message=self.message_rows,
            max_unknown_metrics=self.unknown_metrics,
            max_series=self.remembered_series,
            max_name_length=self.name_characters,
        )


class AlignmentSettings(Section):
    """Ticks, lateness, gaps, silence. See `ingest.align_settings`."""

    tick_seconds: float | None = Field(default=None, ge=1, le=3600)
    lateness_seconds: float | None = Field(default=None, ge=0, le=3600)
    max_lateness_seconds: float = Field(default=_ALIGN.max_lateness_seconds, ge=0, le=3600)
    future_bound_seconds: float = Field(default=_ALIGN.future_bound_seconds, gt=0)
    leave_after_seconds: float = Field(default=_ALIGN.leave_after_seconds, gt=0)
    silence_seconds: float = Field(default=_ALIGN.silence_seconds, gt=0)
    hold_periods: float = Field(default=_ALIGN.hold_periods, gt=0)
    hold_seconds: float = Field(default=_ALIGN.hold_seconds, gt=0)
    idle_seconds: float = Field(default=_ALIGN.idle_seconds, gt=0)
    max_machines: int = Field(default=_ALIGN.max_machines, ge=1)
    max_gpus: int = Field(default=_ALIGN.max_gpus, ge=1)
    max_metrics: int = Field(default=_ALIGN.max_metrics, ge=1)
    max_open_rows: int = Field(default=_ALIGN.max_open_rows, ge=1)

    def settings(self) -> AlignSettings:
        """As `ingest` takes them."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(AlignSettings)}
        return AlignSettings(**values)
