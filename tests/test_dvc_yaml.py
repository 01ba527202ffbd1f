"""dvc.yaml tells the truth about code: what a stage imports lies below its dependencies, and nothing else does."""

import ast
from pathlib import Path, PurePosixPath

import pytest
from ruamel.yaml import YAML

from storage.lockfile import CODE_FOLDERS, is_code
from tasks.methods import METHODS

REPOSITORY = Path(__file__).parents[1]
STAGES = YAML(typ="safe").load((REPOSITORY / "dvc.yaml").read_text())["stages"]
BODIES = {name: stage.get("do", stage) for name, stage in STAGES.items()}
MOST_LINES = 180
# Modules that tune imports by their name in the table of methods.
METHOD_MODULES = sorted({f"{row.module.replace('.', '/')}.py" for row in METHODS.values() if row.is_built})
# Modules that hold no decision about a stage's result: the schema of the parameters (their values are dependencies
# themselves) and the plumbing by which any stage reads and writes.
PLUMBING = {
    "storage/atomic.py",
    "storage/counts.py",
    "storage/errors.py",
    "storage/paths.py",
    "storage/scratch.py",
    "storage/signs_of_life.py",
    "storage/file_lock.py",
    "storage/unpacking.py",
    "tasks/params",
    "tasks/stage/nodes.py",
    "tasks/stage/progress.py",
}
CONTRACT = "tasks/stage/contract.py"


def modules_of(root, path):
    """Return the files of our own modules that a file imports, wherever in it."""
    tree = ast.parse((root / path).read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = {f"{name.replace('.', '/')}.py" for name in names if name.partition(".")[0] in CODE_FOLDERS}
    return {path for path in paths if (root / path).is_file()}


def closure(root, path):
    """Return a module and all that it imports, directly or not; not through contract and parameters."""
    reached, waiting = set(), [path, *(METHOD_MODULES if path == "tasks/tune/stage.py" and root == REPOSITORY else ())]
    while waiting:
        current = waiting.pop()
        if current not in reached:
            reached.add(current)
            if current != CONTRACT and not lies_below(current, ["tasks/params"]):
                waiting += sorted(modules_of(root, current))
    return reached


def lies_below(path, folders):
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)


def undeclared(root, name, declared):
    """Return the modules of a stage that lie below none of its dependencies."""
    used = closure(root, f"tasks/{name}/stage.py")
    return sorted(path for path in used if not lies_below(path, PLUMBING) and not lies_below(path, declared))


def unused(root, name, declared):
    """Return the dependencies on code of which a stage uses nothing."""
    used = closure(root, f"tasks/{name}/stage.py")
    return [path for path in declared if is_code(path) and not any(lies_below(module, [path]) for module in used)]


@pytest.mark.parametrize("stage", BODIES)
def test_every_module_that_a_stage_uses_lies_below_a_dependency(stage):
    assert not undeclared(REPOSITORY, stage, BODIES[stage]["deps"])


@pytest.mark.parametrize("stage", BODIES)
def test_a_stage_depends_on_no_code_that_it_does_not_use(stage):
    assert not unused(REPOSITORY, stage, BODIES[stage]["deps"])


@pytest.mark.parametrize("stage", BODIES)
def test_no_dependency_lies_below_another(stage):
    deps = BODIES[stage]["deps"]
    assert not [path for path in deps if lies_below(path, set(deps) - {path})]


@pytest.mark.parametrize("stage", BODIES)
def test_code_that_a_stage_depends_on_is_there(stage):
    assert not [path for path in BODIES[stage]["deps"] if is_code(path) and not (REPOSITORY / path).exists()]


@pytest.mark.parametrize("stage", BODIES)
def test_dependencies_and_outputs_are_listed_in_order(stage):
    for key in ("deps", "outs"):
        listed = BODIES[stage][key]
        assert listed == sorted(listed)


def test_dvc_yaml_fits_on_a_screen_and_a_half():
    assert len((REPOSITORY / "dvc.yaml").read_text().splitlines()) <= MOST_LINES


def test_a_clone_has_no_local_sources_and_the_folder_that_acquire_depends_on():
    assert YAML(typ="safe").load((REPOSITORY / "inputs.yaml").read_text()) == {"local": {}, "remote": {}}
    assert [path.name for path in (REPOSITORY / "inputs").iterdir()] == ["README.md"]
    assert "__pycache__/" in (REPOSITORY / ".dvcignore").read_text().splitlines()


def test_a_forgotten_module_and_a_folder_too_many_are_named(tmp_path):
    for path, source in {
        "tasks/sample/stage.py": "from storage.records.reader import read\nfrom tasks.sample import words\n",
        "tasks/sample/words.py": "import tasks.params.schema\n",
        "storage/records/reader.py": "def read():\n    from storage.hashing import file_hash\n",
        "storage/hashing.py": "",
        "storage/tables/log.py": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    declared = ["data/texts", "storage/tables", "tasks/sample"]
    assert undeclared(tmp_path, "sample", declared) == ["storage/hashing.py", "storage/records/reader.py"]
    assert unused(tmp_path, "sample", declared) == ["storage/tables"]


def test_code_is_told_from_data():
    code = ["tasks/sample", "storage/hashing.py", "model", "make.py", "supmer"]
    data = ["data/tasks", "inputs", "/model/t5", "../storage", "texts", "tasks.csv", "models/t5"]
    assert [path for path in code + data if is_code(path)] == code
