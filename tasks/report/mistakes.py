"""The mistakes of a method: confusion matrices, and the errors that it is surest of, with their text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from storage.counts import counted
from storage.queries.report_queries import Query, Row
from storage.sources.source import AcquiredSource
from tasks.labeled.dataset import read_dataset
from tasks.methods import label
from tasks.report.figures import data_table, grouped
from tasks.report.page.parts import Cell, Column, Figure, Matrix, Origin, Table, number, words

MOST_MISTAKES = 5  # errors of each dataset
MOST_LETTERS = 400  # of a text
MOST_LABELS = 24  # labels of a matrix that can be read

_MISTAKES_ARE = (
    "First those that most seeds get wrong, then by the probability of the predicted label among all labels, a mean "
    "over those seeds. A wrong label in the data is often found here."
)

Names = Mapping[str, Sequence[str]]
"""The label names by dataset."""


def texts_and_names(
    root: Path, sources: Sequence[AcquiredSource], wanted: Mapping[str, Sequence[str]]
) -> tuple[dict[tuple[str, str], str], dict[str, tuple[str, ...]]]:
    """Return the texts of the wanted examples, by dataset and id, and the label names by dataset."""
    texts, names = {}, {}
    for source in sources:
        if source.name in wanted:
            dataset = read_dataset(source, root)
            names[source.name] = dataset.form.labels
            ids = set(wanted[source.name])
            for example in (*dataset.test, *dataset.train, *dataset.repeated):
                if example.example_id in ids:
                    texts[source.name, example.example_id] = "\n".join(map(_shortened, example.texts))
    return texts, names


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1].rstrip() + "…"


def _name(names: Names, dataset: str, place: int) -> str:
    known = names.get(dataset, ())
    return known[place] if 0 <= place < len(known) else str(place)


def confusion(rows: Sequence[Row], names: Names, method: str, query: Query) -> Figure | None:
    """Return the confusion matrix of a method on each dataset."""
    panels, told = [], []
    for dataset, group in grouped([row for row in rows if row["method"] == method], "dataset"):
        count = max(len(names.get(dataset, ())), 1 + max(max(row["label"], row["predicted"]) for row in group))
        counts = [[0] * count for _ in range(count)]
        for row in group:
            counts[row["label"]][row["predicted"]] += row["predictions"]
        total, right = sum(map(sum, counts)), sum(counts[place][place] for place in range(count))
        told.append(f"{dataset}: {right:,} of {total:,} predictions are right{_most_wrong(counts, names, dataset)}")
        if count <= MOST_LABELS:
            labels = tuple(_name(names, dataset, place) for place in range(count))
            seeds = max(row["seeds"] for row in group)
            over = f", {counted(seeds, 'seed')}" if seeds else ""
            panels.append(Matrix(dataset, f"% of each true label{over}", labels, tuple(tuple(line) for line in counts)))
    if not panels:
        return None
    said = [
        row
        | {
            "true label": _name(names, row["dataset"], row["label"]),
            "predicted label": _name(names, row["dataset"], row["predicted"]),
        }
        for row in rows
    ]
    title = label(method).title
    return Figure(
        "confusion",
        f"What {title} confuses: each row is a true label, each column a predicted one.",
        f"Predictions of {title}. {'; '.join(told)}.",
        tuple(panels),
        Origin((query,)),
        data_table("confusion", said, ("dataset", "method", "true label", "predicted label", "predictions")),
        ("Test examples of all seeds together. The data below has every method.",),
    )


def _most_wrong(counts: Sequence[Sequence[int]], names: Names, dataset: str) -> str:
    """Return the most frequent confusion in words."""
    wrong = [
        (found, row, column) for row, line in enumerate(counts) for column, found in enumerate(line) if row != column
    ]
    if not wrong or not max(wrong)[0]:
        return ""
    found, row, column = max(wrong)
    true, predicted = _name(names, dataset, row), _name(names, dataset, column)
    return f"; most often {true} is taken for {predicted} ({found:,} times)"


def mistakes_table(
    rows: Sequence[Row], texts: Mapping[tuple[str, str], str], names: Names, method: str, query: Query
) -> Table | None:
    """Return the table of the errors that a method makes with the most seeds and the highest probability."""
    if not rows:
        return None
    lines = tuple(
        (
            words(row["dataset"]),
            words(texts.get((row["dataset"], row["example_id"]), "(the text is no longer in the source)")),
            words(_name(names, row["dataset"], row["label"])),
            words(_name(names, row["dataset"], row["predicted"])),
            number(row["probability"], ".0f"),
            Cell(f"{row['wrong']} of {row['runs']}", row["wrong"] / row["runs"]),
            words(row["example_id"], code=True),
        )
        for row in rows
    )
    columns = (
        Column("dataset"), Column("text"), Column("true label"), Column("predicted"),
        Column("probability, %", numeric=True), Column("wrong seeds", numeric=True), Column("example"),
    )  # fmt: skip
    breaks = frozenset(place for place in range(1, len(rows)) if rows[place]["dataset"] != rows[place - 1]["dataset"])
    title = label(method).title
    return Table(
        "mistakes",
        f"The errors that {title} is surest of: up to {MOST_MISTAKES} test examples of each dataset.",
        columns,
        lines,
        Origin((query,)),
        breaks,
        (_MISTAKES_ARE,),
    )
