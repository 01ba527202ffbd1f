"""One trial of the search for a recipe: `python benchmarks/search.py recipes/NAME.yaml --data FOLDER`.

A recipe is a YAML file of settings, as `supmer run -S` takes them, on top of search/base.yaml. A trial meta-trains it
in the workspace it is started from, and measures how fast and how far prompts get that are tuned from the result:
accuracy after 0, 10, 20, 50 and 100 tuning steps on rows of the training files that the few-shot draws leave over. PT
from normal noise and from vocabulary rows, and every other learned prompt of the trial, are measured in the same way,
with the same draws, steps and rates. Test files stay closed.

What is finished is kept under .search/ in the workspace: a trial that was killed goes on where it was, and a start that
was measured before, here or in a trial of the table, is not measured again. In the end a row for each start, set, seed
and rate is appended to the table of trials, which is under version control. `--report` prints that table instead.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import orjson  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import torch  # noqa: E402
import yaml  # noqa: E402

from model.device import device  # noqa: E402
from model.prompt.passes import Passes  # noqa: E402
from model.t5.backbone import load_backbone  # noqa: E402
from model.text.tokenization import TemplateTokenizer  # noqa: E402
from model.tuning.runs import TuneForm, TuneRun  # noqa: E402
from model.tuning.tuner import Tuner  # noqa: E402
from storage.prompts.prompt_artifact import read_prompt, theta_hash  # noqa: E402
from storage.sources.source import AcquiredSource, SourceFile, read_manifest  # noqa: E402
from tasks.labeled.dataset import LabeledDataset, few_shot_split, left_over_examples, read_dataset  # noqa: E402
from tasks.tune.initialization import Start  # noqa: E402
from tasks.tune.tokenized_form import TokenizedForm  # noqa: E402

SETS = ("sst-2", "subj", "trec", "cb", "rte", "mrpc")
STEPS = (0, 10, 20, 50, 100)
KEPT = Path(".search")
WITHOUT_PHI = "-without-phi"
BASE = ROOT / "benchmarks" / "search" / "base.yaml"
TRIALS = ROOT / "benchmarks" / "search" / "trials.parquet"
SUPMER = Path(sys.executable).with_name("supmer")


@dataclass(frozen=True)
class Measure:
    """How starts are measured."""

    sets: tuple[str, ...] = SETS
    seeds: tuple[int, ...] = (1, 2, 3)
    rates: tuple[float, ...] = (1.0, 4.0)
    shots: int = 16
    batch_size: int = 16
    rows: int = 300
    max_length: int = 128
    precision: str = "bfloat16"


def main() -> None:
    """Run one trial, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", type=Path, help="YAML files of settings, one trial each")
    parser.add_argument("--data", type=Path, help="folder with the datasets, a folder NAME/train.jsonl each")
    parser.add_argument("--trials", type=Path, default=TRIALS, help="table that rows are appended to")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--rates", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument(
        "--starts",
        nargs="+",
        help=f"measure only these: a learned prompt's name, the same{WITHOUT_PHI}, normal, vocabulary",
    )
    parser.add_argument("--train-only", action="store_true", help="only ask whether the tasks are learned")
    parser.add_argument("--baselines", action="store_true", help="measure PT's starts alone, without a recipe")
    parser.add_argument("--report", action="store_true", help="print the table of trials")
    arguments = parser.parse_args()
    if arguments.report:
        print(table(arguments.trials))
        return
    sets = () if arguments.train_only else tuple(arguments.sets)
    measure = Measure(sets, tuple(arguments.seeds), tuple(arguments.rates))
    chosen = arguments.starts
    if arguments.baselines:
        settings = yaml.safe_load(BASE.read_text())
        compare("pt", settings, only(chosen, baselines(settings)), arguments.data, arguments.trials, measure)
    for recipe in arguments.recipes:
        trial(recipe, arguments.data, arguments.trials, measure, chosen)


def only(chosen: Sequence[str] | None, starts: dict[str, Start]) -> dict[str, Start]:
    """Return the starts whose names are chosen; all if none are named."""
    return {name: start for name, start in starts.items() if chosen is None or name in chosen}


