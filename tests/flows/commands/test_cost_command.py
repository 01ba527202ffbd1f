"""`supmer cost`, and `supmer run --dry-run --cost`."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows.cli import _run

REPOSITORY = Path(__file__).parents[3]
GPU = ("--profile", "paper-t5-base", "--device", "A100-80")


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def supmer(tmp_path, monkeypatch, capsys):
    """Run `supmer` in a workspace in which nothing has run."""
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / ".git").mkdir()
    shutil.copytree(REPOSITORY / "profiles", tmp_path / "profiles")
    shutil.copyfile(tmp_path / "profiles" / "quickstart.yaml", tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["supmer", *arguments])
        code = _run()
        return Done(code, *capsys.readouterr())

    return run


def test_a_table_of_all_stages(supmer):
    done = supmer("cost", *GPU)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "paper-t5-base on A100-80, estimated:"
    assert [line.split()[0] for line in lines[3:-1]] == [
        "acquire", "sample", "embed", "cluster", "materialize", "metatrain", "tune", "report", "together",
    ]  # fmt: skip


def test_the_gpus_that_fine_tuning_needs_are_shown(supmer):
    lines = supmer("cost", "tune", "--profile", "paper-flan-t5-xl", "--device", "RTX-4090").stdout.splitlines()
    assert lines[-2].startswith("tune")
    assert lines[-2].endswith("ft: 3 GPUs")


def test_the_assumptions_on_demand(supmer):
    printed = supmer("cost", "metatrain", *GPU, "--explain").stdout
    assert "share of the dense rate that is reached, assumed" in printed
    assert "metatrain: supmer: 100,000 steps of" in printed


def test_json(supmer):
    told = json.loads(supmer("cost", *GPU, "--json", "-S", "metatrain.steps=2000").stdout)
    assert told["machine"] == "A100-80"
    amounts = {"tokens", "operations", "device_memory", "host_memory", "disk", "seconds"}
    assert told["stages"][0].keys() == {"stage", "fits", "devices", "assumptions"} | amounts
    assert told["together"]["seconds"] == pytest.approx(sum(stage["seconds"] for stage in told["stages"]))


def test_the_devices_of_the_table(supmer):
    assert "RTX-3090" in supmer("cost", "--devices").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cost", "--device", "abacus"), "--device abacus: not in the table"),
        (("cost", "--profile", "nowhere"), "nowhere"),
        (("cost", "bake"), "bake"),
        (("cost", "--cores", "0"), "--cores"),
        (("cost", "--device", "T4", "-S", "acquire.backbone=hf:a/b"), "hf:a/b: the shape of this model is not known"),
        (("run", "--cost"), "--cost goes with --dry-run"),
    ],
)
def test_bad_input_gets_one_line(supmer, arguments, message):
    done = supmer(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_dry_run_with_its_cost(workspace):
    printed = workspace.run("run", "--dry-run", "--cost", "--force", "acquire", "--force", "sample")
    assert "params.yaml on this machine, estimated:" in printed
    assert "together" in printed


def test_the_table_of_the_readme_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    import cost_page

    page = (REPOSITORY / "README.md").read_text("utf-8")
    assert cost_page.filled(page) == page, "run: python benchmarks/cost_page.py"
