"""The stage `sample`: equal inputs give equal bytes, and a change reaches no further than it must."""

import shutil
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import paths
from storage.hashing import document_id
from support.sample_room import BackwardFanOut, SampleRoom, lines, story


def test_equal_inputs_give_equal_bytes_whatever_the_order_of_work(mixed, tmp_path_factory):
    mixed.run(shard_mb=0.004)
    other = SampleRoom(tmp_path_factory.mktemp("other"))
    for (source, name), path in reversed(mixed.files.items()):
        other.add(name, path.read_bytes(), source)
    other.run(shard_mb=0.004, fan_out=BackwardFanOut(), backward=True)
    assert len(mixed.contents()) > 20
    assert other.contents() == mixed.contents()


def test_what_ran_before_does_not_show(mixed):
    mixed.run()
    first = mixed.contents()
    mixed.run(budget_mb=0.01, seed=3, min_words=100)
    assert mixed.contents() != first
    mixed.run()
    assert mixed.contents() == first


def test_the_size_of_shards_does_not_change_what_is_kept(mixed):
    def tables():
        by_id = {row["document_id"]: row | {"shard": ""} for row in mixed.rows(paths.DOCUMENTS)}
        return by_id, sorted((row["document_id"], row["index"], row["text"]) for row in mixed.rows(paths.SENTENCES))

    mixed.run()
    whole = tables()
    mixed.run(shard_mb=0.003)
    assert tables() == whole


def test_a_new_file_leaves_the_other_shards_and_their_work_alone(mixed):
    mixed.run()
    sentences, indexed, written = mixed.contents(paths.SENTENCES), mixed.markers("index"), mixed.markers("write")
    mixed.add("new.jsonl", lines(story(seed) for seed in range(100, 110)))
    mixed.run()
    after = mixed.contents(paths.SENTENCES)
    assert {name: after[name] for name in sentences} == sentences
    assert len(after) == len(sentences) + 1
    for before, now in ((indexed, mixed.markers("index")), (written, mixed.markers("write"))):
        assert {name: now[name] for name in before} == before
        assert len(now) == len(before) + 1


def test_the_seed_and_the_share_move_only_the_split(mixed):
    mixed.run()
    before, indexed, written = (
        mixed.contents(paths.SENTENCES, paths.EXCLUDED),
        mixed.markers("index"),
        mixed.markers("write"),
    )
    mixed.run(seed=2, validation_share=0.5)
    assert mixed.contents(paths.SENTENCES, paths.EXCLUDED) == before
    assert (mixed.markers("index"), mixed.markers("write")) == (indexed, written)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(14)), st.lists(st.integers(1, 13), max_size=3, unique=True), st.integers(1, 14))
def test_the_draw_depends_on_content_alone_and_keeps_to_the_budget(tmp_path, order, cuts, budget):
    root = tmp_path / "draw"
    shutil.rmtree(root, ignore_errors=True)
    workspace = SampleRoom(root)
    limits = [0, *sorted(cuts), 14]
    for number, (start, stop) in enumerate(pairwise(limits)):
        workspace.add(f"{number}.jsonl", lines(story(seed) for seed in order[start:stop]))
    sizes = {document_id(story(seed)): len(story(seed)) for seed in range(14)}
    limit = budget * 1_000
    workspace.run(budget_mb=limit / 1e6)
    drawn = {row["document_id"] for row in workspace.rows(paths.DOCUMENTS)}
    expected: set[str] = set()
    for name in sorted(sizes):
        if sum(sizes[other] for other in expected) + sizes[name] > limit:
            break
        expected.add(name)
    assert drawn == expected
    assert {row["reason"] for row in workspace.rows(paths.EXCLUDED)} <= {"not_drawn"}
