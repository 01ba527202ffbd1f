"""The figures of the clusters: their sizes, and a map of their centroids in two dimensions."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from storage.counts import counted
from storage.queries.report_queries import CLUSTER_MAP, CLUSTER_SIZES, Row
from tasks.report.figures import data_table, grouped
from tasks.report.page.colours import FORMAT_STYLES, OTHER
from tasks.report.page.parts import Figure, Lines, Map, Origin, Place, Point, Series

MOST_CIRCLES = 400  # clusters of a map: the largest


def cluster_sizes(rows: Sequence[Row]) -> Figure | None:
    """Return the figure of the sizes of the clusters, largest first."""
    if not rows:
        return None
    series, summaries = [], []
    for form, group in grouped(rows, "format"):
        points = tuple(Point(row["place"], row["size"]) for row in group)
        series.append(Series(form, FORMAT_STYLES.get(form, OTHER), points))
        sizes = [row["size"] for row in group]
        summaries.append(f"{form}: {len(sizes)} clusters of {min(sizes):,} to {max(sizes):,} sentences")
    return Figure(
        "cluster-sizes",
        "Sizes of the clusters, largest first, for each task format.",
        f"{'; '.join(summaries)}.",
        (Lines("Cluster sizes", "cluster, by size", "sentences", tuple(series)),),
        Origin((CLUSTER_SIZES,)),
        data_table("cluster-sizes", rows, ("format", "place", "cluster", "size", "training", "merged")),
        (f"{'; '.join(summaries)}.",),
    )


def cluster_map(rows: Sequence[Row]) -> Figure | None:
    """Return the map of the centroids of each format: the two directions in which they differ most."""
    panels, kept = [], []
    for form, every in grouped(rows, "format"):
        group = every[:MOST_CIRCLES]
        places, share = plane(np.array([row["embedding"] for row in group], np.float64))
        circles = tuple(
            Place(x, y, row["size"], f"{form}, cluster {row['cluster']}: {counted(row['size'], 'sentence')}",
                  row["text"] or "")
            for (x, y), row in zip(places.tolist(), group, strict=True)
        )  # fmt: skip
        drawn = f"{len(every):,} clusters" + (f", the {len(group)} largest" if len(group) < len(every) else "")
        panels.append(Map(form, f"{drawn}; {share:.0%} of the variance", FORMAT_STYLES.get(form, OTHER), circles))
        kept += [row | {"x": x, "y": y} for (x, y), row in zip(places.tolist(), group, strict=True)]
    if not panels:
        return None
    return Figure(
        "cluster-map",
        "A map of the clusters: near circles are about similar things, larger circles hold more sentences.",
        f"Centroids in two dimensions, by task format. {'; '.join(f'{p.title}: {p.subtitle}' for p in panels)}.",
        tuple(panels),
        Origin((CLUSTER_MAP,)),
        data_table("cluster-map", kept, ("format", "cluster", "size", "x", "y", "text")),
        (
            (
                "Point at a circle to read the sentence nearest to its centroid. The two axes are the first principal "
                "components of the centroids; the share of the variance that they keep says how far distances can be "
                "trusted."
            ),
        ),
    )


def plane(vectors: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return points [n, 2] on the first two principal components of vectors [n, d], and the share of the variance.

    The sign of a component is arbitrary; it is chosen so that the point farthest from zero is positive.
    """
    centred = vectors - vectors.mean(0)
    left, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(vectors), 2))
    count = min(2, lengths.size)
    places[:, :count] = left[:, :count] * lengths[:count]
    farthest = places[np.abs(places).argmax(0), range(2)]
    places *= np.where(farthest < 0, -1.0, 1.0)
    total = float((lengths**2).sum())
    return places, float((lengths[:2] ** 2).sum() / total) if total else 1.0
