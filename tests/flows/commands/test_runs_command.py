"""`supmer runs` lists runs and exports them; `supmer compare` shows what changed."""

import json
import subprocess
from datetime import datetime

import pytest
from click.testing import CliRunner

from flows import run_export
from flows.commands.compare import command as compare
from flows.commands.runs import command as runs
from storage.errors import InputError
from storage.lineage.events import Artifact, StageEvent, emit
from storage.lineage.run_history import PipelineRun, StageVersion
from storage.lockfile import file_md5


def made(number):
    parameters = {"sample.min_words": str(number), "seed": "1"}
    stage = StageVersion("sample", parameters, {"tasks/sample": "c"}, {}, {"data/corpus": f"{number}.dir"})
    return PipelineRun(f"{number}" * 8 + "-run", "2026-01-02T03:04:05+00:00", "a" * 40, ("sample",), {"sample": stage})


RUNS = [made(1), made(2)]
METRICS = {run.id: {"sample": {"documents": 10, "excluded": {}, "share": 0.5}} for run in RUNS}


def log(root, run):
    """Write the event and the metrics that such a run leaves."""
    stage = run.stages["sample"]
    metrics = root / "data" / "metrics" / "sample.json"
    metrics.parent.mkdir(parents=True, exist_ok=True)
    metrics.write_text('{"documents": 10}')
    outputs = {**stage.outputs, "data/metrics/sample.json": file_md5(metrics)}
    emit(
        root,
        StageEvent(
            "sample",
            "COMPLETE",
            "00000000-0000-4000-8000-000000000000",
            datetime.fromisoformat(run.time),
            tuple(Artifact(path, md5, 1, None) for path, md5 in stage.code.items()),
            tuple(Artifact(path, md5, 1, None) for path, md5 in outputs.items()),
            dict(stage.parameters),
            run.commit,
            run.id,
        ),
    )


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n  sample: {cmd: x, outs: [data/corpus], metrics: [data/metrics/sample.json]}\n"
    )
    (tmp_path / "params.yaml").write_text("seed: 1\n")
    (tmp_path / ".dvc").mkdir()
    for arguments in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty"]):
        subprocess.run(["git", *arguments, *(["-m", "x"] if "commit" in arguments else [])], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    for run in RUNS:
        log(tmp_path, run)
    return tmp_path


def said(command, *arguments):
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=True)
    return str(result.exception) if isinstance(result.exception, InputError) else result.output


@pytest.mark.usefixtures("workspace")
def test_runs_are_listed_with_the_parameters_that_differ():
    text = said(runs)
    assert "11111111  2026-01-02 03:04  aaaaaaa  sample" in text
    assert text.endswith("sample.min_words         1         2\n")
    assert "seed" not in text
    assert "seed" in said(runs, "--params", "seed")


@pytest.mark.usefixtures("workspace")
def test_runs_as_json_have_everything():
    (last,) = json.loads(said(runs, "-n", "1", "--json"))
    assert last["id"] == RUNS[1].id
    assert last["parameters"]["sample.min_words"] == "2"
    assert last["metrics"]["sample"]["documents"] == 10


@pytest.mark.usefixtures("workspace")
def test_a_comparison_names_what_changed_and_what_is_the_same():
    text = said(compare, "1111", "2222")
    assert "parameters: 1 differs\n" in text
    assert "sample.min_words  1  2" in text
    assert "code: the same\n" in text


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (runs, ["--params", "sample.min_wrds"], "no run has the parameter sample.min_wrds; did you mean"),
        (compare, ["3333", "1111"], "3333: no run begins so, and no commit of this name has a dvc.lock"),
        (compare, ["1111", "--", "-x"], "-x: no run begins so"),
        (compare, ["now", "1111"], "now: nothing has run yet"),
        (runs, ["--export", "mlflow"], "--export and --to go together"),
    ],
)
def test_wrong_arguments_are_answered_in_one_line(command, arguments, message):
    assert message in said(command, *arguments)


def test_runs_are_exported_to_tensorboard_once(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run_export.export("tensorboard", RUNS, METRICS, str(tmp_path)) == f"2 new in {tmp_path}"
    assert run_export.export("tensorboard", RUNS, METRICS, str(tmp_path)) == f"0 new in {tmp_path}"
    read = EventAccumulator(str(tmp_path / RUNS[0].id))
    read.Reload()
    assert {name: read.Scalars(name)[0].value for name in read.Tags()["scalars"]} == {
        "sample/documents": 10.0,
        "sample/share": 0.5,
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # within MLflow
def test_runs_are_exported_to_mlflow_once(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    assert run_export.export("mlflow", RUNS, METRICS, uri) == "2 new in MLflow's experiment supmer"
    assert run_export.export("mlflow", RUNS, METRICS, uri) == "0 new in MLflow's experiment supmer"
    client = mlflow.MlflowClient(uri)
    found = client.search_runs([client.get_experiment_by_name("supmer").experiment_id])
    assert {run.data.params["sample.min_words"] for run in found} == {"1", "2"}
    assert found[0].data.metrics == {"sample/documents": 10.0, "sample/share": 0.5}


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(InputError, match=r"^--export mlflow: mlflow is missing: pip install 'supmer\[mlflow\]'$"):
        run_export.export("mlflow", RUNS, METRICS, "file:///none")
