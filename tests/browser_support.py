"""Debian's chromium, driven by selenium; nothing is downloaded and nothing leaves the machine."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

CHROMIUM = Path("/usr/bin/chromium")
CHROMEDRIVER = Path("/usr/bin/chromedriver")


def require_browser() -> None:
    """Skip where Debian's chromium is absent; in CI that is a failure."""
    missing = [str(path) for path in (CHROMIUM, CHROMEDRIVER) if not path.exists()]
    if not missing:
        return
    words = f"{' and '.join(missing)} missing: apt-get install chromium chromium-driver"
    if os.environ.get("CI") == "true":
        pytest.fail(words)
    pytest.skip(words)


@contextlib.contextmanager
def browser(profile: Path, width: int = 1360, height: int = 900) -> Iterator[webdriver.Chrome]:
    """A headless browser with an empty profile, logging console and network."""
    options = Options()
    options.binary_location = str(CHROMIUM)
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(CHROMEDRIVER)))
    try:
        driver.set_script_timeout(30)
        yield driver
    finally:
        driver.quit()


def console_errors(driver: webdriver.Chrome) -> list[str]:
    """Messages of level SEVERE or WARNING since the last call (policy breaches are among them)."""
    logs: list[dict[str, Any]] = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in logs if entry["level"] in ("SEVERE", "WARNING")]


def requested_hosts(driver: webdriver.Chrome) -> set[str]:
    """Hosts of every request that the page has sent since the last call, by the network log."""
    hosts = set()
    logs: list[dict[str, Any]] = driver.get_log("performance")  # type: ignore[no-untyped-call]
    for entry in logs:
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = urlsplit(message["params"]["request"]["url"])
            if url.scheme not in ("data", "blob", "chrome", "about"):
                hosts.add(url.hostname or url.scheme)
    return hosts


def emulate(driver: webdriver.Chrome, *, dark: bool = False, phone: bool = False) -> None:
    """The system's colour scheme, and a phone's screen."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    if phone:
        screen = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
