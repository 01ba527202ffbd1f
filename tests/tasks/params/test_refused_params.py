"""What is wrong with a params.yaml, or with settings that do not fit together, in one line each."""

import time

import pytest

from support.parameter_file import GROUPS, MINIMAL, refusal, refused_settings
from tasks.params.file import load, read, validate
from tasks.params.overrides import override

# Refusals of a params_file


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("budget_mb: 20", "budgt_mb: 20",
         "params.yaml:13: sample.budgt_mb: unknown key (got 20); did you mean sample.budget_mb?"),
        ("budget_mb: 20", "support_size: 20",
         "params.yaml:13: sample.support_size: unknown key (got 20); did you mean materialize.support_size?"),
        ("seed: 3", "zzzz: 3", f"params.yaml:2: zzzz: unknown key (got 3); {GROUPS}"),
        ("seed: 3", "1: 3", f"params.yaml:2: 1: unknown key (got 3); {GROUPS}"),
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
         "params.yaml:13: sample.validation_share: must be below 1 (got 1.5)"),
        ("budget_mb: 20", "min_words: -1", "params.yaml:13: sample.min_words: must be at least 0 (got -1)"),
        ("{enabled: true, bands: 3}", "{enabled: yes}",
         'params.yaml:14: sample.near_duplicates.enabled: expected true or false (got "yes")'),
        ("{enabled: true, bands: 3}", "[1]",
         "params.yaml:14: sample.near_duplicates: expected a group of keys (got [1])"),
        ("methods: [pt]", "methods: pt", 'params.yaml:20: tune.methods: expected a list (got "pt")'),
        ("methods: [pt]", "methods: []", "params.yaml:20: tune.methods: must not be empty (got [])"),
        ("methods: [pt]", "methods: [pt, pt]", "params.yaml:20: tune.methods: names pt more than once"),
        ("    - 20", "    - x", 'params.yaml:18: tune.seeds[1]: expected a whole number (got "x")'),
        ("datasets: {}", "datasets: [a]",
         'params.yaml:10: acquire.datasets: expected a mapping of names to values (got ["a"])'),
        ("news: path:/news", "News: path:/news", ("params.yaml:7: acquire.corpus.News: "
         'a name is made of a-z, 0-9, - and _, and starts with a letter or digit (got "News")')),
        ("path:/news", "ftp:/news", ("params.yaml:7: acquire.corpus.news: 'ftp:/news': a source starts with one of "
         "wheel:…, hf:…, path:…, s3://…, gs://…, https://…, made:…: for example "
         "hf:org/name@revision#path=data/*.parquet")),
        ("budget_mb: 20", "corpora: {nws: {weight: 2}}",
         ("params.yaml:13: sample.corpora.nws: acquire.corpus brings in no such corpus; did you mean 'news'? "
         '(got {"weight": 2})')),
        ("  backbone: hf:a/backbone\n", "", "params.yaml:3: acquire.backbone: missing (expected text)"),
        ("methods: [pt]", "optimizer: adam",
         ('params.yaml:20: tune.optimizer: no longer a key (got "adam"); '
         "prompts are always tuned with AdamW: leave it out")),
        ("methods: [pt]", "fine_tuning: {learning_rates: []}",
         "params.yaml:20: tune.fine_tuning.learning_rates: must not be empty (got [])"),
        ("methods: [pt]", "methods: [pt, suppmer]", ("params.yaml:20: tune.methods[1]: must be one of zero-shot, "
         "few-shot, tfidf, embedding, prefix-tuning, p-tuning-v2, ft, lora, pt, pt-vocabulary, ppt, unified-ppt, "
         "metapt, supmer, supmer-shipped, only-sp, only-mc, only-ss, without-ta, without-curriculum, without-mgr, "
         "supmer-labeled, ppt-mixed, metapt-mixed, supmer-mixed "
         '(got "suppmer"); did you mean supmer?')),
        ("seed: 3", "seed: 3\nseed: 4", "params.yaml:3: seed: given twice in one group: keep one"),
        ("  budget_mb", "\tbudget_mb", "params.yaml:13: a tab at the start of the line: YAML wants spaces"),
        ("seed: 3", "seed: \x07", "params.yaml:2: a control character that YAML forbids: remove it"),
        ("seed: 3", f"seed: {'[' * 500}{']' * 500}", "params.yaml: nested too deeply, or a value that holds itself"),
        ("seed: 3", "seed: &a [*a]", "params.yaml: its aliases (*name) stand for too many values: write them out"),
        (MINIMAL, "", "params.yaml: empty: `supmer params use quickstart` fills it"),
        (MINIMAL, "# nothing\n", "params.yaml: empty: `supmer params use quickstart` fills it"),
        (MINIMAL, "- seed\n", "params.yaml:1: expected groups such as `sample:` at the top, got a list"),
        (MINIMAL, "seed\n", "params.yaml:1: expected groups such as `sample:` at the top, got a single value"),
        (MINIMAL, "seed: 1\n", "params.yaml: acquire: missing (expected a group of keys)"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_line_key_and_advice(params_file, before, after, message):
    assert before in MINIMAL
    assert refusal(params_file, MINIMAL.replace(before, after)) == message


def test_yaml_that_does_not_parse_is_refused_with_its_line(params_file):
    assert refusal(params_file, MINIMAL.replace("seed: 3", "seed: [3")).startswith("params.yaml:3: not valid YAML (")


def test_all_problems_are_told_at_once(params_file):
    text = MINIMAL.replace("seed: 3", "seed: x").replace("budget_mb: 20", "budget_mb: -1")
    assert refusal(params_file, text).splitlines() == [
        'params.yaml:2: seed: expected a whole number (got "x")',
        "params.yaml:13: sample.budget_mb: must be above 0 (got -1)",
    ]


def test_a_file_that_cannot_be_read_is_refused(params_file):
    params_file.write_bytes(b"seed: \xff\n")
    assert refusal(params_file) == f"{params_file}: not UTF-8 (byte 6): save it as UTF-8"
    params_file.unlink()
    assert refusal(params_file) == f"{params_file}: no such file: `supmer params use quickstart` makes a params.yaml"
    params_file.mkdir()
    assert refusal(params_file) == f"{params_file}: cannot be read (Is a directory)"


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
        (["metatrain.augmentation.mode=vanilla", "metatrain.variants=[supmer, without-curriculum]"],
         ("metatrain.variants: names without-curriculum, but metatrain.augmentation.mode = vanilla takes that out of "
         'supmer itself (got ["supmer", "without-curriculum"])')),
        (["metatrain.formats=[mc, ss]", "metatrain.variants=[ppt]", "tune.methods=[ppt]"],
         ("tune.methods: names ppt, whose prompt for pairs is ppt-sp, but metatrain.formats leaves sp out "
         '(got ["ppt"])')),
        (["metatrain.kinds=[ss]", "metatrain.variants=[supmer-mixed]", "acquire.datasets={a: path:/a}",
          "materialize.labeled.datasets=[a]"],
         'metatrain.kinds: leaves out the labeled tasks of supmer-mixed (got ["ss"])'),
        (["materialize.format_mix.sp=0", "materialize.format_mix.mc=0", "materialize.format_mix.ss=0",
          "acquire.datasets={a: path:/a}", "materialize.labeled.datasets=[a]",
          "metatrain.variants=[supmer-labeled, only-ss]"],
         ("metatrain.variants: names only-ss, which learns from unlabeled tasks, but materialize.format_mix is 0 "
         '(got ["supmer-labeled", "only-ss"])')),
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
        (["acquire.datasets.books=path:/b", "tune.domains.targets=[books]"],
         'tune.domains.targets: needs a domain to tune on, but tune.domains.source = null (got ["books"])'),
        (["acquire.datasets.books=path:/b", "tune.domains.source=books", "tune.domains.targets=[books]"],
         "tune.domains.targets: names tune.domains.source = books, which is tested anyway (got [\"books\"])"),
        (["acquire.datasets={a: path:/a, b: path:/b}", "tune.domains.source=a", "tune.domains.targets=[b]",
          "materialize.labeled.datasets=[b]"],
         ("tune.domains.targets: names b, all of which is for evaluation, but materialize.labeled.datasets trains on "
         'it (got ["b"])')),
        (["report.datasets=[mr]"],
         'report.datasets: names mr, which neither tune.datasets nor tune.domains measures (got ["mr"])'),
    ],
)  # fmt: skip
def test_an_impossible_combination_is_refused_with_both_keys_and_values(params_file, assignments, message):
    assert refused_settings(params_file, *assignments) == f"-S: {message}"


