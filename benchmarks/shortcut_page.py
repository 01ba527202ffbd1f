"""Make the README's table beside its first example: `python benchmarks/shortcut_page.py [WORKSPACE]`.

WORKSPACE is one in which `supmer run` has run the quickstart. Its scores and costs are kept in shortcut.csv; without
WORKSPACE, the table is made from that file alone.
"""

import argparse
import csv
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import duckdb  # noqa: E402
from pages import table, with_part  # noqa: E402

from storage import paths  # noqa: E402
from tasks.methods import in_order, label  # noqa: E402

PAGE, PROGRAM, PART = ROOT / "README.md", "benchmarks/shortcut_page.py", "shortcut"
KEPT = ROOT / "benchmarks" / "shortcut.csv"
SOURCE, QUESTIONS = "movies", "trec"
SCORES = """
SELECT method, dataset, tested_on, count(score) AS seeds, max(examples) AS examples,
       round(100 * avg(score), 1) AS mean, round(100 * stddev_samp(score), 1) AS deviation,
       (SELECT round(avg(seconds), 1) FROM '{costs}/**/*.parquet' AS cost
        WHERE cost.method = score.method AND cost.dataset = score.dataset) AS seconds
FROM '{scores}/**/*.parquet' AS score
WHERE chosen
GROUP BY ALL
ORDER BY ALL
"""

Row = dict[str, str]


def main() -> None:
    """Keep the scores of a workspace, if one is given, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workspace", nargs="?", type=Path)
    options = parser.parse_args()
    if options.workspace:
        keep(options.workspace)
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")


def keep(workspace: Path) -> None:
    """Write the scores of a workspace to shortcut.csv."""
    query = SCORES.format(scores=workspace / paths.SCORES, costs=workspace / paths.COSTS)
    found = duckdb.sql(query)
    with KEPT.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(found.columns)
        writer.writerows(found.fetchall())


def filled(page: str) -> str:
    """Return the page with its table made anew."""
    return with_part(page, PART, PROGRAM, content())


def content() -> str:
    """Return the table: a row for each method, a column for each labeled set, and the time of one tuning."""
    if not KEPT.is_file():
        return f"Not measured yet: `make run`, then `python {PROGRAM} .`"
    with KEPT.open(newline="") as file:
        rows = list(csv.DictReader(file))
    by_place = {(row["method"], row["dataset"], row["tested_on"]): row for row in rows}
    targets = sorted({row["tested_on"] for row in rows} - {SOURCE, QUESTIONS})
    columns = [
        "accuracy in percent",
        "movie reviews",
        "kinds of questions",
        *(f"{SOURCE} → {name}" for name in targets),
    ]
    lines = []
    for method in in_order({row["method"] for row in rows}):
        places = [(SOURCE, SOURCE), (QUESTIONS, QUESTIONS), *((SOURCE, name) for name in targets)]
        cells = [_score(by_place.get((method, *place))) for place in places]
        lines.append([label(method).title, *cells, _seconds(by_place.get((method, SOURCE, SOURCE)))])
    return table([*columns, "time of a tuning"], lines)


def _score(row: Row | None) -> str:
    if row is None:
        return "–"
    return f"{float(row['mean']):.1f}" + (f" ± {float(row['deviation']):.1f}" if row["deviation"] else "")


def _seconds(row: Row | None) -> str:
    return f"{float(row['seconds']):.1f} s" if row and row["seconds"] else "–"


if __name__ == "__main__":
    main()
