"""Compare the k-means of the cluster stage with scikit-learn's, and measure the speed and memory of assignment.

Run: python benchmarks/bench_cluster.py [--rows 100000] [--clusters 250] [--without-full]
The vectors are synthetic: 384 dimensions, around random centres. Inertia is computed in the same way for all: over all
rows, with the centroids that were found. Times are wall times: scikit-learn has all cores, the stage one core for each
format (so that three run in parallel). The stage's time includes drawing its vectors from Parquet. Assignment, with the
sums for the final centroids, is measured for one shard and three formats in a separate process, with its peak memory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from records import Record

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from storage.task_formats import FORMATS  # noqa: E402
from storage.vectors.sentence_vectors import Made, read_vectors, write_vectors  # noqa: E402
from tasks.cluster.assignment import assign  # noqa: E402
from tasks.cluster.kmeans import CENTROIDS, DRAWN, draw, train  # noqa: E402

DIMENSION, CENTRES, POINTS, ITERATIONS = 384, 400, 256, 20


def make_vectors(folder, rows):
    """Write one shard of normalized vectors around random centres, and its documents of 20 sentences."""
    source = np.random.default_rng(0)
    centres = source.standard_normal((CENTRES, DIMENSION)).astype(np.float32)
    vectors = centres[source.integers(0, CENTRES, rows)] + 1.5 * source.standard_normal((rows, DIMENSION), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = [f"{row // 20:032x}" for row in range(rows)]
    table = pa.table({"document_id": ids, "index": pa.array(np.arange(rows) % 20, pa.int32())})
    write_vectors(folder / "vectors.parquet", table, vectors, Made("embedder", "", DIMENSION, "float16"))
    names = sorted(set(ids))
    pq.write_table(pa.table({"document_id": names, "split": ["train"] * len(names)}), folder / "documents.parquet")
    return np.concatenate([matrix for _, _, matrix in read_vectors(folder / "vectors.parquet")])


def paths(folder):
    return {
        "embeddings_path": str(folder / "vectors.parquet"),
        "documents_path": str(folder / "documents.parquet"),
        "place": "vectors",
    }


def ours(folder, rows, clusters):
    """Return the centroids of one format, as the stage computes them."""
    limit = int(min((clusters * POINTS + 6 * (clusters * POINTS) ** 0.5) / rows, 1) * (2**64 - 1))
    draw(paths(folder) | {"seed": 42, "dimension": DIMENSION, "limit": limit}, folder)
    chosen = {"clusters": clusters, "points_per_cluster": POINTS, "iterations": ITERATIONS, "seed": 42, "format": "sp"}
    train(chosen | {"drawn_paths": [str(folder / DRAWN)]}, folder)
    return np.load(folder / CENTROIDS)


def sklearn_way(name, vectors, clusters):
    import sklearn.cluster

    options = {"n_init": 1, "random_state": 0}
    options |= {"max_iter": ITERATIONS} if name == "KMeans" else {"batch_size": 1024}
    return getattr(sklearn.cluster, name)(clusters, **options).fit(vectors).cluster_centers_


def inertia(vectors, centroids):
    import faiss

    index = faiss.IndexFlatL2(DIMENSION)
    index.add(np.ascontiguousarray(centroids, np.float32))
    return float(index.search(vectors, 1)[0].sum())


def assign_once(folder):
    """Return the time of one assignment in this process, and the peak memory before and after it."""
    before = peak_mb()
    centroids = {name: str(folder / CENTROIDS) for name in FORMATS}
    start, used = time.perf_counter(), time.process_time()
    record = assign(paths(folder) | {"centroids_paths": centroids}, folder)
    figures = {"wall": time.perf_counter() - start, "cpu": time.process_time() - used, "rows": record["rows"]}
    return figures | {"before_mb": before, "peak_mb": peak_mb()}


def peak_mb():
    """Return the peak memory of this process (getrusage would include the parent's memory before the start)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--clusters", type=int, default=250)
    parser.add_argument("--without-full", action="store_true", help="leave out scikit-learn's KMeans, which is slow")
    parser.add_argument("--quick", action="store_true", help="20,000 vectors, K = 100, without scikit-learn's KMeans")
    parser.add_argument("--assign", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.assign:
        print(json.dumps(assign_once(arguments.assign)))
        return
    record = Record(__file__, parser, arguments)
    if arguments.quick:
        arguments.rows, arguments.clusters, arguments.without_full = 20_000, 100, True
    with tempfile.TemporaryDirectory(prefix="bench_cluster_") as scratch:
        folder = Path(scratch)
        vectors = make_vectors(folder, arguments.rows)
        ways = {"the stage, one format": lambda: ours(folder, arguments.rows, arguments.clusters)}
        for name in ("MiniBatchKMeans",) if arguments.without_full else ("MiniBatchKMeans", "KMeans"):
            ways[f"scikit-learn {name}"] = lambda name=name: sklearn_way(name, vectors, arguments.clusters)
        print(f"{arguments.rows:,} × {DIMENSION}, K = {arguments.clusters}, load average {os.getloadavg()[0]:.1f}")
        reference = None
        for label, way in ways.items():
            start, used = time.perf_counter(), time.process_time()
            centroids = way()
            wall, cpu = time.perf_counter() - start, time.process_time() - used
            total = inertia(vectors, centroids)
            reference = reference or total
            share = total / reference
            record.add(way=label, rows=arguments.rows, seconds=[wall], cpu_seconds=[cpu], inertia=total)
            print(
                f"  {label:30} {wall:7.1f} s  ({cpu:6.1f} s cpu)  inertia {total:10.1f}  {share:.3f} of ours",
                flush=True,
            )
        command = [sys.executable, __file__, "--assign", scratch]
        figures = json.loads(subprocess.check_output(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}))
        speed, core = (3 * figures["rows"] / figures[key] for key in ("wall", "cpu"))
        print(
            f"  assignment, 3 formats: {speed:,.0f} vectors/s ({core:,.0f} per core), peak {figures['peak_mb']:.0f} MB",
            end="",
        )
        print(f" ({figures['before_mb']:.0f} MB before)")
        sizes = {"peak_mb": figures["peak_mb"], "before_mb": figures["before_mb"]}
        record.add(
            way="assignment", rows=3 * figures["rows"], seconds=[figures["wall"]], cpu_seconds=[figures["cpu"]], **sizes
        )
        record.write()


if __name__ == "__main__":
    main()
