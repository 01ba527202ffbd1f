"""The metatrain stage: a prompt folder, a log and a curve for each variant; only what is new is trained."""

import json

import duckdb
import pyarrow.parquet as pq
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from storage import paths
from storage.errors import InputError
from storage.prompts.prompt_artifact import read_prompt
from support import tiny_tokenizers
from support.task_tables import write_tasks
from support.training_room import COUNTS, WIDTH, save_models, write_centroids
from support.vector_corpus import Corpus, contents
from tasks.metatrain import stage as metatrain

INPUTS = [paths.TASKS, paths.CENTROIDS, paths.BACKBONE]
OUTPUTS = [
    paths.PROMPTS,
    paths.TRAINING_STEPS,
    paths.HELD_OUT,
    paths.KINDS,
    paths.METATRAIN_PLOTS,
    paths.METATRAIN_METRICS,
]
SMALL = {"prompt_tokens": 3, "steps": 4, "validate_every": 2, "max_length": 64, "regularizer": {"rank": 4}}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def corpus(tmp_path, models):
    corpus = Corpus(tmp_path, {"metatrain": SMALL | {"variants": ["supmer"]}})
    corpus.link_models(models)
    for split in ("train", "validation"):
        write_tasks(tmp_path / paths.TASKS, COUNTS, split)
    write_centroids(tmp_path / paths.CENTROIDS)
    return corpus


def run(corpus, **changes):
    return corpus.run(metatrain, INPUTS, OUTPUTS, metatrain=changes)


def test_a_variant_leaves_a_prompt_folder_a_log_a_curve_and_metrics(corpus):
    record = run(corpus)
    folder = corpus.root / paths.PROMPTS / "supmer"
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "prompt.safetensors",
        "regularizer.safetensors",
    ]
    artifact = read_prompt(folder)
    assert artifact.prompt.shape == (3, WIDTH)
    assert artifact.about["training"]["order"] == 2
    assert artifact.about["result"] == {key: record["supmer"][key] for key in artifact.about["result"]}
    card = (folder / "README.md").read_text()
    assert f"{record['supmer']['held_out_loss']:.4f}" in card
    steps = pq.read_table(corpus.root / paths.TRAINING_STEPS / "supmer.parquet")
    assert steps["step"].to_pylist() == [1, 2, 3, 4]
    held_out = pq.read_table(corpus.root / paths.HELD_OUT / "supmer.parquet")
    assert held_out["step"].to_pylist() == [0, 2, 4]
    assert min(held_out["held_out_loss"].to_pylist()[1:]) == record["supmer"]["held_out_loss"]
    assert (
        (corpus.root / paths.METATRAIN_PLOTS / "supmer.csv")
        .read_text()
        .splitlines()[0]
        .startswith('"step","support_loss"')
    )
    assert json.loads((corpus.root / paths.METATRAIN_METRICS).read_text())["supmer"]["steps"] == 4
    assert not (corpus.root / metatrain.WORK).exists() or not list((corpus.root / metatrain.WORK).iterdir())


def test_a_backbone_of_another_family_trains_through_the_whole_stage(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("bart")
    for role in ("backbone", "embedder"):
        save_bart(folder / role)
    corpus.link_models(folder)
    record = run(corpus)
    assert record["supmer"]["steps"] == 4
    assert read_prompt(corpus.root / paths.PROMPTS / "supmer").prompt.shape == (3, WIDTH)


def save_bart(folder):
    tokenizer = tiny_tokenizers.byte_level()
    torch.manual_seed(0)
    shape = {"d_model": WIDTH, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 128}
    BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer), **shape, **heads)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_one_more_variant_trains_only_that_and_settings_of_display_train_nothing(corpus):
    run(corpus)
    assert corpus.done == ["metatrain-train/supmer"]
    run(corpus, variants=["supmer", "without-mgr"], checkpoint_steps=7)
    assert corpus.done == ["metatrain-train/without-mgr"]
    assert not (corpus.root / paths.PROMPTS / "without-mgr" / "regularizer.safetensors").exists()
    assert "without a gradient regularizer" in (corpus.root / paths.PROMPTS / "without-mgr" / "README.md").read_text()


