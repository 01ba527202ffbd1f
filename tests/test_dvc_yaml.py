"""dvc.yaml tells the truth about code: every module of ours that a stage imports is a dependency of it."""

import ast
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from storage.sources.local import INPUTS, SLOTS, UNUSED, UNUSED_TEXT
from tasks.methods import METHODS

REPOSITORY = Path(__file__).parents[1]
STAGES = YAML(typ="safe").load((REPOSITORY / "dvc.yaml").read_text())["stages"]
PACKAGES = {"model", "storage", "tasks"}
# Modules that tune imports by their name in the table of methods.
METHOD_MODULES = sorted({f"{row.module.replace('.', '/')}.py" for row in METHODS.values() if row.is_built})
# What holds no decision about a stage's result: the parameters' schema (their values are dependencies themselves) and
# the plumbing by which any stage reads and writes.
PLUMBING = {
    "storage/atomic.py",
    "storage/errors.py",
    "storage/paths.py",
    "storage/scratch.py",
    "storage/file_lock.py",
    "tasks/stage/progress.py",
}


def modules_of(path):
    """The files of our own modules that a file imports, wherever in it."""
    tree = ast.parse((REPOSITORY / path).read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = {f"{name.replace('.', '/')}.py" for name in names if name.partition(".")[0] in PACKAGES}
    return {path for path in paths if (REPOSITORY / path).is_file()}


def closure(*paths):
    found, waiting = set(), list(paths)
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            if current != "tasks/stage/contract.py" and not is_schema(current):
                waiting += sorted(modules_of(current))
    return found


def is_schema(path):
    return path in {"tasks/params/schema.py", "tasks/params/schema_base.py", "tasks/params/learning_schema.py"}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_every_module_it_uses(stage):
    named = METHOD_MODULES if stage == "tune" else ()
    modules = closure(f"tasks/{stage}/stage.py", *named)
    used = {path for path in modules if path not in PLUMBING and not is_schema(path)}
    declared = {path for path in STAGES[stage]["deps"] if path.endswith(".py")}
    assert declared == used


@pytest.mark.parametrize("stage", STAGES)
def test_dependencies_and_outputs_are_listed_in_order(stage):
    for key in ("deps", "outs"):
        listed = STAGES[stage][key]
        assert listed == sorted(listed)


def test_acquire_depends_on_every_slot_for_a_local_source_and_each_is_there():
    declared = [path for path in STAGES["acquire"]["deps"] if path.startswith(f"{INPUTS}/")]
    assert declared == list(SLOTS)
    assert all((REPOSITORY / slot).is_symlink() for slot in SLOTS)
    assert (REPOSITORY / UNUSED).read_text() == UNUSED_TEXT
