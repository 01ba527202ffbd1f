"""`supmer run tune`, killed in mid-tuning and run again: it goes on, and the prompts are the same, byte for byte."""

import orjson
import pytest

from support.dying import checkpoint_steps, kill_when
from support.tuning_room import tuning_workspace
from support.workspaces import ONE_WORKER

SETS = ("movies", "products", "editorials", "tweets")
SETTINGS = (
    "metatrain.template=sentinel",
    "metatrain.prompt_tokens=3",
    "metatrain.variants=[supmer, without-mgr]",
    "tune.datasets=[movies]",
    "tune.domains.targets=[products]",
    "tune.methods=[few-shot, prefix-tuning, pt, supmer]",
    "tune.prefix_tuning.length=3",
    "tune.prefix_tuning.hidden_size=8",
    "tune.prefix_tuning.learning_rates=[0.01]",
    "tune.shots=4",
    "tune.seeds=[10, 20]",
    "tune.batch_size=4",
    "tune.epochs=12",
    "tune.max_length=40",
    "tune.checkpoint_seconds=0.001",
    "report.datasets=[movies, products]",
)
PROMPTS = "artifacts/tuned/movies"


@pytest.fixture(scope="module")
def furnished(tmp_path_factory, prefect_api):
    """A workspace whose only stage is tune, with what earlier stages would have left."""
    return tuning_workspace(tmp_path_factory.mktemp("tune"), prefect_api, SETS, ("supmer", "without-mgr"))


def prompts(workspace):
    folder = workspace.root / PROMPTS
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_after_kill_9_in_mid_tuning_the_prompts_are_the_same_byte_for_byte(furnished):
    told = furnished.run_with(SETTINGS, *ONE_WORKER)
    assert "movies/supmer: 4 shots, seed 20: validation" in told
    whole = prompts(furnished)
    assert {name.partition("/")[0] for name in whole} == {"prefix-tuning", "pt", "supmer"}
    work = furnished.root / ".supmer/shards/tune/checkpoints"
    kill_when(lambda: checkpoint_steps(work.glob("*/0")), furnished, "run", "--force", "tune", *ONE_WORKER)
    left = checkpoint_steps(work.glob("*/0"))
    assert left
    output = furnished.run("run", "--force", "tune", *ONE_WORKER)
    assert all(f": continuing from step {step}\n" in output for step in left)
    assert prompts(furnished) == whole
    assert not list(work.glob("*"))


def test_a_run_with_one_more_seed_tunes_that_one_and_says_why(furnished):
    output = furnished.run("run", "-S", "tune.seeds=[10, 20, 30]", *ONE_WORKER)
    assert "parameter tune.seeds changed: [10, 20] → [10, 20, 30]" in output
    told = [line for line in output.splitlines() if ": validation " in line]
    assert [line.split("seed ")[1].partition(":")[0] for line in told] == ["30", "30", "30"]
    assert "cached" in furnished.run("run")


def test_a_template_or_length_of_the_prompt_makes_tuning_stale_and_other_knobs_of_training_do_not(furnished):
    shown = furnished.run("why", "tune", "-S", "metatrain.template=instruction", "-S", "metatrain.steps=177")
    assert "parameter metatrain.template changed: sentinel → instruction" in shown
    assert "steps" not in shown


def test_scores_are_traced_to_predictions_by_sql_and_dvc_shows_metrics_and_curves(furnished):
    found = furnished.run(
        "sql",
        "SELECT s.method, s.seed, s.score = avg((p.label = p.predicted)::int) AS traced FROM scores s "
        "JOIN predictions p USING (dataset, tested_on, method, shots, tuned_hash, seed) "
        "WHERE s.chosen AND s.tested_on = 'products' GROUP BY s.method, s.seed, s.score ORDER BY ALL",
        "--format",
        "csv",
    )
    assert found.splitlines() == [
        "method,seed,traced",
        *(f"{method},{seed},True" for method in ("few-shot", "prefix-tuning", "pt", "supmer") for seed in (10, 20, 30)),
    ]
    shown = furnished.run("metrics", "show", "--json", program="dvc")
    values = orjson.loads(shown[shown.index("{") :])[""]["data"]["data/metrics/tune.json"]["data"]
    assert values["movies, 4 shots"]["supmer"]["seeds"] == 3
    furnished.run("plots", "show", "-o", "plots", program="dvc")
    assert "validation_score" in (furnished.root / "plots/index.html").read_text()
