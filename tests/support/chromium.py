"""A headless Chromium for pages of ours; what needs one is skipped, with the reason, where there is none."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.clock import wait_until

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"
)  # fmt: skip
#: Whether every figure is drawn.
DRAWN = "return [...document.querySelectorAll('.plot')].every((plot) => plot.dataset.drawn === 'yes')"

BINARY, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    BINARY is None or DRIVER is None or importlib.util.find_spec("selenium") is None,
    reason="needs Debian's packages chromium and chromium-driver, and selenium",
)


class Browser:
    """A browser with a profile of its own.

    Args:
        profile: An empty folder.
    """

    def __init__(self, profile: Path) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service

        options = Options()
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.binary_location = str(BINARY)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))

    def open(self, page: Path) -> None:
        """Open a page, and forget what was logged before."""
        self.look()
        self.console()
        self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        self.driver.get(page.as_uri())

    def look(self, *, width: int = 1200, theme: Literal["light", "dark"] = "light") -> None:
        """Look at the page in a window of that width, as a reader who prefers that theme."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        scheme = {"name": "prefers-color-scheme", "value": theme}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def draw_all(self) -> int:
        """Open all that is closed, draw every figure as before printing, and wait; how many there are."""
        self.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        self.run("window.dispatchEvent(new Event('beforeprint'))")
        self.wait(DRAWN)
        return int(self.run("return document.querySelectorAll('.plot:has(.main-svg)').length"))

    def wait(self, script: str) -> None:
        """Wait until a script returns what is true."""
        wait_until(lambda: self.run(script), f"what {script} asks for")

    def console(self) -> list[str]:
        """What the console said since it was asked last."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def requests(self) -> set[str]:
        """Schemes of what was loaded since the page was opened."""
        told = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]  # type: ignore[no-untyped-call]
        urls = [one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"]
        return {url.partition(":")[0] for url in urls if not url.startswith("chrome")}

    def close(self) -> None:
        """End the browser."""
        self.driver.quit()
