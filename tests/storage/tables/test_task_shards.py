"""Tasks come out of their shards one by one, whole, in any order, whatever the row groups."""

import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import InputError
from storage.parquet import write_shard
from storage.tables.task_shards import TaskShards, read_index
from storage.tables.task_table import TASKS
from support.task_tables import task_rows, write_tasks

COUNTS = {"sp-next": 9, "sp-cluster": 8, "mc-next": 3, "ss": 5}


@pytest.fixture
def folder(tmp_path):
    write_tasks(tmp_path, COUNTS)
    write_tasks(tmp_path, {"sp-next": 2}, split="validation")
    return tmp_path


def one_row_group_holds_all_or_part(folder, name, rows_per_group):
    table = pq.read_table(folder / name)
    (folder / name).unlink()
    batches = [table.slice(at, rows_per_group) for at in range(0, len(table), rows_per_group)]
    write_shard(folder / name, TASKS, batches, {})


def test_the_index_knows_every_task_of_the_split_in_order(folder):
    index = read_index(folder, "train")
    assert len(index) == sum(COUNTS.values())
    assert {kind for kind, _ in index.kinds} == set(COUNTS)
    shards = TaskShards(index)
    ids = [shards.read(number).task_id for number in range(len(index))]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert len(read_index(folder, "validation")) == 2


@pytest.mark.parametrize("rows_per_group", [1, 5, 8, 13, 1000])
def test_tasks_are_whole_even_where_a_row_group_cuts_them(folder, rows_per_group):
    one_row_group_holds_all_or_part(folder, "sp-train-00000.parquet", rows_per_group)
    index = read_index(folder, "train", formats=["sp"])
    shards = TaskShards(index)
    numbers = list(range(len(index)))
    random.Random(0).shuffle(numbers)
    for number in numbers:
        task = shards.read(number)
        expected = task_rows(task.kind, number)
        assert [example.example_id for example in task.examples] == [row["example_id"] for row in expected]
        assert [list(example.texts) for example in task.examples] == [row["texts"] for row in expected]
        assert task.labels == expected[0]["labels"]
        assert task.format == "sp"


def test_single_sentence_tasks_carry_their_choices_and_others_none(folder):
    index = read_index(folder, "train")
    shards = TaskShards(index)
    tasks = [shards.read(number) for number in range(len(index))]
    assert {len(example.choices) for task in tasks if task.kind == "ss" for example in task.examples} == {4}
    assert {example.choices for task in tasks if task.kind != "ss" for example in task.examples} == {()}


def test_a_choice_of_formats_and_kinds_is_kept_to(folder):
    assert len(read_index(folder, "train", formats=["mc", "ss"])) == 8
    index = read_index(folder, "train", kinds=["sp-cluster", "ss"])
    shards = TaskShards(index)
    kinds = [shards.read(number).kind for number in range(len(index))]
    assert sorted(kinds) == ["sp-cluster"] * 8 + ["ss"] * 5
    assert [index.format_of(number) for number in range(len(index))] == [kind[:2] for kind in kinds]


def test_row_groups_in_memory_are_bounded_and_the_cache_changes_nothing(folder):
    index = read_index(folder, "train")
    small, large = TaskShards(index, cache_bytes=1), TaskShards(index)
    numbers = list(range(len(index))) * 2
    random.Random(1).shuffle(numbers)
    for number in numbers:
        assert small.read(number) == large.read(number)
        assert len(small._groups) == 1
    assert large._held == sum(table.nbytes for table in large._groups.values()) > 0
    large.close()
    assert not large._groups
    assert not large._files


def test_the_fingerprint_tells_other_tasks_and_other_texts(folder, tmp_path):
    index = read_index(folder, "train")
    assert index.fingerprint() == read_index(folder, "train").fingerprint()
    assert index.fingerprint() != read_index(folder, "train", kinds=["ss"]).fingerprint()
    other = tmp_path / "other"
    write_tasks(other, COUNTS, words=9)
    assert read_index(other, "train").fingerprint() != index.fingerprint()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"formats": ["labeled"]}, r"no tasks of format labeled in split train: `supmer run materialize`"),
        (
            {"kinds": ["nonsense"]},
            r"no task of kind nonsense in split train, there is mc-next, sp-cluster, sp-next, ss",
        ),
    ],
)
def test_nothing_to_read_is_one_line(folder, wanted, message):
    with pytest.raises(InputError, match=message):
        read_index(folder, "train", **wanted)


def test_a_folder_that_is_not_there_names_the_stage(tmp_path):
    with pytest.raises(InputError, match="`supmer run materialize` makes them"):
        read_index(tmp_path / "tasks", "train")


class TestDamage:
    def test_a_cut_shard_is_one_line(self, folder):
        path = folder / "sp-train-00001.parquet"
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(InputError, match=re.escape(str(path))) as refused:
            read_index(folder, "train")
        assert "\n" not in str(refused.value)

    def test_bytes_broken_in_the_middle_are_one_line(self, folder):
        path = folder / "sp-train-00001.parquet"
        index = read_index(folder, "train")
        content = bytearray(path.read_bytes())
        content[4 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4)
        path.write_bytes(content)
        shards = TaskShards(index)
        number = next(n for n in range(len(index)) if index.shards[index.shard[n]] == path)
        with pytest.raises(InputError, match="`supmer verify` checks all") as refused:
            shards.read(number)
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)

    def test_a_shard_that_went_away_is_one_line(self, folder):
        index = read_index(folder, "train")
        index.shards[0].unlink()
        with pytest.raises(InputError, match=r"damaged or gone \(gone\)"):
            TaskShards(index).read(0)

    def test_a_shard_replaced_by_another_is_noticed(self, folder):
        index = read_index(folder, "train", formats=["sp"])
        write_tasks(folder, COUNTS, support=3)
        with pytest.raises(InputError, match="changed while it was read"):
            TaskShards(index).read(1)

    def test_another_table_is_no_shard_of_tasks(self, folder):
        table = pa.table({"task_id": ["a"], "kind": ["sp-next"]})
        pq.write_table(table, folder / "sp-train-00009.parquet")
        with pytest.raises(InputError, match="not a shard of tasks, it has no role, example_id"):
            read_index(folder, "train")
