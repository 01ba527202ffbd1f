"""The reader gives every task once an epoch, the same again from any state, on any number of ranks; and it ends."""

import gc
import json
import threading
import time
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.text.templates import ANCHOR_TEMPLATES, parse_template
from model.text.tokenization import TemplateTokenizer
from model.text.tokenized_tasks import NO_LOSS, pad
from storage.errors import InputError
from support import tiny_tokenizers
from support.task_tables import task_rows, write_tasks
from tasks.metatrain.task_order import Place, Share, TaskOrder
from tasks.metatrain.task_reader import TaskReader

COUNTS = {"sp-next": 5, "sp-cluster": 4, "mc-next": 6, "ss": 6, "labeled-stars": 2}
TASKS = sum(COUNTS.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("tasks"), COUNTS)


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizers.unigram()


@pytest.fixture
def reader(folder, tokenizer):
    def make(**options):
        settings = {"seed": 3, "batch_size": 4} | options
        return TaskReader(folder, TemplateTokenizer.of(tokenizer, 96), "sentinel", **settings)

    return make


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    deadline = time.monotonic() + 5
    while prefetching() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not prefetching()


def prefetching():
    return [thread for thread in threading.enumerate() if thread.name == "supmer-prefetch"]


def batches(reader, count, state=None):
    with reader.stream(state) as stream:
        return list(islice(stream, count))


def ids(found):
    return [task.task_id for batch in found for task in batch.tasks]


def same(left, right):
    return (
        ids(left) == ids(right)
        and [[task.task_id for task in batch.partners] for batch in left]
        == [[task.task_id for task in batch.partners] for batch in right]
        and [batch.state for batch in left] == [batch.state for batch in right]
    )


class TestOrder:
    def test_an_epoch_has_every_task_once_and_the_next_another_order(self, reader):
        two = ids(batches(reader(batch_size=1), 2 * TASKS))
        first, second = two[:TASKS], two[TASKS:]
        assert len(set(first)) == TASKS
        assert sorted(first) == sorted(second)
        assert first != second
        assert first != sorted(first)

    def test_the_seed_decides(self, reader):
        assert same(batches(reader(), 9), batches(reader(), 9))
        assert ids(batches(reader(), 5)) != ids(batches(reader(seed=4), 5))

    def test_batches_run_over_the_end_of_an_epoch(self, reader):
        found = batches(reader(batch_size=5), 5)
        assert {len(batch.tasks) for batch in found} == {5}
        assert found[-1].places[-1] == Place(1, 1)
        assert (found[-1].state["epoch"], found[-1].state["position"]) == (1, 2)

    @settings(max_examples=15, deadline=None, suppress_health_check=["function_scoped_fixture"])
    @given(done=st.integers(1, 14), size=st.integers(1, 6))
    def test_resuming_gives_exactly_what_would_have_come(self, reader, done, size):
        options = {"batch_size": size, "partner": "same-format"}
        whole = batches(reader(**options), done + 3)
        state = json.loads(json.dumps(whole[done - 1].state))
        assert same(batches(reader(**options), 3, state), whole[done:])

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"epoch": None}, "epoch is missing, not a number from 0"),
            ({"epoch": -1}, "epoch is -1"),
            ({"position": 10**9}, "position is 1000000000, not a number from 0 below"),
            ({"position": "3"}, "position is '3'"),
            ({"position": True}, "position is True"),
        ],
    )
    def test_a_state_that_is_no_place_in_the_sequence_is_refused(self, reader, change, told):
        [batch] = batches(reader(), 1)
        state = {name: value for name, value in (batch.state | change).items() if value is not None}
        with pytest.raises(InputError, match=f"the state to resume from: {told}.*: start anew"):
            reader().stream(state)

    def test_a_state_of_other_tasks_or_another_seed_is_refused(self, reader):
        (batch,) = batches(reader(), 1)
        with pytest.raises(InputError, match="of another seed: start anew"):
            reader(seed=9).stream(batch.state)
        with pytest.raises(InputError, match="of another tasks: start anew"):
            reader(formats=["ss"]).stream(batch.state)

    def test_validation_passes_once_in_the_order_of_the_shards(self, reader):
        with reader(batch_size=5).once() as stream:
            found = list(stream)
        assert [len(batch.tasks) for batch in found] == [5, 5, 5, 5, 3]
        assert ids(found) == sorted(ids(found))


