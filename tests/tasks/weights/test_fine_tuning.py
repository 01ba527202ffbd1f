"""Fine-tuning of all weights from the stage: results, what is kept, resumption, refusals."""

import math
import os
import shutil
import threading
import time
from pathlib import Path

import duckdb
import orjson
import psutil
import pytest
import torch
from safetensors.torch import load_file

from model.tuning.classifier import PromptedClassifier
from model.tuning.fine_tuner import FineTuner
from storage import paths
from storage.atomic import remove
from storage.errors import InputError, TransientError
from support.tuned_methods import (
    assert_resumed_to_the_same_bytes,
    classified,
    die_in_training,
    rooms,
    stored_predictions,
)
from support.tuning_room import run_tune as run
from tasks.peft.exchange import export_adapter
from tasks.tune import stage as tune

pytestmark = pytest.mark.usefixtures("one_core")

SETS = ["first", "second"]
SMALL = {
    "domains": {"source": "first", "targets": ["second"]},
    "methods": ["ft"],
    "fine_tuning": {"learning_rates": [0.001, 0.01]},
}
CURVE = "seed, learning_rate, step, train_loss, validation_loss"
KEPT = {"fine_tuning": {"learning_rates": [0.001, 0.01], "keep": True}}


furniture, corpus = rooms(SMALL, SETS)


def rows(corpus, table, columns, where="true"):
    files = corpus.root / table / "**/*.parquet"
    return duckdb.sql(f"SELECT {columns} FROM read_parquet('{files}') WHERE {where} ORDER BY ALL").fetchall()


def predictions(corpus):
    return rows(corpus, paths.PREDICTIONS, "tested_on, seed, example_id, predicted, log_probabilities")


def test_weights_that_are_not_kept_are_tested_and_described(corpus):
    record = run(corpus)
    assert set(record["scores"]) == {"first, 4 shots", "first on second, 4 shots"}
    folder = corpus.root / paths.TUNED_PROMPTS / "first/ft"
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "supmer.json"]
    card = (folder / "README.md").read_text()
    assert "not kept" in card
    assert "supmer predict" not in card
    with pytest.raises(InputError, match=r"weights were not kept: set tune\.fine_tuning\.keep"):
        PromptedClassifier.from_pretrained(folder)
    assert not list((corpus.root / ".supmer").rglob("best-*"))


def test_every_table_is_filled(corpus):
    run(corpus)
    weights = sum(parameter.numel() for parameter in loaded(corpus).parameters())
    assert rows(corpus, paths.COSTS, "method, seed, parameters, seconds > 0") == [
        ("ft", 10, weights, True),
        ("ft", 20, weights, True),
    ]
    assert len(rows(corpus, paths.SCORES, "seed, learning_rate, tested_on")) == 6
    assert rows(corpus, paths.SCORES, "seed, tested_on", "chosen AND score IS NOT NULL AND tuned_hash != ''") == [
        (seed, name) for seed in (10, 20) for name in SETS
    ]
    steps = {step for (step,) in rows(corpus, paths.CURVES, "step")}
    assert steps == {0, 2, 4}
    assert {name for (name,) in rows(corpus, paths.PREDICTIONS, "tested_on")} == {*SETS}


def loaded(corpus):
    from transformers import T5ForConditionalGeneration

    from storage.sources.source import read_manifest

    source = read_manifest(corpus.root / paths.BACKBONE)[0]
    return T5ForConditionalGeneration.from_pretrained(corpus.root / source.folder)


def test_kept_weights_are_a_transformers_folder_that_predicts_as_the_stage_did(corpus, furniture):
    from transformers import T5ForConditionalGeneration

    run(corpus)
    before = predictions(corpus)
    run(corpus, **KEPT)
    after = predictions(corpus)
    assert [row[:4] for row in before] == [row[:4] for row in after]
    for old, new in zip(before, after, strict=True):
        assert new[4] == pytest.approx(old[4], abs=1e-4)  # the fast path sums in another order
    folder = corpus.root / paths.TUNED_PROMPTS / "first/ft"
    model, start = T5ForConditionalGeneration.from_pretrained(folder), loaded(corpus)
    assert not model.shared.weight.equal(start.shared.weight)
    _, found = classified(folder, furniture, precision="float32")
    kept = orjson.loads((folder / "supmer.json").read_bytes())["tuned_hash"]
    stored = stored_predictions(corpus, kept, "log_probabilities")
    for prediction, ((first, second),) in zip(found, stored, strict=True):
        odds = prediction.probabilities["0"] / prediction.probabilities["1"]
        assert math.log(odds) == pytest.approx(first - second, abs=1e-3)
    with pytest.raises(InputError, match="need no other backbone"):
        PromptedClassifier.from_pretrained(folder, folder)
    with pytest.raises(InputError, match="holds trained weights: transformers' from_pretrained loads the folder"):
        export_adapter(folder, corpus.root / "exported", None)
    assert "needs no other backbone" in (folder / "README.md").read_text()


def test_a_new_test_set_is_tested_although_the_weights_are_gone(corpus):
    run(corpus, domains={"source": "first", "targets": []})
    assert {name for (name,) in rows(corpus, paths.PREDICTIONS, "tested_on")} == {"first"}
    run(corpus, domains={"source": "first", "targets": ["second"]})
    assert {name for (name,) in rows(corpus, paths.PREDICTIONS, "tested_on")} == {*SETS}


