"""The doors of a Prefect server of this project: what strangers try and owners do; real servers, real users."""

import os
import stat
import subprocess
from dataclasses import dataclass
from urllib.parse import unquote

import httpx
import orjson
import psutil
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from flows.server.access import Access, authorization
from flows.server.lasting_server import announced, opener
from support.browser import CHROMIUM, browsing
from support.following import WAIT_SECONDS, Patient, following
from support.workspaces import BIN, Workspace

EVIL = "https://evil.example"
NOBODY = 65534
STRANGER = httpx.Client(timeout=WAIT_SECONDS, trust_env=False, transport=Patient())
ASK = """
import sys, urllib.error, urllib.request
method, url, key_file = sys.argv[1:]
try:
    print(urllib.request.urlopen(urllib.request.Request(url, method=method)).status)
except urllib.error.HTTPError as error:
    print(error.code)
try:
    print(open(key_file).read())
except PermissionError:
    print("the key is not readable")
"""


class Keyless(Workspace):
    """A workspace whose servers make their keys themselves, as those of users do."""

    @property
    def environment(self):
        return {name: value for name, value in super().environment.items() if name != "PREFECT_SERVER_API_AUTH_STRING"}


@dataclass(frozen=True)
class Served:
    root: os.PathLike
    link: str
    access: Access

    def owner(self, method, place, **options):
        return STRANGER.request(method, f"{self.access.origin}{place}", headers=self.access.headers, **options)


@pytest.fixture(scope="module")
def served(template, tmp_path_factory):
    """`supmer ui` in a copy of the template, with a deployment and a report."""
    root = template.copied_to(tmp_path_factory.mktemp("doors") / "workspace").root
    (root / "report").mkdir()
    (root / "report/index.html").write_text("<!doctype html><h1>what this run found</h1>")
    with following(Keyless(root), "ui", "--port", "0", "--no-browser") as ui:
        link = ui.line_with("the runs of this workspace: ").split()[-3]
        yield Served(root, link, announced(root))


@pytest.fixture(scope="module")
def deployment(served):
    flow = served.owner("POST", "/api/flows/", json={"name": "supmer"}).json()
    made = served.owner("POST", "/api/deployments/", json={"name": "nightly", "flow_id": flow["id"]})
    assert made.status_code == 201, made.text
    return made.json()["id"]


def runs(served):
    return served.owner("POST", "/api/flow_runs/count", json={}).json()


def test_the_key_is_random_and_only_its_owner_can_read_it(served):
    assert len(served.access.key) > 40
    assert served.link == served.access.link()
    assert unquote(served.link).endswith(f"#{served.access.key}")
    files = [served.root / ".supmer/server", opener(served.root, served.access)]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600, 0o600]
    arguments = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]  # every user can read these
    assert served.access.key not in str(arguments)


def test_a_run_that_a_foreign_page_asks_for_is_not_made(served, deployment):
    before = runs(served)
    url = f"{served.access.api}/deployments/{deployment}/create_flow_run"
    asked = {"json": {"state": {"type": "SCHEDULED"}}}
    assert STRANGER.post(url, headers={"Origin": EVIL}, **asked).status_code == 403
    assert STRANGER.post(url, headers={"Origin": EVIL} | served.access.headers, **asked).status_code == 403
    assert STRANGER.post(url, headers={"Origin": "null"}, **asked).status_code == 403
    assert STRANGER.post(url, **asked).status_code == 401
    wrong = {"Authorization": authorization("supmer:guessed")}
    assert STRANGER.post(url, headers=wrong, **asked).status_code == 401
    assert runs(served) == before
    assert served.owner("POST", f"/api/deployments/{deployment}/create_flow_run", **asked).status_code == 201
    assert runs(served) == before + 1


def test_cross_origin_answers_are_for_nobody(served):
    preflight = {"Origin": EVIL, "Access-Control-Request-Method": "POST"}
    answer = STRANGER.options(f"{served.access.api}/flow_runs/count", headers=preflight)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    own = STRANGER.options(f"{served.access.api}/flow_runs/count", headers=preflight | {"Origin": served.access.origin})
    assert own.headers["access-control-allow-origin"] == served.access.origin


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "", "[", "localhost.evil"]
)
def test_a_foreign_host_is_refused_with_the_key_too(served, host):
    port = served.access.origin.rpartition(":")[2]
    headers = served.access.headers | {"Host": host.format(port=port)}
    for place in ("/api/health", "/api/flows/", "/", "/ui-settings", "/report/", "/open"):
        assert STRANGER.get(f"{served.access.origin}{place}", headers=headers).status_code == 403


