"""The mistakes of a method: confusion matrices, and the errors that it is surest of, with their text."""

from collections.abc import Sequence

from storage.counts import counted
from storage.queries.report_queries import Query, Row
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


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1].rstrip() + "…"


def _names(rows: Sequence[Row]) -> list[str]:
    """Return the names of all labels up to the highest that occurs; one that does not occur is shown by its number."""
    known = {row["label"]: row["label_name"] for row in rows} | {
        row["predicted"]: row["predicted_name"] for row in rows
    }
    return [known.get(place) or str(place) for place in range(1 + max(known))]


def confusion(rows: Sequence[Row], method: str, query: Query) -> Figure | None:
    """Return the confusion matrix of a method on each dataset."""
    panels, told = [], []
    for dataset, group in grouped([row for row in rows if row["method"] == method], "dataset"):
        labels = _names([row for row in rows if row["dataset"] == dataset])
        count = len(labels)
        counts = [[0] * count for _ in range(count)]
        for row in group:
            counts[row["label"]][row["predicted"]] += row["predictions"]
        total, right = sum(map(sum, counts)), sum(counts[place][place] for place in range(count))
        told.append(f"{dataset}: {right:,} of {total:,} predictions are right{_most_wrong(counts, labels)}")
        if count <= MOST_LABELS:
            seeds = max(row["seeds"] for row in group)
            over = f", {counted(seeds, 'seed')}" if seeds else ""
            panels.append(
                Matrix(dataset, f"% of each true label{over}", tuple(labels), tuple(tuple(line) for line in counts))
            )
    if not panels:
        return None
    title = label(method).title
    return Figure(
        "confusion",
        f"What {title} confuses: each row is a true label, each column a predicted one.",
        f"Predictions of {title}. {'; '.join(told)}.",
        tuple(panels),
        Origin((query,)),
        data_table("confusion", rows, ("dataset", "method", "label_name", "predicted_name", "predictions")),
        ("Test examples of all seeds together. The data below has every method.",),
    )


def _most_wrong(counts: Sequence[Sequence[int]], labels: Sequence[str]) -> str:
    """Return the most frequent confusion in words."""
    wrong = [
        (found, row, column) for row, line in enumerate(counts) for column, found in enumerate(line) if row != column
    ]
    if not wrong or not max(wrong)[0]:
        return ""
    found, row, column = max(wrong)
    return f"; most often {labels[row]} is taken for {labels[column]} ({found:,} times)"


def mistakes_table(rows: Sequence[Row], method: str, query: Query) -> Table | None:
    """Return the table of the errors that a method makes with the most seeds and the highest probability."""
    if not rows:
        return None
    lines = tuple(
        (
            words(row["dataset"]),
            words("\n".join(map(_shortened, row["texts"] or ()))),
            words(row["label"]),
            words(row["predicted"]),
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
