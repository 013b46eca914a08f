"""Chromium without a window, spoken to with the DevTools protocol over a pipe: no port, no driver, no download."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"),
)
_PATIENCE_S = 120


class Browser:
    """A running Chromium; `with` ends it and removes its profile."""

    def __enter__(self) -> Browser:
        assert CHROMIUM is not None
        self._profile = tempfile.mkdtemp(prefix="acceptance-chromium-")
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # Chromium reads commands from its descriptor 3 and writes to 4; only bash moves descriptors of two digits.
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        argv = ["bash", "-c", shell, "chromium", CHROMIUM, *_OPTIONS, f"--user-data-dir={self._profile}"]
        self._log = tempfile.TemporaryFile()
        env = {**os.environ, "HOME": self._profile}
        self._process = subprocess.Popen(
            argv, pass_fds=(to_read, to_write), stdout=self._log, stderr=self._log, env=env, start_new_session=True
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self.events = b"", 0, []  # type: ignore[var-annotated]
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to)  # Chromium ends when its pipe does
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait(10)
        os.close(self._from)
        self._log.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._to, json.dumps({**message, **({"sessionId": session} if session else {})}).encode() + b"\0")
        until = time.monotonic() + _PATIENCE_S
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method: str) -> None:
        """Wait until an event of this name has come."""
        until = time.monotonic() + _PATIENCE_S
        while all(event.get("method") != method for event in self.events):
            self.events.append(self._next(until))

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._from, 1 << 16) if ready else b""
            if not data:
                self._log.seek(0)
                raise AssertionError(f"Chromium gave no answer: {self._log.read()[-2000:]!r}")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


class Page:
    """A page that was opened at a width: its console, its requests, and what a script finds in it."""

    def __init__(self, browser: Browser, url: str, width: int, height: int = 900, scripts: bool = True) -> None:
        self._browser = browser
        browser.events.clear()
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self._call("Page.navigate", url=url)
        browser.wait_for("Page.loadEventFired")
        # Two frames later everything that the page's scripts asked for is drawn.
        if scripts:
            self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        given = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in given, given["exceptionDetails"]
        return given["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Write the whole page as PNG."""
        import base64

        data = self._call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    @property
    def complaints(self) -> list[str]:
        """What the console and the browser complained about."""
        said = []
        for event in self._browser.events:
            if event.get("method") == "Runtime.exceptionThrown":
                said.append(event["params"]["exceptionDetails"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"):
                said.append(str(event["params"]["args"]))
            elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                said.append(event["params"]["entry"]["text"])
        return said

    @property
    def requests(self) -> list[str]:
        """The addresses that were asked for, but for the page's own and data: addresses."""
        asked = [
            e["params"]["request"]["url"]
            for e in self._browser.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in asked[1:] if not url.startswith(("data:", "blob:"))]
