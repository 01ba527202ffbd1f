"""The files of one seed's results: the chosen prompt in a folder of its own, and all validation curves."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from storage.tables.tuning_tables import CURVES, write_table
from tasks.stage.contract import Record
from tasks.tune.seed_tuning import SeedTuned, Setup
from tasks.tune.tokenized_form import template_text

PROMPT_FOLDER, CURVES_FILE = "prompt", "curves.parquet"


def write_seed(folder: Path, setup: Setup, tuned: SeedTuned, backbone: Record) -> Record:
    """Write what was tuned as a folder that `supmer predict` can use, and the curves of all learning rates."""
    tuning, chosen = setup.tuning, tuned.results[tuned.chosen]
    text, words = template_text(setup.dataset.form, tuning.form)
    about = {
        "backbone": backbone,
        "downstream": {
            "dataset": tuning.dataset,
            "fields": list(setup.dataset.form.fields),
            "labels": list(setup.dataset.form.labels),
            "template": text,
            "words": list(words),
            "form": tuning.form,
            "max_length": tuning.max_length,
            "method": tuning.method,
            "seed": tuned.seed,
            "learning_rate": tuning.learning_rates[tuned.chosen],
            "shots": tuning.shots,
            "precision": tuning.precision,
            "validation_score": chosen.best.validation_score,
            "status": chosen.status,
            "start": tuned.start_hash,
            "data": setup.dataset.data_hash,
            "backbone": backbone,
        },
    }
    setup.start.write(folder / PROMPT_FOLDER, chosen.prompt, about)
    rows = list(_curve_rows(setup, tuned))
    write_table(folder / CURVES_FILE, CURVES, rows, {"dataset": tuning.dataset, "method": tuning.method})
    return {
        "prompt_hash": tuned.start_hash,
        "data_hash": setup.dataset.data_hash,
        "metric": setup.dataset.form.metric,
        "cost": asdict(tuned.cost),
        "chosen": tuned.chosen,
        "runs": [
            {
                "learning_rate": rate,
                "validation_score": result.best.validation_score,
                "validation_loss": result.best.validation_loss,
                "best_step": result.best.step,
                "steps": result.steps,
                "status": result.status,
                "tuned_hash": setup.start.hash(result.prompt),
            }
            for rate, result in zip(tuning.learning_rates, tuned.results, strict=True)
        ],
        "curve": [asdict(point) for point in chosen.curve],
        "files": sorted(path.name for path in (folder / PROMPT_FOLDER).iterdir()),
    }


def _curve_rows(setup: Setup, tuned: SeedTuned) -> Iterator[Record]:
    tuning = setup.tuning
    for rate, result in zip(tuning.learning_rates, tuned.results, strict=True):
        for point in result.curve:
            yield {
                "dataset": tuning.dataset,
                "method": tuning.method,
                "shots": tuning.shots,
                "seed": tuned.seed,
                "learning_rate": rate,
                "prompt_hash": tuned.start_hash,
                "data_hash": setup.dataset.data_hash,
            } | {name: getattr(point, name) for name in ("step", "train_loss", "validation_loss", "validation_score")}
