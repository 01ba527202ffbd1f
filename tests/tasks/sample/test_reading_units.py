"""How a corpus is cut into units of reading, and how their shards are named."""

from storage.sources.source import AcquiredSource, SourceFile
from tasks.sample import reading_units
from tasks.sample.reading_units import cut_corpus, shard_name


def groups_of(root, names, size):
    """The names in each group of text files of ten bytes."""
    for name in names:
        (root / name).write_bytes(b"ten bytes.")
    files = tuple(SourceFile(name, name, 10, "") for name in names)
    units = cut_corpus([AcquiredSource("own", "path:own", "", "", files)], root, size)
    assert [unit.size for unit in units] == [10 * len(unit.parts) for unit in units]
    return [tuple(part.name for part in unit.parts) for unit in units]


def test_a_new_text_file_changes_its_own_group_alone_where_none_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(reading_units, "_GROUP_FILES", 16)
    names = [f"{number:03d}.txt" for number in range(300)]
    before = groups_of(tmp_path, names, 10_000)
    assert 10 < len(before) < 30
    assert [name for group in before for name in group] == names
    after = groups_of(tmp_path, [*names, "150-new.txt"], 10_000)
    [new] = {*after} - {*before}
    assert {*before} - {*after} == {tuple(name for name in new if name != "150-new.txt")}


def test_a_new_text_file_changes_full_groups_up_to_the_next_name_that_ends_one(tmp_path, monkeypatch):
    monkeypatch.setattr(reading_units, "_GROUP_FILES", 64)
    names = [f"{number:03d}.txt" for number in range(300)]
    ends = {group[-1] for group in groups_of(tmp_path, names, 10_000)}
    before = groups_of(tmp_path, names, 50)
    assert max(map(len, before)) == 5
    after = groups_of(tmp_path, [*names, "150-new.txt"], 50)
    next_end = min(name for name in ends if name > "150-new.txt")
    changed = {name for group in {*before} - {*after} for name in group}
    assert min(changed) > "145.txt"
    assert max(changed) <= next_end
    assert len({*after} - {*before}) > 1  # where full groups end, those behind them move


def test_names_of_shards_differ_where_names_of_files_do():
    names = [("s", "a b.jsonl"), ("s", "a-b.jsonl"), ("s", "a/b.jsonl"), ("s", "a__b.jsonl"), ("s", "x" * 300)]
    names += [("s", "b--c.jsonl"), ("s--b", "c.jsonl")]
    assert len({shard_name(*name, 0) for name in names}) == len(names)
    assert shard_name("news", "a.csv", 3).startswith("news--a.csv-")
