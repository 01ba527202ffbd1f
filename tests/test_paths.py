"""Each path of a workspace is written in storage/paths.py and nowhere else in the packages."""

import ast
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from storage import paths

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("flows", "model", "storage", "tasks")
HOME = Path("storage", "paths.py")
PRIVATE = (f"{paths.PRIVATE}/", f"{paths.PREFECT_HOME}", f"{paths.EVENTS.parent}/")


def outputs(stages):
    """Return what the stages write: outputs, metrics and plots."""
    return {
        entry if isinstance(entry, str) else next(iter(entry))
        for stage in stages.values()
        for kind in ("outs", "metrics", "plots")
        for entry in stage.get("do", stage).get(kind, [])
    }


STAGES = YAML(typ="safe").load((REPOSITORY / "dvc.yaml").read_text())["stages"]
OUTPUTS = sorted(path for path in outputs(STAGES) if path.startswith(("data/", "artifacts/", "report/")))


def docstrings(tree):
    """Return the nodes of strings that stand alone: they are read by people."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def joined(node):
    """Return the path that `a / "b" / "c"` or `Path("a", "b")` spells, as far as it is spelled out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return "/".join(filter(None, [joined(node.left), joined(node.right)]))
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"Path", "PurePath", "PurePosixPath"}:
        return "/".join(filter(None, map(joined, node.args)))
    return ""


def spelled(source):
    """Yield (line, text) of every string of a module that is no docstring, and of every path built from strings."""
    tree = ast.parse(source)
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        if id(node) not in skipped and isinstance(node, ast.Constant | ast.BinOp | ast.Call) and (text := joined(node)):
            yield node.lineno, text


def is_place(text):
    """True if a string is a place in the workspace or begins with one."""
    begins = tuple(f"{path}{end}" for path in (*OUTPUTS, paths.SOURCES) for end in ("/", ":", " "))
    return text in {*OUTPUTS, paths.SOURCES} or text.startswith((*begins, *PRIVATE))


def repeated(root):
    files = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [
        f"{path.relative_to(root)}:{line}: {text.splitlines()[0]!r}"
        for path in files
        if path.relative_to(root) != HOME
        for line, text in spelled(path.read_text("utf-8"))
        if is_place(text)
    ]


def test_no_module_repeats_a_path_of_the_workspace():
    assert not (places := repeated(REPOSITORY)), "import them from storage.paths:\n" + "\n".join(places)


def test_every_output_of_a_stage_has_a_name():
    named = {value for value in vars(paths).values() if isinstance(value, str)}
    assert set(OUTPUTS) <= named


def test_no_path_is_named_twice():
    named = [str(value) for name, value in vars(paths).items() if name.isupper()]
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    "source",
    [
        'TASKS = "data/tasks"',
        'path = f"data/tasks/{name}"',
        'raise InputError("data/tasks: none there")',
        'path = root / "data" / "tasks"',
        'path = Path("data", "tasks")',
        'LOCK = Path(".supmer", "lock")',
    ],
)
def test_a_repeated_path_is_found_however_it_is_spelled(tmp_path, source):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "stage.py").write_text(f'"""Reads data/tasks."""\n{source}\n')
    assert repeated(tmp_path)


def test_examples_in_help_are_no_repetition(tmp_path):
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "help.py").write_text('"""Words."""\nHELP = "supmer lineage data/tasks"\n')
    assert not repeated(tmp_path)
