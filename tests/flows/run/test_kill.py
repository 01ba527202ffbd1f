"""Killed at exact moments, then run to the end: nothing lost, nothing half written, nothing redone."""

from collections import defaultdict
from dataclasses import dataclass, replace

import pytest

from storage.lineage.events import read_events, run_that_made
from storage.lockfile import read_pipeline
from support.dying import digests, flow_states, kill_at, outputs, partials, wait_until_gone
from support.killed import Moment
from support.workspaces import write_corpus
from tasks.stage.contract import MARKER

# DVC links an output's files to its cache one by one, each deleted first: for that instant one may be missing.
LINKING = Moment("dvc_data.hashfile.checkout:_remove", "after", "data/corpus/sentences")

# Each case is killed at its moments one after the other, in the order in which a run comes to them: every run but the
# first goes on from what the one before it left.
MOMENTS = {
    "while shards are made": (
        Moment("json:dump", "after", "data/sources"),  # DVC's list of claims, cut short
        Moment("tasks.acquire.stage:fetch", "before", "'corpus'"),
        Moment("prefect.filesystems:open", "after", "storage"),  # Prefect's own record of a shard, cut short
        Moment("tasks.sample.sentence_writer:write", "after", nth=2),
    ),
    "while outputs are put in place and DVC takes them in": (
        Moment("pathlib:Path.rename", "after", r"data/sources/corpus'\),"),  # the old one gone, the new one not there
        Moment("storage.atomic:publish", "after", "data/corpus/", nth=2),
        LINKING,
        Moment("dvc.dvcfile:Lockfile.dump_stages", "before", "sample"),
        Moment("dvc.utils.serialize._yaml:_dump", "before", "dvc.lock"),  # dvc.lock, cut short
    ),
    "while the shard store settles": (
        Moment("dvc.dvcfile:Lockfile.dump_stages", "after", "acquire"),
        Moment("pathlib:Path.replace", "before", "shards/sample/write/[0-9a-f]{32}/"),
    ),
    "before lineage is told": (
        Moment("flows.run.lineage_events:announce", "before", "'acquire'.*'COMPLETE'"),
        Moment("flows.run.lineage_events:announce", "before", "'sample'.*'COMPLETE'"),
    ),
}
OWN_SERVER = "while the shard store settles"  # the other cases share one: starting it takes most of a short run's time


def grown(template, root):
    """A copy of the template whose corpus has grown by a file."""
    workspace = template.copied_to(root)
    write_corpus(root / "texts" / "third.jsonl", 3, 40)
    return workspace


@dataclass(frozen=True)
class Versions:
    """What the outputs hold before and after an undisturbed run, by path and as a whole."""

    before: dict[str, dict[str, str]]
    after: dict[str, dict[str, str]]
    files: dict[str, str]
    lock: str


@pytest.fixture(scope="module")
def undisturbed(template, prefect_api, tmp_path_factory):
    workspace = replace(grown(template, tmp_path_factory.mktemp("undisturbed") / "workspace"), api=prefect_api)
    before = outputs(workspace.root)
    workspace.run("run")
    return Versions(
        before, outputs(workspace.root), digests(workspace.root / "data"), (workspace.root / "dvc.lock").read_text()
    )


def finished(root):
    """Every finished shard, with what would change if it were made again."""
    markers = (root / ".supmer/shards").glob(f"*/*/*/{MARKER}")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in markers if ".partial-" not in str(path)}


def assert_whole(root, undisturbed, moment):
    """Every output is the old one, the new one, or absent; nothing in between is to be seen under its name."""
    for path, files in outputs(root).items():
        before, after = undisturbed.before[path], undisturbed.after[path]
        assert files in (before, after) or (moment is LINKING and files.items() <= after.items()), path


def assert_recorded(root):
    """The lineage log knows which run made every output."""
    events = read_events(root)
    for stage in read_pipeline(root).current():
        assert run_that_made(events, stage.name, {output.path: output.md5 for output in stage.outputs}), stage.name


def assert_ended(root):
    """Every run of a stage that started has an end in the log, and those that were killed an ABORT."""
    states = defaultdict(list)
    for event in read_events(root):
        states[event["run"]["runId"]].append(event["eventType"])
    assert {run[-1] for run in states.values()} <= {"COMPLETE", "FAIL", "ABORT"}
    assert ["START", "ABORT"] in states.values()


@pytest.mark.parametrize("case", MOMENTS)
def test_killed_at_any_moment_the_next_run_goes_on_and_comes_to_the_same_bytes(
    template, undisturbed, prefect_api, tmp_path, case
):
    workspace = replace(grown(template, tmp_path / "workspace"), api=None if case == OWN_SERVER else prefect_api)
    root = workspace.root
    made_before, done = finished(root), {}
    for moment in MOMENTS[case]:
        said = kill_at(moment, workspace)
        assert ("died: marked crashed in Prefect, continuing" in said) == (moment != MOMENTS[case][0])
        wait_until_gone(root)
        assert_whole(root, undisturbed, moment)
        now = finished(root)
        assert done.items() <= now.items()
        done = {path: made for path, made in now.items() if path not in made_before}

    assert "died: marked crashed in Prefect, continuing" in workspace.run("run")
    wait_until_gone(root)
    assert done.items() <= finished(root).items()
    assert digests(root / "data") == undisturbed.files
    assert (root / "dvc.lock").read_text() == undisturbed.lock
    assert partials(root) == []
    assert_recorded(root)
    assert_ended(root)
    assert flow_states(workspace).count("CRASHED") >= len(MOMENTS[case])
    assert not {"RUNNING", "PENDING"} & set(flow_states(workspace))
    assert "stages are whole" in workspace.run("verify")
    assert {stage["action"] for stage in workspace.status().values()} == {"fresh"}
    assert "up to date" in workspace.run("status", program="dvc")
    workspace.run("gc")
    assert done.items() <= finished(root).items()  # the shards of current outputs are known to be in use


def test_what_a_crash_kept_from_the_record_is_put_there_even_if_dvc_runs_a_stage_first(template, prefect_api, tmp_path):
    workspace = replace(grown(template, tmp_path / "workspace"), api=prefect_api)
    kill_at(Moment("flows.run.lineage_events:announce", "before", "'sample'.*'COMPLETE'"), workspace)
    workspace.run("repro", "--single-item", "--force", "acquire", program="dvc")
    workspace.run("run")
    assert_recorded(workspace.root)
    assert_ended(workspace.root)
