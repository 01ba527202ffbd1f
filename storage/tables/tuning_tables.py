"""The tables of stage tune: scores, validation curves, costs and predictions; hashes make rows traceable."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.parquet import write_shard

_RUN = [
    ("method", pa.string()),
    ("shots", pa.int32()),
    ("seed", pa.int32()),
    ("learning_rate", pa.float64()),
]
_TUNED_ON, _TESTED_ON = ("dataset", pa.string()), ("tested_on", pa.string())

SCORES = pa.schema(
    [
        _TUNED_ON,
        _TESTED_ON,
        *_RUN,
        ("chosen", pa.bool_()),
        ("metric", pa.string()),
        ("score", pa.float64()),
        ("macro_f1", pa.float64()),  # mean of the labels' F1
        ("majority_share", pa.float64()),  # of the most frequent label among the test examples
        ("validation_score", pa.float64()),
        ("best_step", pa.int32()),
        ("steps", pa.int32()),
        ("status", pa.string()),
        ("examples", pa.int32()),
        ("prompt_hash", pa.string()),
        ("tuned_hash", pa.string()),
        ("data_hash", pa.string()),
    ]
)
CURVES = pa.schema(
    [
        _TUNED_ON,
        *_RUN,
        ("step", pa.int32()),
        ("train_loss", pa.float64()),
        ("validation_loss", pa.float64()),
        ("validation_score", pa.float64()),
        ("prompt_hash", pa.string()),
        ("data_hash", pa.string()),
    ]
)
COSTS = pa.schema(
    [
        _TUNED_ON,
        ("method", pa.string()),
        ("shots", pa.int32()),
        ("seed", pa.int32()),
        ("parameters", pa.int64()),
        ("seconds", pa.float64()),
        ("memory_bytes", pa.int64()),
    ]
)
PLOTTED = pa.schema([CURVES.field(name) for name in ("step", "train_loss", "validation_loss", "validation_score")])
PREDICTIONS = pa.schema(
    [
        _TUNED_ON,
        _TESTED_ON,
        *_RUN,
        ("example_id", pa.string()),
        ("label", pa.int32()),
        ("label_name", pa.string()),
        ("predicted", pa.int32()),
        ("predicted_name", pa.string()),
        ("log_probabilities", pa.list_(pa.float64())),
        ("tuned_hash", pa.string()),
        ("data_hash", pa.string()),
    ]
)
TESTED_EXAMPLES = pa.schema(
    [
        _TUNED_ON,
        ("example_id", pa.string()),
        ("label", pa.int32()),
        ("label_name", pa.string()),
        ("texts", pa.list_(pa.string())),
        ("data_hash", pa.string()),
    ]
)


def write_table(path: Path, schema: pa.Schema, rows: Iterable[Mapping[str, Any]], origin: Mapping[str, Any]) -> int:
    """Write rows as one shard, with null for values that a row lacks, and return their number."""
    table = pa.Table.from_pylist([dict(row) for row in rows], schema)
    return write_shard(path, schema, [table], {"stage": "tune", **origin})
