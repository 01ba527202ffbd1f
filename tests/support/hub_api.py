"""A local imitation of the part of the Hugging Face hub's API by which a folder is uploaded."""

import base64
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "hf_tests"  # noqa: S105 - of the imitation


@dataclass
class Hub:
    """The repositories of the imitation: whether each is private, and its files by name."""

    address: str = ""
    private: dict[str, bool] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of the hub's client; `hub` is set by `running_hub`."""

    hub: Hub

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, {"error": "Unauthorized"})
        elif self.path == "/api/repos/create":
            self.answer(200, self.created(json.loads(body)))
        elif self.path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            listed = json.loads(body)["files"]
            files = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in listed]
            self.answer(200, {"files": files})
        else:
            self.answer(200, self.committed([json.loads(line) for line in body.splitlines()]))

    def created(self, wanted):
        name = "/".join(filter(None, (wanted.get("organization"), wanted["name"])))
        self.hub.private[name] = wanted.get("visibility") == "private" or bool(wanted.get("private"))
        self.hub.files[name] = {}
        return {"url": f"{self.hub.address}/{name}"}

    def committed(self, entries):
        name = self.path.removeprefix("/api/models/").partition("/commit/")[0]
        for entry in entries:
            if entry["key"] == "file":
                self.hub.files[name][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        url = f"{self.hub.address}/{name}/commit/{'c' * 40}"
        return {"success": True, "commitOid": "c" * 40, "commitUrl": url, "hookOutput": ""}

    def do_GET(self):
        self.answer(200, {"sha": "c" * 40, "id": "x", "siblings": []})

    def answer(self, status, value):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Print nothing."""


@contextmanager
def running_hub():
    """Serve the imitation on a free port of this machine."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
