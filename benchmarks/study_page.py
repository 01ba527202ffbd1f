"""Make the tables and figures of docs/study.md from the table of trials: `python benchmarks/study_page.py TRIALS`.

TRIALS is the folder with trials.parquet and a folder for each trial, as benchmarks/search.py leaves them. It may have
confirmed.parquet, the same table for other seeds. What stands between the marks of the page is replaced; figures go
beside it, as SVG files.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from pages import table, with_part  # noqa: E402

from tasks.report.page.parts import Lines, Point, Series  # noqa: E402
from tasks.report.page.plots import lines  # noqa: E402

PAGE, FIGURES = ROOT / "docs" / "study.md", ROOT / "docs" / "study"
PROGRAM = "benchmarks/study_page.py"
STYLE = """<style>text{font:11px sans-serif;fill:#444}.panel-title{font-weight:bold}
.middle{text-anchor:middle}.end{text-anchor:end}.grid{stroke:#ddd}.cross{stroke:none}
path,polyline{fill:none;stroke-width:1.6}.band{opacity:.15;stroke:none}""" + "".join(
    f".s{number} path,path.s{number},.s{number}{{stroke:{colour}}}"
    f".dot.s{number}{{fill:{colour}}}text.s{number}{{stroke:none;fill:{colour}}}"
    for number, colour in enumerate(("#0b62a4", "#c8501e", "#3a8f3a", "#7a4fa3", "#8a6d3b", "#c2378f", "#666"))
) + "</style>"  # fmt: skip
DRAWS = 10_000
PT, BASELINES = "pt", ("normal", "vocabulary")

Row = dict[str, Any]


def main() -> None:
    """Write the page's tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", type=Path, help="the folder with trials.parquet")
    folder = parser.parse_args().trials
    with duckdb.connect() as connection:
        rows = trials(connection, folder / "trials.parquet")
        parts = [learning_table(rows), tuning_table(rows)]
        FIGURES.mkdir(exist_ok=True)
        parts += [f"![{title}](study/{name}.svg)" for name, title in figures(connection, folder, rows)]
        confirmed = folder / "confirmed.parquet"
        again = trials(connection, confirmed) if confirmed.exists() else []
    page = with_part(PAGE.read_text("utf-8"), "trials", PROGRAM, "\n\n".join(part for part in parts if part))
    if again:
        page = with_part(page, "confirmed", PROGRAM, f"{tuning_table(again)}\n\n{set_table(again)}")
    PAGE.write_text(page, "utf-8")


def trials(connection: duckdb.DuckDBPyConnection, path: Path) -> list[Row]:
    """Return the rows of a table of trials, with PT's starts once."""
    return shared_baselines(_rows(connection, f"SELECT * FROM '{path}' ORDER BY trial, start, set, seed, rate"))


def set_table(rows: Sequence[Row]) -> str:
    """Return a table of the scores after the last step, mean ± deviation by set, of each start at its best rate."""
    sets = sorted({row["set"] for row in rows if row["set"]})
    lines_ = []
    for (trial, start), rate in best_rates(rows).items():
        cells = []
        for name in sets:
            key = (trial, start, rate, name)
            ends = [100 * _end(row) for row in rows if (row["trial"], row["start"], row["rate"], row["set"]) == key]
            cells.append(f"{np.mean(ends):.1f} ± {np.std(ends, ddof=1):.1f}" if ends else "–")
        lines_.append((trial, start, *cells))
    return table(("trial", "start", *sets), lines_)


def _rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    result = connection.execute(query)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def learning_table(rows: Sequence[Row]) -> str:
    """Return a table of what each training learned: held-out accuracy by kind."""
    seen: dict[tuple[str, str], Row] = {(row["trial"], row["start"]): row for row in rows if row["held_out"]}
    lines_ = []
    for (trial, start), row in seen.items():
        kinds = ", ".join(f"{kind} {100 * right:.0f}" for kind, right in sorted(_json(row["held_out"]).items()))
        cells = (
            trial,
            start,
            row["meta_steps"],
            row["best_step"],
            f"{row['tokens']:,}",
            f"{row['held_out_loss']:.3f}",
            kinds,
        )
        lines_.append(cells)
    return table(("trial", "prompt", "steps", "best", "tokens", "held-out loss", "right, % by kind"), lines_)


def _json(text: str) -> dict[str, float]:
    import orjson

    values: dict[str, float] = orjson.loads(text)
    return values


def best_rates(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Return, for each trial and start, the rate with the highest mean area over sets and seeds."""
    areas: dict[tuple[str, str], dict[float, list[float]]] = {}
    for row in rows:
        if row["area"] is not None:
            areas.setdefault((row["trial"], row["start"]), {}).setdefault(row["rate"], []).append(row["area"])
    return {key: max(rates, key=lambda rate: float(np.mean(rates[rate]))) for key, rates in areas.items()}


def shared_baselines(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with PT's starts, which every trial shares, once, as rows of the trial `pt`."""
    kept: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        trial = PT if row["start"] in BASELINES else row["trial"]
        kept.setdefault((trial, *(row[name] for name in ("start", "set", "seed", "rate"))), row | {"trial": trial})
    return list(kept.values())


def paired(rows: Sequence[Row], trial: str, start: str, other: str, measure: str) -> NDArray[np.float64] | None:
    """Return differences in points [sets, seeds] of a start and one of PT's, each at its best rate.

    Only sets and seeds that both were measured on count; None if there are none.
    """
    rates = best_rates(rows)
    values: list[dict[tuple[str, int], float]] = []
    for key in ((trial, start), (PT, other)):
        own = [row for row in rows if key in rates and (row["trial"], row["start"], row["rate"]) == (*key, rates[key])]
        values.append({(row["set"], row["seed"]): _area(row) if measure == "area" else _end(row) for row in own})
    shared = values[0].keys() & values[1].keys()
    sets, seeds = (sorted({key[place] for key in shared}) for place in (0, 1))
    whole = [name for name in sets if all((name, seed) in shared for seed in seeds)]
    if not whole:
        return None
    return np.array([[100 * (values[0][name, seed] - values[1][name, seed]) for seed in seeds] for name in whole])


def interval(differences: NDArray[np.float64], draws: int = DRAWS) -> tuple[float, float]:
    """Return the 95 % interval of the mean: sets are drawn with replacement, and seeds within each."""
    chance = np.random.default_rng(0)
    sets, seeds = differences.shape
    chosen = chance.integers(sets, size=(draws, sets))
    within = chance.integers(seeds, size=(draws, sets, seeds))
    means = np.take_along_axis(differences[chosen], within, axis=2).mean((1, 2))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def tuning_table(rows: Sequence[Row]) -> str:
    """Return a table of what tuning makes of each start, against PT from normal noise and from vocabulary rows."""
    rates = best_rates(rows)
    titles = ("trial", "start", "rate", "sets", "area", "end", "deviation", *(
        f"{measure} − PT {other}" for other in BASELINES for measure in ("area", "end")
    ))  # fmt: skip
    lines_ = []
    for (trial, start), rate in rates.items():
        own = [row for row in rows if (row["trial"], row["start"], row["rate"]) == (trial, start, rate)]
        area, end = (100 * float(np.mean([value(row) for row in own])) for value in (_area, _end))
        against = [_against(rows, trial, start, other, one) for other in BASELINES for one in ("area", "end")]
        sets = {row["set"] for row in own}
        deviation = 100 * np.mean([np.std([_end(row) for row in own if row["set"] == name], ddof=1) for name in sets])
        lines_.append(
            (trial, start, f"{rate:g}", str(len(sets)), f"{area:.1f}", f"{end:.1f}", f"{deviation:.1f}", *against)
        )
    return table(titles, lines_) if rates else ""


def _area(row: Row) -> float:
    return float(row["area"])


def _end(row: Row) -> float:
    return float(row["scores"][-1])


def _against(rows: Sequence[Row], trial: str, start: str, other: str, measure: str) -> str:
    differences = None if (trial, start) == (PT, other) else paired(rows, trial, start, other, measure)
    if differences is None:
        return "–"
    low, high = interval(differences)
    return f"{differences.mean():+.1f} ({low:+.1f} to {high:+.1f})"


def figures(connection: duckdb.DuckDBPyConnection, folder: Path, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Write the figures; yield the name and the title of each."""
    rates = best_rates(rows)
    for name in sorted({row["set"] for row in rows if row["set"]}):
        series = []
        for style, key in enumerate(sorted(rates)):
            own = [row for row in rows if (row["trial"], row["start"], row["set"]) == (*key, name)]
            own = [row for row in own if row["rate"] == rates[key]]
            if not own:  # this start was not measured on this set
                continue
            means = 100 * np.mean([row["scores"] for row in own], axis=0)
            points = tuple(Point(step, float(mean)) for step, mean in zip(own[0]["steps"], means, strict=True))
            title = f"PT {key[1]}" if key[0] == PT else key[0]
            series.append(Series(title, style, points, dots=True))
        if len(series) > 1:
            yield _drawn(f"tuning-{name}", Lines(name, "tuning step", "right, %", tuple(series)))
    for trial in sorted(path.name for path in folder.iterdir() if (path / "steps").is_dir()):
        query = f"SELECT * FROM '{folder / trial / 'steps' / '*.parquet'}' WHERE similarity IS NOT NULL ORDER BY step"
        steps = [row for row in _rows(connection, query) if row["variant"] == "supmer"]
        for column, title in (("similarity", "inner product"), ("gate", "mean gate"), ("prompt_norm", "norm of θ")):
            thinned = steps[:: max(len(steps) // 100, 1)]
            if any(row[column] for row in thinned):  # without a regularizer there are no gates
                points = tuple(Point(row["step"], row[column]) for row in thinned)
                yield _drawn(
                    f"{trial}-{column}", Lines(f"{trial}: {title}", "meta step", title, (Series("", 0, points),))
                )


def _drawn(name: str, panel: Lines) -> tuple[str, str]:
    svg = str(lines(panel, panel.title)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    (FIGURES / f"{name}.svg").write_text(svg.replace(">", f">{STYLE}", 1), "utf-8")
    return name, panel.title


if __name__ == "__main__":
    main()
