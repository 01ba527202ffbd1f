"""Training learns, goes on from its checkpoints bit for bit, alone or on ranks, and stops with a reason."""

import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import orjson
import pytest

from model.meta.ranks import Ranks
from model.meta.trainer import HeldOut, Trainer
from storage.errors import InputError, TransientError
from storage.prompts.checkpoints import last_checkpoint
from storage.tables.training_log import STEPS, VALIDATION, read_log
from support.task_tables import write_tasks
from support.training_room import furnish, job, write_centroids
from tasks.metatrain import training
from tasks.metatrain.torchrun import train_on_ranks
from tasks.metatrain.training import train

STARTED = """
import sys, orjson
from pathlib import Path
from model.meta.ranks import Ranks
from tasks.metatrain.training import Job, train
job = Job.from_json(orjson.loads(Path(sys.argv[1]).read_bytes()))
trained = train(job, Ranks(), lambda done, note: None, lambda line: print(line, flush=True))
"""


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    return furnish(tmp_path_factory.mktemp("room"))


def run(room, work, said=None, **changes):
    return train(job(room, work, **changes), Ranks(), lambda *_: None, (said if said is not None else []).append)


@pytest.fixture(scope="module")
def undisturbed(room, tmp_path_factory):
    """Trainings from start to end and their folders, each made once; nobody may change them."""

    @cache
    def undisturbed(**changes):
        work = tmp_path_factory.mktemp("undisturbed")
        return run(room, work, **changes), work

    return undisturbed


def steps(work):
    return list(read_log(work / STEPS))


def same(one, other):
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def stop_after(monkeypatch, step):
    """Die, as suddenly as a test can without a process of its own, when a step has been logged."""

    class DiedError(Exception):
        pass

    before = Trainer.train

    def dying(self, tasks, batch):
        if self.step == step:
            raise DiedError
        return before(self, tasks, batch)

    monkeypatch.setattr(Trainer, "train", dying)
    return DiedError


@pytest.mark.slow
def test_it_learns_the_held_out_loss_after_one_inner_step_falls_by_a_fifth(room, tmp_path):
    trained = run(room, tmp_path, steps=30, validate_every=15, outer_learning_rate=1.0)
    assert trained.best.loss < 0.8 * trained.start_loss
    assert trained.best.step > 0


def test_every_step_is_measured_and_every_validation_kept(undisturbed):
    trained, work = undisturbed()
    found = steps(work)
    assert [record["step"] for record in found] == list(range(1, 13))
    measured = {"support_loss", "query_loss", "gate_loss", "similarity", "s", "b", "lambda", "gate", "inner_size"}
    norms = {"inner_norm", "query_norm", "prompt_norm", "prompt_gradient_norm", "regularizer_gradient_norm"}
    assert found[0].keys() == measured | norms | {"step", "learning_rate", "tokens"}
    assert found[0]["tokens"] > 0
    assert (found[0]["s"], found[0]["b"], found[0]["lambda"]) == (-1, 0, 0)
    assert found[1]["s"] == found[0]["similarity"]
    assert found[-1]["learning_rate"] == pytest.approx(0.1 / 12)
    validated = list(read_log(work / VALIDATION))
    assert [record["step"] for record in validated] == [0, 4, 8, 12]
    assert validated[0]["held_out_loss"] == trained.start_loss
    best = min(record["held_out_loss"] for record in validated[1:])
    assert trained.best.loss == best


