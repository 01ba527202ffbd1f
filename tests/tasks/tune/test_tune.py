"""The tune stage: tables that can be traced to their predictions, prompts to take away, only what is new computed."""

import json
import shutil
from dataclasses import replace

import duckdb
import numpy as np
import pytest
from sklearn.metrics import f1_score

from storage import paths
from storage.errors import InputError
from storage.prompts.prompt_artifact import PromptArtifact, prompt_hash, read_prompt, write_prompt
from support import added_method
from support.tuning_room import OUTPUTS, PROTOCOL, furnish, tuning_corpus, write_learned, write_sets
from support.tuning_room import run_tune as run
from support.vector_corpus import contents
from tasks import methods
from tasks.params.schema import Params
from tasks.tune.plan import planned

pytestmark = pytest.mark.usefixtures("one_core")

SETS = ("first", "second", "third")
SMALL = {
    "methods": ["pt", "supmer"],
    "learning_rates": [0.1, 1.0],
}
METATRAIN = {"prompt_tokens": 3, "variants": ["supmer", "without-mgr", "ppt"]}


@pytest.fixture(scope="module")
def furniture(tmp_path_factory):
    """Models, datasets and learned prompts."""
    folder = tmp_path_factory.mktemp("furniture")
    furnish(folder, SETS)
    write_sets(folder / "sets", ["pairs"], labels=3, pairs=True)
    for seed, name in enumerate(("supmer", "without-mgr", "ppt-sp", "ppt-ss")):
        write_learned(folder / "prompt" / name, 3, seed, regularized=name == "supmer")
    return folder


@pytest.fixture
def corpus(tmp_path, furniture):
    return tuning_corpus(tmp_path, furniture, SMALL, (*SETS, "pairs"), METATRAIN)


def query(corpus, text):
    """SQL over the three tables, as `supmer sql` has them."""
    with duckdb.connect() as connection:
        for table in (paths.SCORES, paths.CURVES, paths.PREDICTIONS):
            name = table.rpartition("/")[2]
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{corpus.root / table}/**/*.parquet'")
        return connection.execute(text).fetchall()


def tuned_jobs(corpus):
    return [name.removeprefix("tune-") for name in corpus.done if not name.startswith("tune-seed")]


def test_scores_have_macro_f1_and_the_share_of_the_most_frequent_label(corpus):
    run(corpus, methods=["zero-shot", "pt"])
    tested = query(corpus, "SELECT macro_f1, majority_share, method, seed FROM scores WHERE score IS NOT NULL")
    assert len(tested) == 3
    for measured, share, method, seed in tested:
        seeded = "" if seed is None else f"AND seed = {seed}"
        pairs = query(corpus, f"SELECT label, predicted FROM predictions WHERE method = '{method}' {seeded}")
        labels, predicted = zip(*pairs, strict=True)
        assert measured == pytest.approx(f1_score(labels, predicted, average="macro"))
        assert share == pytest.approx(max(map(labels.count, labels)) / len(labels))
    assert query(corpus, "SELECT count(macro_f1) FROM scores WHERE score IS NULL") == [(0,)]


def test_every_score_can_be_traced_to_its_predictions_by_sql(corpus):
    run(corpus, methods=["zero-shot", "few-shot", "pt", "supmer"])
    assert query(
        corpus, "SELECT method, count(*), count(score), sum(chosen::int) FROM scores GROUP BY 1 ORDER BY 1"
    ) == [
        ("few-shot", 2, 2, 2),
        ("pt", 4, 2, 2),
        ("supmer", 4, 2, 2),
        ("zero-shot", 1, 1, 1),
    ]
    joined = query(
        corpus,
        """
        SELECT s.method, s.seed, s.score, s.examples, avg((p.label = p.predicted)::int), count(*),
               bool_and(p.data_hash = s.data_hash)
        FROM scores s JOIN predictions p
          ON (s.dataset, s.tested_on, s.method, s.shots, s.tuned_hash)
           = (p.dataset, p.tested_on, p.method, p.shots, p.tuned_hash)
          AND s.seed IS NOT DISTINCT FROM p.seed AND s.learning_rate IS NOT DISTINCT FROM p.learning_rate
        WHERE s.chosen GROUP BY ALL
        """,
    )
    assert len(joined) == 7
    for _, _, score, examples, found, count, same_data in joined:
        assert (score, examples, same_data) == (pytest.approx(found), count, True)
    ids = query(corpus, "SELECT DISTINCT example_id FROM predictions ORDER BY 1")
    assert [one for (one,) in ids] == sorted(f"test.jsonl:{row}" for row in range(1, 11))
    likely = query(corpus, "SELECT predicted, log_probabilities FROM predictions")
    assert all(int(np.argmax(values)) == predicted and len(values) == 2 for predicted, values in likely)


