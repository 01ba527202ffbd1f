"""The options of `supmer tune` are parsed and checked without torch, and traps in the user's data are reported."""

import subprocess
import sys

import pytest

from model.text.datasets import own_form
from model.text.tokenization import TemplateTokenizer
from storage.errors import InputError
from support.tiny_tokenizers import unigram
from tasks.labeled.numbered_rows import LeftOut
from tasks.own_examples.options import chance_warning, left_out_in_words, parse_verbalizer, word_warnings


def test_a_verbalizer_is_pairs_json_or_a_file(tmp_path):
    words = {"late, or lost": "late", "fine": "good"}
    assert parse_verbalizer("a=x,b=y z") == {"a": "x", "b": "y z"}
    assert parse_verbalizer('{"late, or lost": "late", "fine": "good"}') == words
    (tmp_path / "words.json").write_text('{"late, or lost": " late ", "fine": "good"}')
    assert parse_verbalizer(str(tmp_path / "words.json")) == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("late, or lost=late", "write LABEL=WORD"),
        ('{"a": 1}', "not an object of labels and words"),
        ('{"a"', "not JSON"),
        ("no-such.json", "cannot be read"),
    ],
)
def test_a_wrong_verbalizer_is_one_line(text, said):
    with pytest.raises(InputError, match=said) as refused:
        parse_verbalizer(text)
    assert "\n" not in str(refused.value)


def test_rows_that_are_left_out_are_counted_with_their_reasons():
    said = left_out_in_words(LeftOut(duplicates=3, contradictions=1, tested=2))
    assert said.startswith(
        "5 rows left out: 2 with texts that occurred before, 1 with texts that occurred before under"
    )
    assert said.endswith("2 with texts that are in the test set")
    assert left_out_in_words(LeftOut()) == ""


def test_label_words_that_the_tokenizer_breaks_or_does_not_know_are_named():
    tokenizer = TemplateTokenizer.of(unigram(), 32)
    form = own_form("mine", ("text",), ("a", "b"), None, ("yes", "差"))
    assert ["差" in warning for warning in word_warnings(form, "sentinel", tokenizer)] == [True]
    form = own_form("mine", ("text",), ("a", "b"), None, ("yes", "quxvzkwj"))
    assert any("'quxvzkwj' (" in warning for warning in word_warnings(form, "sentinel", tokenizer))
    form = own_form("mine", ("text",), ("a", "b"), None, ("yes", "no"))
    assert list(word_warnings(form, "sentinel", tokenizer)) == []


def test_numbers_as_label_words_are_a_warning_that_says_how_to_name_words():
    tokenizer = TemplateTokenizer.of(unigram(), 32)
    form = own_form("mine", ("text",), ("-1", "0", "1"), None, None)
    assert "the label words are numbers" in next(word_warnings(form, "sentinel", tokenizer))
    assert "--verbalizer -1=WORD,0=WORD,…" in next(word_warnings(form, "sentinel", tokenizer))
    form = own_form("mine", ("text",), ("0", "1"), None, ("no", "yes"))
    assert list(word_warnings(form, "sentinel", tokenizer)) == []


def test_a_score_at_chance_is_a_warning():
    assert "at or below chance" in chance_warning([0.5, 0.6], 0.55)
    assert chance_warning([0.5, 0.7], 0.55) == ""


def test_the_checks_need_no_torch():
    code = "import sys, tasks.own_examples.options, tasks.labeled.user_data, flows.commands.tune"
    assert (
        subprocess.run(
            [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )
