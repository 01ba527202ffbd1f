"""The flow as Prefect's users know it: `prefect deploy`, a work pool, an ordinary worker, a real kill -9."""

import http.server
import shutil
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil
import pytest

from flows.server.lasting_server import announced
from support.following import WAIT_SECONDS, WEB, following
from support.workspaces import REPOSITORY, Workspace, write_corpus

PARAMETERS = {"stages", "from_stage", "until_stage", "force", "settings", "workers", "runner", "retries"}


@dataclass(frozen=True)
class Quick(Workspace):
    """A workspace whose workers ask for runs every second."""

    @property
    def environment(self):
        return super().environment | {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_WORKER_PREFETCH_SECONDS": "1"}


@pytest.fixture(scope="module")
def pool(template, tmp_path_factory):
    """A workspace with a server, a work pool and the deployments of prefect.yaml, whose stages are fresh."""
    workspace = template.copied_to(tmp_path_factory.mktemp("pool") / "workspace")
    shutil.copyfile(REPOSITORY / "prefect.yaml", workspace.root / "prefect.yaml")
    with following(workspace, "ui", "--port", "0", "--no-browser") as ui:
        ui.line_with("the runs of this workspace: ")
        served = Quick(workspace.root, announced(workspace.root).api)
        served.run("work-pool", "create", "supmer", "--type", "process", program="prefect")
        served.run("--no-prompt", "deploy", "--all", program="prefect")
        yield served


def deployment(pool, name):
    return WEB.get(f"{pool.api}/deployments/name/supmer/{name}").raise_for_status().json()


def ask(pool, name, **parameters):
    """Start a run as the interface's Custom run does, and return its id."""
    place = f"{pool.api}/deployments/{deployment(pool, name)['id']}/create_flow_run"
    return WEB.post(place, json={"parameters": parameters}).raise_for_status().json()["id"]


def wait_for(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)
    return result


def flow_run(pool, run):
    return WEB.get(f"{pool.api}/flow_runs/{run}").raise_for_status().json()


def end_of(pool, run):
    """The flow run once it has ended."""
    ended = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
    return wait_for(lambda: (now := flow_run(pool, run))["state_type"] in ended and now)


@contextmanager
def worker(pool):
    process = pool.start("worker", "start", "--pool", "supmer", "--type", "process", program="prefect")
    reader = threading.Thread(target=process.stdout.read, daemon=True)
    reader.start()
    try:
        yield psutil.Process(process.pid)
    finally:
        with suppress(psutil.Error):
            for one in (*psutil.Process(process.pid).children(recursive=True), process):
                one.kill()
        process.wait()
        reader.join(5)
        process.stdout.close()


def test_a_scheduled_run_is_killed_with_its_worker_and_the_next_one_goes_on(pool):
    nightly = deployment(pool, "nightly")
    assert list(nightly["pull_steps"][0].values()) == [{"directory": str(pool.root)}]
    assert set(nightly["parameter_openapi_schema"]["properties"]) > PARAMETERS
    assert all(about["description"] for about in nightly["parameter_openapi_schema"]["properties"].values())
    write_corpus(pool.root / "texts" / "nightly.jsonl", 9, 150)
    before = set(pool.finished_shards("index"))
    every = {"schedule": {"interval": 20}, "active": True, "parameters": {"stages": ["sample"], "workers": 1}}
    place = f"{pool.api}/deployments/{nightly['id']}/schedules"
    [schedule] = WEB.post(place, json=[every]).raise_for_status().json()
    with worker(pool) as first:
        wait_for(lambda: set(pool.finished_shards("index")) - before)
        for process in (first, *first.children(recursive=True)):
            process.kill()
    made = {path: path.stat().st_mtime_ns for path in pool.finished_shards("index")}
    with worker(pool):
        asked = {"flow_runs": {"state": {"type": {"any_": ["COMPLETED"]}}, "deployment_id": {"any_": [nightly["id"]]}}}
        completed = wait_for(lambda: WEB.post(f"{pool.api}/flow_runs/filter", json=asked).json())
        assert WEB.delete(f"{place}/{schedule['id']}").status_code == 204
        assert completed[-1]["name"].endswith("(after a crash)")
    again = {path: path.stat().st_mtime_ns for path in pool.finished_shards("index")}
    assert made.items() <= again.items(), "shards of the killed run were made again"
    states = {run["state_type"] for run in WEB.post(f"{pool.api}/flow_runs/filter", json={}).json()}
    assert "CRASHED" in states
    assert pool.status()["sample"]["action"] == "fresh"


def test_a_custom_run_passes_its_parameters_cancel_cancels_and_people_are_told_of_a_failure(pool):
    write_corpus(pool.root / "texts" / "on-demand.jsonl", 10, 150)
    with worker(pool), webhook(pool) as told:
        run = ask(pool, "on-demand", stages=["sample"], force=["sample"], workers=1)
        before = len(pool.finished_shards("index"))
        wait_for(lambda: len(pool.finished_shards("index")) != before or flow_run(pool, run)["state_type"] == "RUNNING")
        WEB.post(f"{pool.api}/flow_runs/{run}/set_state", json={"state": {"type": "CANCELLING"}}).raise_for_status()
        assert end_of(pool, run)["state_type"] == "CANCELLED"

        assert end_of(pool, ask(pool, "on-demand", stages=["sample"], workers=1))["state_type"] == "COMPLETED"
        asked = ask(pool, "on-demand", stages=["sample"], settings={"sample.min_words": 52}, workers=1)
        ended = end_of(pool, asked)
        assert ended["state_type"] == "COMPLETED", ended["state"]
        assert "sample.min_words changed: 50 → 52" in ended["name"]
        assert "min_words: 52" in (pool.root / "params.yaml").read_text()

        wrong = end_of(pool, ask(pool, "on-demand", stages=["smaple"]))
        assert wrong["state_type"] == "FAILED"
        assert wrong["state"]["message"] == "no stage smaple in dvc.yaml: did you mean sample?"
        assert "did you mean sample?" in wait_for(lambda: told and told[0])


@contextmanager
def webhook(pool):
    """A notification block of Prefect, and the messages that arrive at its address."""
    told = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        program = (
            "from prefect.blocks.notifications import CustomWebhookNotificationBlock as Webhook\n"
            f"Webhook(name='supmer', url='http://127.0.0.1:{server.server_port}/',"
            " json_data={'text': '{{subject}} {{body}}'}).save('supmer')"
        )
        pool.run("-c", program, program="python")
        yield told
        server.shutdown()