def test_ppt_trains_a_prompt_for_each_format_and_all_logs_are_one_table(corpus):
    run(corpus, variants=["supmer", "ppt"], ppt={"steps": 2, "validate_every": 2, "batch_size": 16})
    names = sorted(path.name for path in (corpus.root / paths.PROMPTS).iterdir())
    assert names == ["ppt-mc", "ppt-sp", "ppt-ss", "supmer"]
    shards = str(corpus.root / paths.TRAINING_STEPS / "*.parquet")
    counted = duckdb.sql(
        f"SELECT variant, count(*), count(similarity) FROM '{shards}' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert counted == [("ppt-mc", 2, 0), ("ppt-sp", 2, 0), ("ppt-ss", 2, 0), ("supmer", 4, 4)]


def test_the_same_inputs_give_the_same_bytes(corpus):
    from storage.atomic import remove

    run(corpus)
    before = [contents(corpus.root / path) for path in OUTPUTS[:4]]
    remove(corpus.root / ".supmer")
    run(corpus)
    assert [contents(corpus.root / path) for path in OUTPUTS[:4]] == before


def test_each_precision_is_trained_printed_recorded_and_on_the_card(corpus):
    wide = run(corpus, precision="float32")
    assert "metatrain: precision float32 (as asked for)" in corpus.said
    low = run(corpus, precision="bfloat16")
    assert corpus.done == ["metatrain-train/supmer"]
    assert (wide["precision"], low["precision"]) == ("float32", "bfloat16")
    folder = corpus.root / paths.PROMPTS / "supmer"
    assert "| precision | bfloat16 |" in (folder / "README.md").read_text("utf-8")
    assert read_prompt(folder).about["training"]["precision"] == "bfloat16"


def test_auto_is_resolved_before_keys_are_made(corpus, monkeypatch):
    run(corpus, precision="float32")
    monkeypatch.setattr("model.t5.precision.bfloat16_units", lambda _where: "")
    assert run(corpus, precision="auto")["precision"] == "float32"
    assert corpus.done == []  # the same payload
    monkeypatch.setattr("model.t5.precision.bfloat16_units", lambda _where: "UNITS")
    assert run(corpus, precision="auto")["precision"] == "bfloat16"
    assert corpus.done == ["metatrain-train/supmer"]
    assert "metatrain: precision bfloat16 (auto: this processor has UNITS)" in corpus.said


def test_a_checkpoint_of_the_other_precision_is_not_continued_and_a_line_says_so(corpus, monkeypatch):
    settings = {"checkpoint_steps": 1}
    with monkeypatch.context() as patch:
        patch.setattr("tasks.metatrain.training._validate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(corpus, precision="float32", **settings)
    run(corpus, precision="bfloat16", **settings)
    restarts = [line for line in corpus.said if "starts again" in line]
    assert len(restarts) == 1
    assert "supmer: starts again in bfloat16: its checkpoints were made in float32" in restarts[0]
    assert not any("continuing from" in line for line in corpus.said)


def interrupted(_run):
    raise KeyboardInterrupt


def test_bfloat16_without_units_warns_once_and_works(corpus, monkeypatch):
    monkeypatch.setattr("model.t5.precision.bfloat16_units", lambda _where: "")
    run(corpus, precision="bfloat16")
    assert len([line for line in corpus.said if "times as long as in float32" in line]) == 1


def test_another_backbone_or_other_tasks_train_anew(corpus):
    run(corpus)
    write_tasks(corpus.root / paths.TASKS, COUNTS, "validation", words=9)
    run(corpus)
    assert corpus.done == ["metatrain-train/supmer"]


@pytest.mark.parametrize("ranks", ["0", "two", "-1"])
def test_a_number_of_ranks_that_is_none_is_refused(corpus, monkeypatch, ranks):
    monkeypatch.setenv("SUPMER_RANKS", ranks)
    with pytest.raises(InputError, match=f"SUPMER_RANKS={ranks}: give a number of processes"):
        run(corpus)


def test_a_centroid_that_is_not_there_is_named(corpus):
    write_centroids(corpus.root / paths.CENTROIDS, clusters=2)
    with pytest.raises(InputError, match=r"data/clusters/centroids: none for cluster \d+ of ss"):
        run(corpus)
