"""The centroids of clusters in the embedding space of the backbone, as written by the cluster stage."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from storage.errors import InputError
from storage.parquet import open_parquet
from storage.vectors.sentence_vectors import Vectors, vector_matrix


@dataclass(frozen=True)
class CentroidTable:
    """The vectors [clusters, d], and the row of each (format, cluster)."""

    vectors: Vectors
    numbers: dict[tuple[str, int], int]


def read_centroids(folder: Path) -> CentroidTable:
    """Read the table in data/clusters/centroids."""
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        raise InputError(f"{folder}: no centroids there: `supmer run cluster`")
    wanted = ["format", "cluster", "backbone"]
    table = pa.concat_tables([open_parquet(path).read(columns=wanted) for path in paths]).combine_chunks()
    names = zip(table["format"].to_pylist(), table["cluster"].to_pylist(), strict=True)
    return CentroidTable(
        vector_matrix(table["backbone"].combine_chunks()).copy(), {key: row for row, key in enumerate(names)}
    )