def test_the_same_machine_may_be_called_by_its_other_names(served):
    port = served.access.origin.rpartition(":")[2]
    for host in (f"localhost:{port}", "127.0.0.1:8080", f"[::1]:{port}"):  # 8080: a tunnel's other end
        assert STRANGER.get(f"{served.access.api}/health", headers={"Host": host}).status_code == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_of_the_machine_deletes_nothing_and_reads_nothing(served, deployment):
    url = f"{served.access.api}/deployments/{deployment}"
    command = ["/usr/bin/env", "python3", "-c", ASK, "DELETE", url, str(served.root / ".supmer/server")]
    asked = subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True, check=True
    )
    assert asked.stdout.splitlines() == ["401", "the key is not readable"]
    assert served.owner("GET", f"/api/deployments/{deployment}").status_code == 200


def test_a_websocket_needs_the_right_origin_and_the_key(served):
    address = served.access.api.replace("http", "ws") + "/events/out"
    with pytest.raises(InvalidStatus) as refused:
        connect(address, origin=EVIL, subprotocols=["prefect"], proxy=None)
    assert refused.value.response.status_code == 403
    with connect(address, subprotocols=["prefect"], proxy=None) as socket:
        socket.send(orjson.dumps({"type": "auth", "token": served.access.key}).decode())
        assert orjson.loads(socket.recv(WAIT_SECONDS))["type"] == "auth_success"
    with connect(address, subprotocols=["prefect"], proxy=None) as socket:
        socket.send(orjson.dumps({"type": "auth", "token": "supmer:guessed"}).decode())
        with pytest.raises(ConnectionClosedError, match="Invalid token"):
            socket.recv(WAIT_SECONDS)


def test_the_report_needs_the_key_and_no_other_page_may_frame_it(served):
    asked = STRANGER.get(f"{served.access.origin}/report/")
    assert asked.status_code == 401
    assert asked.headers["www-authenticate"].startswith("Basic ")
    given = served.owner("GET", "/report/")
    assert "what this run found" in given.text
    assert given.headers["content-security-policy"] == "frame-ancestors 'self'"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_the_link_opens_interface_and_report_in_a_browser(served, deployment):
    with browsing() as page:
        page.visit(f"{served.access.origin}/open#wrong")
        page.wait_for("document.body?.innerText.includes('belongs to another or an earlier server')")
        page.visit(opener(served.root, served.access).as_uri())
        page.wait_for("document.body?.innerText.includes('Flow Runs')")
        assert served.access.key not in page.ask("location.href")
        page.visit(f"{served.access.origin}/deployments/deployment/{deployment}")
        page.wait_for("document.body?.innerText.includes('nightly')")
        assert page.ask("fetch('/api/flow_runs/count', {method: 'POST'}).then(answer => answer.status)") == 401
        page.visit(f"{served.access.origin}/report/")
        page.wait_for("document.querySelector('h1')?.innerText == 'what this run found'")
        page.visit(served.access.link("/report/"))
        page.wait_for("location.pathname == '/report/'")


def test_the_settings_for_prefects_own_commands_lead_to_the_server(served):
    printed = Keyless(served.root).run("ui", "--env")
    command = f"{printed}\nexec {BIN / 'prefect'} deployment ls"
    environment = Keyless(served.root).environment
    listed = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=True)
    assert "supmer/nightly" in listed.stdout


def readable_by_others(top):
    """The files that another user could open, each with all folders above it up to the workspace."""
    return [
        path
        for path in top.rglob("*")
        if path.is_file()
        and path.stat().st_mode & 0o044
        and all(folder.stat().st_mode & 0o011 for folder in path.parents if folder.is_relative_to(top.parent))
    ]


PRIVATE = (".supmer", ".prefect", "data", "lineage")


@pytest.mark.parametrize("umask", [None, "022"])
def test_what_a_run_writes_is_private_unless_the_setting_says_otherwise(template, prefect_home, tmp_path, umask):
    root = template.copied_to(tmp_path / "workspace").root
    for name in PRIVATE:
        subprocess.run(["rm", "-rf", root / name], check=True)
    subprocess.run(["cp", "-a", prefect_home, root / ".prefect"], check=True)
    (root / ".prefect").chmod(0o755)
    environment = Workspace(root).environment | ({"SUPMER_UMASK": umask} if umask else {})
    command = [BIN / "supmer", "run", "--force", "sample"]
    subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, umask=0o022)
    for name in PRIVATE:
        assert bool(readable_by_others(root / name)) == (umask is not None), name


def test_a_mask_that_is_none_is_one_line(workspace):
    for umask in ("private", "0999", "77777"):
        command = [BIN / "supmer", "status"]
        environment = workspace.environment | {"SUPMER_UMASK": umask}
        done = subprocess.run(command, cwd=workspace.root, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        advice = "write it in octal like 022, or leave it out"
        assert done.stderr == f"supmer: SUPMER_UMASK={umask}: not a mask of rights: {advice}\n"
