"""Datasets as multiple choice: options with letters in both forms, for any number of labels."""

import pytest

from model.text.choice_form import choice_form, letters
from model.text.datasets import DATASETS, dataset_template, own_form
from model.text.templates import UNIFIED_TEMPLATES


def test_letters_go_on_after_d_and_after_z():
    assert letters(6) == ("A", "B", "C", "D", "E", "F")
    assert letters(29)[24:] == ("Y", "Z", "AA", "AB", "AC")
    assert len({*letters(800)}) == 800


def test_the_sentinel_form_is_that_of_pre_training():
    form = choice_form(DATASETS["rte"])
    assert form.sentinel == "{sentence1} {sentence2}? A.yes B.no. Answer: <X>"
    trained = UNIFIED_TEMPLATES["sp-cluster"]["sentinel"].render(("one", "two"), ()).text
    assert dataset_template("sentinel", form).render(("one", "two"), ()).text == trained


def test_the_instruction_form_keeps_the_question_and_asks_for_the_letter():
    assert choice_form(DATASETS["sst-2"]).instruction == (
        "Is the sentiment of this review negative or positive? {text} A. negative B. positive Answer with the letter:"
    )
    assert choice_form(DATASETS["trec"]).instruction.endswith(
        "{text} A. description B. entity C. expression D. human E. location F. number Answer with the letter:"
    )
    assert "Answer yes or no" not in choice_form(DATASETS["wic"]).instruction


@pytest.mark.parametrize("form", ["sentinel", "instruction"])
@pytest.mark.parametrize("name", DATASETS)
def test_every_registered_set_can_be_asked(name, form):
    asked = choice_form(DATASETS[name])
    template = dataset_template(form, asked)
    assert template.form == form
    assert template.verbalizer == letters(len(asked.labels))
    text = template.render([f"text {number}" for number in range(len(asked.fields))], ()).text
    assert all(f"text {number}" in text for number in range(len(asked.fields)))


@pytest.mark.parametrize("form", ["sentinel", "instruction"])
def test_a_set_of_ones_own_with_many_labels_and_braces_can_be_asked(form):
    labels = tuple(f"label {{{number}}}" for number in range(30))
    own = own_form("mine", ("title", "body"), labels, "{title}: it is <X>, {body}" if form == "sentinel" else None)
    template = dataset_template(form, choice_form(own))
    text = template.render(("first", "second"), ()).text
    assert "AD" in text
    assert "label {29}" in text


def test_a_template_with_its_mark_in_the_middle_gets_an_instruction_form():
    own = own_form("mine", ("text",), ("bad", "good"), "It is <X>: {text}")
    assert own.instruction == ""
    assert choice_form(own).instruction == "{text}? A. bad B. good Answer with the letter:"
