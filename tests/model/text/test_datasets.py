"""The registry of datasets: whole, consistent, and as the docs and the profiles have it."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from model.text.datasets import ALIASES, DATASETS, dataset_form, dataset_template, own_form
from storage.errors import InputError

REPOSITORY = Path(__file__).parents[3]
PAPER = ["sst-2", "sst-5", "mr", "cr", "subj", "trec", "cb", "rte", "qnli", "wic", "mrpc", "qqp"]
DOMAINS = ["airlines", "books", "dvds", "electronics", "kitchen", "restaurants"]
QUICKSTART = ["movies", "products", "editorials", "tweets", "trec", "sms"]


def profile(name):
    return YAML(typ="safe").load((REPOSITORY / name).read_text())


def test_the_papers_sets_its_domains_and_the_quickstarts_are_there():
    assert set(DATASETS) == {*PAPER, *DOMAINS, *QUICKSTART, "yelp-5", "imdb"}


@pytest.mark.parametrize("name", ["params.yaml", *(f"profiles/{path.name}" for path in REPOSITORY.glob("profiles/*"))])
def test_every_set_of_a_profile_has_an_entry(name):
    named = profile(name)["acquire"]["datasets"]
    assert named
    assert [one for one in named if dataset_form(one) is None] == []


def test_lengths_are_those_of_the_papers_profile():
    tune = profile("profiles/paper-t5-base.yaml")["tune"]
    for name in (*PAPER, *DOMAINS):
        assert DATASETS[name].max_length == tune["max_lengths"].get(name, tune["max_length"]), name


@pytest.mark.parametrize("entry", [*DATASETS.values(), DATASETS["wic"].otherwise], ids=lambda entry: entry.name)
def test_an_entry_has_both_forms_with_a_word_for_each_label(entry):
    for form in ("sentinel", "instruction"):
        template = dataset_template(form, entry)
        assert template.form == form
        assert template.fields == entry.fields
        assert len(template.verbalizer) == len(entry.labels)
        assert all("the text" in template.render(["the text"] * len(entry.fields), ()).text for _ in entry.fields)
    assert set(entry.synonyms.values()) <= set(entry.labels)
    assert all(set(order) == set(entry.labels) for order in entry.column_orders.values())
    assert all(len(columns) == len(entry.fields) for columns in entry.columns)


def test_a_set_is_known_under_its_other_names():
    assert [dataset_form(name) for name in ("airline", "DVD", "yelp_review_full", "SST2", "wic")] == [
        DATASETS[name] for name in ("airlines", "dvds", "yelp-5", "sst-2", "wic")
    ]
    assert dataset_form("mine") is None
    assert set(ALIASES.values()) <= set(DATASETS)
    assert not set(ALIASES) & set(DATASETS)


def test_a_set_without_an_entry_says_its_label_names():
    form = own_form("mine", ("title", "body"), ("bad", "good"))
    plain, asked = (dataset_template(kind, form) for kind in ("sentinel", "instruction"))
    assert plain.render(("T", "B"), ()).text == "T B. Label: <extra_id_0>"
    assert plain.target(1) == "<extra_id_0> good"
    assert asked.render(("T", "B"), ()).text == "Which label fits, bad or good? T B Answer:"
    assert asked.target(0) == "bad"


@pytest.mark.parametrize(
    ("template", "plain", "asked"),
    [
        ("Good or bad? {text}", "Good or bad? it <extra_id_0>", "Good or bad? it"),
        ("{text} It was <X>.", "it It was <extra_id_0>.", "it It was"),
        ("{text} Verdict: <X>", "it Verdict: <extra_id_0>", "it Verdict:"),
    ],
)
def test_a_users_template_serves_both_forms(template, plain, asked):
    form = own_form("mine", ("text",), ("0", "1"), template, ("bad", "good"))
    assert dataset_template("sentinel", form).render(("it",), ()).text == plain
    assert dataset_template("instruction", form).render(("it",), ()).text == asked
    assert dataset_template("instruction", form).target(1) == "good"


def test_a_template_with_the_sentinel_in_its_midst_is_for_plain_t5_alone():
    form = own_form("mine", ("text",), ("0", "1"), "A <X> thing: {text}")
    assert dataset_template("sentinel", form).form == "sentinel"
    with pytest.raises(InputError, match=r"mine: its template has <X>, but the backbone takes instructions: write it"):
        dataset_template("instruction", form)


@pytest.mark.parametrize(
    ("fields", "template", "words", "told"),
    [
        (("text",), "{review}", None, "no field review, there is text"),
        (("text", "more"), "{text}", None, "more must be in it exactly once"),
        (("text",), "{text} {", None, "write {field}"),
        (("text",), "{text}", ("same", "same"), "each label needs a word of its own"),
    ],
)
def test_wrong_templates_are_told_at_once(fields, template, words, told):
    with pytest.raises(InputError) as error:
        own_form("mine", fields, ("0", "1"), template, words)
    assert told in str(error.value)


def cell(*texts):
    return " · ".join(f"`{text}`" for text in texts)


def table_rows():
    """The registry as rows of the table in docs/datasets.md."""
    for entry in DATASETS.values():
        yield (
            f"| {entry.title} | `{entry.name}` | {cell(*entry.labels)} | {cell(entry.sentinel)} {cell(*entry.words)} "
            f"| {cell(entry.instruction)} {cell(*entry.instruction_words)} | {entry.max_length} |"
        )


def test_the_docs_list_every_entry_as_it_is():
    page = (REPOSITORY / "docs" / "datasets.md").read_text().splitlines()
    assert [row for row in table_rows() if row not in page] == []
    assert [name for name in ALIASES if not any(f"`{name}`" in line for line in page)] == []