def test_in_bfloat16_the_weights_kept_are_the_float32_master_weights(corpus):
    run(corpus, precision="bfloat16", **KEPT)
    folder = corpus.root / paths.TUNED_PROMPTS / "first/ft"
    weights = load_file(folder / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert any(not weight.equal(weight.bfloat16().float()) for weight in weights.values())
    assert orjson.loads((folder / "supmer.json").read_bytes())["downstream"]["precision"] == "bfloat16"


@pytest.mark.parametrize(("steps", "precision"), [(1, "float32"), (4, "bfloat16"), (12, "float32")])
def test_an_interrupted_run_goes_on_and_gives_the_same_bits(corpus, steps, precision):
    assert_resumed_to_the_same_bytes(corpus, steps, FineTuner, precision=precision, **KEPT)


def test_passes_of_a_few_rows_and_recomputed_activations_give_the_same_training(corpus):
    run(corpus, **KEPT)
    whole = rows(corpus, paths.CURVES, "seed, learning_rate, step, validation_loss")
    for changes in ({"micro_batch": 2}, {"gradient_checkpointing": True}):
        run(corpus, fine_tuning=KEPT["fine_tuning"] | changes)
        other = rows(corpus, paths.CURVES, "seed, learning_rate, step, validation_loss")
        assert [row[:3] for row in other] == [row[:3] for row in whole]
        assert [row[3] for row in other] == pytest.approx([row[3] for row in whole], rel=1e-3)


def test_too_little_memory_is_one_line(corpus, monkeypatch):
    monkeypatch.setattr("tasks.weights.fine_tuning.total_memory", lambda _device: 1000)
    with pytest.raises(InputError, match=r"^first/ft: 0\.\d million weights take .* GB with gradients and AdamW, and"):
        run(corpus)


def test_a_damaged_checkpoint_is_named(corpus):
    die_in_training(corpus, 3, FineTuner)
    (folder,) = (corpus.root / tune.WORK).rglob("step-*")
    for path in folder.glob("*.distcp"):
        os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(InputError, match="the checkpoint is damaged: remove this folder"):
        run(corpus)
    shutil.rmtree(folder)
    run(corpus)


@pytest.mark.slow
class TestRanks:
    """Two processes with gloo between them; FSDP2 shards the weights."""

    @pytest.fixture(autouse=True)
    def path(self, monkeypatch):
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))

    @pytest.mark.parametrize("reshard", [False, True])
    def test_two_ranks_give_what_one_process_gives(self, corpus, monkeypatch, reshard):
        settings = {"reshard_after_forward": reshard, "micro_batch": 2, "keep": True}
        settings["learning_rates"] = [0.01, 0.001]  # the first is the better one: its weights are read again
        run(corpus, fine_tuning=settings)
        alone = rows(corpus, paths.CURVES, CURVE, "step > 0"), predictions(corpus)
        remove(corpus.root / ".supmer")
        monkeypatch.setenv("SUPMER_RANKS", "2")
        run(corpus, fine_tuning=settings)
        assert_close(rows(corpus, paths.CURVES, CURVE, "step > 0"), alone[0])
        for one, other in zip(alone[1], predictions(corpus), strict=True):
            assert other[4] == pytest.approx(one[4], rel=1e-2)

    def test_a_run_of_one_process_goes_on_with_two_ranks(self, corpus, monkeypatch):
        whole = self.curves(corpus)
        die_in_training(corpus, 3, FineTuner)
        monkeypatch.setenv("SUPMER_RANKS", "2")
        assert_close(self.curves(corpus), whole)
        assert any("continuing from step 3 of seed 10" in line for line in corpus.said)

    def test_after_kill_9_of_a_rank_one_process_goes_on(self, corpus, monkeypatch):
        whole = self.curves(corpus, epochs=20)
        monkeypatch.setenv("SUPMER_RANKS", "2")
        killer = threading.Thread(target=kill_a_rank, args=(corpus.root / tune.WORK,))
        killer.start()
        with pytest.raises(TransientError, match="first/ft: a rank ended too early"):
            run(corpus, checkpoint_seconds=1e-6, epochs=20)
        killer.join()
        monkeypatch.setenv("SUPMER_RANKS", "1")
        assert_close(self.curves(corpus, epochs=20), whole)
        assert any("continuing from step" in line for line in corpus.said)

    def curves(self, corpus, **changes):
        run(corpus, **{"checkpoint_seconds": 60} | changes)
        found = rows(corpus, paths.CURVES, CURVE, "step > 0")
        if not any("continuing" in line for line in corpus.said):
            remove(corpus.root / ".supmer")
        return found


def kill_a_rank(work):
    deadline = time.monotonic() + 120
    while not list(work.rglob("step-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    ranks = [
        process
        for process in psutil.Process().children(recursive=True)
        if "tasks.weights.torchrun" in process.cmdline() and "torch.distributed.run" not in process.cmdline()
    ]
    ranks[-1].kill()


def assert_close(curves, others):
    assert [row[:3] for row in curves] == [row[:3] for row in others]
    for one, other in zip(curves, others, strict=True):
        assert one[3:] == pytest.approx(other[3:], rel=1e-3)