def trial(recipe: Path, data: Path, trials: Path, measure: Measure, chosen: Sequence[str] | None = None) -> None:
    """Meta-train a recipe, measure what came of it, or only the `chosen` starts, and append the rows."""
    settings = with_ppt(yaml.safe_load(BASE.read_text()) | (yaml.safe_load(recipe.read_text()) or {}))
    began = time.time()
    train(settings)
    hours = {"hours": (time.time() - began) / 3600}
    trained = sorted(path for path in Path("artifacts/prompt").iterdir() if path.is_dir())
    keep(KEPT / recipe.stem, trained)
    logs = {path.name: training(path.name) | hours for path in trained}
    tokens = settings["metatrain.prompt_tokens"]
    learned = {path.name: read_prompt(path) for path in trained}
    if chosen is not None:  # does φ help? Only if it is asked for: it takes as long as the start itself
        bare = {f"{name}{WITHOUT_PHI}": replace(artifact, regularizer={}) for name, artifact in learned.items()}
        learned |= {name: artifact for name, artifact in bare.items() if name in chosen}
    starts = {name: Start(tokens, artifact=artifact) for name, artifact in learned.items()} | baselines(settings)
    compare(recipe.stem, settings, only(chosen, starts), data, trials, measure, logs)


def baselines(settings: dict[str, Any]) -> dict[str, Start]:
    """Return PT's starts: normal noise and vocabulary rows."""
    tokens = settings["metatrain.prompt_tokens"]
    return {"normal": Start(tokens, "normal"), "vocabulary": Start(tokens, "vocabulary")}


def compare(
    name: str,
    settings: dict[str, Any],
    starts: dict[str, Start],
    data: Path,
    trials: Path,
    measure: Measure,
    logs: dict[str, dict[str, Any]] | None = None,
) -> None:
    """Measure starts and append their rows; `logs` has what is known of the trainings, by start, with their hours."""
    logs, began = logs or {}, time.time()
    about = {
        "trial": name,
        "recipe": orjson.dumps(settings, option=orjson.OPT_SORT_KEYS).decode(),
        "commit": _commit(),
        "day": time.strftime("%Y-%m-%d"),
    }
    rows: list[dict[str, Any]] = [] if measure.sets else [about | {"start": start} for start in logs]
    for start_name, start in starts.items():
        for scores in measured(start_name, start, data, measure, trials):
            rows += [about | {"start": start_name} | row for row in scores]
            hours = {"hours": (time.time() - began) / 3600}
            append(trials, [row | hours | logs.get(row["start"], {}) for row in rows])  # kept if it ends here
    if rows and not measure.sets:
        append(trials, [row | logs[row["start"]] for row in rows])
    print(table(trials), flush=True)


