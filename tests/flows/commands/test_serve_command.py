"""The pipeline on a schedule: a real server, real processes."""

import pytest

from flows.lock import schedule_lock
from storage.errors import InputError
from support.following import WEB, following

STOP_SECONDS = 20  # well beyond the five that are promised: other tests run beside this one


def runs(api, name):
    """The task runs of a stage, by the names of their flow runs."""
    tasks = WEB.post(f"{api}/task_runs/filter", json={"task_runs": {"name": {"any_": [name]}}}).json()
    flows = {run["id"]: run["name"] for run in WEB.post(f"{api}/flow_runs/filter", json={}).json()}
    return {flows[run["flow_run_id"]]: run for run in tasks if run["flow_run_id"] in flows}


def test_a_scheduled_run_fires_and_a_failed_stage_is_retried_and_resumed(workspace):
    """One test, for the server's start is most of it."""
    store = workspace.root / ".supmer/shards/sample"
    (store / "write").rename(store / "elsewhere")
    (store / "write").touch()  # no shard of this step can be written
    schedule = ("--every", "4s", "--port", "0", "--retries", "30", "--retry-delay", "1", "--workers", "1")
    with following(workspace, "serve", "sample", *schedule, "-S", "sample.min_words=51") as serve:
        api = serve.line_with("scheduled: ").split()[1].partition("/deployments")[0] + "/api"
        name = serve.line_with(": started").split()[1].rstrip(":")
        serve.line_with("sample failed: ")
        index = {path: path.stat().st_mtime_ns for path in workspace.finished_shards("index")}
        assert index
        assert f"the run {name} is still going" in serve.line_with("skipped, ")

        run = next(one for one in serve.family() if "run" in one.cmdline())
        assert run.environ()["SUPMER_REPORT_URL"] == "/report/"
        run.kill()
        assert "killed by signal 9 (try 2 of 31 in 1 s)" in serve.line_with(f"{name}: ")
        serve.line_with("died: marked crashed in Prefect")
        serve.line_with("sample failed: ")
        (store / "write").unlink()  # the trouble passes
        assert "  ran  " in serve.line_with("sample   ran")
        serve.line_with(f"{name} again: done")
        after = {path: path.stat().st_mtime_ns for path in workspace.finished_shards("index")}
        assert after
        assert after.items() <= index.items(), "shards of the first try were made again"

        sample = runs(api, "sample")
        assert sample[name]["state"]["type"] == "CRASHED"
        assert sample[f"{name} again"]["state"]["name"] == "Ran"
        assert sample[f"{name} again"]["run_count"] > 1
        artifacts = WEB.post(f"{api}/artifacts/filter", json={}).json()
        pages = [one["data"] for one in artifacts if one["key"] == "sample"]
        assert any("parameter sample.min_words changed: 50 → 51" in page for page in pages)
        assert any(one["key"] == "sample-table" and one["type"] == "table" for one in artifacts)

        serve.line_with("sample   cached")  # the next one finds everything fresh
        serve.line_with(": done")

        code, seconds, left = serve.end()
    assert code == 0
    assert seconds < STOP_SECONDS
    assert not left
    assert workspace.status()["sample"]["action"] == "fresh"


def test_a_schedule_that_others_pause_or_delete_says_so(workspace):
    with following(workspace, "serve", "sample", "--every", "1d", "--port", "0") as serve:
        address, _, deployment = serve.line_with("scheduled: ").split()[1].partition("/deployments/deployment/")
        place = f"{address}/api/deployments/{deployment}"
        serve.line_with("next run: ")
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
