"""Addresses of the page and the API, for messages and API answers."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from serve.config import Config
from serve.picture.signature import PictureSigner


@dataclass(frozen=True, slots=True)
class Links:
    """Builds addresses under ``base_url`` (no slash at its end).

    ``signer`` is set where pictures can be fetched from outside.
    """

    base_url: str
    signer: PictureSigner | None = None

    def alert(self, alert_id: str, job: str, at_ns: int | None = None) -> dict[str, str]:
        """``page`` (the alert's story), ``job`` (its heat map) and ``api`` of an alert.

        With a ``signer`` and the time ``at_ns`` from which the link counts, also ``picture``.
        """
        links = {
            "page": f"{self.base_url}/alerts/{quote(alert_id, safe='')}",
            "job": f"{self.base_url}/jobs/{quote(job, safe='')}",
            "api": f"{self.base_url}/api/v1/alerts/{quote(alert_id, safe='')}",
        }
        if self.signer is not None and at_ns is not None:
            query = self.signer.query(alert_id, at_ns)
            links["picture"] = f"{links['api']}/picture.png?{query}"
        return links

    def job(self, job: str) -> dict[str, str]:
        """``page`` and ``api`` of a job."""
        return {
            "page": f"{self.base_url}/jobs/{quote(job, safe='')}",
            "api": f"{self.base_url}/api/v1/jobs/{quote(job, safe='')}",
        }


def build_links(config: Config) -> Links:
    """Links of a service; pictures need a public URL and a key."""
    key, signer = config.http.picture_key, None
    if key is not None and config.http.public_url:
        valid_ns = round(config.http.picture_days * 86_400e9)
        signer = PictureSigner(key.get_secret_value().encode(), valid_ns)
    return Links(config.public_url, signer)
