"""Compare the systems of the paper's tables on one backbone: `python benchmarks/bench_systems.py --data FOLDER`.

A run of the pipeline in a workspace of its own, with the quickstart's backbone and corpus: every system is tuned on
the same few-shot draws, with one learning rate unless `--all-rates` asks for those of the profile. Systems with a
learned start are trained on the quickstart's tasks, MetaPT and the labeled mixtures on a dataset (`--labeled`).
Scores are on test files; seconds are those of one seed, by the clock, without evaluation on the test set. `--systems`
may name any row of the tables (supmer, supmer-labeled, supmer-mixed, …): what is there is not computed again.

The workspace (`--workspace`) stays: the same command continues a run that was stopped, and its report is
report/index.html there.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402
from bench_cost import SUPMER, workspace  # noqa: E402
from records import Record, Row  # noqa: E402

from storage import paths  # noqa: E402
from tasks.methods import META_TRAINED  # noqa: E402

SETS = ("sst-2", "subj", "trec")
SYSTEMS = ("zero-shot", "few-shot", "prefix-tuning", "p-tuning-v2", "ft", "lora", "pt", "ppt", "unified-ppt",
           "metapt")  # fmt: skip
# Chosen before this comparison, for its few steps: prompts by the search for a recipe on left-over training rows, the
# others as the largest of the profile's.
RATES = {
    "tune.learning_rates": [1.0],
    "tune.prefix_tuning.learning_rates": [1e-3],
    "tune.p_tuning_v2.learning_rates": [3e-2],
    "tune.fine_tuning.learning_rates": [3e-5],
    "tune.lora.learning_rates": [1e-3],
}


def main() -> None:
    """Run the pipeline, and write what its tables say to a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of sets NAME/{train,test}.jsonl")
    parser.add_argument("--labeled", type=Path, help="folder of the dataset that MetaPT learns from")
    parser.add_argument("--workspace", type=Path, default=Path(".systems"), help="where it runs; it stays")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 20, 30])
    parser.add_argument("--epochs", type=int, default=8, help="passes over the few examples")
    parser.add_argument("--test-examples", type=int, default=100, help="of each set")
    parser.add_argument("--meta-steps", type=int, default=20, help="steps of meta-training; PPT takes twice as many")
    parser.add_argument("--all-rates", action="store_true", help="try every learning rate of the profile")
    parser.add_argument("--precision", choices=["auto", "float32", "bfloat16"], default="auto")
    options = parser.parse_args()
    root = options.workspace.absolute()
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        workspace(root.parent, "quickstart", root.name)
    record = Record(__file__, parser, options)
    chosen = [part for key, value in settings(options).items() for part in ("-S", f"{key}={json.dumps(value)}")]
    if code := subprocess.run([SUPMER, "run", *chosen], cwd=root, check=False).returncode:
        raise SystemExit(code)
    for row in results(root):
        record.add(**row)
        print(f"{row['set']:8}{row['system']:16}{100 * sum(row['score']) / len(row['score']):6.1f} %", flush=True)
    record.write()


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that differ from the quickstart's."""
    learned = [name for name in options.systems if name in META_TRAINED]
    labeled = [options.labeled.name] if options.labeled else []
    sources = {f"acquire.datasets.{name}": f"path:{(options.data / name).absolute()}" for name in options.sets}
    if options.labeled:
        sources[f"acquire.datasets.{options.labeled.name}"] = f"path:{options.labeled.absolute()}"
    return sources | {
        "precision": options.precision,
        "materialize.labeled.datasets": labeled,
        "metatrain.variants": learned or ["supmer"],
        "metatrain.initialization": "vocabulary",
        "metatrain.formats": ["sp", "mc", "ss"],
        "metatrain.rewritten_formats": [],
        "metatrain.plain_steps": 0,
        "metatrain.outer_learning_rate": 0.1,
        "metatrain.steps": options.meta_steps,
        "metatrain.validate_every": max(options.meta_steps // 2, 1),
        "metatrain.ppt.steps": 2 * options.meta_steps,
        "metatrain.ppt.validate_every": options.meta_steps,
        "tune.datasets": list(options.sets),
        "tune.domains.source": None,
        "tune.domains.targets": [],
        "tune.methods": list(options.systems),
        "tune.seeds": options.seeds,
        "tune.shot_sweep": [],
        "tune.epochs": options.epochs,
        "tune.test_examples": options.test_examples,
        "report.datasets": list(options.sets),
        **({} if options.all_rates else RATES),
    }


def results(root: Path) -> Iterator[Row]:
    """Yield a row for each set and system: its scores, and the cost of each of its seeds."""
    scores, costs = (f"'{root / folder}/**/*.parquet'" for folder in (paths.SCORES, paths.COSTS))
    query = f"""
        SELECT tested_on, method, list(score ORDER BY seed) FROM read_parquet({scores})
        WHERE score IS NOT NULL AND (chosen OR learning_rate IS NULL) GROUP BY ALL ORDER BY tested_on, method"""
    spent = f"""
        SELECT dataset, method, list(seconds ORDER BY seed), max(parameters), max(memory_bytes)
        FROM read_parquet({costs}) GROUP BY ALL"""
    with duckdb.connect() as connection:
        by_method = {(row[0], row[1]): row[2:] for row in connection.execute(spent).fetchall()}
        for name, method, score in connection.execute(query).fetchall():
            seconds, parameters, memory = by_method.get((name, method), ([], 0, None))
            cost = {"seconds": seconds, "parameters": parameters, "peak_mb": memory / 1e6 if memory else None}
            yield {"set": name, "system": method, "score": score, **cost}


if __name__ == "__main__":
    main()