@pytest.mark.parametrize(
    ("died", "cut_up"),
    [
        (7, {}),
        pytest.param(1, {}, marks=pytest.mark.slow),
        pytest.param(9, {}, marks=pytest.mark.slow),
        pytest.param(7, {"threads": 2, "chunk_tokens": 120}, marks=pytest.mark.slow),
        (7, {"precision": "bfloat16"}),
    ],
)
def test_a_resumed_training_ends_in_the_same_bytes(room, undisturbed, tmp_path, monkeypatch, died, cut_up):
    whole, folder = undisturbed(**cut_up)
    with monkeypatch.context() as patch:
        exception = stop_after(patch, died)
        with pytest.raises(exception):
            run(room, tmp_path / "cut", **cut_up)
    said = []
    resumed = run(room, tmp_path / "cut", said, **cut_up)
    assert same(whole.arrays, resumed.arrays)
    assert (whole.best, whole.start_loss) == (resumed.best, resumed.start_loss)
    assert (tmp_path / "cut" / STEPS).read_bytes() == (folder / STEPS).read_bytes()
    assert (tmp_path / "cut" / VALIDATION).read_bytes() == (folder / VALIDATION).read_bytes()
    assert any("continuing from step" in line for line in said) == (died >= 3)


@pytest.mark.slow
def test_after_kill_9_it_ends_in_the_same_bytes(room, tmp_path):
    whole = run(room, tmp_path / "whole", steps=40, validate_every=40)
    wanted = job(room, tmp_path / "cut", steps=40, validate_every=40)
    (tmp_path / "job.json").write_bytes(orjson.dumps(wanted.to_json()))
    process = subprocess.Popen([sys.executable, "-c", STARTED, tmp_path / "job.json"], cwd=Path(__file__).parents[3])
    deadline = time.monotonic() + 120
    while last_checkpoint(wanted.work)[0] is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    left, _ = last_checkpoint(wanted.work)
    assert 0 < left.step < 40
    assert same(whole.arrays, run(room, wanted.work, steps=40, validate_every=40).arrays)


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(room, undisturbed, tmp_path, monkeypatch):
    whole, _ = undisturbed()
    with monkeypatch.context() as patch:
        exception = stop_after(patch, 10)
        with pytest.raises(exception):
            run(room, tmp_path / "cut")
    newest = max((tmp_path / "cut").glob("step-*"))
    newest.write_bytes(newest.read_bytes()[:-7])
    said = []
    resumed = run(room, tmp_path / "cut", said)
    assert f"supmer: warning: {newest} is damaged and is skipped" in said
    assert "supmer: continuing from step 6" in said
    assert same(whole.arrays, resumed.arrays)


