import json

import pytest

from tasks.stage.contract import MARKER, SHARD_STORE, USED, InlineFanOut, Shard, SilentReporter, Stage, unused_shards

CALLS: list[str] = []


def count(payload, folder):
    CALLS.append(payload["text"])
    if payload["text"] == "bad":
        raise ValueError("bad shard")
    (folder / "length.txt").write_text(str(len(payload["text"])))
    return {"length": len(payload["text"]), "seen": payload.get("where")}


@pytest.fixture
def stage(tmp_path):
    CALLS.clear()
    return make_stage(tmp_path)


def make_stage(root, **changes):
    settings = {
        "name": "count",
        "root": root,
        "params": None,
        "inputs": ["data/texts"],
        "outputs": ["data/lengths"],
        "fingerprint": "f" * 64,
        "code": "c1",
        "fan_out": InlineFanOut(),
        "reporter": SilentReporter(),
    }
    return Stage(**settings | changes)


def shards(*texts):
    return [Shard(text, {"text": text}) for text in texts]


def test_results_come_in_the_order_of_the_shards_and_equal_payloads_are_computed_once(stage):
    results = stage.map("length", count, shards("aaa", "b", "aaa"))
    assert [result.record["length"] for result in results] == [3, 1, 3]
    assert CALLS == ["aaa", "b"]


def test_a_finished_shard_is_not_redone_by_a_later_run(stage):
    stage.map("length", count, shards("aaa", "b"))
    again = make_stage(stage.root, fingerprint="0" * 64)
    assert [result.record["length"] for result in again.map("length", count, shards("b", "cc", "aaa"))] == [1, 2, 3]
    assert CALLS == ["aaa", "b", "cc"]


def test_changed_code_redoes_shards(stage):
    stage.map("length", count, shards("a"))
    make_stage(stage.root, code="c2").map("length", count, shards("a"))
    assert CALLS == ["a", "a"]


def test_a_hint_reaches_the_function_but_not_the_key(stage):
    first = stage.map("length", count, [Shard("a", {"text": "a"}, hint={"where": "/here"})])
    second = stage.map("length", count, [Shard("a", {"text": "a"}, hint={"where": "/there"})])
    assert first[0].record["seen"] == second[0].record["seen"] == "/here"


def test_a_failed_shard_leaves_nothing_that_looks_finished(stage):
    with pytest.raises(ValueError, match="bad shard"):
        stage.map("length", count, shards("a", "bad"))
    markers = list((stage.root / SHARD_STORE).rglob(MARKER))
    assert len(markers) == 1


def test_a_shard_whose_file_is_gone_or_cut_counts_as_not_done(stage):
    [result] = stage.map("length", count, shards("aaa"))
    (result.folder / "length.txt").unlink()
    stage.map("length", count, shards("aaa"))
    assert CALLS == ["aaa", "aaa"]
    (result.folder / "length.txt").write_text("")
    stage.map("length", count, shards("aaa"))
    assert CALLS == ["aaa", "aaa", "aaa"]
    assert (result.folder / "length.txt").read_text() == "3"


def test_a_shard_whose_bytes_changed_is_redone_by_the_next_run_and_checked_once_in_a_run(stage):
    stage.map("length", count, shards("aaa", "b"))
    [result, _] = stage.map("length", count, shards("aaa", "b"))
    (result.folder / "length.txt").write_text("7")  # as long as before
    stage.map("length", count, shards("aaa", "b"))
    assert CALLS == ["aaa", "b"]
    make_stage(stage.root).map("length", count, shards("aaa", "b"))
    assert CALLS == ["aaa", "b", "aaa"]
    assert (result.folder / "length.txt").read_text() == "3"


def test_refresh_redoes_finished_shards_once(stage):
    stage.map("length", count, shards("a"))
    forced = make_stage(stage.root, refresh=True)
    forced.map("length", count, shards("a"))
    forced.map("length", count, shards("a"))
    assert CALLS == ["a", "a"]


