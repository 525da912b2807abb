"""A physical simulator of synchronous training jobs, their healthy life and their faults."""

from ingest.simulate.draw import draw_spec
from ingest.simulate.incident import Incident, label_of, simulate
from ingest.simulate.live import LiveJob
from ingest.simulate.spec import (
    FAULT_MIX,
    FAULT_TYPES,
    TELEMETRY_FAULTS,
    BadSimulationError,
    FaultSpec,
    JobSpec,
    LifeSpec,
    StepSpec,
    UnknownFaultError,
)
from ingest.simulate.wishes import HARD_SETS, Wishes
from ingest.simulate.write import incident_spec, run_simulate, write_incident, write_incidents

__all__ = [
    "FAULT_MIX",
    "FAULT_TYPES",
    "HARD_SETS",
    "TELEMETRY_FAULTS",
    "BadSimulationError",
    "FaultSpec",
    "Incident",
    "JobSpec",
    "LifeSpec",
    "LiveJob",
    "StepSpec",
    "UnknownFaultError",
    "Wishes",
    "draw_spec",
    "incident_spec",
    "label_of",
    "run_simulate",
    "simulate",
    "write_incident",
    "write_incidents",
]