def test_a_checkpoint_of_another_training_is_not_resumed(room, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        exception = stop_after(patch, 4)
        with pytest.raises(exception):
            run(room, tmp_path, key="one")
    said = []
    run(room, tmp_path, said, key="other")
    assert not any("continuing" in line for line in said)
    assert [record["step"] for record in steps(tmp_path)] == list(range(1, 13))


def test_a_loss_that_is_not_finite_stops_with_step_tasks_and_last_good_checkpoint(room, tmp_path, monkeypatch):
    before = training._mixed

    def poisoned(run, batch):
        if run.trainer.step == 7:
            run.trainer._groups["prompt"]["prompt"].data[0, 0] = float("nan")
        return before(run, batch)

    monkeypatch.setattr(training, "_mixed", poisoned)
    with pytest.raises(InputError, match=r"step 8: .* NaN .*in \w+-train-\d+.*last good checkpoint is of step 6"):
        run(room, tmp_path)


def test_a_held_out_loss_that_is_not_finite_stops_it_too(room, tmp_path, monkeypatch):
    before = training._validate

    def poisoned(run):
        run.trainer._groups["prompt"]["prompt"].data[:] = float("nan")
        before(run)

    monkeypatch.setattr(training, "_validate", poisoned)
    with pytest.raises(InputError, match=r"step 4: .* NaN .*in \w+-validation-\d+.*last good checkpoint is of step 3"):
        run(room, tmp_path)


def test_memory_that_ends_with_a_row_is_told_in_one_line(room, tmp_path, monkeypatch):
    from model.meta import objectives

    def none_left(*_):
        raise MemoryError("no more")

    monkeypatch.setattr(objectives, "meta_gradients", none_left)
    with pytest.raises(InputError, match=r"supmer: memory ran out .*no more.* lower metatrain.max_length"):
        run(room, tmp_path)


def test_a_checkpoint_is_written_after_so_many_seconds_too(room, tmp_path, monkeypatch):
    exception = stop_after(monkeypatch, 5)
    with pytest.raises(exception):
        train(
            replace(job(room, tmp_path, checkpoint_steps=1000), checkpoint_seconds=0.0),
            Ranks(),
            lambda *_: None,
            lambda _: None,
        )
    assert last_checkpoint(tmp_path)[0].step == 5


def test_a_log_that_was_cut_starts_the_training_anew(room, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        exception = stop_after(patch, 7)
        with pytest.raises(exception):
            run(room, tmp_path)
    (tmp_path / STEPS).write_bytes(b"")
    said = []
    run(room, tmp_path, said)
    assert not any("continuing" in line for line in said)
    assert [record["step"] for record in steps(tmp_path)] == list(range(1, 13))


def test_an_only_variant_reads_its_format_alone(room, tmp_path, monkeypatch):
    seen = set()
    before = training._mixed

    def noting(run, batch):
        seen.update(task.format for task in (*batch.tasks, *batch.partners))
        return before(run, batch)

    monkeypatch.setattr(training, "_mixed", noting)
    run(room, tmp_path, variants=["only-mc"], steps=4)
    assert seen == {"mc"}


def test_patience_ends_it(room, tmp_path, monkeypatch):
    losses = iter([9.0, 5.0, 4.0, 4.5, 4.2, 1.0])
    monkeypatch.setattr(Trainer, "held_out", lambda *_: HeldOut(next(losses), ()))
    trained = run(room, tmp_path, steps=40, validate_every=2, patience=2)
    assert (trained.best.loss, trained.best.step, trained.steps) == (4.0, 4, 8)


def test_memory_that_runs_out_makes_smaller_pieces_and_the_same_result(room, undisturbed, tmp_path, monkeypatch):
    whole, _ = undisturbed()
    from model.meta import objectives

    calls = []
    real = objectives.meta_gradients

    def scarce(passes, *rest):
        calls.append((passes.chunk_tokens, rest[3].keep_graph))
        if passes.chunk_tokens > 256 or rest[3].keep_graph:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return real(passes, *rest)

    monkeypatch.setattr(objectives, "meta_gradients", scarce)
    said = []
    found = run(room, tmp_path / "scarce", said)
    assert calls[:4] == [(768, True), (768, False), (384, False), (192, False)]
    assert set(calls[4:]) == {(192, False)}
    assert any("chunks of 192 tokens" in line for line in said)
    for name, value in whole.arrays.items():
        np.testing.assert_allclose(found.arrays[name], value, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("variant", ["ppt", "unified-ppt", "without-mgr", "without-ta", "without-curriculum"])
def test_variants_train(room, tmp_path, variant):
    trained = run(room, tmp_path, variants=[variant], ppt={"steps": 12, "validate_every": 4})
    assert trained.steps == 12
    assert (trained.arrays.keys() == {"prompt"}) == (variant in {"ppt", "unified-ppt", "without-mgr"})
    mixed = [record["lambda"] for record in steps(tmp_path)]
    assert any(mixed) == (variant in {"without-mgr", "without-curriculum"})
    assert all(record["b"] == 1 for record in steps(tmp_path)) == (variant == "without-curriculum")


@pytest.mark.parametrize("variant", ["supmer-labeled", "supmer-mixed", "metapt"])
def test_variants_train_on_tasks_of_labeled_sets(room, tmp_path, variant):
    """A room with nothing else in it shows that the first and the last see these tasks alone; five labels each."""
    mixed = variant == "supmer-mixed"
    for name in ("backbone", "centroids"):
        (tmp_path / name).symlink_to(room / name)
    for split in ("train", "validation"):
        counts = {"labeled-stars": 6} | ({"sp-next": 6, "mc-next": 6, "ss": 6} if mixed else {})
        write_tasks(tmp_path / "tasks", counts, split, support=5, query=5)
    trained = run(tmp_path, tmp_path / "work", variants=[variant])
    assert trained.steps == 12
    assert (trained.arrays.keys() == {"prompt"}) == (variant == "metapt")
    assert any(record["lambda"] for record in steps(tmp_path / "work")) == (variant != "metapt")
    assert trained.best.loss < trained.start_loss


@pytest.mark.slow
class TestRanks:
    """Several processes, gloo between them."""

    def test_two_ranks_give_what_one_gives(self, room, undisturbed, tmp_path):
        alone, folder = undisturbed()
        together = train_on_ranks(job(room, tmp_path / "together"), 2, tmp_path / "shard.partial-x")
        for name, value in alone.arrays.items():
            np.testing.assert_allclose(together.arrays[name], value, rtol=2e-3, atol=2e-4)
        assert together.best.loss == pytest.approx(alone.best.loss, rel=1e-4)
        # Adam and clipping hide a wrong scale of the gradients: the norms before them do not.
        for one, other in zip(steps(folder), steps(tmp_path / "together"), strict=True):
            assert other == pytest.approx(one, rel=1e-3, abs=1e-5)

    def test_a_training_goes_on_with_another_number_of_ranks(self, room, undisturbed, tmp_path, monkeypatch):
        alone, _ = undisturbed()
        with monkeypatch.context() as patch:
            exception = stop_after(patch, 7)
            with pytest.raises(exception):
                run(room, tmp_path / "cut")
        together = train_on_ranks(job(room, tmp_path / "cut"), 2, tmp_path / "shard.partial-x")
        np.testing.assert_allclose(together.arrays["prompt"], alone.arrays["prompt"], rtol=2e-3, atol=2e-4)
        assert [record["step"] for record in steps(tmp_path / "cut")] == list(range(1, 13))

    def test_a_killed_rank_ends_them_all_and_the_next_try_goes_on(self, room, tmp_path):
        wanted = job(room, tmp_path / "work", steps=4000, validate_every=4000, checkpoint_steps=5)
        import threading

        import psutil

        def kill_one():
            deadline = time.monotonic() + 120
            while last_checkpoint(wanted.work)[0] is None and time.monotonic() < deadline:
                time.sleep(0.05)
            mine = psutil.Process().children(recursive=True)
            ranks = [
                one
                for one in mine
                if "tasks.metatrain.torchrun" in one.cmdline() and "torch.distributed.run" not in one.cmdline()
            ]
            ranks[-1].send_signal(signal.SIGKILL)

        killer = threading.Thread(target=kill_one)
        killer.start()
        with pytest.raises(TransientError, match=r"a rank ended too early.*continues from step"):
            train_on_ranks(wanted, 2, tmp_path / "shard.partial-x")
        killer.join()
        left = last_checkpoint(wanted.work)[0].step
        short = replace(wanted, training=replace(wanted.training, steps=left + 2, validate_every=left + 2))
        assert train_on_ranks(short, 2, tmp_path / "shard.partial-x").steps == left + 2
        assert f"supmer: continuing from step {left}\n" in (tmp_path / "shard.said").read_text()
        assert not [
            one
            for one in psutil.Process().children(recursive=True)
            if "tasks.metatrain.torchrun" in " ".join(one.cmdline())
        ]

    def test_what_only_the_second_rank_meets_is_told_as_well(self, room, tmp_path):
        """With one task a batch of two, rank 1 alone reads what lies at odd places."""
        poor = tmp_path / "poor"
        shutil.copytree(room, poor)
        write_centroids(poor / "centroids", clusters=1)
        wanted = replace(job(poor, tmp_path / "work", formats=["ss"]), seed=1)
        with pytest.raises(InputError, match=r"data/clusters/centroids: none for cluster \d+ of ss"):
            train_on_ranks(wanted, 2, tmp_path / "shard.partial-x")

    def test_a_bug_in_a_rank_is_a_bug(self, room, tmp_path):
        wanted = job(room, tmp_path / "work")
        broken = replace(wanted, training=replace(wanted.training, schedule=None, gate=7, rank="four"))
        with pytest.raises(RuntimeError, match="Traceback"):
            train_on_ranks(broken, 2, tmp_path / "shard.partial-x")
