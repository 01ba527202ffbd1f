"""The outputs of tuning: tables of scores, curves and predictions, prompts, metrics and plots for DVC."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import csv

from storage import paths
from storage.atomic import replacing_file, write_bytes
from storage.tables.tuning_tables import COSTS, CURVES, PLOTTED, PREDICTIONS, SCORES, write_table
from tasks.stage.contract import Record, ShardResult, Stage
from tasks.tune.plan import Planned

PROMPT_FOLDER, CURVES_FILE, PREDICTIONS_FILE = "prompt", "curves.parquet", "predictions.parquet"


@dataclass(frozen=True)
class SeedResult:
    """A tuned seed: a run for each learning rate, one of which validation chose."""

    planned: Planned
    result: ShardResult

    @property
    def record(self) -> Record:
        """The record of the shard."""
        return self.result.record

    @property
    def seed(self) -> int:
        """The seed."""
        seed: int = self.result.shard.payload["seed"]
        return seed

    @property
    def chosen(self) -> Record:
        """The run that was chosen."""
        run: Record = self.record["runs"][self.record["chosen"]]
        return run

    @property
    def learning_rate(self) -> float:
        """The learning rate of the chosen run."""
        return float(self.chosen["learning_rate"])

    @property
    def tuned_hash(self) -> str:
        """The hash of θ of the chosen run."""
        return str(self.chosen["tuned_hash"])


@dataclass(frozen=True)
class TestResult:
    """A test of one method and seed (None if nothing was drawn) on one dataset."""

    planned: Planned
    seed: int | None
    tested_on: str
    result: ShardResult


def write_results(
    stage: Stage, plan: Sequence[Planned], seeds: Sequence[SeedResult], tests: Sequence[TestResult]
) -> Record:
    """Write all outputs; return the record of the stage."""
    rows = predictions = 0
    _empty(stage)
    for entry in plan:
        own = [seed for seed in seeds if seed.planned == entry]
        of_tests = [test for test in tests if test.planned == entry]
        scores = list(_score_rows(entry, own, of_tests))
        rows += write_table(stage.output(paths.SCORES) / f"{entry.name}.parquet", SCORES, scores, {"plan": entry.name})
        costs = [_cost_row(seed) for seed in own]
        write_table(stage.output(paths.COSTS) / f"{entry.name}.parquet", COSTS, costs, {"plan": entry.name})
        for seed in own:
            stage.adopt(seed.result, CURVES_FILE, paths.CURVES, f"{entry.name}-{seed.seed}.parquet")
        for test in of_tests:
            drawn = "" if test.seed is None else f"-{test.seed}"
            name = f"{entry.name}{drawn}-on-{test.tested_on}.parquet"
            stage.adopt(test.result, PREDICTIONS_FILE, paths.PREDICTIONS, name)
            predictions += test.result.record["examples"]
        if own:
            _write_curve(stage, entry, own)
    for best in _best(seeds, stage.params.tune.shots):
        for file in best.record["files"]:
            folder = f"{best.planned.tuning.dataset}/{best.planned.tuning.method}"
            stage.adopt(best.result, f"{PROMPT_FOLDER}/{file}", paths.TUNED_PROMPTS, f"{folder}/{file}")
    summary = _summary(tests)
    write_bytes(
        stage.output(paths.TUNE_METRICS), orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    dead = [run["status"] for seed in seeds for run in seed.record["runs"] if run["status"] != "ok"]
    counted = {status: dead.count(status) for status in ("nan", "collapsed")}
    return {"rows": rows, "predictions": predictions, **counted, "scores": summary}


def _empty(stage: Stage) -> None:
    """Write tables without rows, so that each table has a view whatever the parameters ask for."""
    tables = {paths.SCORES: SCORES, paths.CURVES: CURVES, paths.COSTS: COSTS, paths.PREDICTIONS: PREDICTIONS}
    for table, schema in tables.items():
        write_table(stage.output(table) / "0.parquet", schema, [], {})
    for folder in (paths.TUNED_PROMPTS, paths.TUNE_PLOTS):
        stage.output(folder).mkdir(parents=True, exist_ok=True)


def _cost_row(seed: SeedResult) -> dict[str, Any]:
    tuning = seed.planned.tuning
    row: Record = {name: getattr(tuning, name) for name in ("dataset", "method", "shots")}
    cost: Record = seed.record["cost"]
    return row | {"seed": seed.seed} | cost


def _score_rows(entry: Planned, seeds: Sequence[SeedResult], tests: Sequence[TestResult]) -> Iterator[dict[str, Any]]:
    """Yield a row for every run on the dataset itself, and for every test of the chosen run elsewhere."""
    row = {name: getattr(entry.tuning, name) for name in ("dataset", "method", "shots")}
    by_place = {(test.seed, test.tested_on): test.result.record for test in tests}
    for seed in seeds:
        for number, run in enumerate(seed.record["runs"]):
            run_row = {name: run[name] for name in _RUN_COLUMNS} | {"prompt_hash": seed.record["prompt_hash"]}
            is_chosen = number == seed.record["chosen"]
            for place in entry.tested_on if is_chosen else (entry.tuning.dataset,):
                test = by_place[seed.seed, place] if is_chosen else _untested(seed)
                yield row | run_row | test | {"tested_on": place, "seed": seed.seed, "chosen": is_chosen}
    for test_result in [] if seeds else tests:
        where: Record = {"tested_on": test_result.tested_on, "seed": test_result.seed}
        yield row | test_result.result.record | where | {"chosen": True, "status": "ok"}


_RUN_COLUMNS = ("learning_rate", "validation_score", "best_step", "steps", "status", "tuned_hash")


def _untested(seed: SeedResult) -> Record:
    return {name: seed.record[name] for name in ("metric", "data_hash")}


def _best(seeds: Sequence[SeedResult], shots: int) -> list[SeedResult]:
    """Return, for each dataset and method, the seed with the best validation score, then loss; the first of equals."""
    best: dict[tuple[str, str], SeedResult] = {}
    for seed in seeds:
        key = (seed.planned.tuning.dataset, seed.planned.tuning.method)
        is_better = key not in best or run_order(seed.chosen) > run_order(best[key].chosen)
        if seed.planned.tuning.shots == shots and is_better:
            best[key] = seed
    return list(best.values())


def run_order(run: Record) -> tuple[bool, float, float]:
    """Return a key by which the best of several runs is the greatest: validation score, then loss; NaN comes last."""
    return run["status"] != "nan", run["validation_score"], -(run["validation_loss"] or 0.0)


def _write_curve(stage: Stage, entry: Planned, seeds: Sequence[SeedResult]) -> None:
    """Write the validation scores of the chosen runs by step, averaged over seeds, as a file that `dvc plots` reads."""
    by_step: dict[int, list[Record]] = {}
    for seed in seeds:
        for point in seed.record["curve"]:
            by_step.setdefault(point["step"], []).append(point)
    columns: dict[str, list[Any]] = {"step": sorted(by_step)}
    for name in PLOTTED.names[1:]:
        columns[name] = [_mean([point[name] for point in by_step[step]]) for step in columns["step"]]
    with replacing_file(stage.output(paths.TUNE_PLOTS) / f"{entry.name.replace('/', '-')}.csv") as beside:
        csv.write_csv(pa.table(columns, schema=PLOTTED), beside)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _summary(tests: Sequence[TestResult]) -> Record:
    """Return the mean and sample standard deviation over seeds, by tuned and tested dataset, then by method."""
    scores_of: dict[str, dict[str, list[float]]] = {}
    for test in tests:
        tuning = test.planned.tuning
        moved = "" if test.tested_on == tuning.dataset else f" on {test.tested_on}"
        name = f"{tuning.dataset}{moved}, {tuning.shots} shots"
        scores_of.setdefault(name, {}).setdefault(tuning.method, []).append(test.result.record["score"])
    return {
        name: {
            method: {
                "mean": statistics.fmean(scores),
                "deviation": statistics.stdev(scores) if len(scores) > 1 else None,
                "seeds": len(scores),
            }
            for method, scores in methods.items()
        }
        for name, methods in scores_of.items()
    }
