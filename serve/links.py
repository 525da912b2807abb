"""Addresses of the page and the API, for messages and API answers."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Links:
    """Builds addresses under ``base_url`` (no slash at its end)."""

    base_url: str

    def alert(self, alert_id: str, job: str) -> dict[str, str]:
        """``page`` (the alert's story), ``job`` (its heat map) and ``api`` of an alert."""
        return {
            "page": f"{self.base_url}/alerts/{quote(alert_id, safe='')}",
            "job": f"{self.base_url}/jobs/{quote(job, safe='')}",
            "api": f"{self.base_url}/api/v1/alerts/{quote(alert_id, safe='')}",
        }

    def job(self, job: str) -> dict[str, str]:
        """``page`` and ``api`` of a job."""
        return {
            "page": f"{self.base_url}/jobs/{quote(job, safe='')}",
            "api": f"{self.base_url}/api/v1/jobs/{quote(job, safe='')}",
        }
