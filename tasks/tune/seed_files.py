"""The files of one seed's results: the chosen prompt in a folder of its own, and all validation curves."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from storage.tables.tuning_tables import CURVES, write_table
from tasks.labeled.dataset import LabeledDataset
from tasks.stage.contract import Record
from tasks.tune.plan import Tuning
from tasks.tune.seed_tuning import SeedTuned, Setup
from tasks.tune.tokenized_form import template_text

PROMPT_FOLDER, CURVES_FILE = "prompt", "curves.parquet"


def write_seed(folder: Path, setup: Setup, tuned: SeedTuned, backbone: Record) -> Record:
    """Write what was tuned as a folder that `supmer predict` can use, and the curves of all learning rates."""
    about = tuned_about(setup.tuning, setup.dataset, tuned, backbone)
    setup.start.write(folder / PROMPT_FOLDER, tuned.results[tuned.chosen].prompt, about)
    hashes = [setup.start.hash(result.prompt) for result in tuned.results]
    return write_curves(folder, setup.tuning, setup.dataset, tuned, hashes)


def tuned_about(tuning: Tuning, dataset: LabeledDataset, tuned: SeedTuned, backbone: Record) -> Record:
    """Return the description of what was tuned: its backbone, its task, and the run that validation chose."""
    chosen = tuned.results[tuned.chosen]
    text, words = template_text(dataset.form, tuning.form)
    return {
        "backbone": backbone,
        "downstream": {
            "dataset": tuning.dataset,
            "fields": list(dataset.form.fields),
            "labels": list(dataset.form.labels),
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
            "data": dataset.data_hash,
            "backbone": backbone,
        },
    }


def write_curves(
    folder: Path, tuning: Tuning, dataset: LabeledDataset, tuned: SeedTuned, hashes: Sequence[str]
) -> Record:
    """Write the curves of a seed; return its record. `hashes` are those of what each learning rate gave."""
    rows = list(_curve_rows(tuning, dataset, tuned))
    write_table(folder / CURVES_FILE, CURVES, rows, {"dataset": tuning.dataset, "method": tuning.method})
    return {
        "prompt_hash": tuned.start_hash,
        "data_hash": dataset.data_hash,
        "metric": dataset.form.metric,
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
                "tuned_hash": tuned_hash,
            }
            for rate, result, tuned_hash in zip(tuning.learning_rates, tuned.results, hashes, strict=True)
        ],
        "curve": [asdict(point) for point in tuned.results[tuned.chosen].curve],
        "files": sorted(path.name for path in (folder / PROMPT_FOLDER).iterdir()),
    }


def _curve_rows(tuning: Tuning, dataset: LabeledDataset, tuned: SeedTuned) -> Iterator[Record]:
    for rate, result in zip(tuning.learning_rates, tuned.results, strict=True):
        for point in result.curve:
            yield {
                "dataset": tuning.dataset,
                "method": tuning.method,
                "shots": tuning.shots,
                "seed": tuned.seed,
                "learning_rate": rate,
                "prompt_hash": tuned.start_hash,
                "data_hash": dataset.data_hash,
            } | {name: getattr(point, name) for name in ("step", "train_loss", "validation_loss", "validation_score")}
