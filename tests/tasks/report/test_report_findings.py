"""What the report says of the results: its first sentences, differences with intervals, and errors."""

import hashlib
import json
import re

import pytest

from storage import paths
from support import report_room
from support.report_page import Page, html, markdown, markdown_table
from support.report_room import event, furnish, run, score_rows


def first_lines(root):
    return markdown(root).partition("\n- Backbone")[0]


@pytest.mark.parametrize(
    ("levels", "other", "clear"),
    [
        ({"pt-vocabulary": 0.4, "supmer": 0.9}, "PT (vocabulary start)", True),
        ({"pt": 0.9, "supmer": 0.4}, "PT (normal start)", True),
        ({"pt": 0.7, "supmer": 0.72}, "PT (normal start)", False),
        ({"zero-shot": 0.9, "supmer": 0.4}, "Zero-shot inference", True),
    ],
)
def test_the_first_sentence_says_in_plain_words_whether_supmer_helped(tmp_path, levels, other, clear):
    root = furnish(tmp_path, scores=score_rows(levels))
    run(root)
    first = first_lines(root).splitlines()[2]
    worth = (
        r"that difference is more than chance \(95 % interval" if clear else "seeds? that difference could be chance"
    )
    assert re.match(rf"On movies SUPMER reached \d+\.\d %, {re.escape(other)} \d+\.\d %; .*{worth}", first)


def test_equal_figures_are_no_difference_and_one_seed_is_named(tmp_path):
    alike = [row | {"score": row["score"] and 0.5} for row in score_rows({"pt": 0.5, "zero-shot": 0.5, "supmer": 0.5})]
    run(furnish(tmp_path / "alike", scores=alike))
    assert "On movies SUPMER reached 50.0 %, PT (normal start) 50.0 %: no difference." in first_lines(
        tmp_path / "alike"
    )
    run(furnish(tmp_path / "one", scores=score_rows({"pt": 0.68, "supmer": 0.7}, seeds=(10,))))
    assert "; with one seed that difference could be chance." in first_lines(tmp_path / "one")


def test_without_supmer_the_others_are_compared_with_the_most_telling_method(tmp_path):
    root = furnish(tmp_path, scores=score_rows({"zero-shot": 0.5, "pt": 0.9}))
    run(root, tune={"methods": ["zero-shot", "pt"]})
    assert "On movies PT (normal start) reached" in first_lines(root)
    assert "How much better is PT (normal start)?" in markdown(root)


def test_differences_are_paired_and_have_an_interval(made):
    table = markdown_table(markdown(made[0]), "How much better is SUPMER?")
    assert table[0] == ["method", "movies", *(f"{name} (tuned on movies)" for name in report_room.DOMAINS[1:])]
    assert [row[0] for row in table[2:]] == [
        "Zero-shot inference", "PT (vocabulary start)", "SUPMER w/o gradient regularizer",
    ]  # fmt: skip
    assert all(re.fullmatch(r"\**[+−]?\d+\.\d\** \([+−]?\d+\.\d to [+−]?\d+\.\d\)", cell) for cell in table[2][1:])


def test_mistakes_are_shown_with_label_names_and_their_text(made):
    root, _ = made
    text = markdown(root)
    table = markdown_table(text, "The errors that SUPMER is surest of")
    for dataset, said, true, predicted, probability, wrong, example in table[2:]:
        number = int(example.partition(":")[2]) - 1
        assert said == f"Review {number} of {dataset}, test."
        assert (true, predicted) in {("negative", "positive"), ("positive", "negative")}
        assert 50 < int(probability) <= 100
        assert re.fullmatch("[123] of 3", wrong)
    shares = [row[5] for row in table[2:]]
    assert shares == sorted(shares, reverse=True)
    assert "What SUPMER confuses" in text
    assert re.search(r"movies: \d+ of 150 predictions are right; most often (nega|posi)tive is taken for", text)


def test_words_that_are_not_plain_are_explained(made):
    words = Page(html(made[0])).of("dt")
    explained = {element["text"] for element in words}
    assert {"sp", "mc", "ss", "shots", "zero-shot", "SUPMER w/o mgr"} <= explained
    assert "SUPMER w/o ta" not in explained  # not in this run
    assert "- **shots**: labeled examples per label" in markdown(made[0])


def metrics_event(root, place, metrics, parameters):
    """Return the event of an earlier report whose metrics DVC's cache holds, after a run of tune."""
    content = json.dumps(metrics).encode()
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    cached = root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
    cached.parent.mkdir(parents=True)
    cached.write_bytes(content)
    tuned = event("tune", {}, place)
    tuned["run"]["facets"]["executionParameters"] = {
        "parameters": [{"key": key, "value": value} for key, value in parameters.items()]
    }
    return [tuned, event("report", {paths.REPORT_METRICS: md5}, place + 1)]


def test_a_second_run_is_compared_with_the_one_before_whatever_came_after(root):
    run(root)
    assert "Since the previous run" not in markdown(root)
    now = json.loads((root / paths.REPORT_METRICS).read_text())
    then = json.loads(json.dumps(now))
    then["few-shot"]["movies"]["supmer"]["mean"] -= 2.5
    then["few-shot"]["movies"]["ft"] = {"mean": 66.6, "deviation": None, "seeds": 1}
    events = metrics_event(root, 20, then, {"tune.note": report_room.NASTY, "tune.rate": "0.2"})
    with (root / "lineage/events.jsonl").open("ab") as file:
        file.write(b"".join(json.dumps(one).encode() + b"\n" for one in events))
    run(root)
    page = (root / paths.REPORT_TEXT).read_bytes()
    figures = markdown_table(markdown(root), "Accuracies that differ")
    mean = now["few-shot"]["movies"]["supmer"]["mean"]
    assert figures[2:] == [
        ["few-shot", "movies", "Fine-tuning of all weights", "66.6", "–", "–"],
        ["few-shot", "movies", "SUPMER", f"{mean - 2.5:.1f}", f"{mean:.1f}", "+2.5"],
    ]
    assert markdown_table(markdown(root), "Parameters that have changed")[2:] == [["tune", "tune.rate", "0.2", "0.1"]]
    own = hashlib.md5((root / paths.REPORT_METRICS).read_bytes(), usedforsecurity=False).hexdigest()
    with (root / "lineage/events.jsonl").open("ab") as file:
        file.write(json.dumps(event("report", {paths.REPORT_METRICS: own}, 30)).encode() + b"\n")
    run(root)
    assert (root / paths.REPORT_TEXT).read_bytes() == page


def test_the_tables_say_how_many_examples_were_tested_and_what_their_choice_is_worth(tmp_path):
    even = [row | {"score": row["score"] and 0.5, "examples": 100} for row in score_rows({"supmer": 0.5})]
    run(furnish(tmp_path / "even", scores=even))
    text = markdown(tmp_path / "even")
    error = "whose choice alone gives a score a standard error of up to 5.0 points."
    assert f"Tested on 100 test examples, {error}" in text
    assert f"Tested on 100 test examples of each, {error}" in text
    uneven = [row | {"examples": 400 if row["tested_on"] == "movies" else 100} for row in even]
    run(furnish(tmp_path / "uneven", scores=uneven))
    assert "Tested on 400 examples of movies, 100 examples of products," in markdown(tmp_path / "uneven")
