"""`supmer params` and the shared -S option."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flows.commands.params import command
from flows.options import overlaid, persisted, set_option
from storage.errors import InputError
from tasks.params.reference import parameters

REPOSITORY = Path(__file__).parents[3]
PROFILES = ["quickstart", "official-code", "offline-tiny", "paper-flan-t5-xl", "paper-t5-base", "study"]


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    shutil.copytree(REPOSITORY / "profiles", tmp_path / "profiles")
    shutil.copyfile(tmp_path / "profiles" / "quickstart.yaml", tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def edit(workspace, before, after):
    path = workspace / "params.yaml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def refused(*arguments):
    with pytest.raises(InputError) as caught:
        run(*arguments)
    return str(caught.value)


# list


def test_list_marks_the_active_profile(workspace):
    lines = run("list").output.splitlines()
    assert lines[0].startswith("* quickstart        Quickstart: real models")
    assert [line[2:].split()[0] for line in lines[1:-1]] == PROFILES[1:]
    assert lines[-1] == "active: quickstart"


def test_list_counts_the_changes_against_the_nearest_profile(workspace):
    edit(workspace, "budget_mb: 0.7", "budget_mb: 5")
    assert run("list").output.splitlines()[-1] == "active: quickstart with 1 change (supmer params diff)"
    edit(workspace, "seed: 42", "seed: 43")
    assert run("list").output.splitlines()[-1] == "active: quickstart with 2 changes (supmer params diff)"


def test_list_says_what_is_wrong_with_params_yaml_and_lists_all_the_same(workspace):
    edit(workspace, "seed: 42", "sed: 42")
    lines = run("list").output.splitlines()
    assert "quickstart" in lines[0]
    assert lines[-2:] == [
        "params.yaml is not valid:",
        "params.yaml:6: sed: unknown key (got 42); did you mean seed?",
    ]


def test_list_as_json(workspace):
    listed = json.loads(run("list", "--json").output)
    assert [profile["name"] for profile in listed["profiles"]] == PROFILES
    assert (listed["nearest"], listed["changes"], listed["problem"]) == ("quickstart", 0, None)


# show


def test_show_prints_every_key_with_its_value(workspace):
    lines = run("show").output.splitlines()
    assert "sample.budget_mb: 0.7" in lines
    assert "tune.seeds: [10, 20, 30, 40, 50]" in lines
    assert "metatrain.patience: null" in lines


def test_show_takes_settings_and_leaves_the_file_alone(workspace):
    before = (workspace / "params.yaml").read_bytes()
    assert "sample.budget_mb: 5" in run("show", "-S", "sample.budget_mb=5").output.splitlines()
    assert (workspace / "params.yaml").read_bytes() == before


def test_show_explains_every_key(workspace):
    text = run("show", "--explain").output
    assert "sample.budget_mb: 0.7\n    Text to draw, in MB (number, > 0)\n" in text
    assert "    Unlabeled text, by a name of your choice (mapping of name to text)\n" in text
    assert all(parameter.description in text for parameter in parameters())


def test_show_as_json_of_a_profile(workspace):
    assert json.loads(run("show", "paper-t5-base", "--json").output)["cluster"]["clusters"] == 250


def test_show_takes_a_key_or_a_group_of_keys(workspace):
    assert run("show", "sample.min_words").output == "sample.min_words: 50\n"
    assert run("show", "seed", "-S", "seed=7").output == "seed: 7\n"
    group = run("show", "sample.near_duplicates").output.splitlines()
    assert {line.partition(":")[0] for line in group} >= {"sample.near_duplicates.bands", "sample.near_duplicates.rows"}
    assert all(line.startswith("sample.near_duplicates.") for line in group)
    assert json.loads(run("show", "sample.min_words", "--json").output) == {"sample.min_words": 50}
    assert "no such profile" in refused("show", "sample.min_word")


def test_show_refuses_a_name_together_with_settings(workspace):
    result = run("show", "quickstart", "-S", "seed=1")
    assert result.exit_code == 2
    assert "leave NAME out, or leave -S out" in result.output


# use


def test_use_replaces_params_yaml_and_loses_nothing_that_a_profile_holds(workspace):
    first, *needed = run("use", "paper-t5-base").output.splitlines()
    assert first == "params.yaml is now paper-t5-base"
    assert needed[0] == "still to be supplied: acquire.datasets.airlines: data-domains/airlines (docs/sources.md)"
    assert (workspace / "params.yaml").read_bytes() == (workspace / "profiles" / "paper-t5-base.yaml").read_bytes()
    assert list(workspace.glob("params.yaml.bak*")) == []
    assert run("use", "paper-t5-base").output == "params.yaml is already paper-t5-base\n"


def test_use_keeps_changes_of_ones_own_under_a_new_name_each_time(workspace):
    for number, seed in enumerate((7, 8), start=1):
        run("use", "quickstart")
        edit(workspace, "seed: 42", f"seed: {seed}")
        mine = (workspace / "params.yaml").read_bytes()
        assert run("use", "paper-t5-base").output.startswith(
            f"params.yaml had changes of its own: saved as params.yaml.bak-{number}\nparams.yaml is now paper-t5-base\n"
        )
        assert (workspace / f"params.yaml.bak-{number}").read_bytes() == mine


def test_use_keeps_a_changed_comment_too(workspace):
    edit(workspace, "seed: 42", "seed: 42  # mine")
    assert "saved as params.yaml.bak-1" in run("use", "quickstart").output


@pytest.mark.parametrize("content", [b"seed: [", b"\xff\xfe", None])
def test_use_mends_a_broken_or_missing_params_yaml(workspace, content):
    (workspace / "params.yaml").unlink()
    if content is not None:
        (workspace / "params.yaml").write_bytes(content)
    assert run("use", "quickstart").exit_code == 0
    assert (workspace / "params.yaml").read_bytes() == (workspace / "profiles" / "quickstart.yaml").read_bytes()
    kept = [path.read_bytes() for path in workspace.glob("params.yaml.bak-*")]
    assert kept == ([] if content is None else [content])


def test_an_unknown_profile_is_refused_with_the_nearest(workspace):
    assert refused("use", "quickstrat") == "quickstrat: no such profile in profiles/; did you mean quickstart?"
    assert refused("show", "zzz") == (f"zzz: no such profile in profiles/; known: {', '.join(PROFILES)}")


def test_a_profile_that_is_not_valid_is_never_taken(workspace):
    (workspace / "profiles" / "mine.yaml").write_text("seed: x\n")
    before = (workspace / "params.yaml").read_bytes()
    assert refused("use", "mine").splitlines() == [
        'profiles/mine.yaml:1: seed: expected a whole number (got "x")',
        "profiles/mine.yaml: acquire: missing (expected a group of keys)",
    ]
    assert (workspace / "params.yaml").read_bytes() == before


# diff


def test_diff_without_names_shows_ones_own_changes(workspace):
    edit(workspace, "budget_mb: 0.7", "budget_mb: 5")
    result = run("diff")
    assert result.stdout == "sample.budget_mb: 0.7 → 5\n"
    assert result.stderr == "quickstart → params.yaml: 1 change\n"


def test_diff_of_two_profiles(workspace):
    lines = run("diff", "paper-t5-base", "paper-flan-t5-xl").stdout.splitlines()
    assert 'acquire.backbone: "hf:google-t5/t5-base" → "hf:google/flan-t5-xl"' in lines
    assert 'metatrain.template: "sentinel" → "instruction"' in lines


def test_diff_of_one_profile_is_against_the_active_parameters(workspace):
    assert "cluster.clusters: 250 → 24" in run("diff", "paper-t5-base").stdout.splitlines()
    assert run("diff", "quickstart").stdout == ""


def test_diff_as_json(workspace):
    edit(workspace, "seed: 42", "seed: 7")
    expected = {"from": "quickstart", "to": "params.yaml", "changes": {"seed": [42, 7]}}
    assert json.loads(run("diff", "--json").stdout) == expected


# -S


def test_persisted_settings_change_the_file_and_say_so(workspace):
    before = (workspace / "params.yaml").read_text()
    params, lines = persisted(workspace, ["sample.budget_mb=5", "seed=42"])
    assert lines == ["sample.budget_mb: 0.7 → 5"]
    assert params.sample.budget_mb == 5
    assert (workspace / "params.yaml").read_text() == before.replace("budget_mb: 0.7", "budget_mb: 5")


def test_a_refused_setting_leaves_the_file_as_it_was(workspace):
    before = (workspace / "params.yaml").read_bytes()
    with pytest.raises(InputError, match=r"^-S: sample.budget_mb: must be above 0 \(got 0\)$"):
        persisted(workspace, ["seed=1", "sample.budget_mb=0"])
    assert (workspace / "params.yaml").read_bytes() == before


def test_overlaid_settings_leave_the_file_untouched(workspace):
    before = (workspace / "params.yaml").read_bytes()
    params, supposed = overlaid(workspace, ["tune.seeds=[1]"])
    assert params.tune.seeds == [1]
    assert supposed["tune"]["seeds"] == [1]
    assert overlaid(workspace, [])[1] is None
    assert (workspace / "params.yaml").read_bytes() == before


def test_a_setting_may_mend_what_the_file_has_wrong(workspace):
    edit(workspace, "seed: 42", "seed: -1")
    assert persisted(workspace, ["seed=1"])[1] == ["seed: -1 → 1"]


def test_the_option_may_be_repeated():
    @click.command()
    @set_option
    def verb(settings):
        click.echo("|".join(settings))

    assert CliRunner().invoke(verb, ["-S", "a=1", "--set", "b=2"]).output == "a=1|b=2\n"


# The real command


def supmer(*arguments, cwd):
    code = "from flows.cli import main; main()"
    argv = [sys.executable, "-c", code, "params", *arguments]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_real_command_shows_refuses_and_explains_itself(workspace):
    shown = supmer("list", cwd=workspace / "profiles")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "active: quickstart" in shown.stdout
    unknown = supmer("use", "paper-t5-bas", cwd=workspace)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == "supmer: paper-t5-bas: no such profile in profiles/; did you mean paper-t5-base?\n"
    helped = supmer("use", "--help", cwd=workspace)
    assert helped.returncode == 0
    assert "Examples:\n    supmer params use quickstart\n" in helped.stdout


def test_outside_a_workspace_it_says_so(tmp_path):
    done = supmer("list", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"supmer: {tmp_path}: not inside a supmer workspace (no dvc.yaml here or above): cd into one, "
        "or make one with `supmer init DIR`\n"
    )


# set and unset


def test_set_writes_values_and_unset_takes_them_back(workspace):
    before = (workspace / "params.yaml").read_text()
    assert run("set", "sample.budget_mb=5", "seed=43").output.splitlines() == [
        "params.yaml: seed: 42 → 43",
        "params.yaml: sample.budget_mb: 0.7 → 5",
    ]
    assert run("unset", "sample.budget_mb", "seed").exit_code == 0
    assert (workspace / "params.yaml").read_text() == before


def test_unset_removes_an_entry_that_no_profile_has(workspace):
    (workspace / "texts").mkdir()
    (workspace / "texts" / "a.txt").write_text("a text")
    run("set", "acquire.corpus.mine=path:texts")
    assert "mine" in overlaid(workspace, ())[0].acquire.corpus
    run("unset", "acquire.corpus.mine")
    assert list(overlaid(workspace, ())[0].acquire.corpus) == ["news"]


def test_a_refused_setting_is_not_written(workspace):
    before = (workspace / "params.yaml").read_bytes()
    assert "no such file or folder" in refused("set", "seed=43", "acquire.corpus.mine=path:nowhere")
    assert "sample.budgetmb: unknown key (got 5); did you mean" in refused("set", "sample.budgetmb=5")
    assert "sample.budgetmb: unknown key; did you mean" in refused("unset", "sample.budgetmb")
    assert "-S" not in refused("set", "sample.budgetmb=5") + refused("set", "seed") + refused("unset", "nothing")
    assert (workspace / "params.yaml").read_bytes() == before