class TestRanks:
    @given(size=st.integers(0, 20), world=st.integers(1, 8))
    def test_every_task_of_a_batch_goes_to_one_rank(self, size, world):
        taken = [position for rank in range(world) for position in Share(rank, world).of(size)]
        assert sorted(taken) == list(range(size))
        counts = [len(Share(rank, world).of(size)) for rank in range(world)]
        assert max(counts) - min(counts) <= 1

    @pytest.mark.parametrize("world", [2, 3, 6])
    def test_ranks_together_see_the_batches_of_one_process(self, reader, world):
        alone = batches(reader(partner="any-format"), 4)
        shared = [batches(reader(partner="any-format", share=Share(rank, world)), 4) for rank in range(world)]
        for number, batch in enumerate(alone):
            parts = [ranks[number] for ranks in shared]
            dealt = {place: task.task_id for part in parts for place, task in zip(part.places, part.tasks, strict=True)}
            assert [dealt[place] for place in batch.places] == [task.task_id for task in batch.tasks]
            partners = {p: t.task_id for part in parts for p, t in zip(part.places, part.partners, strict=True)}
            assert [partners[place] for place in batch.places] == [task.task_id for task in batch.partners]
            assert {part.size for part in parts} == {4}
            assert all(part.state == batch.state for part in parts)

    def test_another_number_of_ranks_goes_on_in_the_same_order(self, reader):
        alone = batches(reader(), 4)
        first = batches(reader(share=Share(1, 2)), 2)
        later = [batches(reader(share=Share(rank, 3)), 2, first[-1].state) for rank in range(3)]
        together = sorted(ids(alone[2:]))
        assert sorted(task for found in later for task in ids(found)) == together

    @pytest.mark.parametrize(("rank", "world"), [(2, 2), (-1, 2), (0, 0)])
    def test_an_impossible_rank_is_a_bug(self, rank, world):
        with pytest.raises(ValueError, match=f"rank {rank} of {world}"):
            Share(rank, world)


class TestPartners:
    def test_a_partner_is_another_task_of_the_same_format(self, reader):
        for batch in batches(reader(partner="same-format"), 20):
            for task, partner in zip(batch.tasks, batch.partners, strict=True):
                assert partner.task_id != task.task_id
                assert partner.format == task.format
                assert partner.query
                assert not partner.support

    def test_any_other_task_may_be_a_partner_and_each_equally_often(self, reader):
        order = reader().order
        task = order.task_at(Place(0, 0))
        elsewhere = [place for epoch in range(600) for place in order.batch(Place(epoch, 0), TASKS)[0]]
        drawn = [order.partner_at(place, "any-format") for place in elsewhere if order.task_at(place) == task]
        counts = np.bincount(drawn, minlength=TASKS)
        assert counts[task] == 0
        assert counts[np.arange(TASKS) != task].min() > 0.4 * 600 / (TASKS - 1)

    def test_partners_are_drawn_anew_each_epoch(self, reader):
        order = reader().order
        assert len({order.partner_at(Place(epoch, 0), "any-format") for epoch in range(20)}) > 5

    def test_a_task_without_another_of_its_format_is_refused(self, tmp_path, tokenizer):
        write_tasks(tmp_path, {"sp-next": 1, "ss": 3})
        writer = TemplateTokenizer.of(tokenizer, 96)
        reader = TaskReader(tmp_path, writer, "sentinel", partner="same-format", batch_size=4)
        with reader.stream() as stream, pytest.raises(InputError, match="the only task of format sp"):
            next(stream)


