"""`-S stage.key=value`: what is set, how it is written, what is refused."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.parameter_file import GROUPS, MINIMAL, refused_settings
from tasks.params.diff import changes
from tasks.params.file import load, parse, read, save, validate
from tasks.params.overrides import override
from tasks.params.reference import flatten, parameters, value_type

REPOSITORY = Path(__file__).parents[3]


def test_a_setting_changes_its_own_characters_alone(params_file):
    changed = override(read(params_file), ["sample.budget_mb=5", "seed=4", "tune.methods=[pt, supmer]"])
    assert changed.text == MINIMAL.replace("budget_mb: 20 ", "budget_mb: 5 ").replace("seed: 3", "seed: 4").replace(
        "[pt]", "[pt, supmer]"
    )
    assert params_file.read_text() == MINIMAL


def test_new_keys_go_to_the_end_of_their_mapping_and_comments_stay(params_file):
    settings_ = [
        "acquire.corpus.mine=path:/x#path=*.gz",
        "acquire.datasets.sms=path:/sms",
        "sample.near_duplicates.rows=2",
        "sample.language=null",
        "metatrain.inner.form=rms",
    ]
    text = override(read(params_file), settings_).text
    assert '    news: path:/news  # our own\n    mine: "path:/x#path=*.gz"\n\n  # labeled\n' in text
    assert '  datasets: {sms: "path:/sms"}\n# drawing\n' in text
    assert "  near_duplicates: {enabled: true, bands: 3, rows: 2}\n  language: null\ntune:\n" in text
    assert text.endswith("  methods: [pt]\nmetatrain: {inner: {form: rms}}\n")


def test_a_list_or_mapping_in_block_style_is_replaced_on_its_keys_line(params_file):
    text = override(read(params_file), ["tune.seeds=[1, 2]", "acquire.corpus={mine: 'path:/a b'}"]).text
    assert "  seeds: [1, 2]\n  # what is compared\n  methods: [pt]\n" in text
    assert "  corpus: {mine: 'path:/a b'}" in text
    assert "\n\n  # labeled\n  datasets: {}\n" in text


def test_a_key_left_without_a_value_can_be_set(params_file):
    params_file.write_text(MINIMAL.replace("datasets: {}", "datasets:"))
    assert (
        '  datasets: {sms: "path:/sms"}\n# drawing\n'
        in override(read(params_file), ["acquire.datasets.sms=path:/sms"]).text
    )


def test_what_was_typed_stays_as_typed(params_file):
    changed = override(read(params_file), ["metatrain.regularizer.learning_rate=1e-5"])
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
def test_a_source_survives_as_it_was_typed(params_file, source):
    changed = override(read(params_file), [f"acquire.corpus.mine={source}", f"acquire.datasets.mine={source}"])
    params = validate(changed)
    assert params.acquire.corpus == {"news": "path:/news", "mine": source}
    assert params.acquire.datasets == {"mine": source}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("seed", "-S: seed: expected KEY=VALUE, for example sample.budget_mb=5"),
        ("=3", "-S: =3: expected KEY=VALUE, for example sample.budget_mb=5"),
        ("sample..x=3", "-S: sample..x=3: expected KEY=VALUE, for example sample.budget_mb=5"),
        ("sample.budgt_mb=5", "-S: sample.budgt_mb: unknown key (got 5); did you mean sample.budget_mb?"),
        ("budget_mb=5", "-S: budget_mb: unknown key (got 5); did you mean sample.budget_mb?"),
        ("tune.seeds.0=5", "-S: tune.seeds.0: unknown key (got 5); did you mean tune.seeds?"),
        ("smaple.nothing=5", "-S: smaple.nothing: unknown key (got 5); did you mean a key of sample?"),
        ("nosuch.key=1", f"-S: nosuch.key: unknown key (got 1); {GROUPS}"),
        ("tune.optimizer=adamw", ("-S: tune.optimizer: no longer a key (got adamw); "
         "prompts are always tuned with AdamW: leave it out")),
        ("metatrain.optimizer.kind=1", ("-S: metatrain.optimizer.kind: no longer a key (got 1); "
         "θ and φ are always trained with Adam: leave it out")),
        ("embed=5", "-S: embed: a group, set one of its keys (model, dtype, batch_size, precision)"),
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
def test_a_wrong_setting_is_refused_by_name(params_file, assignment, message):
    assert refused_settings(params_file, assignment) == message


def test_a_value_that_other_keys_share_is_not_edited_behind_their_back(params_file):
    params_file.write_text(MINIMAL.replace("seed: 3", "seed: &n 3").replace("budget_mb: 20", "budget_mb: *n"))
    message = "-S: sample.budget_mb: cannot be set where it stands in params.yaml: edit the file by hand"
    assert refused_settings(params_file, "sample.budget_mb=5") == message


def test_saving_writes_the_text_and_nothing_else(params_file):
    save(override(read(params_file), ["seed=9"]))
    assert params_file.read_text() == MINIMAL.replace("seed: 3", "seed: 9")
    assert [path.name for path in params_file.parent.iterdir()] == ["params.yaml"]


def test_changes_are_told_by_key_in_the_order_of_the_file(params_file):
    before = load(params_file)
    after = validate(override(read(params_file), ["sample.budget_mb=5", "seed=4", "acquire.corpus={mine: path:/m}"]))
    assert [str(change) for change in changes(before.model_dump(), after.model_dump())] == [
        "seed: 3 → 4",
        'acquire.corpus.mine: – → "path:/m"',
        'acquire.corpus.news: "path:/news" → –',
        "sample.budget_mb: 20 → 5",
    ]


NUMBER_KEYS = [parameter.key for parameter in parameters() if value_type(tuple(parameter.key.split("."))) is float]


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
