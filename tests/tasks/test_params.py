"""The schema, its reader and editor, and the profiles."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from storage.errors import InputError
from tasks.assignments import override
from tasks.changes import changes
from tasks.config import load, parse, read, save, validate
from tasks.knobs import flatten, knobs, value_type, with_reference
from tasks.learning_params import Method, Variant
from tasks.params import Params

REPOSITORY = Path(__file__).parents[2]
PROFILES = sorted((REPOSITORY / "profiles").glob("*.yaml"))
PAPER_PROFILES = ("paper-t5-base", "paper-flan-t5-xl")

MINIMAL = """\
# parameters of a test
seed: 3  # any
acquire:
  backbone: hf:a/backbone
  embedder: hf:a/embedder
  corpus:
    news: path:/news  # our own

  # labeled
  datasets: {}
# drawing
sample:
  budget_mb: 20   # MB
  near_duplicates: {enabled: true, bands: 3}
tune:
  seeds:
    - 10
    - 20
  # what is compared
  methods: [pt]
"""

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
    "metatrain.optimizer": "adam",
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
    "tune.optimizer": "adamw",
    "tune.learning_rates": [0.1, 0.2, 0.3],
    "tune.batch_size": 32,
    "tune.epochs": 200,
    "tune.evaluate_every": 10,
    "tune.max_length": 128,
    "tune.test_examples": None,
    "tune.fine_tuning.learning_rates": [1e-5, 2e-5, 3e-5],
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
        "tune.fine_tuning.zero_stage": 0,
    },
    "paper-flan-t5-xl": {
        "acquire.backbone": "hf:google/flan-t5-xl",
        "acquire.corpus.openwebtext": "hf:Skylion007/openwebtext",
        "metatrain.template": "instruction",
        "tune.fine_tuning.zero_stage": 2,
    },
}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "params.yaml"
    path.write_text(MINIMAL)
    return path


def refusal(path, text=None):
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as caught:
        load(path)
    return str(caught.value)


def refused_settings(path, *assignments):
    with pytest.raises(InputError) as caught:
        validate(override(read(path), assignments))
    return str(caught.value)


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
def test_small_numbers_are_numbers_for_dvc_and_for_us(file, spelling):
    from dvc.utils.serialize import load_yaml

    file.write_text(f"{MINIMAL}metatrain:\n  regularizer:\n    learning_rate: {spelling}\n")
    assert load_yaml(str(file))["metatrain"]["regularizer"]["learning_rate"] == 1e-4
    assert load(file).metatrain.regularizer.learning_rate == 1e-4


@pytest.mark.parametrize("name", PAPER_PROFILES)
def test_paper_profiles_hold_every_value_of_the_paper(name):
    values = flatten(load(REPOSITORY / "profiles" / f"{name}.yaml").model_dump())
    expected = PAPER | BY_BACKBONE[name] | {f"tune.max_lengths.{dataset}": 256 for dataset in LONG}
    assert {key: values[key] for key in expected} == expected
    assert {key for key in values if key.startswith("tune.max_lengths.")} == {f"tune.max_lengths.{n}" for n in LONG}


def test_the_defaults_are_the_papers():
    values = flatten(Params.model_validate(parse(Path("x"), MINIMAL.partition("# drawing")[0]).values).model_dump())
    papers = {key: value for key, value in PAPER.items() if not key.startswith(("tune.domains", "tune.datasets"))}
    assert {key: values[key] for key in papers} == papers


# The schema


def test_every_knob_has_a_meaning_and_no_two_read_alike_by_accident():
    assert [knob.key for knob in knobs() if not knob.description or knob.description.endswith(".")] == []


def test_the_page_of_parameters_is_the_schemas_own():
    page = (REPOSITORY / "docs" / "parameters.md").read_text("utf-8")
    assert page == with_reference(page), "run: python -m tasks.knobs docs/parameters.md"


def test_whatever_is_meta_trained_can_be_tuned():
    assert set(get_args(Variant)) < set(get_args(Method))


def test_parameters_cannot_be_changed_once_read(file):
    params = load(file)
    with pytest.raises(ValidationError, match="frozen"):
        params.sample.budget_mb = 3


def test_a_whole_number_will_do_where_a_number_is_asked_for(file):
    assert load(file).sample.budget_mb == 20.0
    assert isinstance(load(file).sample.budget_mb, float)


def test_reading_parameters_imports_nothing_heavy():
    heavy = "{'torch', 'prefect', 'dvc', 'pyarrow', 'duckdb', 'transformers', 'numpy'}"
    code = f"import sys, tasks.config, tasks.assignments, tasks.changes; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Refusals of a file


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("budget_mb: 20", "budgt_mb: 20",
         "params.yaml:13: sample.budgt_mb: unknown key (got 20); did you mean sample.budget_mb?"),
        ("budget_mb: 20", "support_size: 20",
         "params.yaml:13: sample.support_size: unknown key (got 20); did you mean materialize.support_size?"),
        ("seed: 3", "zzzz: 3", "params.yaml:2: zzzz: unknown key (got 3)"),
        ("seed: 3", "1: 3", "params.yaml:2: 1: unknown key (got 3)"),
        ("sample:", "smaple:", ("params.yaml:12: smaple: unknown key "
         '(got {"budget_mb": 20, "near_duplicates": {"enabled": true, "bands": 3}}); did you mean sample?')),
        ("budget_mb: 20", "budget_mb: much", 'params.yaml:13: sample.budget_mb: expected a number (got "much")'),
        ("budget_mb: 20", "budget_mb: true", "params.yaml:13: sample.budget_mb: expected a number (got true)"),
        ("budget_mb: 20", "budget_mb: 0", "params.yaml:13: sample.budget_mb: must be above 0 (got 0)"),
        ("budget_mb: 20", "budget_mb: .nan", "params.yaml:13: sample.budget_mb: must be a finite number (got nan)"),
        ("budget_mb: 20", "budget_mb: 2020-01-01",
         "params.yaml:13: sample.budget_mb: expected a number (got 2020-01-01)"),
        ("budget_mb: 20", "min_words: 5.5", "params.yaml:13: sample.min_words: expected a whole number (got 5.5)"),
        ("budget_mb: 20", "validation_share: 1.5",
         "params.yaml:13: sample.validation_share: must be at most 1 (got 1.5)"),
        ("budget_mb: 20", "min_words: -1", "params.yaml:13: sample.min_words: must be at least 0 (got -1)"),
        ("{enabled: true, bands: 3}", "{enabled: yes}",
         'params.yaml:14: sample.near_duplicates.enabled: expected true or false (got "yes")'),
        ("{enabled: true, bands: 3}", "[1]",
         "params.yaml:14: sample.near_duplicates: expected a section of keys (got [1])"),
        ("methods: [pt]", "methods: pt", 'params.yaml:20: tune.methods: expected a list (got "pt")'),
        ("methods: [pt]", "methods: []", "params.yaml:20: tune.methods: must not be empty (got [])"),
        ("methods: [pt]", "methods: [pt, pt]", "params.yaml:20: tune.methods: names pt more than once"),
        ("    - 20", "    - x", 'params.yaml:18: tune.seeds[1]: expected a whole number (got "x")'),
        ("datasets: {}", "datasets: [a]",
         'params.yaml:10: acquire.datasets: expected a mapping of names to values (got ["a"])'),
        ("news: path:/news", "News: path:/news", ("params.yaml:7: acquire.corpus.News: "
         'a name is made of a-z, 0-9, - and _, and starts with a letter or digit (got "News")')),
        ("path:/news", "ftp:/news", ("params.yaml:7: acquire.corpus.news: 'ftp:/news': a source starts with one of "
         "wheel:…, hf:…, path:…: for example hf:org/name@revision#path=data/*.parquet")),
        ("  backbone: hf:a/backbone\n", "", "params.yaml:3: acquire.backbone: missing (expected text)"),
        ("methods: [pt]", "optimizer: adam",
         'params.yaml:20: tune.optimizer: must be one of adamw (got "adam"); did you mean adamw?'),
        ("seed: 3", "seed: 3\nseed: 4", "params.yaml:3: seed: given twice in one section: keep one"),
        ("  budget_mb", "\tbudget_mb", "params.yaml:13: a tab at the start of the line: YAML wants spaces"),
        ("seed: 3", "seed: \x07", "params.yaml:2: a control character that YAML forbids: remove it"),
        ("seed: 3", f"seed: {'[' * 500}{']' * 500}", "params.yaml: nested too deeply, or a value that holds itself"),
        (MINIMAL, "", "params.yaml: empty: `supmer params use quickstart` fills it"),
        (MINIMAL, "# nothing\n", "params.yaml: empty: `supmer params use quickstart` fills it"),
        (MINIMAL, "- seed\n", "params.yaml:1: expected sections such as `sample:` at the top, got a list"),
        (MINIMAL, "seed\n", "params.yaml:1: expected sections such as `sample:` at the top, got a single value"),
        (MINIMAL, "seed: 1\n", "params.yaml: acquire: missing (expected a section of keys)"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_line_key_and_advice(file, before, after, message):
    assert before in MINIMAL
    assert refusal(file, MINIMAL.replace(before, after)) == message


def test_yaml_that_does_not_parse_is_refused_with_its_line(file):
    assert refusal(file, MINIMAL.replace("seed: 3", "seed: [3")).startswith("params.yaml:3: not valid YAML (")


def test_all_problems_are_told_at_once(file):
    text = MINIMAL.replace("seed: 3", "seed: x").replace("budget_mb: 20", "budget_mb: -1")
    assert refusal(file, text).splitlines() == [
        'params.yaml:2: seed: expected a whole number (got "x")',
        "params.yaml:13: sample.budget_mb: must be above 0 (got -1)",
    ]


def test_a_file_that_cannot_be_read_is_refused(file):
    file.write_bytes(b"seed: \xff\n")
    assert refusal(file) == f"{file}: not UTF-8 (byte 6): save it as UTF-8"
    file.unlink()
    assert refusal(file) == f"{file}: no such file: `supmer params use quickstart` makes a params.yaml"
    file.mkdir()
    assert refusal(file) == f"{file}: cannot be read (Is a directory)"


# Impossible combinations


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["sample.min_words=50", "sample.max_words=40"],
         "sample.min_words: is above sample.max_words = 40 (got 50)"),
        (["sample.min_sentence_words=90"],
         "sample.min_sentence_words: is above sample.max_sentence_words = 80 (got 90)"),
        (["metatrain.steps=100"], "metatrain.validate_every: is above metatrain.steps = 100 (got 2000)"),
        (["metatrain.steps=10", "metatrain.validate_every=5", "metatrain.warmup_steps=11"],
         "metatrain.warmup_steps: is above metatrain.steps = 10 (got 11)"),
        (["metatrain.ppt.steps=5"], ("metatrain.ppt.validate_every: is above metatrain.ppt.steps = 5: "
         "nothing would ever be validated (got 2000)")),
        (["metatrain.formats=[mc, ss]", "metatrain.variants=[only-sp]"],
         'metatrain.variants: names only-sp, but metatrain.formats leaves sp out (got ["only-sp"])'),
        (["metatrain.regularizer.enabled=false", "metatrain.variants=[without-mgr]"],
         ("metatrain.variants: names without-mgr, but metatrain.regularizer.enabled = false takes that out of supmer "
         'itself (got ["without-mgr"])')),
        (["metatrain.augmentation.mode=none", "metatrain.variants=[without-ta]"],
         ("metatrain.variants: names without-ta, but metatrain.augmentation.mode = none takes that out of supmer "
         'itself (got ["without-ta"])')),
        (["materialize.format_mix.ss=0"],
         ("metatrain.formats: names ss, but materialize.format_mix.ss = 0: there would be no such task "
         '(got ["sp", "mc", "ss"])')),
        (["materialize.format_mix.sp=0", "materialize.format_mix.mc=0", "materialize.format_mix.ss=0"],
         ("materialize.format_mix.sp: is 0 as are materialize.format_mix.mc and materialize.format_mix.ss: "
         "no task could be made (got 0)")),
        (["cluster.clusters=3"], ("cluster.clusters: is below 4, the choices of an ss task, but "
         "materialize.format_mix.ss = 1 (got 3)")),
        (["materialize.train_tasks=3"],
         "materialize.train_tasks: is below metatrain.tasks_per_batch = 4 (got 3)"),
        (["materialize.train_tasks=1", "metatrain.tasks_per_batch=1"],
         ("materialize.train_tasks: leaves no other task to mix with, but metatrain.augmentation.mode = curriculum "
         "(got 1)")),
        (["metatrain.variants=[metapt]"], ("metatrain.variants: names metapt, which learns from labeled tasks, but "
         'materialize.labeled.datasets = [] (got ["metapt"])')),
        (["tune.methods=[pt, without-mgr]"],
         'tune.methods: names without-mgr, which metatrain.variants does not train (got ["pt", "without-mgr"])'),
        (["tune.datasets=[sst-2]"],
         'tune.datasets: names sst-2, which acquire.datasets does not bring in (got ["sst-2"])'),
        (["tune.domains.targets=[books]"],
         'tune.domains.targets: needs a domain to tune on, but tune.domains.source = null (got ["books"])'),
        (["tune.domains.source=books", "tune.domains.targets=[books]"],
         "tune.domains.targets: names tune.domains.source = books, which is tested anyway (got [\"books\"])"),
        (["report.datasets=[mr]"],
         'report.datasets: names mr, which neither tune.datasets nor tune.domains measures (got ["mr"])'),
    ],
)  # fmt: skip
def test_an_impossible_combination_is_refused_with_both_keys_and_values(file, assignments, message):
    assert refused_settings(file, *assignments) == f"-S: {message}"


def test_an_impossible_combination_in_a_file_names_the_line(file):
    text = MINIMAL.replace("budget_mb: 20   # MB", "max_words: 40\n  min_words: 50")
    assert refusal(file, text) == "params.yaml:14: sample.min_words: is above sample.max_words = 40 (got 50)"


def test_a_set_of_32_over_three_labels_is_no_contradiction(file):
    assert load(file).materialize.support_size == 32


# Settings


def test_a_setting_changes_its_own_characters_alone(file):
    changed = override(read(file), ["sample.budget_mb=5", "seed=4", "tune.methods=[pt, supmer]"])
    assert changed.text == MINIMAL.replace("budget_mb: 20 ", "budget_mb: 5 ").replace("seed: 3", "seed: 4").replace(
        "[pt]", "[pt, supmer]"
    )
    assert file.read_text() == MINIMAL


def test_new_keys_go_to_the_end_of_their_mapping_and_comments_stay(file):
    settings_ = [
        "acquire.corpus.mine=path:/x#path=*.gz",
        "acquire.datasets.sms=path:/sms",
        "sample.near_duplicates.rows=2",
        "sample.language=null",
        "metatrain.inner.form=rms",
    ]
    text = override(read(file), settings_).text
    assert '    news: path:/news  # our own\n    mine: "path:/x#path=*.gz"\n\n  # labeled\n' in text
    assert '  datasets: {sms: "path:/sms"}\n# drawing\n' in text
    assert "  near_duplicates: {enabled: true, bands: 3, rows: 2}\n  language: null\ntune:\n" in text
    assert text.endswith("  methods: [pt]\nmetatrain: {inner: {form: rms}}\n")


def test_a_list_or_mapping_in_block_style_is_replaced_on_its_keys_line(file):
    text = override(read(file), ["tune.seeds=[1, 2]", "acquire.corpus={mine: 'path:/a b'}"]).text
    assert "  seeds: [1, 2]\n  # what is compared\n  methods: [pt]\n" in text
    assert "  corpus: {mine: 'path:/a b'}" in text
    assert "\n\n  # labeled\n  datasets: {}\n" in text


def test_a_key_left_without_a_value_can_be_set(file):
    file.write_text(MINIMAL.replace("datasets: {}", "datasets:"))
    assert (
        '  datasets: {sms: "path:/sms"}\n# drawing\n' in override(read(file), ["acquire.datasets.sms=path:/sms"]).text
    )


def test_what_was_typed_stays_as_typed(file):
    changed = override(read(file), ["metatrain.regularizer.learning_rate=1e-5"])
    assert "learning_rate: 1e-5" in changed.text
    assert validate(changed).metatrain.regularizer.learning_rate == 1e-5


@pytest.mark.parametrize(
    "source",
    [
        "path:/x#path=*.gz",
        "path:/with space/and # hash",
        "path:/a: b",
        "path:/a, b]}",
        "path:/quote'\"s",
        f"wheel:a==1#sha256={'0' * 64}&path=a/**",
        "hf:org/name@refs/convert/parquet#path=cb/**",
    ],
)
def test_a_source_survives_as_it_was_typed(file, source):
    changed = override(read(file), [f"acquire.corpus.mine={source}", f"acquire.datasets.mine={source}"])
    params = validate(changed)
    assert params.acquire.corpus == {"news": "path:/news", "mine": source}
    assert params.acquire.datasets == {"mine": source}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("seed", "-S seed: expected KEY=VALUE, for example -S sample.budget_mb=5"),
        ("=3", "-S =3: expected KEY=VALUE, for example -S sample.budget_mb=5"),
        ("sample..x=3", "-S sample..x=3: expected KEY=VALUE, for example -S sample.budget_mb=5"),
        ("sample.budgt_mb=5", "-S: sample.budgt_mb: unknown key (got 5); did you mean sample.budget_mb?"),
        ("budget_mb=5", "-S: budget_mb: unknown key (got 5); did you mean sample.budget_mb?"),
        ("tune.seeds.0=5", "-S: tune.seeds.0: unknown key (got 5); did you mean tune.seeds?"),
        ("embed=5", "-S: embed: a section, set one of its keys (model, dtype, batch_size)"),
        ("tune.seeds=[1", "-S: tune.seeds: not valid YAML: expected ',' or ']', but got '<stream end>' (got [1)"),
        ("sample.budget_mb=much", '-S: sample.budget_mb: expected a number (got "much")'),
        ("sample.budget_mb=", "-S: sample.budget_mb: expected a number (got null)"),
        ("sample.text_field=", '-S: sample.text_field: must not be empty (got "")'),
        ("metatrain.order=true", "-S: metatrain.order: expected a whole number (got true)"),
        ("metatrain.augmentation.mode=curiculum",
         ('-S: metatrain.augmentation.mode: must be one of curriculum, vanilla, none (got "curiculum"); '
         "did you mean curriculum?")),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused_by_name(file, assignment, message):
    assert refused_settings(file, assignment) == message


def test_a_value_that_other_keys_share_is_not_edited_behind_their_back(file):
    file.write_text(MINIMAL.replace("seed: 3", "seed: &n 3").replace("budget_mb: 20", "budget_mb: *n"))
    message = "-S: sample.budget_mb: cannot be set where it stands in params.yaml: edit the file by hand"
    assert refused_settings(file, "sample.budget_mb=5") == message


def test_saving_writes_the_text_and_nothing_else(file):
    save(override(read(file), ["seed=9"]))
    assert file.read_text() == MINIMAL.replace("seed: 3", "seed: 9")
    assert [path.name for path in file.parent.iterdir()] == ["params.yaml"]


def test_changes_are_told_by_key_in_the_order_of_the_file(file):
    before = load(file)
    after = validate(override(read(file), ["sample.budget_mb=5", "seed=4", "acquire.corpus={mine: path:/m}"]))
    assert [str(change) for change in changes(before.model_dump(), after.model_dump())] == [
        "seed: 3 → 4",
        'acquire.corpus.mine: – → "path:/m"',
        'acquire.corpus.news: "path:/news" → –',
        "sample.budget_mb: 20 → 5",
    ]


NUMBER_KEYS = [knob.key for knob in knobs() if value_type(tuple(knob.key.split("."))) is float]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(key=st.sampled_from(NUMBER_KEYS), value=st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_set_in_a_profile_reads_back_and_leaves_the_rest(key, value):
    document = read(REPOSITORY / "profiles" / "quickstart.yaml")
    changed = override(document, [f"{key}={value!r}"])
    assert flatten(changed.values) == flatten(document.values) | {key: value}
    assert len(changed.text.splitlines()) == len(document.text.splitlines())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=30))
@example(text="-")
def test_any_text_set_is_that_text(text):
    document = parse(Path("params.yaml"), MINIMAL)
    if text.strip()[:1] in ("'", '"'):  # quoted text is YAML
        return
    changed = override(document, [f"sample.text_field={text}"])
    assert changed.values["sample"]["text_field"] == text.strip()
