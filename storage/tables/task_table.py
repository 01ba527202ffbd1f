"""The table of stage materialize: tasks, with one row for each example."""

import pyarrow as pa

TASKS = pa.schema(
    [
        ("task_id", pa.string()),
        ("format", pa.string()),
        ("kind", pa.string()),
        ("split", pa.string()),
        ("role", pa.string()),
        ("position", pa.int16()),
        ("example_id", pa.string()),
        ("label", pa.int16()),
        ("labels", pa.int16()),
        ("texts", pa.list_(pa.string())),
        ("sentence_ids", pa.list_(pa.string())),
        ("clusters", pa.list_(pa.int32())),
        ("choices", pa.list_(pa.int32())),
        ("anchor_cluster", pa.int32()),
    ]
)
