"""Training of weights by `supmer run tune` and `supmer tune`, in real processes: killed and run again, used."""

import pytest

from support.dying import kill_when
from support.tuning_room import tuning_workspace

pytestmark = pytest.mark.slow

SETTINGS = (
    "metatrain.template=sentinel",
    "tune.datasets=[movies]",
    "tune.domains.source=null",
    "tune.domains.targets=[]",
    "tune.fine_tuning.learning_rates=[0.001, 0.003]",
    "tune.fine_tuning.keep=true",
    "tune.lora.rank=2",
    "tune.lora.learning_rates=[0.01, 0.03]",
    "tune.shots=4",
    "tune.shot_sweep=[]",
    "tune.seeds=[10, 20]",
    "tune.batch_size=4",
    "tune.epochs=12",
    "tune.max_length=40",
    "tune.checkpoint_seconds=0.001",
    "report.datasets=[movies]",
)
FILES = {
    "ft": {"config.json", "model.safetensors", "supmer.json", "README.md"},
    "lora": {"adapter_config.json", "adapter_model.safetensors", "supmer.json", "README.md"},
}


@pytest.fixture(scope="module")
def furnished(tmp_path_factory, prefect_api):
    """A workspace whose only stage is tune."""
    sets = ("movies", "products", "editorials", "tweets")
    return tuning_workspace(tmp_path_factory.mktemp("tune"), prefect_api, sets)


def weights(workspace):
    """Return the content of every file that the methods left, by method and name."""
    folder = workspace.root / "artifacts/tuned/movies"
    return {method: {path.name: path.read_bytes() for path in (folder / method).iterdir()} for method in FILES}


def test_after_kill_9_in_mid_tuning_the_weights_are_the_same_byte_for_byte(furnished):
    said = furnished.run_with((*SETTINGS, "tune.methods=[ft, lora]"))
    measured = [line.split(":")[0].strip() for line in said.splitlines() if "million weights take" in line]
    assert set(measured) == {"movies/ft"}
    whole = weights(furnished)
    assert all(names <= {*whole[method]} for method, names in FILES.items())
    work = furnished.root / ".supmer/shards/tune/checkpoints"
    kill_when(lambda: list(work.glob("*/10/step-*")), furnished, "run", "--force", "tune")
    assert list(work.glob("*/10/step-*"))
    output = furnished.run("run", "--force", "tune")
    assert any(f"movies/{method}: continuing from step " in output for method in FILES)
    assert weights(furnished) == whole
    assert not list(work.glob("*"))


@pytest.mark.parametrize(
    ("method", "said"), [("ft", "2 runs of ft one after the other"), ("lora", "2 runs of lora one after the other")]
)
def test_a_persons_own_data_gives_a_model_that_predicts(furnished, method, said):
    data = furnished.root / "sets/movies/train.jsonl"
    options = ("--data", data, "--text", "text", "--seeds", "10", "--shots", "4", "--epochs", "2", "--output", method)
    told = furnished.run("tune", *map(str, options), "--method", method, "-S", "tune.fine_tuning.keep=false")
    assert said in told
    assert "accuracy on the test set: " in told
    labeled = furnished.run("predict", "--prompt", method, "--data", str(furnished.root / "sets/movies/test.jsonl"))
    assert labeled.count('"predicted"') == 10
