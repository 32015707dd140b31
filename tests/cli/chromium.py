"""A real Chromium without a screen, driven by its own protocol over two pipes: no package, and no port."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PATH = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-dev-shm-usage", "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe"]  # fmt: skip
# Without a sanitizer that may be preloaded into the tests: under it Chromium never begins.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
PATIENCE = 30  # seconds until something that is waited for is an error


def _pipe() -> tuple[int, int]:
    """Two ends, neither of them at 3 or 4."""
    found = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in found]
    for end in found:
        os.close(end)
    return ends[0], ends[1]


class Chromium:
    """One browser with one page.

    Attributes:
        complaints: what the page said on its console, and errors in it.
        requested: addresses that were asked for.
    """

    def __init__(self, profile: Path) -> None:
        assert PATH is not None
        self.complaints: list[str] = []
        self.requested: list[str] = []
        its_in, self._out = _pipe()
        self._in, its_out = _pipe()
        # A shell puts the pipes at 3 and 4, where Chromium looks for them.
        script = f'exec "$@" 3<&{its_in} 4>&{its_out} {its_in}<&- {its_out}>&-'
        command = ["bash", "-c", script, "bash", PATH, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(
            command, pass_fds=(its_in, its_out), start_new_session=True, env=ENVIRONMENT, **silent
        )
        os.close(its_in)
        os.close(its_out)
        self._buffer, self._number, self._session = b"", 0, None
        target = next(each for each in self.send("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """Ask for something, and wait for the answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            told = self._receive()
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]

    def _receive(self) -> Any:
        while b"\0" not in self._buffer:
            assert select.select([self._in], [], [], PATIENCE)[0], "Chromium does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "Chromium ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        told = json.loads(message)
        self._note(told.get("method"), told.get("params", {}))
        return told

    def _note(self, method: str | None, told: Any) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"].get("exception", told).get("description", told)))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(" ".join(str(each.get("value")) for each in told["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requested.append(told["request"]["url"])

    def size(self, width: int, height: int, scale: float = 1) -> None:
        """Of the window, in pixels of CSS."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def colours(self, scheme: str) -> None:
        """What the system is set to: "light" or "dark"."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def go(self, url: str) -> None:
        """Open a page, without waiting for it."""
        assert "errorText" not in self.send("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript."""
        told = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait for an expression to be true; its value."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            value = self.run(f"document.readyState === 'complete' && ({script})")
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(f"never true: {script}; {self.complaints}; {self.run('document.body.innerText')[:500]}")

    def key(self, key: str) -> None:
        """Press and release one."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, selector: str, text: str) -> None:
        """Write into a field, and press Enter."""
        self.run(f"document.querySelector({selector!r}).select()")
        self.send("Input.insertText", text=text)
        self.key("Enter")

    def wheel(self, x: int, y: int, down: int) -> None:
        """Turn the wheel of the mouse."""
        self.send("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=down)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        script = (
            f"(() => {{ const box = document.querySelector({selector!r}).getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        x, y = self.run(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path) -> None:
        """Save what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End it."""
        with suppress(Exception):
            self._session = None
            self.send("Browser.close")
        os.close(self._out)
        os.close(self._in)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