class TestTokens:
    def test_a_task_is_what_was_stored_in_the_templates_words(self, reader, tokenizer):
        (batch,) = batches(reader(kinds=["sp-next"], batch_size=1), 1)
        (task,) = batch.tasks
        rows = task_rows("sp-next", int(task.task_id[-6:]))
        examples = [*task.support, *task.query]
        assert [example.example_id for example in examples] == [row["example_id"] for row in rows]
        assert [len(task.support), len(task.query)] == [4, 4]
        template = ANCHOR_TEMPLATES["sp-next"]["sentinel"]
        for example, row in zip(examples, rows, strict=True):
            assert example.label == row["label"]
            text = template.render(row["texts"], []).text
            assert example.input_ids.tolist() == tokenizer(text)["input_ids"]
            assert example.target_ids.tolist() == task.label_ids[example.label].tolist()
        assert [tokenizer.decode(target) for target in task.label_ids] == [
            "<extra_id_0> yes",
            "<extra_id_0> no",
            "<extra_id_0> maybe",
        ]

    def test_slots_tell_position_format_and_cluster(self, reader, tokenizer):
        (batch,) = batches(reader(kinds=["ss"], batch_size=1), 1)
        (task,) = batch.tasks
        rows = task_rows("ss", int(task.task_id[-6:]))
        for example, row in zip([*task.support, *task.query], rows, strict=True):
            assert [slot.cluster for slot in example.slots] == row["choices"]
            assert {slot.format for slot in example.slots} == {"ss"}
            held = [int(example.input_ids[slot.position]) for slot in example.slots]
            assert held == [tokenizer.pad_token_id] * 4

    def test_a_labeled_set_may_have_a_template_of_its_own(self, reader, tokenizer):
        words = ["no", "the", "of", "and", "yes"]
        own = {"labeled-stars": parse_template("{text} <X>.", ["text"], words)}
        (batch,) = batches(reader(formats=["labeled"], batch_size=1, templates=own), 1)
        said = [tokenizer.decode(target) for target in batch.tasks[0].label_ids]
        assert said == [f"<extra_id_0> {word}" for word in words]

    def test_a_template_that_does_not_fit_the_labels_is_refused_with_the_example(self, reader):
        own = {"labeled-stars": parse_template("{text} <X>.", ["text"], ["no", "yes"])}
        refusal = pytest.raises(InputError, match=r"labeled-train-\d+/s02: label 2 .* has the labels no, yes")
        with reader(formats=["labeled"], templates=own).stream() as stream, refusal:
            next(stream)

    def test_padding_goes_to_the_longest_of_the_rows_only(self, reader, tokenizer):
        (batch,) = batches(reader(batch_size=TASKS), 1)
        rows = [example for task in batch.tasks for example in task.support]
        padded = pad(rows, tokenizer.pad_token_id)
        lengths = [len(row.input_ids) for row in rows]
        assert padded.input_ids.shape == (len(rows), max(lengths))
        assert padded.mask.sum(axis=1).tolist() == lengths
        for row, ids_, mask, target in zip(rows, padded.input_ids, padded.mask, padded.target_ids, strict=True):
            assert ids_[mask].tolist() == row.input_ids.tolist()
            assert target[target != NO_LOSS].tolist() == row.target_ids.tolist()
        assert len(padded.slots) == sum(len(row.slots) for row in rows) > 0
        for number, position, slot in zip(padded.slot_rows, padded.slot_positions, padded.slots, strict=True):
            assert slot in rows[number].slots
            assert slot.position == position
            assert padded.mask[number, position]

    def test_no_rows_pad_to_nothing(self):
        assert pad([]).input_ids.shape == (0, 0)


class TestEnd:
    """The fixture `no_thread_is_left` is what these tests are about."""

    def test_an_error_in_the_background_is_raised_in_front_and_ends_it(self, tokenizer, tmp_path):
        write_tasks(tmp_path, {"sp-next": 6}, tasks_per_shard=2)
        writer = TemplateTokenizer.of(tokenizer, 96)
        reader = TaskReader(tmp_path, writer, "sentinel", batch_size=2)
        (tmp_path / "sp-train-00001.parquet").unlink()
        stream = reader.stream()
        with pytest.raises(InputError, match="damaged or gone"):
            list(stream)
        assert list(stream) == []

    def test_a_stream_left_early_ends(self, reader):
        with reader(prefetch=1).stream() as stream:
            next(stream)
        assert list(stream) == []

    def test_an_error_of_the_consumer_ends_it(self, reader):
        def consume():
            with reader(prefetch=2).stream() as stream:
                next(stream)
                raise RuntimeError

        with pytest.raises(RuntimeError):
            consume()

    def test_a_stream_that_is_dropped_ends(self, reader):
        stream = reader(prefetch=1).stream()
        next(stream)
        del stream
        gc.collect()


def test_the_order_is_of_the_index_alone(reader):
    one = reader()
    order = TaskOrder(one.index, 3)
    places, _ = order.batch(Place(), TASKS)
    assert [order.task_at(place) for place in places] == [one.order.task_at(place) for place in places]


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"prefetch": 0}])
def test_impossible_sizes_are_a_bug(reader, options):
    with pytest.raises(ValueError, match="must be at least 1"):
        reader(**options)
