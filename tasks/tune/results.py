"""What tuning leaves: tables of scores, curves and predictions, prompts to take away, metrics and plots for DVC."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import csv

from storage.atomic import replacing_file, write_bytes
from storage.tables.tuning_tables import CURVES, PREDICTIONS, SCORES, write_table
from tasks.stage.contract import Record, ShardResult, Stage
from tasks.tune.plan import Planned

SCORES_TABLE, CURVES_TABLE = "data/tuning/scores", "data/tuning/curves"
PREDICTIONS_TABLE = "data/tuning/predictions"
PROMPTS, PLOTS, METRICS = "artifacts/tuned", "data/plots/tune", "data/metrics/tune.json"
PROMPT_FOLDER, CURVES_FILE, PREDICTIONS_FILE = "prompt", "curves.parquet", "predictions.parquet"
_PLOTTED = ("train_loss", "validation_loss", "validation_score")


@dataclass(frozen=True)
class SeedResult:
    """A seed that was tuned: a run for each learning rate, one of them chosen by validation."""

    planned: Planned
    result: ShardResult

    @property
    def record(self) -> Record:
        """What the shard says."""
        return self.result.record

    @property
    def seed(self) -> int:
        """Which one."""
        seed: int = self.result.shard.payload["seed"]
        return seed

    @property
    def chosen(self) -> Record:
        """The run that was chosen."""
        run: Record = self.record["runs"][self.record["chosen"]]
        return run

    @property
    def learning_rate(self) -> float:
        """Of the chosen run."""
        return float(self.chosen["learning_rate"])

    @property
    def tuned_hash(self) -> str:
        """θ of the chosen run."""
        return str(self.chosen["tuned_hash"])


@dataclass(frozen=True)
class TestResult:
    """A test: which method, of which seed (None where nothing was drawn), on which dataset."""

    planned: Planned
    seed: int | None
    tested_on: str
    result: ShardResult


def write_results(
    stage: Stage, plan: Sequence[Planned], seeds: Sequence[SeedResult], tests: Sequence[TestResult]
) -> Record:
    """Lay out all outputs; return what the stage says of itself."""
    rows = predictions = 0
    _empty(stage)
    for one in plan:
        own = [seed for seed in seeds if seed.planned == one]
        of_tests = [test for test in tests if test.planned == one]
        scores = list(_score_rows(one, own, of_tests))
        rows += write_table(stage.output(SCORES_TABLE) / f"{one.name}.parquet", SCORES, scores, {"plan": one.name})
        for seed in own:
            stage.adopt(seed.result, CURVES_FILE, CURVES_TABLE, f"{one.name}-{seed.seed}.parquet")
        for test in of_tests:
            drawn = "" if test.seed is None else f"-{test.seed}"
            name = f"{one.name}{drawn}-on-{test.tested_on}.parquet"
            stage.adopt(test.result, PREDICTIONS_FILE, PREDICTIONS_TABLE, name)
            predictions += test.result.record["examples"]
        if own:
            _write_curve(stage, one, own)
    for best in _best(seeds, stage.params.tune.shots):
        for file in best.record["files"]:
            folder = f"{best.planned.tuning.dataset}/{best.planned.tuning.method}"
            stage.adopt(best.result, f"{PROMPT_FOLDER}/{file}", PROMPTS, f"{folder}/{file}")
    summary = _summary(tests)
    write_bytes(stage.output(METRICS), orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    dead = [run["status"] for seed in seeds for run in seed.record["runs"] if run["status"] != "ok"]
    counted = {status: dead.count(status) for status in ("nan", "collapsed")}
    return {"rows": rows, "predictions": predictions, **counted, "scores": summary}


def _empty(stage: Stage) -> None:
    """Tables without rows, so that there is a view of each whatever was asked for."""
    for table, schema in ((SCORES_TABLE, SCORES), (CURVES_TABLE, CURVES), (PREDICTIONS_TABLE, PREDICTIONS)):
        write_table(stage.output(table) / "0.parquet", schema, [], {})
    for folder in (PROMPTS, PLOTS):
        stage.output(folder).mkdir(parents=True, exist_ok=True)


def _score_rows(one: Planned, seeds: Sequence[SeedResult], tests: Sequence[TestResult]) -> Iterator[dict[str, Any]]:
    """A row for every run on the dataset itself, and one for every test of the chosen run elsewhere."""
    row = {name: getattr(one.tuning, name) for name in ("dataset", "method", "shots")}
    by_place = {(test.seed, test.tested_on): test.result.record for test in tests}
    for seed in seeds:
        for number, run in enumerate(seed.record["runs"]):
            held = {name: run[name] for name in _RUN_COLUMNS} | {"prompt_hash": seed.record["prompt_hash"]}
            is_chosen = number == seed.record["chosen"]
            for place in one.tested_on if is_chosen else (one.tuning.dataset,):
                test = by_place[seed.seed, place] if is_chosen else _untested(seed)
                yield row | held | test | {"tested_on": place, "seed": seed.seed, "chosen": is_chosen}
    for test_result in [] if seeds else tests:
        found: Record = {"tested_on": test_result.tested_on, "seed": test_result.seed, "chosen": True, "status": "ok"}
        yield row | test_result.result.record | found


_RUN_COLUMNS = ("learning_rate", "validation_score", "best_step", "steps", "status", "tuned_hash")


def _untested(seed: SeedResult) -> Record:
    return {name: seed.record[name] for name in ("metric", "data_hash")}


def _best(seeds: Sequence[SeedResult], shots: int) -> list[SeedResult]:
    """For each dataset and method the seed with the best validation score, then loss; the first of equals."""
    best: dict[tuple[str, str], SeedResult] = {}
    for seed in seeds:
        key = (seed.planned.tuning.dataset, seed.planned.tuning.method)
        if seed.planned.tuning.shots == shots and (key not in best or _order(seed) > _order(best[key])):
            best[key] = seed
    return list(best.values())


def _order(seed: SeedResult) -> tuple[bool, float, float]:
    chosen = seed.chosen
    return chosen["status"] != "nan", chosen["validation_score"], -(chosen["validation_loss"] or 0.0)


def _write_curve(stage: Stage, one: Planned, seeds: Sequence[SeedResult]) -> None:
    """The chosen runs' validation over the steps, mean of the seeds, as a file that `dvc plots` reads."""
    by_step: dict[int, list[Record]] = {}
    for seed in seeds:
        for point in seed.record["curve"]:
            by_step.setdefault(point["step"], []).append(point)
    columns: dict[str, list[Any]] = {"step": sorted(by_step)}
    for name in _PLOTTED:
        columns[name] = [_mean([point[name] for point in by_step[step]]) for step in columns["step"]]
    schema = pa.schema([("step", pa.int32()), *((name, pa.float64()) for name in _PLOTTED)])
    with replacing_file(stage.output(PLOTS) / f"{one.name.replace('/', '-')}.csv") as beside:
        csv.write_csv(pa.table(columns, schema=schema), beside)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _summary(tests: Sequence[TestResult]) -> Record:
    """Mean and standard deviation (of a sample) over seeds: by what was tuned and tested on, then by method."""
    found: dict[str, dict[str, list[float]]] = {}
    for test in tests:
        tuning = test.planned.tuning
        moved = "" if test.tested_on == tuning.dataset else f" on {test.tested_on}"
        name = f"{tuning.dataset}{moved}, {tuning.shots} shots"
        found.setdefault(name, {}).setdefault(tuning.method, []).append(test.result.record["score"])
    return {
        name: {
            method: {
                "mean": statistics.fmean(scores),
                "deviation": statistics.stdev(scores) if len(scores) > 1 else None,
                "seeds": len(scores),
            }
            for method, scores in methods.items()
        }
        for name, methods in found.items()
    }
