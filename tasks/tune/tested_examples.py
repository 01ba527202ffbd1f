"""The table of tested examples: the texts and label names behind the predictions, once for each dataset."""

from collections.abc import Mapping, Sequence

from storage import paths
from storage.parquet import open_parquet
from storage.sources.source import AcquiredSource
from storage.tables.tuning_tables import TESTED_EXAMPLES, write_table
from tasks.labeled.dataset import read_dataset
from tasks.stage.contract import Stage
from tasks.tune.results import PREDICTIONS_FILE, TestResult


def write_tested_examples(stage: Stage, datasets: Mapping[str, AcquiredSource], tests: Sequence[TestResult]) -> None:
    """Write the examples that were tested, one shard for each dataset, and an empty one."""
    folder = stage.output(paths.TESTED_EXAMPLES)
    write_table(folder / "0.parquet", TESTED_EXAMPLES, [], {})
    for name in dict.fromkeys(test.tested_on for test in tests):
        tested = _ids([test for test in tests if test.tested_on == name])
        dataset = read_dataset(datasets[name], stage.root)
        rows = [
            {
                "dataset": name,
                "example_id": example.example_id,
                "label": example.label,
                "label_name": dataset.form.labels[example.label],
                "texts": list(example.texts),
                "data_hash": dataset.data_hash,
            }
            for example in (*dataset.train, *dataset.repeated, *dataset.test)
            if example.example_id in tested
        ]
        write_table(folder / f"{name}.parquet", TESTED_EXAMPLES, rows, {"dataset": name})


def _ids(tests: Sequence[TestResult]) -> set[str]:
    tables = [open_parquet(test.result.folder / PREDICTIONS_FILE).read(columns=["example_id"]) for test in tests]
    return {example for table in tables for example in table.column("example_id").unique().to_pylist()}
