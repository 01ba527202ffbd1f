"""The schema of each table is written in storage and nowhere else."""

import ast
from pathlib import Path

import pyarrow as pa
import pytest

from storage.tables.cluster_tables import ASSIGNMENTS, CENTROID_VECTORS, NEAREST, centroids_schema, drawn_schema
from storage.tables.corpus_tables import DOCUMENTS, EXCLUDED, KEPT_DOCUMENTS, SENTENCES, index_schema
from storage.tables.task_shards import COLUMNS
from storage.tables.task_table import TASKS
from storage.tables.training_tables import HELD_OUT, KINDS, TRAINING_STEPS
from storage.tables.tuning_tables import COSTS, CURVES, PREDICTIONS, SCORES, TESTED_EXAMPLES
from storage.vectors.sentence_vectors import embeddings_schema

REPOSITORY = Path(__file__).parents[3]
ELSEWHERE = ("flows", "model", "tasks", "tests/support")
SCHEMAS = {
    "documents": DOCUMENTS,
    "excluded": EXCLUDED,
    "sentences": SENTENCES,
    "index": index_schema(["band_00"]),
    "embeddings": embeddings_schema(3, "float16"),
    "assignments": ASSIGNMENTS,
    "centroids": centroids_schema(3, 4),
    "nearest": NEAREST,
    "drawn": drawn_schema(3),
    "tasks": TASKS,
    "steps": TRAINING_STEPS,
    "held_out": HELD_OUT,
    "kinds": KINDS,
    "scores": SCORES,
    "curves": CURVES,
    "costs": COSTS,
    "predictions": PREDICTIONS,
    "tested_examples": TESTED_EXAMPLES,
}


def test_no_schema_is_made_outside_storage():
    files = [path for folder in ELSEWHERE for path in sorted((REPOSITORY / folder).rglob("*.py"))]
    calls = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"pa.schema", "pyarrow.schema"}
    ]
    assert not calls, "import the schema from storage.tables or storage.vectors:\n" + "\n".join(calls)


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_column_is_there_twice(name):
    names = SCHEMAS[name].names
    assert len(names) == len(set(names))


def test_no_two_tables_have_the_same_schema():
    assert len({schema.to_string() for schema in SCHEMAS.values()}) == len(SCHEMAS)


def test_columns_that_are_read_by_name_are_there():
    assert {*COLUMNS, "kind"} <= {*TASKS.names}
    assert {*CENTROID_VECTORS} <= {*SCHEMAS["centroids"].names}
    assert DOCUMENTS.names[: len(KEPT_DOCUMENTS)] == KEPT_DOCUMENTS.names


def test_vectors_have_the_dimension_and_type_asked_for():
    assert SCHEMAS["embeddings"].field("embedding").type == pa.list_(pa.float16(), 3)
    assert SCHEMAS["centroids"].field("backbone").type == pa.list_(pa.float32(), 4)