def test_unfinished_shards_are_those_that_map_would_do(stage):
    stage.map("length", count, shards("aaa", "b"))
    again = make_stage(stage.root)
    assert [shard.name for shard in again.unfinished("length", count, shards("b", "cc", "aaa"))] == ["cc"]
    (damaged,) = [path for path in (stage.root / SHARD_STORE).rglob("length.txt") if path.read_text() == "3"]
    damaged.write_text("7")
    assert [shard.name for shard in again.unfinished("length", count, shards("b", "aaa"))] == ["aaa"]
    everything = make_stage(stage.root, refresh=True).unfinished("length", count, shards("b", "aaa"))
    assert [shard.name for shard in everything] == ["b", "aaa"]


def test_an_output_is_absent_until_the_stage_publishes(stage):
    [result] = stage.map("length", count, shards("aaa"))
    stage.adopt(result, "length.txt", "data/lengths", "a.txt")
    assert not (stage.root / "data/lengths").exists()
    stage.publish()
    assert (stage.root / "data/lengths/a.txt").read_text() == "3"
    assert [path.name for path in (stage.root / "data").iterdir()] == ["lengths"]


def test_settling_keeps_the_shards_in_use_and_drops_the_others(stage):
    stage.map("length", count, shards("old"))
    fresh = make_stage(stage.root)
    [result] = fresh.map("length", count, shards("new"))
    fresh.adopt(result, "length.txt", "data/lengths", "new.txt")
    fresh.publish()
    fresh.settle()
    assert [path.parent for path in (stage.root / SHARD_STORE).rglob(MARKER)] == [result.folder]
    assert (result.folder / "length.txt").stat().st_ino == (stage.root / "data/lengths/new.txt").stat().st_ino


def test_settling_keeps_the_shards_of_a_version_that_a_cache_still_holds(stage):
    [old] = stage.map("length", count, shards("old"))
    (stage.root / "cache").mkdir()
    (stage.root / "cache/object").hardlink_to(old.folder / "length.txt")
    for text in ("newer", "newest"):
        fresh = make_stage(stage.root)
        [result] = fresh.map("length", count, shards(text))
        fresh.adopt(result, "length.txt", "data/lengths", "a.txt")
        fresh.publish()
        fresh.settle()
    assert {path.parent for path in (stage.root / SHARD_STORE).rglob(MARKER)} == {old.folder, result.folder}
    CALLS.clear()
    make_stage(stage.root).map("length", count, shards("old"))
    assert CALLS == []


def test_shards_that_share_their_bytes_only_with_each_other_take_room(stage):
    first, second = (result.folder for result in stage.map("length", count, shards("aaa", "bbb")))
    (second / "length.txt").unlink()
    (second / "length.txt").hardlink_to(first / "length.txt")
    store = stage.root / SHARD_STORE / "count"
    assert set(unused_shards(store, ())) == {first, second}
    assert unused_shards(store, {first}) == [second]
    (stage.root / "object").hardlink_to(first / "length.txt")
    assert unused_shards(store, ()) == []


def test_until_a_stage_has_settled_the_shards_of_either_version_are_in_use(stage):
    def listed():
        return set(json.loads((stage.root / SHARD_STORE / "count" / USED).read_bytes()))

    old = finished(stage, "old")
    assert listed() == old
    fresh = make_stage(stage.root)
    [result] = fresh.map("length", count, shards("new"))
    fresh.adopt(result, "length.txt", "data/lengths", "new.txt")
    fresh.publish()  # and killed here, before or after DVC has taken the outputs in
    new = {f"length/{result.folder.name}"}
    assert listed() == old | new
    fresh.settle()
    assert listed() == new


def finished(stage, text):
    """Run a stage of one shard to its end; return that shard's name in the list of those in use."""
    [result] = stage.map("length", count, shards(text))
    stage.adopt(result, "length.txt", "data/lengths", f"{text}.txt")
    stage.publish()
    stage.settle()
    return {f"length/{result.folder.name}"}


def test_starting_clears_partial_outputs_of_other_inputs(stage):
    left = stage.root / "data" / "lengths.partial-0123"
    left.mkdir(parents=True)
    stage.start()
    assert not left.exists()


def test_what_dvc_yaml_does_not_declare_is_refused(stage):
    with pytest.raises(LookupError, match="does not declare the input data/other"):
        stage.input("data/other")
    with pytest.raises(LookupError, match="does not declare the output data/other"):
        stage.output("data/other")
    assert stage.input("data/texts/a.txt") == stage.root / "data/texts/a.txt"
