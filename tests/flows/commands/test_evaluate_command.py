"""`supmer evaluate` measures a tuned prompt on a labeled file, and answers a typo without loading a model."""

import json

import pytest

from supmer import PromptedClassifier
from support.tuned_prompts import TEXTS

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def supmer(tuned, backbone, tmp_path, monkeypatch, command_line):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: command_line("evaluate", "--prompt", tuned, "--backbone", backbone, *arguments)


def test_the_measures_are_those_of_the_predictions(supmer, tmp_path, tuned, backbone):
    predicted = [one.label for one in PromptedClassifier.from_pretrained(tuned, backbone).predict(TEXTS)]
    wrong = {"negative": "positive", "positive": "negative"}
    labels = [wrong[predicted[0]], *predicted[1:]]
    lines = [f'"{text}",{label}' for text, label in zip(TEXTS, labels, strict=True)]
    (tmp_path / "my.csv").write_text("\n".join(["Kommentar (EN),Urteil", *lines, ""]))
    code, out, err = supmer("--data", "my.csv", "--text", "Kommentar (EN)", "--label", "Urteil", "--json")
    assert code == 0, err
    measured = json.loads(out)
    assert measured["accuracy"]["value"] == 0.75
    assert measured["accuracy"]["low"] < 0.75 < measured["accuracy"]["high"]
    assert sum(map(sum, measured["confusion"]["counts"])) == 4
    assert [error["row"] for error in measured["confident_errors"]] == [1]
    code, out, err = supmer("--data", "my.csv", "--text", "Kommentar (EN)", "--label", "Urteil")
    assert (code, "accuracy     0.750" in out, "row 1: " in out) == (0, True, True)


def test_numbers_count_the_prompts_labels_or_those_of_labels_json(supmer, tmp_path):
    (tmp_path / "my.jsonl").write_text('{"text": "no", "label": 0}\n{"text": "yes", "label": 0}\n')
    code, out, _ = supmer("--data", "my.jsonl", "--json")
    assert (code, [entry["examples"] for entry in json.loads(out)["labels"]]) == (0, [2, 0])
    (tmp_path / "labels.json").write_text('["positive", "negative"]')
    code, out, _ = supmer("--data", "my.jsonl", "--json")
    assert (code, [entry["examples"] for entry in json.loads(out)["labels"]]) == (0, [0, 2])


def test_rows_without_text_or_label_are_left_out_and_counted(supmer, tmp_path):
    (tmp_path / "my.csv").write_text('text,label\n"",positive\nno,negative\nyes,\nriver,positive\n')
    code, out, err = supmer("--data", "my.csv", "--json")
    assert code == 0, err
    assert "my.csv: left out: 1 row without text, 1 row without a label" in err
    measured = json.loads(out)
    assert (measured["examples"], measured["left_out"]) == (2, {"without_text": 1, "without_label": 1})


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ('{"text": "no", "label": "Positive"}', (), "row 1: unknown label 'Positive'"),
        ('{"text": "no", "label": 7}', (), "row 1: unknown label 7"),
        ('{"text": "no", "label": 0}', ("--label", "Label"), "did you mean 'label'?"),
        ('{"text": "no", "label": 0}', ("--text", "a", "--text", "b"), "takes text: give one --text for each"),
        ("", (), "no rows in it, none to measure"),
        (
            '{"text": "", "label": 0}\n{"text": "no", "label": null}',
            (),
            "1 row without text, 1 row without a label, none",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_a_model_is_loaded(
    supmer, tmp_path, monkeypatch, content, arguments, said
):
    monkeypatch.setattr(PromptedClassifier, "from_pretrained", None)
    (tmp_path / "my.jsonl").write_text(content)
    code, _, err = supmer("--data", "my.jsonl", *arguments)
    assert (code, said in err, len(err.splitlines())) == (2, True, 1), err


@pytest.mark.parametrize(("units", "warnings"), [("UNITS", 0), ("", 1)])
def test_the_precision_is_printed_and_one_without_units_warns_once(supmer, tmp_path, monkeypatch, units, warnings):
    monkeypatch.setattr("model.t5.precision.bfloat16_units", lambda _where: units)
    (tmp_path / "my.jsonl").write_text('{"text": "no", "label": 0}\n')
    code, out, err = supmer("--data", "my.jsonl", "--json", "--precision", "bfloat16")
    assert (code, json.loads(out)["examples"]) == (0, 1)
    assert "evaluate: precision bfloat16 (as asked for)" in err
    assert err.count("warning: precision: bfloat16: no units for it here") == warnings