def test_an_impossible_combination_in_a_file_names_the_line(params_file):
    text = MINIMAL.replace("budget_mb: 20   # MB", "max_words: 40\n  min_words: 50")
    assert refusal(params_file, text) == "params.yaml:14: sample.min_words: is above sample.max_words = 40 (got 50)"


def test_all_impossible_combinations_are_told_at_once(params_file):
    settings = ["sample.min_words=50", "sample.max_words=40", "sample.min_sentence_words=90", "metatrain.steps=10"]
    told = refused_settings(
        params_file, *settings, "metatrain.warmup_steps=11", "cluster.clusters=3", "tune.datasets=[a, b]"
    )
    assert told.splitlines() == [
        "-S: sample.min_words: is above sample.max_words = 40 (got 50)",
        "-S: sample.min_sentence_words: is above sample.max_sentence_words = 80 (got 90)",
        "-S: metatrain.validate_every: is above metatrain.steps = 10 (got 2000)",
        "-S: metatrain.warmup_steps: is above metatrain.steps = 10 (got 11)",
        "-S: cluster.clusters: is below 4, the choices of an ss task, but materialize.format_mix.ss = 1 (got 3)",
        '-S: tune.datasets: names a, which acquire.datasets does not bring in (got ["a", "b"])',
        '-S: tune.datasets: names b, which acquire.datasets does not bring in (got ["a", "b"])',
    ]


def test_an_impossible_combination_is_told_beside_a_wrong_value_elsewhere(params_file):
    text = MINIMAL.replace("seed: 3", "seed: x").replace("budget_mb: 20   # MB", "max_words: 40\n  min_words: 50")
    assert refusal(params_file, text).splitlines() == [
        'params.yaml:2: seed: expected a whole number (got "x")',
        "params.yaml:14: sample.min_words: is above sample.max_words = 40 (got 50)",
    ]


def test_a_set_of_32_over_three_labels_is_no_contradiction(params_file):
    assert load(params_file).materialize.support_size == 32


# A few lines of aliases that stand for 10 million values, each ten times the one before.
ALIASES = "\n".join(["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8))])
MERGES = "\n".join(
    ["a0: &a0 {k: 1}", *(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 8))]
)


@pytest.mark.parametrize("bomb", [ALIASES, MERGES])
def test_aliases_that_stand_for_millions_of_values_are_refused_at_once(params_file, bomb):
    params_file.write_text(f"{params_file.read_text()}{bomb}\n")
    started = time.monotonic()
    assert refusal(params_file) == "params.yaml: its aliases (*name) stand for too many values: write them out"
    assert time.monotonic() - started < 2  # it took minutes


@pytest.mark.parametrize("value", ["[" * 1000 + "]" * 1000, "[" * 1000, "{a: " * 1000 + "1" + "}" * 1000])
def test_a_setting_that_is_nested_a_thousand_times_is_refused(params_file, value):
    message = "-S: tune.seeds: nested too deeply: write a plain value or list"
    assert refused_settings(params_file, f"tune.seeds={value}") == message


def test_aliases_in_a_setting_are_refused_when_they_stand_for_too_much(params_file):
    lists = ", ".join(["&a0 [1, 1]", *(f"&a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8))])
    message = "-S: tune.seeds: its aliases (*name) stand for too many values: write them out"
    assert refused_settings(params_file, f"tune.seeds=[{lists}]") == message


def test_a_name_that_yaml_reads_as_a_number_must_be_in_quotes(params_file):
    content = params_file.read_text()
    message = 'params.yaml:7: acquire.corpus.2024: YAML does not read this name as text: write it in quotes, "2024"'
    assert refusal(params_file, content.replace("news: path", "2024: path")) == message
    params_file.write_text(content.replace("news: path", '"2024": path'))
    assert list(load(params_file).acquire.corpus) == ["2024"]


def test_a_setting_puts_such_a_name_in_quotes(params_file):
    params = validate(override(read(params_file), ["acquire.corpus.2024=path:/texts"]))
    assert sorted(params.acquire.corpus) == ["2024", "news"]


def test_an_unknown_language_is_refused_before_anything_runs(params_file):
    text = refusal(params_file, MINIMAL.replace("budget_mb: 20", "language: xx"))
    assert text.startswith("params.yaml:13: sample.language: is not known: use null or one of ace, af,")
    assert refused_settings(params_file, "sample.language=xx").startswith("-S: sample.language: is not known")
