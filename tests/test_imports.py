"""Imports between packages point one way, folders do not import each other in a circle, and no folder is crowded."""

import ast
from collections import defaultdict
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
BELOW = {  # the packages that each may import besides itself
    "storage": set(),
    "model": {"storage"},
    "tasks": {"model", "storage"},
    "flows": {"model", "storage", "tasks"},
    "supmer": {"model", "storage", "tasks"},  # the public face: nothing imports it
}
KEPT_OUT = {"torch": {"storage"}, "prefect": {"model", "storage"}, "prefect_dask": {"model", "storage"}}
MOST_MODULES = 20
EXEMPT = {"flows/commands"}  # one module for each verb of the command line


@dataclass(frozen=True)
class Import:
    """One imported module, and where the import stands."""

    file: Path
    line: int
    module: str

    def __str__(self):
        return f"{self.file.as_posix()}:{self.line} imports {self.module}"


def modules(root):
    """Return the files of the packages by the dotted name of their module."""
    files = [path.relative_to(root) for package in BELOW for path in sorted((root / package).rglob("*.py"))]
    return {dotted(file): file for file in files}


def dotted(file):
    return ".".join(file.parent.parts if file.name == "__init__.py" else file.with_suffix("").parts)


def imports(root, file, known):
    """Yield every import of a file, at its top or inside a function; `known` are the modules of the packages."""
    for node in ast.walk(ast.parse((root / file).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = file.parts[: len(file.parts) - node.level] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            for name in dict.fromkeys(f"{module}.{alias.name}" for alias in node.names):
                yield Import(file, node.lineno, name if name in known else module)


def all_imports(root):
    known = modules(root)
    return [statement for file in known.values() for statement in imports(root, file, known)]


def node_of(file):
    """Return the folder of a module. An `__init__` stands for itself: it may re-export what lies below its folder."""
    return file.as_posix() if file.name == "__init__.py" else file.parent.as_posix()


def folder_graph(root):
    """Return the imports between folders: {folder: {imported folder: [imports]}}."""
    known, graph = modules(root), defaultdict(lambda: defaultdict(list))
    for statement in all_imports(root):
        if statement.module in known:
            here, there = node_of(statement.file), node_of(known[statement.module])
            if here != there:
                graph[here][there].append(statement)
    return graph


def circle(root):
    """Describe one circle of folders, with the imports that close it; return an empty string if there is none."""
    graph = folder_graph(root)
    try:
        TopologicalSorter({folder: set(imported) for folder, imported in graph.items()}).prepare()
    except CycleError as error:
        folders = error.args[1][::-1]  # each imports the next, and the last is the first
        lines = ["folders import each other: " + " -> ".join(folders)]
        for here, there in pairwise(folders):
            lines += [f"  {statement}" for statement in graph[here][there]]
        return "\n".join(lines)
    return ""


def upward(root):
    """Return the imports of our own packages that point the wrong way."""
    return [
        statement
        for statement in all_imports(root)
        if (package := statement.module.partition(".")[0]) in BELOW
        and package not in {statement.file.parts[0], *BELOW[statement.file.parts[0]]}
    ]


def out_of_place(root):
    """Return the imports of libraries by packages that must do without them."""
    return [
        statement
        for statement in all_imports(root)
        if statement.file.parts[0] in KEPT_OUT.get(statement.module.partition(".")[0], ())
    ]


def crowded(root):
    """Return the folders with too many modules, with their number."""
    counts = defaultdict(int)
    for file in modules(root).values():
        counts[file.parent.as_posix()] += file.name != "__init__.py"
    return {folder: count for folder, count in counts.items() if count > MOST_MODULES and folder not in EXEMPT}


def listed(statements):
    return "\n".join(map(str, statements))


def test_a_package_imports_only_packages_below_it():
    wrong = upward(REPOSITORY)
    assert not wrong, f"imports go flows -> tasks -> model -> storage, never back:\n{listed(wrong)}"


def test_folders_do_not_import_each_other_in_a_circle():
    assert not (message := circle(REPOSITORY)), message


def test_libraries_stay_out_of_packages_that_must_do_without_them():
    wrong = out_of_place(REPOSITORY)
    assert not wrong, f"no torch in storage, no Prefect in model or storage:\n{listed(wrong)}"


def test_no_folder_is_crowded():
    assert not (folders := crowded(REPOSITORY)), f"more than {MOST_MODULES} modules: {folders}"


@pytest.fixture
def write(tmp_path):
    """Write files below a folder of the packages and return the folder."""

    def write(**sources):
        for name, source in sources.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        return tmp_path

    return write


def test_a_circle_is_found_through_imports_inside_functions_and_named(write):
    root = write(
        model__text__words="def later():\n    from model.t5.kernel import run\n",
        model__t5__kernel="import model.prompt.rows\n",
        model__prompt__rows="from model.text import words\n",
    )
    message = circle(root)
    assert "model/text/words.py:2 imports model.t5.kernel" in message
    assert "model/t5/kernel.py:1 imports model.prompt.rows" in message
    assert "model/prompt/rows.py:1 imports model.text.words" in message


def test_two_modules_of_a_folder_may_import_each_other(write):
    assert not circle(write(model__t5__a="from model.t5.b import x\n", model__t5__b="from .a import y\n"))


def test_a_package_may_re_export_what_lies_below_it(write):
    package = write(model__device="", model__t5__fast="from model.device import cpu\n") / "model"
    (package / "__init__.py").write_text("from model.t5.fast import T5\n")
    assert not circle(package.parent)
    (package / "t5" / "slow.py").write_text("from model import T5\n")
    assert "model/t5/slow.py:1 imports model" in circle(package.parent)


def test_an_import_that_points_upward_or_to_a_library_out_of_place_is_named(write):
    root = write(
        storage__views="import model.device\nfrom tasks.stage import contract\nimport torch.nn\n",
        model__meta__step="from storage.views import x\nfrom prefect import flow\nimport torch\n",
    )
    assert listed(upward(root)).splitlines() == [
        "storage/views.py:1 imports model.device",
        "storage/views.py:2 imports tasks.stage",
    ]
    assert listed(out_of_place(root)).splitlines() == [
        "storage/views.py:3 imports torch.nn",
        "model/meta/step.py:2 imports prefect",
    ]


def test_a_crowded_folder_is_named_unless_it_holds_the_verbs(write):
    names = [f"m{number}" for number in range(MOST_MODULES + 1)]
    root = write(**{f"tasks__{name}": "" for name in names}, **{f"flows__commands__{name}": "" for name in names})
    assert crowded(root) == {"tasks": MOST_MODULES + 1}
