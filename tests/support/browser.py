"""A real browser for tests: headless Chromium, controlled by its DevTools protocol."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-port=0",
)  # fmt: skip
SECONDS = 60
NAVIGATED = "Inspected target navigated or closed"  # the answer if another page is loaded meanwhile


class Page:
    """A page of the browser: load a file, evaluate JavaScript, press keys, and read requests and console messages."""

    def __init__(self, socket):
        self._socket = socket
        self._number = 0
        self.events = []
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        message = self._answer(method, params)
        assert "error" not in message, message
        return message["result"]

    def _answer(self, method, params):
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=SECONDS))
            if message.get("id") == self._number:
                return message
            self.events.append(message)

    def open(self, path, width=1280, height=900, scheme="light"):
        """Load a file in a window of the given size, with the given colour scheme."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.send("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + SECONDS
        while self.ask("document.readyState + location.href") != f"complete{path.as_uri()}":
            assert time.monotonic() < deadline, "the page does not load"
            time.sleep(0.05)

    def visit(self, address):
        """Go to an address, without waiting for the page."""
        self.events.clear()
        self.send("Page.navigate", url=address)

    def wait_for(self, expression):
        """Wait until a JavaScript expression is true, and return its value; the page may change meanwhile."""
        deadline = time.monotonic() + SECONDS
        while True:
            message = self._answer("Runtime.evaluate", {"expression": expression, "returnByValue": True})
            assert message.get("error", {}).get("message") in {None, NAVIGATED}, message
            if "result" in message and (value := message["result"]["result"].get("value")):
                return value
            assert time.monotonic() < deadline, (
                f"{expression} did not become true: {self.ask('document.body.innerText')}"
            )
            time.sleep(0.1)

    def ask(self, expression):
        """Return the value of a JavaScript expression; a promise is awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key):
        """Press and release a key; Enter and Space act on the element that has the focus."""
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "Escape": 27}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        down = {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **common, **down)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def fetched(self):
        """Return the addresses that the page requested, including its own."""
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self):
        """Return the errors and warnings of the console, including exceptions."""
        self.ask("1")  # earlier events arrive before the answer
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning"}:
                found.append(params["args"])
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
                found.append(params["entry"])
        return found

    def picture(self, path, top=0, height=None):
        """Save a screenshot of the page, from `top` downwards."""
        size = self.ask("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": top, "width": size[0], "height": height or size[1] - top, "scale": 1}
        shot = self.send("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browsing():
    """Start a browser, yield its page, and end the browser afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = _port(Path(profile, "DevToolsActivePort"), process)
            pages = httpx.get(f"http://127.0.0.1:{port}/json/list", timeout=SECONDS, trust_env=False).json()
            address = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
            with connect(address, max_size=None, proxy=None) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            process.wait(SECONDS)


def _port(path, process):
    deadline = time.monotonic() + SECONDS
    while not path.exists() or not path.read_text().strip():
        assert process.poll() is None, "Chromium ended at once"
        assert time.monotonic() < deadline, "Chromium does not start"
        time.sleep(0.05)
    return int(path.read_text().split()[0])
