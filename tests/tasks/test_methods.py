"""The table of methods: every row is whole, and what the paper prints has a row."""

from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from storage.task_formats import FORMATS
from tasks.metatrain.variants import RECIPES, Training
from tasks.methods import INITIALIZATIONS, META_TRAINED, METHODS, Group, in_order, label, method_of, most_telling
from tasks.params.file import load
from tasks.params.learning_schema import Method, Variant
from tasks.params.reference import value_type
from tasks.report.paper_figures import paper_figures

REPOSITORY = Path(__file__).parents[2]
BUILT = [name for name, row in METHODS.items() if row.is_built]


@pytest.mark.parametrize("name", BUILT)
def test_the_module_of_a_method_tunes_what_the_method_trains_and_evaluates(name):
    row = METHODS[name]
    module = import_module(row.module)
    assert callable(module.evaluate)
    assert hasattr(module, "tune") == (row.trains != "nothing")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_starts_from_a_learned_prompt_exactly_if_meta_training_learns_one(name):
    row = METHODS[name]
    assert (row.start == "learned") == (row.meta_training is not None) == bool(row.prompts)
    assert (row.trains == "nothing") == (row.group is Group.INFERENCE) == (row.examples != "training")


@pytest.mark.parametrize("name", META_TRAINED)
def test_a_variant_changes_only_settings_that_a_training_has(name):
    learned = META_TRAINED[name]
    assert learned.recipe in RECIPES
    assert set(learned.changes) <= set(Training.__dataclass_fields__)
    assert set(learned.formats or ()) <= set(FORMATS)
    if learned.takes_out:
        value_type(("metatrain", *learned.takes_out[0].split(".")))


@pytest.mark.parametrize("name", METHODS)
def test_the_keys_of_a_method_are_keys_of_the_schema(name):
    for key in (METHODS[name].learning_rates, *METHODS[name].settings):
        assert key.startswith("tune.")  # the stage depends on these
        value_type(tuple(key.split(".")))


def test_parameters_name_the_methods_of_the_table():
    assert get_args(Method) == tuple(METHODS)
    assert get_args(Variant) == tuple(META_TRAINED)
    assert set(META_TRAINED) < set(METHODS)


@pytest.mark.parametrize("backbone", ["t5-base", "flan-t5-xl"])
@pytest.mark.parametrize("experiment", ["few-shot", "domains"])
def test_every_row_of_the_paper_has_a_method(backbone, experiment):
    printed = {method for method, _ in paper_figures(backbone, experiment)}
    assert printed <= {label(name).paper_name for name in METHODS}


@pytest.mark.parametrize("backbone", ["t5-base", "flan-t5-xl"])
def test_a_profile_of_the_paper_produces_every_row_that_the_paper_prints_for_its_backbone(backbone):
    params = load(REPOSITORY / f"profiles/paper-{backbone}.yaml")
    printed = {method for experiment in ("few-shot", "domains") for method, _ in paper_figures(backbone, experiment)}
    assert printed == set(params.tune.methods)
    assert {name for name in printed if name in META_TRAINED} == set(params.metatrain.variants)


def test_groups_follow_each_other_in_the_papers_order():
    groups = [row.group for row in METHODS.values()]
    assert groups == sorted(groups, key=list(Group).index)


def test_ppt_has_a_prompt_for_each_format_and_starts_from_that_of_the_set():
    ppt = METHODS["ppt"]
    assert ppt.prompts == ("ppt-sp", "ppt-ss")
    assert (ppt.prompt_for(1), ppt.prompt_for(2)) == ("ppt-ss", "ppt-sp")
    assert METHODS["unified-ppt"].prompts == ("unified-ppt",)
    assert [method_of(prompt).name for prompt in ("ppt-mc", "unified-ppt", "only-mc")] == [
        "ppt",
        "unified-ppt",
        "only-mc",
    ]
    assert label("ppt-mc").title == "PPT (mc)"


def test_random_starts_are_those_of_supmer_tune():
    assert list(INITIALIZATIONS.items()) == [("vocabulary", "pt-vocabulary"), ("normal", "pt")]


def test_rows_stand_in_the_papers_order_and_plots_draw_supmer_first():
    names = {"ppt-sp", "zero-shot", "strange", "supmer", "pt", "without-mgr", "ft"}
    assert in_order(names) == ["zero-shot", "ft", "pt", "supmer", "without-mgr", "ppt-sp", "strange"]
    assert most_telling(names) == ["supmer", "pt", "ft", "zero-shot", "without-mgr", "ppt-sp", "strange"]


def test_names_of_methods_are_written_in_the_table_alone():
    """A name elsewhere in the stages would be a second place to touch; modules of single methods may say their own."""
    ambiguous = {"supmer", "few-shot", "embedding"}  # also the program, an experiment, a column
    own = {"tasks/methods.py", "tasks/metatrain/variants.py", "tasks/tune/evaluation.py"}
    own.add("tasks/params/learning_schema.py")  # its defaults
    own.add("tasks/cards/shipped_card.py")  # groups of parameters that have the names of methods
    places = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for package in ("tasks", "flows")
        for path in sorted((REPOSITORY / package).rglob("*.py"))
        for name in METHODS.keys() - ambiguous
        if f'"{name}"' in path.read_text("utf-8").replace('return_tensors="pt"', "")
        and path.relative_to(REPOSITORY).as_posix() not in own
    ]
    assert places == []