def test_curves_hold_every_evaluation_of_every_run_and_the_best_is_the_score(corpus):
    run(corpus)
    steps = query(corpus, "SELECT list(step ORDER BY step) FROM curves GROUP BY method, seed, learning_rate")
    assert steps == [([0, 2, 4],)] * 8
    wrong = query(
        corpus,
        """
        SELECT * FROM scores s WHERE s.validation_score <> (
            SELECT max(c.validation_score) FROM curves c
            WHERE (c.method, c.seed, c.learning_rate) = (s.method, s.seed, s.learning_rate) AND c.step > 0)
        """,
    )
    assert wrong == []
    chosen = query(
        corpus,
        "SELECT bool_and(best), count(*) FROM (SELECT chosen, validation_score = max(validation_score) "
        "OVER (PARTITION BY method, seed) AS best FROM scores) WHERE chosen",
    )
    assert chosen == [(True, 4)]


def test_the_seed_with_the_best_validation_score_leaves_a_prompt_that_says_all_it_needs(corpus):
    run(corpus)
    folder = corpus.root / paths.TUNED_PROMPTS / "first" / "supmer"
    artifact = read_prompt(folder)
    assert artifact.prompt.shape == (3, 16)
    downstream = artifact.about["downstream"]
    (best,) = query(
        corpus,
        "SELECT seed, learning_rate, validation_score, tuned_hash FROM scores WHERE method = 'supmer' AND chosen "
        "ORDER BY validation_score DESC, seed LIMIT 1",
    )
    assert downstream["validation_score"] == best[2]
    assert {downstream[name] for name in ("dataset", "form")} == {"first", "sentinel"}
    assert downstream["fields"] == ["text"]
    assert len(downstream["labels"]) == len(downstream["words"]) == 2
    assert "{text}" in downstream["template"]
    assert (downstream["shots"], downstream["max_length"]) == (4, 40)
    assert len(downstream["backbone"]["hash"]) == 64
    assert prompt_hash(folder) in {row[0] for row in query(corpus, "SELECT tuned_hash FROM scores WHERE chosen")}
    assert "supmer predict" in (folder / "README.md").read_text()
    assert not (folder / "regularizer.safetensors").exists()


def test_metrics_and_plots_hold_means_over_the_seeds(corpus):
    record = run(corpus)
    metrics = json.loads((corpus.root / paths.TUNE_METRICS).read_text())
    scores = [score for (score,) in query(corpus, "SELECT score FROM scores WHERE method = 'pt' AND chosen")]
    assert metrics["first, 4 shots"]["pt"] == {
        "mean": pytest.approx(np.mean(scores)),
        "deviation": pytest.approx(np.std(scores, ddof=1)),
        "seeds": 2,
    }
    assert record["rows"] == 8
    lines = (corpus.root / paths.TUNE_PLOTS / "first-supmer-4.csv").read_text().splitlines()
    assert lines[0] == '"step","train_loss","validation_loss","validation_score"'
    assert [line.split(",")[0] for line in lines[1:]] == ["0", "2", "4"]


def test_one_more_seed_method_dataset_or_target_computes_only_what_is_new(corpus):
    run(corpus)
    assert tuned_jobs(corpus)[:2] == ["tune/first/pt-4", "tune/first/supmer-4"]
    before = contents(corpus.root / paths.PREDICTIONS)
    run(corpus, checkpoint_seconds=5.0)
    assert corpus.done == []
    run(corpus, seeds=[10, 20, 30])
    assert tuned_jobs(corpus) == [
        "tune/first/pt-4",
        "tune/first/supmer-4",
        "test/first/pt-4-30-on-first",
        "test/first/supmer-4-30-on-first",
    ]
    after = contents(corpus.root / paths.PREDICTIONS)
    assert {name: after[name] for name in before} == before
    steps = query(corpus, "SELECT DISTINCT seed FROM curves ORDER BY 1")
    assert steps == [(10,), (20,), (30,)]
    run(corpus, methods=["pt", "supmer", "without-mgr"], seeds=[10])
    assert tuned_jobs(corpus) == ["tune/first/without-mgr-4", "test/first/without-mgr-4-10-on-first"]
    run(corpus, datasets=["first", "second"], methods=["pt"])
    assert tuned_jobs(corpus) == ["tune/second/pt-4", "test/second/pt-4-10-on-second"]
    run(corpus, domains={"source": "first", "targets": ["second"]})
    assert tuned_jobs(corpus) == ["test/first/pt-4-10-on-second"]
    run(corpus, shot_sweep=[2])
    assert tuned_jobs(corpus)[:2] == ["tune/first/pt-2", "tune/second/pt-2"]


