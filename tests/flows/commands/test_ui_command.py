"""Prefect's interface to the runs of a workspace: a real server, real processes."""

import shutil
import signal
import socket

from flows.server.access import Access
from flows.server.lasting_server import announced
from support.following import WEB, following
from support.workspaces import KEY

STOP_SECONDS = 20  # well beyond the five that are promised: other tests run beside this one


def wait_for_its_end(workspace, process):
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


def test_runs_report_to_the_server_that_shows_them(workspace):
    (workspace.root / "texts/third.jsonl").write_bytes((workspace.root / "texts/first.jsonl").read_bytes())
    with following(workspace, "ui", "--port", "0", "--no-browser") as ui:
        address = ui.line_with("the runs of this workspace: ").split()[-3].partition("/open")[0]
        assert "<title>" in WEB.get(address, headers={"Accept": "text/html"}, follow_redirects=True).text
        assert WEB.get(f"{address}/ui-settings").json()["api_url"] == "/api"
        assert announced(workspace.root) == Access(f"{address}/api", KEY)
        assert "already at" in workspace.run("ui", "--no-browser")
        (workspace.root / "report").mkdir()
        (workspace.root / "report/index.html").write_text("what this run found")
        assert WEB.get(f"{address}/report/").text == "what this run found"

        before = WEB.post(f"{address}/api/flow_runs/count", json={}).json()
        with workspace.start("run", "--force", "sample") as run:
            while WEB.post(f"{address}/api/flow_runs/count", json={}).json() == before:
                assert run.poll() is None, "it ended without a word to the server"
            run.send_signal(signal.SIGSTOP)  # in the middle, for as long as it takes
            code, seconds, left = ui.end()
            run.send_signal(signal.SIGCONT)
            assert code == 0
            assert [one for one in left if "flows.server.lasting_server" in one.cmdline()], (
                "the run still needs the server"
            )
            assert announced(workspace.root) is None
            assert "sample   ran" in wait_for_its_end(workspace, run)
        for one in left:
            one.wait(STOP_SECONDS)
    assert seconds < STOP_SECONDS


def test_a_first_look_says_that_there_are_no_runs_and_ends_at_once(workspace, prefect_home):
    (workspace.root / ".prefect").rename(workspace.root / "elsewhere")
    shutil.copytree(prefect_home, workspace.root / ".prefect")
    with following(workspace, "ui", "--port", "0", "--no-browser") as ui:
        ui.line_with("no run has been made here yet: `supmer run` makes one")
        code, seconds, left = ui.end()
    assert code == 0
    assert seconds < STOP_SECONDS
    assert not left
    assert announced(workspace.root) is None


def test_a_port_that_is_taken_is_one_line(workspace):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = workspace.run("ui", "--port", str(port), expect=2)
    assert said == f"supmer: port {port} of 127.0.0.1: Address already in use: name another with --port\n"


def test_a_server_elsewhere_is_named(served):
    assert served.run("ui") == f"the runs of this workspace are already at {served.api.removesuffix('/api')}\n"
