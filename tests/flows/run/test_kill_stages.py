"""Killed where sentences become vectors, clusters and tasks: the next run goes on, and comes to the same bytes."""

from dataclasses import replace

import pytest
from test_kill import Versions, assert_recorded, assert_whole, finished, grown

from support.dying import digests, flow_states, kill_at, outputs, partials, wait_until_gone
from support.killed import Moment
from support.made_once import made_once
from support.workspaces import ONE_WORKER, Workspace, lay_out, write_corpus

STAGES = ("acquire", "sample", "embed", "cluster", "materialize")
SETTINGS = (
    "sample.validation_share=0.2",  # of a small corpus: else no validation task could be made
    "sample.shard_mb=0.02",
    "embed.model=backbone",  # it is loaded in half the time
    "cluster.clusters=4",
    "cluster.min_size=8",
    "cluster.nearest_sentences=3",
    "materialize.train_tasks=12",
    "materialize.validation_tasks=6",
)
# By the step that each is in, in the order in which a run comes to them: one shard is whole, the second all but.
MOMENTS = {
    "embed/embed": Moment("tasks.embed.stage:embed", "after", nth=2),
    "cluster/describe": Moment("tasks.cluster.assignment:describe", "after", nth=2),
    "materialize/draw": Moment("tasks.materialize.task_writer:write_tasks", "after", nth=2),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory, tiny_models, prefect_api):
    """A workspace of all stages up to the tasks, in which `supmer run` has ended well."""

    def make(root):
        lay_out(root, tiny_models, ("local", *STAGES))
        for seed, name in enumerate(("first", "second")):  # a shard each; the file that is added makes two
            write_corpus(root / "texts" / f"{name}.jsonl", seed, 24)
        workspace = Workspace(root, prefect_api)
        workspace.git("init", "--quiet")
        workspace.run("run", *ONE_WORKER, *(part for setting in SETTINGS for part in ("-S", setting)))

    return Workspace(made_once(tmp_path_factory, "five-stages", make))


@pytest.fixture(scope="module")
def undisturbed(template, prefect_api, tmp_path_factory):
    workspace = replace(grown(template, tmp_path_factory.mktemp("undisturbed") / "workspace"), api=prefect_api)
    root, before = workspace.root, outputs(workspace.root)
    workspace.run("run", *ONE_WORKER)
    return Versions(before, outputs(root), digests(root / "data"), (root / "dvc.lock").read_text())


def test_killed_in_each_stage_the_next_run_redoes_no_shard_and_comes_to_the_same_bytes(
    template, undisturbed, prefect_api, tmp_path
):
    workspace = replace(grown(template, tmp_path / "workspace"), api=prefect_api)
    root = workspace.root
    made_before, done = finished(root), {}
    for step, moment in MOMENTS.items():
        said = kill_at(moment, workspace)
        assert ("died: marked crashed in Prefect, continuing" in said) == bool(done)
        wait_until_gone(root)
        assert_whole(root, undisturbed, moment)
        now = finished(root)
        assert done.items() <= now.items()
        done = {path: made for path, made in now.items() if path not in made_before}
        assert any(path.is_relative_to(root / ".supmer/shards" / step) for path in done), step

    assert "died: marked crashed in Prefect, continuing" in workspace.run("run", *ONE_WORKER)
    wait_until_gone(root)
    assert done.items() <= finished(root).items()
    assert digests(root / "data") == undisturbed.files
    assert (root / "dvc.lock").read_text() == undisturbed.lock
    assert partials(root) == []
    assert list((root / ".supmer/tmp").glob("*")) == []  # the pool of sentences, the plan of clusters
    assert_recorded(root)
    assert flow_states(workspace).count("CRASHED") >= len(MOMENTS)
    assert not {"RUNNING", "PENDING"} & set(flow_states(workspace))
    assert "stages are whole" in workspace.run("verify")
    assert {name: stage["action"] for name, stage in workspace.status().items()} == dict.fromkeys(STAGES, "fresh")