def test_the_seeds_tuned_together_are_those_tuned_one_after_the_other(corpus):
    run(corpus, methods=["supmer"])
    together = query(corpus, "SELECT seed, learning_rate, step, validation_loss FROM curves ORDER BY ALL")
    run(corpus, seeds=[10, 20], learning_rates=[0.1, 1.0, 7.0])
    run(corpus, seeds=[20], learning_rates=[0.1, 1.0])
    run(corpus, seeds=[10, 20])
    assert tuned_jobs(corpus)[0] == "tune/first/supmer-4"
    apart = query(corpus, "SELECT seed, learning_rate, step, validation_loss FROM curves ORDER BY ALL")
    assert [row[:3] for row in apart] == [row[:3] for row in together]
    assert [row[3] for row in apart] == pytest.approx([row[3] for row in together], rel=1e-5)


def test_a_precision_of_its_own_tunes_and_tests_anew_and_is_on_the_card(corpus):
    run(corpus, methods=["supmer"])
    wide = tuned_jobs(corpus)
    record = run(corpus, methods=["supmer"], precision="bfloat16")
    assert tuned_jobs(corpus) == wide
    assert record["precision"] == "bfloat16"
    (card,) = [path for path in (corpus.root / paths.TUNED_PROMPTS).rglob("README.md") if "supmer" in str(path)][:1]
    assert "| precision | bfloat16 |" in card.read_text("utf-8")
    run(corpus, methods=["supmer"], precision=None)
    assert corpus.said[0] == "tune: precision float32 (as asked for)"  # that of all stages


def test_a_prompt_of_the_source_domain_is_tested_on_every_target(corpus):
    run(
        corpus,
        datasets=[],
        methods=["zero-shot", "few-shot", "supmer"],
        seeds=[10],
        domains={"source": "first", "targets": ["second", "third"]},
    )
    rows = query(
        corpus, "SELECT dataset, tested_on, method, examples FROM scores WHERE chosen ORDER BY method, tested_on"
    )
    assert rows == [
        ("first", place, method, 10 if place == "first" else 34)
        for method in ("few-shot", "supmer", "zero-shot")
        for place in SETS
    ]
    assert query(corpus, "SELECT count(DISTINCT tuned_hash) FROM predictions WHERE method = 'supmer'") == [(1,)]
    metrics = json.loads((corpus.root / paths.TUNE_METRICS).read_text())
    assert list(metrics) == ["first, 4 shots", "first on second, 4 shots", "first on third, 4 shots"]


def test_ppt_starts_from_the_prompt_of_the_sets_own_format(corpus):
    run(corpus, datasets=["first", "pairs"], methods=["ppt"], seeds=[10])
    found = dict(query(corpus, "SELECT DISTINCT dataset, prompt_hash FROM scores"))
    prompts = corpus.root / paths.PROMPTS
    assert found == {"first": prompt_hash(prompts / "ppt-ss"), "pairs": prompt_hash(prompts / "ppt-sp")}


def test_another_learned_prompt_tunes_its_method_anew_and_no_other(corpus):
    run(corpus)
    shutil.rmtree(corpus.root / paths.PROMPTS / "supmer")
    write_learned(corpus.root / paths.PROMPTS / "supmer", 3, 99, regularized=True)
    run(corpus)
    assert tuned_jobs(corpus)[0] == "tune/first/supmer-4"
    assert not any("pt-4" in name for name in tuned_jobs(corpus))


def test_a_rate_that_leads_to_nan_is_recorded_and_not_chosen(corpus):
    record = run(corpus, methods=["pt"], learning_rates=[0.1, 1e30, 1e38, 1e300])
    assert query(corpus, "SELECT learning_rate, chosen, status = 'nan' FROM scores WHERE seed = 10 ORDER BY 1") == [
        (0.1, True, False),
        (1e30, False, True),
        (1e38, False, True),  # more than torch lets a step of float32 be
        (1e300, False, True),
    ]
    assert record["nan"] == 6


