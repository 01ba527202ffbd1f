"""Descriptions of clusters: their sizes, and the sentences nearest to their centroids."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import duckdb

from storage import paths
from storage.errors import InputError
from storage.queries.views import datasets, identifier
from storage.task_formats import FORMATS


@dataclass(frozen=True)
class NearSentence:
    """A sentence near a centroid."""

    sentence_id: str
    distance: float
    text: str


@dataclass(frozen=True)
class Cluster:
    """A cluster in the clustering of one format; `merged` are the clusters that were merged into it."""

    format: str
    cluster: int
    size: int
    merged: tuple[int, ...]
    nearest: tuple[NearSentence, ...]


@dataclass(frozen=True)
class Clustering:
    """The number of clusters and sentences in the clustering of a format."""

    format: str
    clusters: int
    sentences: int


def view_of(root: Path, path: str) -> str | None:
    """Return the quoted name of the view of a table, or None if the table does not exist yet."""
    return next(
        (identifier(dataset.name) for dataset in datasets(root) if dataset.path == path and dataset.shards), None
    )


def clusterings(root: Path, connection: duckdb.DuckDBPyConnection) -> list[Clustering]:
    """Return the clustering of each format that has one."""
    rows = connection.execute(
        f"SELECT format, count(*), sum(size) FROM {_made(root, paths.CENTROIDS)} GROUP BY format"
    ).fetchall()
    by_format = {form: Clustering(form, int(clusters), int(sentences)) for form, clusters, sentences in rows}
    return [by_format[form] for form in (*FORMATS, *sorted(by_format.keys() - set(FORMATS))) if form in by_format]


def largest(root: Path, connection: duckdb.DuckDBPyConnection, form: str, count: int, sentences: int) -> list[Cluster]:
    """Return the largest clusters of a format, each with some of its nearest sentences."""
    rows = connection.execute(
        f"SELECT cluster, size, merged FROM {_made(root, paths.CENTROIDS)} WHERE format = ? "
        "ORDER BY size DESC, cluster LIMIT ?",
        [form, count],
    ).fetchall()
    near = nearest(root, connection, form, [row[0] for row in rows], sentences)
    return [
        Cluster(form, int(cluster), int(size), tuple(merged or ()), tuple(near.get(cluster, ())))
        for cluster, size, merged in rows
    ]


def nearest(
    root: Path, connection: duckdb.DuckDBPyConnection, form: str, clusters: Collection[int], sentences: int
) -> dict[int, list[NearSentence]]:
    """Return the sentences nearest to the centroids of some clusters; none if the table does not exist yet."""
    view = view_of(root, paths.NEAREST)
    if view is None or not clusters:
        return {}
    rows = connection.execute(
        "SELECT cluster, document_id || ':' || index, distance, text FROM ("
        f"SELECT *, row_number() OVER (PARTITION BY cluster ORDER BY rank) AS place FROM {view} "
        "WHERE format = ? AND list_contains(?, cluster)) WHERE place <= ? ORDER BY cluster, place",
        [form, list(clusters), sentences],
    ).fetchall()
    nearest_by_cluster: dict[int, list[NearSentence]] = {}
    for cluster, sentence_id, distance, text in rows:
        nearest_by_cluster.setdefault(int(cluster), []).append(NearSentence(sentence_id, float(distance), text))
    return nearest_by_cluster


def _made(root: Path, path: str) -> str:
    view = view_of(root, path)
    if view is None:
        raise InputError(f"{path}: not made yet: `supmer run cluster` makes it")
    return view
