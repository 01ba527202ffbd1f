"""`supmer run metatrain`, killed in mid-training and run again: the same prompt, byte for byte, and a story told."""

import orjson
import pytest

from support.dying import checkpoint_steps, kill_when
from support.training_room import RUN_SETTINGS, training_workspace
from support.workspaces import ONE_WORKER

SETTINGS = (
    *RUN_SETTINGS,
    "metatrain.variants=[supmer, without-mgr]",
    "tune.methods=[pt, supmer, without-mgr]",
)
PROMPT = "artifacts/prompt/supmer/prompt.safetensors"


@pytest.fixture(scope="module")
def furnished(tmp_path_factory, prefect_api):
    """A workspace whose only stage is metatrain, with what earlier stages would have left."""
    return training_workspace(tmp_path_factory.mktemp("metatrain"), prefect_api)


def test_after_kill_9_in_mid_training_the_prompt_is_the_same_byte_for_byte(furnished):
    told = furnished.run_with(SETTINGS, *ONE_WORKER)
    assert "held-out loss" in told
    whole = {path.name: path.read_bytes() for path in (furnished.root / PROMPT).parent.iterdir()}
    work = furnished.root / ".supmer/shards/metatrain/checkpoints"
    kill_when(lambda: any(checkpoint_steps(work.glob("*"))), furnished, "run", "--force", "metatrain", *ONE_WORKER)
    left = [step for step in checkpoint_steps(work.glob("*")) if 0 < step < 24]  # a variant may just have ended
    assert left
    output = furnished.run("run", "--force", "metatrain", *ONE_WORKER)
    assert all(f": continuing from step {step}\n" in output for step in left)
    assert "died: marked crashed in Prefect" in output
    assert {path.name: path.read_bytes() for path in (furnished.root / PROMPT).parent.iterdir()} == whole
    assert not list(work.glob("*"))


def test_dvc_shows_the_metrics_and_the_curve_of_a_training(furnished):
    shown = furnished.run("metrics", "show", "--json", program="dvc")
    values = orjson.loads(shown[shown.index("{") :])[""]["data"]["data/metrics/metatrain.json"]["data"]
    assert values["supmer"]["steps"] == 24
    furnished.run("plots", "show", "-o", "plots", program="dvc")
    assert "query_loss" in (furnished.root / "plots/index.html").read_text()
    counted = furnished.run(
        "sql", "SELECT variant, count(*) AS steps FROM steps GROUP BY 1 ORDER BY 1", "--format", "csv"
    )
    assert counted.splitlines() == ["variant,steps", "supmer,24", "without-mgr,24"]


def test_two_ranks_train_from_the_command_line(furnished):
    output = furnished.run(
        "run",
        "--force",
        "metatrain",
        "--ranks",
        "2",
        "-S",
        "metatrain.variants=[supmer]",
        "-S",
        "tune.methods=[pt, supmer]",
    )
    assert "supmer: step 24, held-out loss" in output
