"""The pipeline on a schedule: a real server, Prefect's own runner, real processes."""

import os
import signal
import sqlite3

import pytest

from flows.lock import schedule_lock
from storage.errors import InputError
from support.following import WEB, following

STOP_SECONDS = 20  # well beyond the five that are promised: other tests run beside this one
SCHEDULE = ("--every", "5s", "--port", "0", "--retries", "30", "--retry-delay", "1", "--workers", "1")


def runs(api, name):
    """The task runs of a stage, each with the name of its flow run, the latest first."""
    asked = {"task_runs": {"name": {"any_": [name]}}, "sort": "EXPECTED_START_TIME_DESC"}
    tasks = WEB.post(f"{api}/task_runs/filter", json=asked).json()
    flows = {run["id"]: run for run in WEB.post(f"{api}/flow_runs/filter", json={}).json()}
    return [(task, flows[task["flow_run_id"]]) for task in tasks if task["flow_run_id"] in flows]


def api_of(serve):
    return serve.line_with("scheduled: ").split()[1].partition("/deployments")[0] + "/api"


def run_of(serve):
    """The process of the current run."""
    return next(process for process in serve.family() if "prefect.engine" in process.cmdline())


def made(workspace):
    return {path: path.stat().st_mtime_ns for path in workspace.finished_shards("index")}


def test_a_scheduled_run_that_is_killed_also_with_its_runner_is_gone_on_with(workspace):
    """One test, for the server's start is most of it."""
    blocked(workspace)
    store = workspace.root / ".supmer/shards/sample"
    arguments = ("serve", "sample", *SCHEDULE, "-S", "sample.min_words=51")
    with following(workspace, *arguments) as serve:
        serve.line_with("a run has started")
        assert "try 2 of 31 in 1 s" in serve.line_with("sample failed: ")
        index = made(workspace)
        assert index
        assert "sample: parameter sample.min_words changed: 50 → 51 is still going" in serve.line_with("is skipped: ")
        assert run_of(serve).environ()["SUPMER_REPORT_URL"] == "/report/"

        run_of(serve).kill()
        assert "crashed, the next run goes on where it was" in serve.line_with("50 → 51: ")
        serve.line_with("died: continuing")
        serve.line_with("sample failed: ")
        killed = [*serve.family()]
        for process in (serve.process, run_of(serve)):
            process.kill()
    assert len(killed) > 2

    with following(workspace, *arguments) as serve:
        api = api_of(serve)
        serve.line_with("died: continuing")
        (store / "write").unlink()  # the trouble passes
        assert "  ran  " in serve.line_with("sample   ran")
        assert serve.line_with(": done").endswith(
            "sample: parameter sample.min_words changed: 50 → 51 (after a crash): done"
        )
        assert made(workspace).items() <= index.items(), "shards of the first run were made again"
        (task, flow), *earlier = runs(api, "sample")
        assert task["state"]["name"] == "Ran"
        assert [one["state"]["type"] for one, _ in earlier[:2]] == ["CRASHED", "CRASHED"]
        assert flow["parameters"]["settings"] == {"sample.min_words": 51}
        artifacts = WEB.post(f"{api}/artifacts/filter", json={}).json()
        pages = [one["data"] for one in artifacts if one["key"] == "sample"]
        assert any("parameter sample.min_words changed: 50 → 51" in page for page in pages)
        assert any(one["key"] == "sample-table" and one["type"] == "table" for one in artifacts)

        serve.line_with("sample   cached")  # the next one finds everything fresh
        serve.line_with("nothing to do: all stages are fresh: done")

        code, seconds, left = serve.end()
    assert code == 0
    assert seconds < STOP_SECONDS
    assert not left
    assert workspace.status()["sample"]["action"] == "fresh"


def blocked(workspace):
    """Let no shard of sample's second step be written: a run fails and tries again, until it is ended."""
    store = workspace.root / ".supmer/shards/sample"
    (store / "write").rename(store / "elsewhere")
    (store / "write").touch()


def test_ctrl_c_cancels_the_run_and_pauses_the_schedule_and_so_does_supmer_ui_after_a_kill(workspace):
    blocked(workspace)
    arguments = ("serve", "sample", *SCHEDULE, "-S", "sample.min_words=51")
    with following(workspace, *arguments, start_new_session=True) as serve:
        serve.line_with("sample failed: ")
        os.killpg(serve.process.pid, signal.SIGINT)  # as a terminal does
        serve.line_with("stopped: nothing runs until")
        assert serve.process.wait(STOP_SECONDS) == 0
    assert "Traceback" not in "\n".join(serve.lines)
    assert recorded(workspace, STATES) == {"CANCELLED"}
    assert recorded(workspace, PAUSED) == {1}

    with following(workspace, *arguments) as serve:
        api = api_of(serve)
        serve.line_with("a run has started")
        assert recorded(workspace, PAUSED) == {0}
        [run] = WEB.post(f"{api}/flow_runs/filter", json=GOING).json()
        WEB.post(f"{api}/flow_runs/{run['id']}/set_state", json={"state": {"type": "CANCELLING"}}).raise_for_status()
        serve.line_with(": cancelled")  # by its name in Prefect's interface
        for process in serve.family():
            process.kill()
    with following(workspace, "ui", "--port", "0", "--no-browser") as ui:
        ui.line_with("the schedule of a `supmer serve` that was killed is paused")
        assert recorded(workspace, PAUSED) == {1}


GOING = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}, "flows": {"name": {"any_": ["supmer"]}}}
STATES = "SELECT state_type FROM flow_run WHERE deployment_id IS NOT NULL"
PAUSED = "SELECT paused FROM deployment"


def recorded(workspace, query):
    """The values that Prefect's database gives for a query."""
    with sqlite3.connect(workspace.root / ".prefect/prefect.db") as database:
        return {row[0] for row in database.execute(query)}


def test_a_schedule_that_others_pause_or_delete_says_so(workspace):
    with following(workspace, "serve", "sample", "--every", "1d", "--port", "0") as serve:
        address, _, deployment = serve.line_with("scheduled: ").split()[1].partition("/deployments/deployment/")
        place = f"{address}/api/deployments/{deployment}"
        serve.line_with("next run: ")
        served = WEB.get(place).json()
        assert served["global_concurrency_limit"]["limit"] == 1
        assert served["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
        assert WEB.post(f"{place}/pause_deployment").status_code == 200
        assert "nothing runs until it is resumed there" in serve.line_with("paused in Prefect")
        assert WEB.post(f"{place}/resume_deployment").status_code == 200
        serve.line_with("resumed in Prefect")
        serve.line_with("next run: ")
        assert WEB.delete(place).status_code == 204
        assert serve.line_with("deleted") == (
            "supmer: the schedule was deleted in Prefect: `supmer serve` makes it again"
        )
        assert serve.process.wait(STOP_SECONDS) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--every", "soon"], "supmer: --every soon: not an interval: write it like 30m, 1h30m or 1d\n"),
        (["smaple", "--every", "1h"], "supmer: no stage smaple in dvc.yaml: did you mean sample?\n"),
    ],
)
def test_what_cannot_be_scheduled_is_one_line_and_exit_code_2(workspace, arguments, said):
    assert workspace.run("serve", *arguments, expect=2) == said


def test_one_schedule_a_workspace(tmp_path):
    with (
        schedule_lock(tmp_path, "supmer serve --every 1h"),
        pytest.raises(InputError, match=r"`supmer serve --every 1h`, since .* schedules this workspace already"),
        schedule_lock(tmp_path, "supmer serve --every 2h"),
    ):
        pass