def with_ppt(settings: dict[str, Any]) -> dict[str, Any]:
    """Give PPT, if it is trained beside, the examples of SUPMER's training in all and its rate."""
    if not {"ppt", "unified-ppt"} & {*settings["metatrain.variants"]}:
        return settings
    support, query = settings["materialize.support_size"], settings["materialize.query_size"]
    mixed = 1 if settings.get("metatrain.augmentation.mode") == "none" else 2  # a partner's query set is read, too
    inner = settings.get("metatrain.inner.steps", 1) * (settings.get("metatrain.inner.batch_size") or support)
    each = inner + mixed * query
    prompts = (
        len(settings.get("metatrain.formats", ("sp", "mc", "ss"))) if "ppt" in settings["metatrain.variants"] else 1
    )
    steps = round(settings["metatrain.steps"] * each / (support + query) / prompts)
    ppt = {
        "learning_rate": settings["metatrain.outer_learning_rate"],
        "scheduler": "linear",
        "batch_size": settings["metatrain.tasks_per_batch"] * (support + query),
        "steps": steps,
        "validate_every": max(steps // 3, 1),
        "max_length": settings["metatrain.max_length"],
    }
    return {f"metatrain.ppt.{key}": value for key, value in ppt.items()} | settings


def keep(folder: Path, trained: Sequence[Path]) -> None:
    """Copy the prompts of a trial and the logs of their trainings; the next trial takes their place."""
    for path in trained:
        shutil.copytree(path, folder / "prompt" / path.name, dirs_exist_ok=True)
    for table in ("steps", "held_out", "kinds"):
        shutil.copytree(Path("data/training", table), folder / table, dirs_exist_ok=True)


def train(settings: dict[str, Any]) -> None:
    """Bring the workspace up to the recipe's prompt; a training under way goes on from its last checkpoint."""
    subprocess.run(["git", "checkout", "--quiet", "params.yaml"], check=True)
    chosen = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    command = [SUPMER, "run", "metatrain", *(part for one in chosen for part in ("-S", one))]
    subprocess.run(command, check=True)


def training(variant: str) -> dict[str, Any]:
    """Tokens, steps and held-out accuracy by kind of a training that has ended."""
    steps = pq.read_table(f"data/training/steps/{variant}.parquet").to_pylist()
    metrics = json.loads(Path("data/metrics/metatrain.json").read_text())[variant]
    kinds = {
        one["kind"]: one["right_before" if one["right_after"] is None else "right_after"] for one in metrics["kinds"]
    }
    return {
        "tokens": int(sum(step["tokens"] for step in steps)),
        "meta_steps": metrics["steps"],
        "best_step": metrics["best_step"],
        "held_out_loss": metrics["held_out_loss"],
        "held_out": orjson.dumps(kinds).decode(),
    }


def measured(name: str, start: Start, data: Path, measure: Measure, trials: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield, for each set, a row for each seed and rate; what was measured before is read."""
    theta = start.artifact.prompt if start.artifact else np.frombuffer(f"{name} {start.tokens}".encode(), np.uint8)
    for dataset in measure.sets:
        told = asdict(measure) | {"sets": dataset, "start": theta_hash(theta), "phi": _phi(start)}
        del told["rates"]  # a rate that was measured is read again beside other rates
        key = hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()[:24]
        kept = KEPT / "measures" / f"{key}-{'-'.join(map(str, measure.rates))}.json"
        rows = _recorded(trials, key, measure) or (orjson.loads(kept.read_bytes()) if kept.exists() else None)
        if rows is None:
            began = time.monotonic()
            rows = list(_tuned(dataset, start, data, measure))
            kept.parent.mkdir(parents=True, exist_ok=True)
            beside = kept.with_suffix(".partial")
            beside.write_bytes(orjson.dumps(rows))
            beside.rename(kept)
            best = max(np.mean([row["scores"] for row in rows if row["rate"] == rate]) for rate in measure.rates)
            print(f"{name} on {dataset}: {100 * best:.1f} in {time.monotonic() - began:.0f} s", flush=True)
        yield [row | {"measure": key} for row in rows]


def _recorded(trials: Path, key: str, measure: Measure) -> list[dict[str, Any]]:
    """Return the rows of one measurement that an earlier trial of the table has; empty if none has all its rates."""
    if not trials.exists():
        return []
    filters = [("measure", "=", key), ("rate", "in", list(measure.rates))]
    rows = pq.read_table(trials, schema=SCHEMA, filters=filters).to_pylist()
    first = [row for row in rows if row["trial"] == rows[0]["trial"]]
    if {row["rate"] for row in first} != {*measure.rates}:
        return []
    return [{name: row[name] for name in ("set", "seed", "rate", "scores")} for row in first]


def _phi(start: Start) -> list[list[str]]:
    held = start.artifact.regularizer if start.artifact else {}
    return sorted([name, hashlib.sha256(value.tobytes()).hexdigest()] for name, value in held.items())


def _tuned(name: str, start: Start, data: Path, measure: Measure) -> Iterator[dict[str, Any]]:
    """Tune from a start on every draw and rate together; scores on left-over rows after STEPS."""
    folder = Path(read_manifest(Path("data/sources/backbone"))[0].folder)
    dataset = _read(name, data)
    passes = _passes(folder, measure.precision)
    words = TokenizedForm.of(dataset.form, "instruction", TemplateTokenizer.from_folder(folder, measure.max_length))
    regularizer, runs, keys = start.regularizer(passes.backbone), [], []
    for seed in measure.seeds:
        split = few_shot_split(dataset, measure.shots, seed)
        train, tested = (
            words.examples(split.train),
            words.examples(left_over_examples(dataset, split, measure.rows, seed)),
        )
        for rate in measure.rates:
            runs.append(TuneRun(start.prompt(passes.backbone, seed), rate, seed, train, tested, regularizer))
            keys.append((seed, rate))
    epochs = -(-STEPS[-1] // (-(-len(runs[0].train) // measure.batch_size)))
    tuner = Tuner(passes, runs, words.label_ids, TuneForm(measure.batch_size, epochs, evaluate_every=10**9))
    tuner.evaluate()
    while tuner.step < STEPS[-1]:
        tuner.descend()
        if tuner.step in STEPS:
            tuner.evaluate()
    for (seed, rate), result in zip(keys, tuner.results(), strict=True):
        scores = [point.validation_score for point in result.curve]
        yield {"set": name, "seed": seed, "rate": rate, "scores": scores + [scores[-1]] * (len(STEPS) - len(scores))}


_loaded: dict[tuple[Path, str], Passes] = {}


def _passes(folder: Path, precision: str) -> Passes:
    if (folder, precision) not in _loaded:
        backbone = load_backbone(folder, device(), precision=precision)
        _loaded[folder, precision] = Passes.for_tuning(backbone)
    return _loaded[folder, precision]


def _read(name: str, data: Path) -> LabeledDataset:
    files = sorted((data / name).glob("*"))
    listed = tuple(SourceFile(one.name, str(one), one.stat().st_size, "") for one in files)
    return read_dataset(AcquiredSource(name, str(data / name), "unknown", str(data / name), listed), Path())


def append(trials: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Put a trial's rows into the table, instead of those it had before; written whole or not at all."""
    for row in rows:
        scores = row.setdefault("scores", [])
        row["area"] = float(np.trapezoid(scores, STEPS) / STEPS[-1]) if scores else None
        row["steps"] = list(STEPS)
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    if trials.exists():
        before = pq.read_table(trials, schema=SCHEMA)
        table = pa.concat_tables([before.filter(pa.compute.not_equal(before["trial"], rows[0]["trial"])), table])
    trials.parent.mkdir(parents=True, exist_ok=True)
    beside = trials.with_suffix(".partial")
    pq.write_table(table, beside, compression="zstd")
    beside.rename(trials)


SCHEMA = pa.schema(
    [
        ("trial", pa.string()), ("start", pa.string()), ("set", pa.string()), ("seed", pa.int64()),
        ("rate", pa.float64()), ("steps", pa.list_(pa.int32())), ("scores", pa.list_(pa.float64())),
        ("area", pa.float64()), ("tokens", pa.int64()), ("meta_steps", pa.int64()), ("best_step", pa.int64()),
        ("held_out_loss", pa.float64()), ("held_out", pa.string()), ("hours", pa.float64()), ("commit", pa.string()),
        ("day", pa.string()), ("measure", pa.string()), ("recipe", pa.string()),
    ]
)  # fmt: skip


def table(trials: Path) -> str:
    """Each start at its best rate: area and end, in percent, by set and on average."""
    if not trials.exists():
        return f"{trials}: no trial has ended yet"
    rates = f"""SELECT trial, start, rate, set, 100 * avg(area) AS area, 100 * avg(scores[-1]) AS final
                FROM '{trials}' GROUP BY ALL"""
    means = f"SELECT trial, start, rate, avg(area) AS area, avg(final) AS final FROM ({rates}) GROUP BY ALL"
    best = f"SELECT trial, start, max_by(rate, area) AS rate FROM ({means}) GROUP BY ALL"
    query = f"""SELECT trial, start, rate, round(avg(area), 1) AS area, round(avg(final), 1) AS final,
                       string_agg(set || ' ' || round(area, 1) || '/' || round(final, 1), ', ' ORDER BY set) AS sets
                FROM ({rates}) JOIN ({best}) USING (trial, start, rate) GROUP BY ALL ORDER BY trial, area DESC"""
    with duckdb.connect() as connection:
        connection.execute("SET python_enable_replacements = false")
        rows = connection.execute(query).fetchall()
    lines = ["trial | start | rate | area | end | by set (area/end)"]
    return "\n".join([*lines, *(" | ".join(map(str, row)) for row in rows)])


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    main()
