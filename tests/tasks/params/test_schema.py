"""The schema and the profiles."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from model.prompt.initial_prompt import Initialization
from model.text.templates import Form
from storage.task_formats import ANCHOR_KINDS, FORMATS
from support.parameter_file import MINIMAL
from tasks.methods import INITIALIZATIONS
from tasks.params.file import load, parse, read, validate
from tasks.params.reference import flatten, parameters, spell, value_type, with_reference
from tasks.params.schema import FormatMixParams, Params
from tasks.report.result_tables import PAPER_NAMES

REPOSITORY = Path(__file__).parents[3]
PROFILES = sorted((REPOSITORY / "profiles").glob("*.yaml"))
PAPER_PROFILES = ("paper-t5-base", "paper-flan-t5-xl")

# What the paper says: its hyper-parameter table and its appendix on training details.
PAPER = {
    "sample.budget_mb": 10_000,
    "sample.validation_share": 0.05,
    "embed.model": "backbone",
    "cluster.clusters": 250,
    "materialize.support_size": 32,
    "materialize.query_size": 32,
    "materialize.labeled.groups": 10,
    "materialize.labeled.labeled_parts": 1,
    "materialize.labeled.unlabeled_parts": 2,
    "metatrain.prompt_tokens": 100,
    "metatrain.tasks_per_batch": 4,
    "metatrain.order": 2,
    "metatrain.inner.learning_rate": 0.1,
    "metatrain.inner.form": "sgd",
    "metatrain.outer_learning_rate": 0.1,
    "metatrain.scheduler": "linear",
    "metatrain.warmup_steps": 0,
    "metatrain.clip_norm": 1.0,
    "metatrain.steps": 100_000,
    "metatrain.validate_every": 2_000,
    "metatrain.max_length": 512,
    "metatrain.augmentation.mode": "curriculum",
    "metatrain.augmentation.alpha": 1.0,
    "metatrain.augmentation.m": 2.0,
    "metatrain.augmentation.similarity_at": "theta",
    "metatrain.augmentation.similarity_smoothing": 0.0,
    "metatrain.regularizer.enabled": True,
    "metatrain.regularizer.learning_rate": 1e-4,
    "metatrain.regularizer.rank": 64,
    "metatrain.regularizer.gate": "vector",
    "metatrain.regularizer.weight": 1.0,
    "metatrain.ppt.learning_rate": 0.1,
    "metatrain.ppt.scheduler": "inverse-square-root",
    "metatrain.ppt.warmup_steps": 0,
    "metatrain.ppt.batch_size": 256,
    "metatrain.ppt.steps": 200_000,
    "metatrain.ppt.validate_every": 2_000,
    "metatrain.ppt.max_length": 512,
    "metatrain.metapt.inner_learning_rate": 0.08,
    "metatrain.metapt.outer_learning_rate": 0.025,
    "metatrain.metapt.patience": 6,
    "tune.shots": 16,
    "tune.seeds": [10, 20, 30, 40, 50],
    "tune.learning_rates": [0.1, 0.2, 0.3],
    "tune.batch_size": 32,
    "tune.epochs": 200,
    "tune.evaluate_every": 10,
    "tune.max_length": 128,
    "tune.test_examples": None,
    "tune.domains.source": "airlines",
    "tune.domains.targets": ["books", "dvds", "electronics", "kitchen", "restaurants"],
    "tune.datasets": ["sst-2", "sst-5", "mr", "cr", "subj", "trec", "cb", "rte", "qnli", "wic", "mrpc", "qqp"],
}
LONG = ("cr", "subj", "cb", "rte", "wic", "airlines", "books", "dvds", "electronics", "kitchen", "restaurants")
BY_BACKBONE = {
    "paper-t5-base": {
        "acquire.backbone": "hf:google-t5/t5-base",
        "acquire.corpus.openwebtext": "hf:Skylion007/openwebtext",
        "metatrain.template": "sentinel",
    },
    "paper-flan-t5-xl": {
        "acquire.backbone": "hf:google/flan-t5-xl",
        "acquire.corpus.openwebtext": "hf:Skylion007/openwebtext",
        "metatrain.template": "instruction",
    },
}


# The profiles


def test_params_yaml_of_the_repository_is_the_quickstart_profile():
    assert (REPOSITORY / "params.yaml").read_bytes() == (REPOSITORY / "profiles" / "quickstart.yaml").read_bytes()


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_profile_is_valid_and_leaves_no_key_out(path):
    document = read(path)
    assert set(flatten(validate(document).model_dump())) == set(flatten(document.values))


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_dvc_reads_the_same_values_of_the_same_types(path):
    from dvc.utils.serialize import load_yaml

    def typed(values):
        return {key: (type(value), value) for key, value in flatten(values).items()}

    assert typed(load_yaml(str(path))) == typed(read(path).values)


@pytest.mark.parametrize("spelling", ["1e-4", "1.0e-4", "1E-4", "0.0001"])
def test_small_numbers_are_numbers_for_dvc_and_for_us(params_file, spelling):
    from dvc.utils.serialize import load_yaml

    params_file.write_text(f"{MINIMAL}metatrain:\n  regularizer:\n    learning_rate: {spelling}\n")
    assert load_yaml(str(params_file))["metatrain"]["regularizer"]["learning_rate"] == 1e-4
    assert load(params_file).metatrain.regularizer.learning_rate == 1e-4


@pytest.mark.parametrize("name", PAPER_PROFILES)
def test_paper_profiles_hold_every_value_of_the_paper(name):
    values = flatten(load(REPOSITORY / "profiles" / f"{name}.yaml").model_dump())
    expected = PAPER | BY_BACKBONE[name] | {f"tune.max_lengths.{dataset}": 256 for dataset in LONG}
    assert {key: values[key] for key in expected} == expected
    assert {key for key in values if key.startswith("tune.max_lengths.")} == {f"tune.max_lengths.{n}" for n in LONG}


def test_the_defaults_are_the_papers():
    values = flatten(Params.model_validate(parse(Path("x"), MINIMAL.partition("# drawing")[0]).values).model_dump())
    papers = {key: value for key, value in PAPER.items() if not key.startswith(("tune.domains", "tune.datasets"))}
    papers["tune.max_length"] = None  # each dataset's own, which is the paper's (model/text/datasets.py)
    assert {key: values[key] for key in papers} == papers


# The schema


def test_every_parameter_has_a_meaning():
    assert [
        parameter.key for parameter in parameters() if not parameter.description or parameter.description.endswith(".")
    ] == []


def test_the_page_of_parameters_is_the_schemas_own():
    page = (REPOSITORY / "docs" / "parameters.md").read_text("utf-8")
    assert page == with_reference(page), "run: python -m tasks.params.reference docs/parameters.md"


def choices(key):
    """Return the values that a key may have, of a list those of its entries."""
    return set(re.findall(r"[\w-]+", spell(value_type(tuple(key.split(".")))))) - {"list", "of", "or", "null"}


def test_choices_are_those_that_the_code_knows():
    assert choices("metatrain.template") == set(get_args(Form))
    assert choices("metatrain.initialization") == set(get_args(Initialization)) == set(INITIALIZATIONS)
    assert choices("metatrain.formats") == choices("metatrain.varied_label_words") == set(FORMATS)
    assert set(FormatMixParams.model_fields) == set(FORMATS)
    assert choices("metatrain.kinds") == set(ANCHOR_KINDS)
    assert choices("report.paper_figures") == set(PAPER_NAMES)


def test_parameters_cannot_be_changed_once_read(params_file):
    params = load(params_file)
    with pytest.raises(ValidationError, match="frozen"):
        params.sample.budget_mb = 3


def test_a_whole_number_will_do_where_a_number_is_asked_for(params_file):
    assert load(params_file).sample.budget_mb == 20.0
    assert isinstance(load(params_file).sample.budget_mb, float)


def test_reading_parameters_imports_nothing_heavy():
    heavy = "{'torch', 'prefect', 'dvc', 'pyarrow', 'duckdb', 'transformers', 'numpy'}"
    code = "import sys, tasks.params.file, tasks.params.overrides, tasks.params.diff; "
    code += f"print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
