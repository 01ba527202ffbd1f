"""`supmer` as a whole: the same habits in every verb."""

import contextlib
import os
import subprocess
import sys
import time

import click
import orjson
import pytest
from click.shell_completion import ShellComplete

from flows.cli import SPEAKING, UNDER_WAY, VERBS, cli
from storage.signs_of_life import SILENCE
from support.command_line import resolve

# Of a library that DVC reads its paths with.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")

READ_BY_MACHINES = ("run", "status", "why", "dag", "sql", "lineage", "trace", "uses", "verify")
HELP_SECONDS = 0.5


def commands():
    """Every command with its path, groups included."""
    waiting = [((verb,), resolve([verb])[0]) for verb in VERBS]
    while waiting:
        path, command = waiting.pop(0)
        yield path, command
        if isinstance(command, click.Group):
            waiting += [((*path, name), inner) for name, inner in command.commands.items()]


COMMANDS = dict(commands())


def helped(path):
    command, context, _ = resolve(path)
    return command.get_help(context)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_verb_explains_itself_with_an_example(path):
    text = helped(path)
    whole = " ".join(("supmer", *path))
    assert text.startswith(f"Usage: {whole} ")
    assert "-h, --help" in text
    examples = text if len(path) == 1 else text + helped(path[:-1])
    assert "Example" in examples
    assert any(line.strip().startswith(whole) for line in examples.splitlines() if not line.startswith("Usage"))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_says_what_it_does(path):
    for option in COMMANDS[path].params:
        if isinstance(option, click.Option) and not isinstance(option.type, click.Choice) and not option.hidden:
            assert option.help, option.name


@pytest.mark.parametrize("verb", READ_BY_MACHINES)
def test_what_a_machine_would_read_comes_as_json(verb):
    assert any("--json" in option.opts for option in COMMANDS[verb,].params)


def test_the_list_of_verbs_is_quick_and_names_all_of_them():
    program = "from flows.cli import main; main()"
    took = []
    for _ in range(3):  # the best of three: other tests may run beside this one
        started = time.process_time(), os.times().children_user + os.times().children_system
        done = subprocess.run(
            [sys.executable, "-c", program, "--help"],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        took.append(os.times().children_user + os.times().children_system - started[1])
    assert all(f"  {verb} " in done.stdout for verb in VERBS)
    assert min(took) < HELP_SECONDS


# NO_COLOR


@pytest.mark.parametrize(("no_color", "colours"), [(None, True), ("1", False), ("", True)])
def test_colours_in_a_terminal_unless_no_color_is_set(audited, no_color, colours):
    pty = pytest.importorskip("pty")
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"}
    if no_color is not None:
        environment["NO_COLOR"] = no_color
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", "from flows.cli import main; main()", "lineage", "sample"]
    with subprocess.Popen(program, cwd=audited, env=environment, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):  # how Linux tells that the other end is closed
            while part := os.read(ours, 65536):
                text += part
    os.close(ours)
    assert process.returncode == 0, text
    assert (b"\x1b[" in text) == colours


# Completion


def completed(*words):
    *before, incomplete = words
    return [item.value for item in ShellComplete(cli, {}, "supmer", "").get_completions(before, incomplete)]


def test_verbs_stages_profiles_and_parameters_complete(audited):
    (audited / "profiles").mkdir(exist_ok=True)
    (audited / "profiles/paper-t5-base.yaml").touch()
    assert completed("stat") == ["status"]
    assert completed("run", "s") == ["sample"]
    assert completed("run", "--from", "meta") == ["metatrain"]
    assert completed("why", "mat") == ["materialize"]
    assert completed("params", "use", "pap") == ["paper-t5-base"]
    assert "seed=" in completed("run", "-S", "")
    assert completed("ui", "--no") == ["--no-browser"]


def test_outside_a_workspace_nothing_completes_and_nothing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert completed("run", "") == []
    assert completed("run", "-S", "") == []
    assert completed("params", "use", "") == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_one_its_shell_can_read(shell, tmp_path):
    program = "from flows.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "completion", shell],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert f"_SUPMER_COMPLETE={shell}_complete" in done.stdout
    assert "supmer" in done.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


# JSON


def without_listings(out, key="stage"):
    """Return the stages of a JSON output, without those that list the files of local sources."""
    return [stage for stage in orjson.loads(out) if not stage[key].startswith("local@")]


def test_a_runs_outcome_as_json_with_the_story_beside_it(supmer, workspace, monkeypatch):
    monkeypatch.chdir(workspace.root)
    code, out, err = supmer("run", "--json")
    assert code == 0
    assert [(stage["stage"], stage["verdict"]) for stage in without_listings(out)] == [
        ("acquire", "cached"),
        ("sample", "cached"),
    ]
    assert "sample   cached" in err
    code, out, _ = supmer("run", "--dry-run", "--json", "--force", "sample")
    assert [(stage["stage"], stage["action"]) for stage in without_listings(out)] == [
        ("acquire", "fresh"),
        ("sample", "run"),
    ]
    code, out, _ = supmer("why", "sample", "--json")
    why = orjson.loads(out)
    assert why["action"] == "fresh"
    assert why["after"] == ["acquire"]
    code, out, _ = supmer("dag", "--json")
    assert [stage["name"] for stage in without_listings(out, "name")] == ["acquire", "sample"]


@pytest.mark.parametrize(
    ("verb", "told"), [("rnu", "'rnu': did you mean run?"), ("stauts", "did you mean status?"), ("xyzzy", "'xyzzy'.")]
)
def test_an_unknown_verb_is_one_line_with_the_nearest_one(command_line, verb, told):
    code, out, err = command_line(verb)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert told in err


def test_every_verb_says_what_it_does_if_that_takes_seconds():
    assert UNDER_WAY.keys() | SPEAKING <= VERBS.keys()
    assert not UNDER_WAY.keys() & SPEAKING


def test_a_silent_command_says_on_standard_error_what_it_does(workspace, command_line, monkeypatch):
    monkeypatch.setenv(SILENCE, "0.1")
    query = "SELECT count(*) FROM range(100000000) a WHERE hash(a) % 7 = 0"
    code, out, err = command_line("sql", query, "--format", "csv")
    assert code == 0
    assert len(out.splitlines()) == 2
    assert err.startswith("  sql: running the query\n")
