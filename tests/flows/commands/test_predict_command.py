"""`supmer predict` answers every row in order, from any kind of data, and refuses what is wrong in one line."""

import csv
import json
import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from flows.commands import predict
from supmer import PromptedClassifier
from support.tuned_prompts import PAIR, TEXTS, acquire_backbone, save_backbone, save_prompt

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def expected(tuned, backbone):
    return PromptedClassifier.from_pretrained(tuned, backbone).predict(TEXTS)


@pytest.fixture
def supmer(tuned, backbone, tmp_path, monkeypatch, command_line):
    """Run `supmer predict` in an empty folder: the exit code, the lines of output, and what else it said."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, prompt=tuned, given=backbone, stdin=b"", parse=json.loads):
        named = ["--prompt", prompt, *(["--backbone", given] if given else []), *arguments]
        code, out, err = command_line("predict", *named, stdin=stdin)
        return code, [parse(line) for line in out.splitlines()], err

    return run


def as_lines(predictions):
    return [
        {"predicted": one.label, "probabilities": pytest.approx(one.probabilities, abs=1e-5)} for one in predictions
    ]


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_every_row_is_answered_in_order_whatever_the_block(supmer, tmp_path, expected):
    (tmp_path / "new.jsonl").write_text(json_lines({"text": text} for text in TEXTS))
    for block in (1, 3, 1024):
        assert supmer("--data", "new.jsonl", "--block", block) == (0, as_lines(expected), "")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_precision_that_is_asked_for_is_printed(supmer, tmp_path, tuned, backbone, monkeypatch, precision):
    monkeypatch.setattr("model.t5.precision.bfloat16_units", lambda _where: "UNITS")
    (tmp_path / "new.jsonl").write_text(json_lines({"text": text} for text in TEXTS))
    own = PromptedClassifier.from_pretrained(tuned, backbone, precision=precision)
    assert own.precision == precision
    expected = (0, as_lines(own.predict(TEXTS)), f"precision {precision} (as asked for)\n")
    assert supmer("--data", "new.jsonl", "--precision", precision) == expected


def test_a_precision_without_units_warns_once(supmer, tmp_path, tuned, backbone, monkeypatch):
    monkeypatch.setattr("model.t5.precision.bfloat16_units", lambda _where: "")
    (tmp_path / "new.jsonl").write_text(json_lines({"text": text} for text in TEXTS))
    code, lines, said = supmer("--data", "new.jsonl", "--precision", "bfloat16")
    assert (code, len(lines), said.count("warning: precision: bfloat16: no units for it here")) == (0, len(TEXTS), 1)
    with pytest.warns(UserWarning, match="times as long as in float32"):
        PromptedClassifier.from_pretrained(tuned, backbone, precision="bfloat16")


def test_a_block_is_bounded_in_bytes_too(supmer, tmp_path, expected, monkeypatch):
    monkeypatch.setattr(predict, "BLOCK_BYTES", 40)
    asked = []
    ask = PromptedClassifier.predict
    monkeypatch.setattr(PromptedClassifier, "predict", lambda self, rows: asked.append(len(rows)) or ask(self, rows))
    (tmp_path / "new.jsonl").write_text(json_lines({"text": text} for text in TEXTS))
    assert supmer("--data", "new.jsonl")[1] == as_lines(expected)
    assert len(asked) > 1


@pytest.mark.parametrize(
    ("arguments", "content"),
    [
        ([], json_lines({"text": text} for text in TEXTS)),
        ([], "\n".join(TEXTS)),
        (["--input-format", "csv", "--text", "review"], "review\n" + "".join(f'"{text}"\n' for text in TEXTS)),
    ],
)
def test_standard_input_is_taken(supmer, expected, arguments, content):
    assert supmer("--data", "-", *arguments, stdin=content.encode()) == (0, as_lines(expected), "")


def test_an_empty_input_is_told(supmer, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    assert supmer("--data", "-") == (0, [], "standard input: is empty: nothing to label\n")
    assert supmer("--data", "empty.jsonl") == (0, [], "empty.jsonl: is empty: nothing to label\n")


def test_other_fields_pass_through_if_asked_for(supmer, tmp_path, expected):
    rows = [{"id": number, "label": "gold", "text": text} for number, text in enumerate(TEXTS)]
    (tmp_path / "new.jsonl").write_text(json_lines(rows))
    answers = as_lines(expected)
    kept = [{"id": row["id"], **answer} for row, answer in zip(rows, answers, strict=True)]
    assert supmer("--data", "new.jsonl", "--keep", "id")[1] == kept
    everything = [{**row, **answer} for row, answer in zip(rows, answers, strict=True)]
    assert supmer("--data", "new.jsonl", "--keep-all")[1] == everything


def test_a_field_that_would_be_overwritten_is_refused(supmer, tmp_path):
    (tmp_path / "new.jsonl").write_text(json_lines([{"text": "a river", "predicted": "old"}]))
    code, lines, said = supmer("--data", "new.jsonl", "--keep-all")
    assert (code, lines) == (2, [])
    assert "its field predicted would be overwritten" in said


def test_a_template_of_two_texts_takes_two_fields(supmer, tmp_path, backbone):
    pair = save_prompt(tmp_path / "pair", backbone, PAIR)
    (tmp_path / "new.jsonl").write_text(json_lines([{"premise": "the river", "claim": "the city"}]))
    named = ["--text", "premise", "--text", "claim"]
    code, (line,), _ = supmer("--data", "new.jsonl", *named, prompt=pair)
    assert code == 0
    (expected,) = PromptedClassifier.from_pretrained(pair, backbone).predict([("the river", "the city")])
    assert line["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    code, _, said = supmer("--data", "new.jsonl", *named[:2], prompt=pair)
    assert code == 2
    assert "takes sentence1, sentence2: give one --text for each, in that order" in said


def test_the_output_file_is_whole_or_absent(supmer, tmp_path, expected):
    (tmp_path / "new.txt").write_text("\n".join(TEXTS))
    assert supmer("--data", "new.txt", "--output", "out/labels.jsonl") == (0, [], "out/labels.jsonl: 4 answers\n")
    assert [json.loads(line) for line in (tmp_path / "out/labels.jsonl").read_text().splitlines()] == as_lines(expected)
    (tmp_path / "bad.txt").write_text("\n".join([*TEXTS, "", "more"]))
    code, _, said = supmer("--data", "bad.txt", "--output", "out/bad.jsonl")
    assert code == 2
    assert said == "supmer: bad.txt: line 5: text is empty or not a string: correct or remove it\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["labels.jsonl"]


@pytest.mark.parametrize("arguments", [["--format", "csv"], ["--output", "labels.csv"]])
def test_answers_can_be_csv_by_option_or_by_name(supmer, tmp_path, expected, arguments):
    rows = [{"id": number, "text": text, "tags": ["a", "b"]} for number, text in enumerate(TEXTS)]
    (tmp_path / "new.jsonl").write_text(json_lines(rows))
    kept = ["--keep", "id", "--keep", "tags"]
    code, lines, said = supmer("--data", "new.jsonl", *kept, *arguments, parse=str)
    assert (code, said) == (0, "labels.csv: 4 answers\n" if "--output" in arguments else "")
    if "--output" in arguments:
        lines = (tmp_path / "labels.csv").read_text().splitlines()
    read = list(csv.DictReader(lines))
    labels = list(expected[0].probabilities)
    assert list(read[0]) == ["id", "tags", "predicted", *(f"probability_{label}" for label in labels)]
    assert [(row["id"], row["tags"], row["predicted"]) for row in read] == [
        (str(number), '["a","b"]', answer.label) for number, answer in enumerate(expected)
    ]
    found = [float(row[f"probability_{labels[0]}"]) for row in read]
    assert found == pytest.approx([answer.probabilities[labels[0]] for answer in expected], abs=1e-5)


def test_answers_can_be_parquet_written_in_blocks(supmer, tmp_path, expected):
    (tmp_path / "new.jsonl").write_text(json_lines({"id": number, "text": text} for number, text in enumerate(TEXTS)))
    assert supmer("--data", "new.jsonl", "--keep-all", "--block", "2", "--output", "labels.parquet")[0] == 0
    rows = pq.read_table(tmp_path / "labels.parquet").to_pylist()
    assert [row["id"] for row in rows] == list(range(len(TEXTS)))
    assert [{name: row[name] for name in ("predicted", "probabilities")} for row in rows] == as_lines(expected)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_fields_that_only_some_rows_have_need_json_lines(supmer, tmp_path, form):
    (tmp_path / "new.jsonl").write_text(json_lines([{"text": "a river"}, {"text": "a city", "note": "x"}]))
    code, _, said = supmer("--data", "new.jsonl", "--keep-all", "--block", "1", "--output", f"labels.{form}")
    assert code == 2
    assert said == "supmer: only some rows have the field note: leave it out, or use --format jsonl\n"
    assert not (tmp_path / f"labels.{form}").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--data", "new.csv"],
            "no column 'text' (found: Text, id): name yours with --text, or give each row one; did you mean",
        ),
        (["--data", "new.csv", "--text", "Text", "--keep", "Id"], "no column 'Id' (found: Text, id)"),
        (["--data", "new.csv", "--text", "Text", "--backbone", "none"], "none: no such folder"),
        (["--data", "none.csv"], "none.csv: no such file"),
    ],
)
def test_typos_are_answered_without_torch(tmp_path, tuned, backbone, arguments, message):
    (tmp_path / "new.csv").write_text("Text,id\na river,1\n")
    code = "import sys; from flows.cli import _run; code = _run(); sys.exit(99 if 'torch' in sys.modules else code)"
    found = subprocess.run(
        [sys.executable, "-c", code, "predict", "--prompt", tuned, "--backbone", backbone, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (2, ""), found.stderr
    assert message in found.stderr


def test_rows_before_a_bad_one_are_answered(supmer, tmp_path, expected):
    (tmp_path / "new.jsonl").write_text(json_lines([{"text": text} for text in TEXTS[:3]] + [{"body": "x"}]))
    code, lines, said = supmer("--data", "new.jsonl")
    assert (code, lines) == (2, as_lines(expected[:3]))
    assert said.count("\n") == 1
    assert "new.jsonl: line 4: no field 'text' (found: body)" in said


def test_the_workspace_s_backbone_is_the_default(supmer, tmp_path, backbone, expected):
    acquire_backbone(tmp_path, backbone)
    folder = save_prompt(tmp_path / "artifacts/tuned/movies/supmer", backbone)
    assert supmer("--data", "-", prompt=folder, given=None, stdin=b"winter morning")[1] == as_lines(expected[1:2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "none.jsonl"], "none.jsonl: no such file"),
        (["--data", "."], ".: no such file"),
        (["--data", "-", "--input-format", "parquet"], "a stream cannot be Parquet"),
        (["--data", "-", "--format", "parquet"], "name a file with --output"),
        (["--data", "-", "--output", "."], ".: is a folder: name a file"),
    ],
)
def test_wrong_arguments_are_one_line(supmer, arguments, message):
    code, lines, said = supmer(*arguments)
    assert (code, lines, said.count("\n")) == (2, [], 1)
    assert message in said


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["standard input", "standard output"])
def test_a_closed_stream_is_told_before_the_model_is_loaded(tmp_path, closed):
    descriptor = 0 if closed == "standard input" else 1
    command = [sys.executable, "-m", "flows.cli", "predict", "--prompt", "no-such", "--data", "-"]
    found = subprocess.run(
        ["sh", "-c", f'"$@" {descriptor}<&-', "sh", *command],
        cwd=tmp_path,
        input=b"a river\n" if descriptor else None,
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (found.returncode, found.stderr.decode().count("\n")) == (2, 1)
    assert f"{closed}: is closed: " in found.stderr.decode()


def test_a_model_of_another_role_is_not_taken_for_the_backbone(supmer, tmp_path, backbone):
    acquire_backbone(tmp_path, backbone)
    other = save_backbone(tmp_path / "other", seed=1)
    acquire_backbone(tmp_path / "elsewhere", other)
    (tmp_path / "elsewhere/data/sources/backbone").rename(tmp_path / "data/sources/embedder")
    assert supmer("--data", "-", given="data/sources/backbone", stdin=b"a river")[0] == 0
    code, _, said = supmer("--data", "-", given="data/sources/embedder", stdin=b"a river")
    assert (code, f"{other}: not the backbone that" in said) == (2, True)


def test_another_backbone_is_refused_unless_any_is_allowed(supmer, tmp_path):
    other = save_backbone(tmp_path / "other", seed=1)
    code, _, said = supmer("--data", "-", given=other, stdin=b"a river")
    assert code == 2
    assert "not the backbone that" in said
    assert supmer("--data", "-", "--any-backbone", given=other, stdin=b"a river")[0] == 0


def test_long_work_tells_how_far_it_is(supmer, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "PROGRESS_SECONDS", 0.0)
    (tmp_path / "new.txt").write_text("\n".join(TEXTS))
    _, lines, said = supmer("--data", "new.txt", "--block", 2)
    assert len(lines) == 4
    told = said.splitlines()
    assert told[-1].startswith("  predict: 4 examples, ")
    assert told[-1].endswith("100% of new.txt read")


@pytest.mark.slow
def test_a_stream_is_answered_while_it_goes_on(tuned, backbone, tmp_path, expected):
    """A real process: the answer to a line comes before the next line is written."""
    named = ["predict", "--prompt", tuned, "--backbone", backbone, "--data", "-", "--block", "1"]
    command = [sys.executable, "-c", "from flows.cli import main; main()", *named]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env=environment
    ) as process:
        for text, wanted in zip(TEXTS, as_lines(expected), strict=True):
            process.stdin.write(text.encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == wanted
        process.stdin.close()
        assert process.wait() == 0


def test_the_help_has_examples(command_line):
    _, out, _ = command_line("predict", "--help")
    assert "supmer predict --prompt artifacts/tuned/movies/supmer --data new.jsonl" in out
