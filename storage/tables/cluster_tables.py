"""The tables of stage cluster: the cluster of each sentence, the centroids, and the sentences nearest to them."""

import pyarrow as pa

from storage.task_formats import FORMATS
from storage.vectors.sentence_vectors import vector_type

ASSIGNMENTS = pa.schema(
    [("document_id", pa.string()), ("index", pa.int32()), *((name, pa.int32()) for name in FORMATS)]
)
NEAREST = pa.schema(
    [
        ("format", pa.string()),
        ("cluster", pa.int32()),
        ("rank", pa.int32()),
        ("document_id", pa.string()),
        ("index", pa.int32()),
        ("distance", pa.float32()),
        ("text", pa.string()),
    ]
)
CENTROID_VECTORS = ("embedding", "backbone")
"""The columns of a centroid in the space of the sentence embedder and in that of the backbone."""


def centroids_schema(embedding: int, backbone: int) -> pa.Schema:
    """Return the schema of the centroids; the arguments are the dimensions of their vectors."""
    columns = [
        ("format", pa.string()),
        ("cluster", pa.int32()),
        ("size", pa.int64()),
        ("training", pa.int64()),
        ("merged", pa.list_(pa.int32())),
    ]
    vectors = zip(CENTROID_VECTORS, map(vector_type, (embedding, backbone)), strict=True)
    return pa.schema([*columns, *vectors])


def drawn_schema(dimension: int) -> pa.Schema:
    """Return the schema of the vectors that k-means is trained on; each has one key for each format."""
    return pa.schema([*((name, pa.uint64()) for name in FORMATS), ("embedding", vector_type(dimension))])