def test_a_test_set_is_cut_to_the_examples_asked_for_the_same_for_all_seeds(corpus):
    run(corpus, test_examples=6)
    drawn = query(corpus, "SELECT list(example_id ORDER BY example_id) FROM predictions GROUP BY method, seed")
    assert len(drawn) == 4
    assert len({tuple(one) for (one,) in drawn}) == 1
    assert len(drawn[0][0]) == 6


def test_the_same_inputs_give_the_same_bytes(corpus):
    from storage.atomic import remove

    run(corpus, methods=["few-shot", "supmer"], seeds=[10])
    same = [path for path in OUTPUTS if path not in (paths.TUNE_METRICS, paths.COSTS)]  # costs are measured
    before = [contents(corpus.root / path) for path in same]
    remove(corpus.root / ".supmer")
    run(corpus)
    assert [contents(corpus.root / path) for path in same] == before


def test_inference_alone_leaves_empty_curves_that_can_be_asked(corpus):
    run(corpus, methods=["zero-shot"])
    assert query(corpus, "SELECT count(*) FROM curves") == [(0,)]
    assert query(corpus, "SELECT seed, learning_rate, status FROM scores") == [(None, None, "ok")]


def test_a_missing_prompt_is_refused(corpus):
    shutil.rmtree(corpus.root / paths.PROMPTS / "supmer")
    with pytest.raises(InputError, match=r"no prompt in .*supmer: `supmer run metatrain`"):
        run(corpus)


def test_a_prompt_of_another_length_is_refused(corpus):
    shutil.rmtree(corpus.root / paths.PROMPTS / "supmer")
    write_learned(corpus.root / paths.PROMPTS / "supmer", 5, 1, regularized=False)
    with pytest.raises(InputError, match=r"has 5 tokens, not metatrain\.prompt_tokens = 3"):
        run(corpus)


def test_a_prompt_of_another_width_is_refused(corpus):
    shutil.rmtree(corpus.root / paths.PROMPTS / "supmer")
    write_prompt(corpus.root / paths.PROMPTS / "supmer", PromptArtifact(np.ones((3, 20), np.float32)), "")
    with pytest.raises(InputError, match=r"supmer: its rows have 20 numbers, the backbone .* takes 16"):
        run(corpus)


def test_too_few_examples_of_a_label_are_refused_with_the_label(corpus):
    with pytest.raises(InputError, match=r"first: label '.*' has 12 examples to learn from"):
        run(corpus, shots=40)


def test_the_longest_input_is_that_of_params_or_else_the_datasets_own():
    acquire = {"backbone": "hf:a/b", "embedder": "hf:a/b", "corpus": {"own": "path:x"}}
    acquire["datasets"] = dict.fromkeys(["cr", "sst-2", "mine"], "path:x")

    def lengths(**values):
        params = Params(acquire=acquire, tune={"datasets": [*acquire["datasets"]], "methods": ["pt"]} | values)
        return [one.tuning.max_length for one in planned(params, "float32")]

    assert lengths() == [256, 128, 128]  # ALGORITHM §6
    assert lengths(max_lengths={"mine": 300}) == [256, 128, 300]
    assert lengths(max_length=64, max_lengths={"mine": 300}) == [64, 64, 300]


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_seeds_that_no_table_holds_are_refused(seed):
    acquire = {"backbone": "hf:a/b", "embedder": "hf:a/b", "corpus": {"own": "path:x"}}
    with pytest.raises(ValueError, match=r"tune\.seeds"):
        Params(acquire=acquire, tune={"seeds": [seed]})


def test_a_new_method_needs_a_row_of_the_table_and_a_module_and_nothing_else(corpus, monkeypatch):
    added = replace(
        methods.METHODS["pt"], name="ft", module="support.added_method", settings=("tune.epochs",), trains="weights"
    )
    monkeypatch.setitem(methods._BY_NAME, added.name, added)
    run(corpus, methods=["pt", added.name], seeds=[10])
    assert added_method.settings == {"tune.epochs": PROTOCOL["epochs"]}
    scores = query(corpus, "SELECT method, score FROM scores WHERE chosen ORDER BY 1")
    assert scores[0] == (added.name, scores[1][1])  # it does as PT does
    assert (corpus.root / paths.TUNED_PROMPTS / "first" / added.name / "prompt.safetensors").is_file()
