"""Chunks on several cores: the same results in the same order, and nothing of it stays behind."""

import resource
import threading
import time

import numpy as np
import pytest
import torch

from model.meta.meta_step import MixedTask, StepForm, meta_gradients
from model.prompt import parallel_chunks as module
from model.prompt.parallel_chunks import side_by_side
from model.prompt.passes import Passes
from model.prompt.prediction import label_scores
from model.prompt.rows import Row
from model.t5.attention import is_plain_kernel_asked_for
from model.t5.backbone import backbone_of
from support.meta_examples import example, t5, task

ONE, TWO, THREE = 1, 2, 3


@pytest.fixture
def threads():
    """Sets the number of threads, for this test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [ONE, TWO, THREE, 20])
@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 7, 8, 41])
def test_every_piece_has_its_result_in_order(threads, count, pieces):
    threads(count)

    def work(piece):
        time.sleep(0.002 * (piece % 3))  # later pieces end first
        return piece * piece

    assert list(side_by_side(work, range(pieces))) == [piece * piece for piece in range(pieces)]
    assert torch.get_num_threads() == count


def test_pieces_are_at_work_at_the_same_time_each_with_its_share_of_the_threads(threads):
    threads(2)
    both = threading.Barrier(2, timeout=20)

    def work(_piece):
        both.wait()
        return threading.current_thread().name, torch.get_num_threads()

    found = list(side_by_side(work, range(4)))
    assert len({name for name, _ in found}) == 2
    assert {number for _, number in found} == {1}


def test_what_is_left_over_has_all_threads_and_more_threads_than_chunks_are_shared_out(threads):
    threads(3)
    assert list(side_by_side(lambda _piece: torch.get_num_threads(), range(4))) == [1, 1, 1, 3]
    threads(20)
    assert list(side_by_side(lambda _piece: torch.get_num_threads(), range(7))) == [3] * 6 + [20]


def test_an_error_is_told_the_rest_is_not_begun_and_the_threads_are_as_before(threads):
    threads(2)
    begun = []

    def work(piece):
        begun.append(piece)
        time.sleep(0.01)
        if piece == 1:
            raise MemoryError("none left")
        return piece

    with pytest.raises(MemoryError, match="none left"):
        list(side_by_side(work, range(400)))
    assert torch.get_num_threads() == 2
    then = len(begun)
    time.sleep(0.1)
    assert len(begun) == then < 50


@pytest.fixture
def no_pool():
    """No workers from before this test, nor from it afterwards."""
    module._pool.cache_clear()
    yield
    module._pool.cache_clear()


@pytest.mark.usefixtures("no_pool")
def test_where_no_thread_can_be_started_pieces_come_one_after_another(threads, monkeypatch):
    threads(5)

    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as changed:
        changed.setattr(threading.Thread, "start", refuse)
        assert list(side_by_side(lambda piece: piece, range(10))) == list(range(10))
    assert torch.get_num_threads() == 5


@pytest.mark.usefixtures("no_pool")
def test_an_interrupt_while_workers_begin_leaves_none_of_them_waiting(threads, monkeypatch):
    threads(2)
    begin = threading.Thread.start
    begun = []

    def interrupted(thread):
        if begun:
            raise KeyboardInterrupt
        begun.append(thread)
        begin(thread)

    with monkeypatch.context() as changed:
        changed.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(side_by_side(lambda piece: piece, range(4)))
    begun[0].join(timeout=20)
    assert not begun[0].is_alive()


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA], ids=["address space", "data"])
def test_under_a_limit_of_memory_pieces_come_one_after_another_with_all_threads(threads, limit):
    threads(2)
    soft, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (2**46, hard))
    try:
        found = list(side_by_side(lambda _piece: (threading.current_thread(), torch.get_num_threads()), range(4)))
    finally:
        resource.setrlimit(limit, (soft, hard))
    assert found == [(threading.current_thread(), 2)] * 4


def rows_of(count, chance):
    return [Row(example(chance, target=(5, 6 + number % 2)), number % 2, 0.5) for number in range(count)]


@pytest.mark.parametrize("chunk_tokens", [30, 60])
def test_passes_give_the_same_numbers_with_any_number_of_threads(threads, chunk_tokens):
    torch.manual_seed(0)
    backbone, chance = backbone_of(t5()), np.random.default_rng(0)
    prompts, rows = torch.randn(2, 3, backbone.width, dtype=torch.float64), rows_of(24, chance)
    inputs = [row.example.input_ids for row in rows]
    labels = [np.array(ids, np.int32) for ids in ((5, 6), (5, 7))]
    found = []
    for count in (ONE, TWO, THREE):
        threads(count)
        passes = Passes(backbone, chunk_tokens=chunk_tokens)
        one = passes.run(prompts, rows)
        scores = label_scores(passes, prompts, [row.prompt for row in rows], inputs, labels)
        likely = torch.from_numpy(scores.log_probabilities)
        found.append((one.losses, one.gradients, one.hidden_mean, passes.losses_of(prompts, rows), likely))
    for others in found[1:]:
        for ours, theirs in zip(found[0], others, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_twice_the_same_passes_give_the_same_bits(threads):
    torch.manual_seed(0)
    threads(2)
    backbone, rows = backbone_of(t5(dtype=torch.float32)), rows_of(41, np.random.default_rng(0))
    prompts = torch.randn(2, 3, backbone.width)
    first, *others = (Passes(backbone, chunk_tokens=30).run(prompts, rows) for _ in range(20))
    for other in others:
        assert torch.equal(first.gradients, other.gradients)
        assert torch.equal(first.losses, other.losses)
        assert torch.equal(first.hidden_mean, other.hidden_mean)


@pytest.mark.parametrize("keep_graph", [True, False])
def test_a_step_of_the_second_order_is_the_same_and_leaves_the_kernels_as_they_were(threads, keep_graph):
    torch.manual_seed(0)
    backbone, chance = backbone_of(t5()), np.random.default_rng(0)
    theta = torch.randn(3, backbone.width, dtype=torch.float64)
    made = [task(chance, size=5) for _ in range(3)]
    tasks = [MixedTask(one, made[number - 1], 0.7) for number, one in enumerate(made)]
    found = []
    for count in (ONE, TWO):
        threads(count)
        form = StepForm(keep_graph=keep_graph)
        found.append(meta_gradients(Passes(backbone, chunk_tokens=60), theta, None, tasks, form).prompt)
        assert not is_plain_kernel_asked_for()
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-14)


def test_low_precision_and_gradient_mode_reach_every_chunk(threads, monkeypatch):
    """Both are a thread's own."""
    torch.manual_seed(0)
    rows, seen = rows_of(12, np.random.default_rng(0)), []
    backbone = backbone_of(t5(dtype=torch.float32).to(torch.bfloat16))
    encode = backbone.encode

    def watched(*arguments):
        seen.append((torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), threading.current_thread().name[:5]))
        return encode(*arguments)

    monkeypatch.setattr(backbone, "encode", watched)
    threads(2)
    prompts = torch.randn(2, 3, backbone.width)
    Passes(backbone, chunk_tokens=30).losses_of(prompts, rows)
    assert (True, False, "chunk") in seen
    assert {one[:2] for one in seen} == {(True, False)}
    seen.clear()
    Passes(backbone, chunk_tokens=30).run(prompts, rows)
    assert {one[:2] for one in seen} == {(True, True)}


def test_backbones_of_others_and_those_that_save_memory_take_one_chunk_at_a_time():
    assert backbone_of(t5()).side_by_side
    assert not backbone_of(t5(), fast=False).side_by_side
    assert not backbone_of(t5(), recompute=True).side_by_side
