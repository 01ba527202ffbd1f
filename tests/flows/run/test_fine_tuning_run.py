"""Fine-tuning by `supmer run tune` and `supmer tune`, in real processes: killed and run again, used, refused."""

import os
import signal
import time

import pytest

from support.training_room import save_models
from support.tuning_room import link_sets, write_sets
from support.vector_corpus import Corpus
from support.workspaces import Workspace, lay_out

pytestmark = pytest.mark.slow

SETTINGS = (
    "metatrain.template=sentinel",
    "tune.datasets=[movies]",
    "tune.domains.source=null",
    "tune.domains.targets=[]",
    "tune.methods=[ft]",
    "tune.fine_tuning.learning_rates=[0.001, 0.003]",
    "tune.fine_tuning.keep=true",
    "tune.shots=4",
    "tune.shot_sweep=[]",
    "tune.seeds=[10, 20]",
    "tune.batch_size=4",
    "tune.epochs=12",
    "tune.max_length=40",
    "tune.checkpoint_seconds=0.001",
    "report.datasets=[movies]",
)


@pytest.fixture(scope="module")
def furnished(tmp_path_factory, prefect_api):
    """A workspace whose only stage is tune."""
    root, models = tmp_path_factory.mktemp("tune"), save_models(tmp_path_factory.mktemp("models"))
    lay_out(root, models, ["tune"])
    Corpus(root, {}).link_models(models)
    sets = ("movies", "products", "editorials", "tweets")
    write_sets(root / "sets", sets)
    link_sets(root, root / "sets", sets)
    (root / "artifacts/prompt").mkdir(parents=True)
    workspace = Workspace(root, prefect_api)
    workspace.git("init", "--quiet")
    return workspace


def weights(workspace):
    folder = workspace.root / "artifacts/tuned/movies/ft"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_after_kill_9_in_mid_tuning_the_weights_are_the_same_byte_for_byte(furnished):
    settings = [part for setting in SETTINGS for part in ("-S", setting)]
    told = furnished.run("run", *settings)
    assert "million weights take" in told
    whole = weights(furnished)
    assert {"config.json", "model.safetensors", "supmer.json", "README.md"} < {*whole}
    process = furnished.start("run", "--force", "tune", start_new_session=True)
    work = furnished.root / ".supmer/shards/tune/checkpoints"
    deadline = time.monotonic() + 120
    while not list(work.glob("*/10/step-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(work.glob("*/10/step-*"))
    output = furnished.run("run", "--force", "tune")
    assert "movies/ft: continuing from step " in output
    assert weights(furnished) == whole
    assert not list(work.glob("*"))


def test_a_persons_own_data_gives_a_model_that_predicts(furnished):
    data = furnished.root / "sets/movies/train.jsonl"
    options = ("--data", data, "--text", "text", "--seeds", "10", "--shots", "4", "--epochs", "2", "--output", "own")
    told = furnished.run("tune", *map(str, options), "--method", "ft", "-S", "tune.fine_tuning.keep=false")
    assert "2 runs of ft one after the other" in told
    assert "accuracy on the rest" in told
    labeled = furnished.run("predict", "--prompt", "own", "--data", str(furnished.root / "sets/movies/test.jsonl"))
    assert labeled.count('"predicted"') == 10
