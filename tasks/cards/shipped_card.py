"""The model card of a shipped prompt: recipe, data, scores, licence, and how to use and to check it."""

from collections.abc import Sequence

from tasks.cards.prompt_card import prompt_card
from tasks.methods import in_order, label
from tasks.stage.contract import Record

_RECIPE = ("materialize", "metatrain", "sample", "cluster")
_LEFT_OUT = ("ppt", "metapt", "checkpoint_steps", "checkpoint_seconds", "chunk_tokens", "shard_mb")  # not of the recipe


def shipped_card(about: Record, shape: Sequence[int], name: str, record: Record) -> str:
    """Return the card; `record` is what config.json keeps under `shipped`."""
    learned = prompt_card(about, shape).partition("\n## Use")[0]
    learned = learned.replace("Where the text came from: `supmer lineage artifacts/prompt`.\n", "").rstrip()
    return f"""{learned}

## Use

    supmer tune --prompt prompts/{name} --data my.jsonl --text review --label stars --output my-prompt

The prompt fits this backbone only: any other is refused. It is a starting point for few-shot tuning, not a classifier.
It carries whatever the backbone and the corpus carry, biases included.

## Data

{_sources(record)}

`documents.parquet` lists all {record["documents"]:,} documents: id, source, file, row, and whether the document was for
training or validation. `supmer lineage prompts/{name}` prints the sources; `supmer verify` and
`sha256sum --check SHA256SUMS` compare every file with its hash.

## Scores

{_scores(record["scores"])}

## Recipe

{_recipe(record["parameters"])}

## Licence

{record["licence"]}. The text of the corpora and the weights of the backbone are not part of this folder; their
licences are in the table above.
"""


def _sources(record: Record) -> str:
    rows = [
        f"| {source['role']} | {source['name']} | `{source['spec'].partition('#')[0]}` | {source['licence']} |"
        for source in record["sources"]
    ]
    return "\n".join(["| role | name | source | licence |", "|---|---|---|---|", *rows])


def _scores(scores: Sequence[Record]) -> str:
    """Return a table with a row for each method and a column for each test, mean and deviation over seeds."""
    if not scores:
        return "None: no dataset was tuned in the workspace that made it."
    columns = list(dict.fromkeys((row["dataset"], row["tested_on"], row["shots"]) for row in scores))
    cells = {(row["method"], row["dataset"], row["tested_on"], row["shots"]): row for row in scores}
    titles = [_column(*column) for column in columns]
    lines = [f"| accuracy in percent | {' | '.join(titles)} |", "|---" * (len(columns) + 1) + "|"]
    for method in in_order({row["method"] for row in scores}):
        shown = [_cell(cells.get((method, *column))) for column in columns]
        lines.append(f"| {label(method).title} | {' | '.join(shown)} |")
    seeds, most = max(row["seeds"] for row in scores), max(row["examples"] or 0 for row in scores)
    return "\n".join([*lines, "", f"Mean ± deviation over {seeds} seeds, at most {most:,} test examples."])


def _column(dataset: str, tested_on: str, shots: int) -> str:
    moved = "" if tested_on == dataset else f" → {tested_on}"
    return f"{dataset}{moved}, {shots} shots"


def _cell(row: Record | None) -> str:
    if row is None:
        return "–"
    return f"{row['mean']:.1f}" + ("" if row["deviation"] is None else f" ± {row['deviation']:.1f}")


def _recipe(parameters: Record) -> str:
    shown = {
        key: value
        for key, value in parameters.items()
        if key.startswith(_RECIPE) and key.split(".")[1] not in _LEFT_OUT
    }
    return "\n".join(
        ["| parameter | value |", "|---|---|", *(f"| `{key}` | `{value}` |" for key, value in shown.items())]
    )
