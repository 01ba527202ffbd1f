"""A parameter that nothing reads is an error, and so is a text that names a parameter that is not there."""

import ast
import re
from pathlib import Path

import pytest

from storage.sources.source import NAMED_ROLES, SINGLE_ROLES
from support.parameter_file import MINIMAL, refusal, refused_settings
from support.parameter_reads import PACKAGES, keys, read_keys
from tasks.methods import METHODS
from tasks.params import changed_keys
from tasks.params.reference import group_names, value_type

REPOSITORY = Path(__file__).parents[3]
KEY = re.compile(rf"(?<![\w./-])(?:{'|'.join(group_names())})(?:\.[a-z_]+)+(?![\w/(])")
FILE_NAMES = (".css", ".csv", ".html", ".js", ".json", ".md", ".py", ".yaml")
MISSPELLED = "sample.budgt_mb"  # docs/parameters.md shows what is said of it


def read_by_name():
    """Return the keys that are read by a name in a table: the roles of sources, the settings of methods."""
    roles = {f"acquire.{role}" for role in (*SINGLE_ROLES, *NAMED_ROLES)}
    return roles | {key for row in METHODS.values() if row.is_built for key in (row.learning_rates, *row.settings)}


def is_key(key):
    try:
        value_type(tuple(key.split(".")))
    except KeyError:
        return False
    return True


def test_every_parameter_is_read_outside_of_the_schema():
    assert sorted(keys() - read_keys(REPOSITORY) - read_by_name()) == []


def test_whatever_is_read_by_name_is_a_parameter():
    assert read_by_name() <= keys()


@pytest.mark.parametrize(
    ("code", "read"),
    [
        ("def run(stage):\n    return stage.params.tune.shots\n", set()),  # of what type is it?
        ("class Stage:\n    params: Params\ndef run(stage):\n    return stage.params.tune.shots\n", {"tune.shots"}),
        ("def run(params: 'Params | None'):\n    tune = params.tune\n    return tune.shots\n", {"tune.shots"}),
        ("def run(tune: TuneParams):\n    a, b = tune.domains, 1\n    return a.source\n", {"tune.domains.source"}),
        ("def run(values):\n    tune = TuneParams(**values)\n    return [tune.shots for _ in ()]\n", {"tune.shots"}),
        ("def read() -> Params: ...\ndef run():\n    return read().seed\n", {"seed"}),
        ("def run(tune: TuneParams):\n    return tune.model_dump(include={'shots'})\n", {"tune.shots"}),
        ("def run(tune: TuneParams, tuner):\n    tune.model_dump()\n    return tuner.shots\n", set()),
        (("class A:\n    def __init__(self, p: TuneParams):\n        self._p = p\n    def b(self):\n"
          "        return self._p.shots\n"), {"tune.shots"}),
    ],
)  # fmt: skip
def test_only_an_attribute_of_a_group_of_parameters_is_a_read(tmp_path, code, read):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "stage.py").write_text(code)
    assert read_keys(tmp_path) == read


def texts(path):
    if path.suffix == ".md":
        return [path.read_text("utf-8")]
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_every_key_that_a_message_or_a_page_names_is_there():
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    modules = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    wrong = [
        f"{path.relative_to(REPOSITORY)}: {key}"
        for path in (*pages, *modules)
        if path.name != "changed_keys.py"
        for text in texts(path)
        for key in KEY.findall(text)
        if key != MISSPELLED and not key.endswith(FILE_NAMES) and not is_key(key)
    ]
    assert wrong == []


# Keys of earlier versions


def test_a_key_that_was_removed_or_renamed_is_no_key_and_its_new_name_is_one():
    assert not any(is_key(key) for key in (*changed_keys.REMOVED, *changed_keys.RENAMED))
    assert all(is_key(key) for key in changed_keys.RENAMED.values())


def test_a_renamed_key_is_refused_with_its_new_name(params_file, monkeypatch):
    monkeypatch.setitem(changed_keys.RENAMED, "sample.budget", "sample.budget_mb")
    monkeypatch.setitem(changed_keys.RENAMED, "sample.copies", "sample.near_duplicates")
    text = MINIMAL.replace("budget_mb: 20", "budget: 20")
    assert (
        refusal(params_file, text) == "params.yaml:13: sample.budget: renamed (got 20); write sample.budget_mb instead"
    )
    params_file.write_text(MINIMAL)
    assert refused_settings(params_file, "sample.copies.bands=3") == (
        "-S: sample.copies.bands: renamed (got 3); write sample.near_duplicates.bands instead"
    )
