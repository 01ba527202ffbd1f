import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import paths
from storage.atomic import remove
from storage.errors import InputError
from storage.parquet import provenance
from storage.sources.source import read_manifest
from storage.vectors.sentence_vectors import Made, model_hash, write_vectors
from support.vector_corpus import BackwardFanOut, Corpus, contents
from tasks.cluster import backbone_centroids
from tasks.cluster import stage as cluster
from tasks.cluster.kmeans import keys_of, seed_of
from tasks.cluster.small_clusters import Tally, figures, settle
from tasks.params.schema import ClusterParams
from tasks.stage.contract import finished_record

INPUTS = [paths.DOCUMENTS, paths.SENTENCES, paths.EMBEDDINGS]
OUTPUTS = [paths.ASSIGNMENTS, paths.CENTROIDS, paths.NEAREST, paths.CLUSTER_METRICS, paths.CLUSTER_SIZES_PLOT]
SHARDS = {"own--a-00000.parquet": 30, "own--b-00000.parquet": 20}
TOPICS, DIMENSION = 6, 8
SECTION = {"clusters": TOPICS, "min_size": 4, "nearest_sentences": 3, "backbone_sentences": 5}


def embed_topics(corpus, name, model="embedder", dtype="float32", topics=TOPICS):
    """Vectors about the corners of a cube; a sentence's topic follows from its place."""
    sentences = pq.read_table(corpus.root / paths.SENTENCES / name, columns=["document_id", "index"])
    topic = np.arange(sentences.num_rows) % topics
    noise = np.random.default_rng(len(name) + sentences.num_rows).standard_normal((len(topic), DIMENSION))
    vectors = 5 * np.eye(DIMENSION)[topic] + 0.1 * noise
    source = read_manifest(corpus.root / "data" / "sources" / model)[0]
    made = Made(model, model_hash(source), DIMENSION, dtype)
    write_vectors(corpus.root / paths.EMBEDDINGS / name, sentences, vectors.astype(dtype), made)
    return vectors


def damage(corpus, name, row, value):
    path = corpus.root / paths.EMBEDDINGS / name
    table = pq.read_table(path)
    vectors = np.array(table["embedding"].to_pylist())
    vectors[row] = value
    said = provenance(path)
    write_vectors(path, table, vectors.astype("float32"), Made(said["model"], said["model_hash"], DIMENSION, "float32"))


@pytest.fixture
def corpus(tmp_path, tiny_models):
    corpus = Corpus(tmp_path, {"embed": {"model": "embedder"}, "cluster": dict(SECTION)})
    corpus.link_models(tiny_models)
    for name, documents in SHARDS.items():
        corpus.add_shard(name, documents, validation=2)
        embed_topics(corpus, name)
    return corpus


def run(corpus, fan_out=None, **section):
    return corpus.run(cluster, INPUTS, OUTPUTS, fan_out, cluster=section)


def read(corpus, folder):
    return pa.concat_tables([pq.read_table(path) for path in sorted((corpus.root / folder).glob("*.parquet"))])


def training_rows(corpus):
    documents = read(corpus, paths.DOCUMENTS).to_pylist()
    train = {row["document_id"] for row in documents if row["split"] == "train"}
    return np.array([one in train for one in read(corpus, paths.SENTENCES)["document_id"].to_pylist()])


def test_every_sentence_gets_a_cluster_in_each_format_and_topics_are_found(corpus):
    run(corpus)
    for name in SHARDS:
        sentences = pq.read_table(corpus.root / paths.SENTENCES / name)
        found = pq.read_table(corpus.root / paths.ASSIGNMENTS / name)
        assert found.select(["document_id", "index"]).equals(sentences.select(["document_id", "index"]))
    table = read(corpus, paths.ASSIGNMENTS)
    assert table.schema.names == ["document_id", "index", "sp", "mc", "ss"]
    vectors = np.array(read(corpus, paths.EMBEDDINGS)["embedding"].to_pylist())
    centroids = read(corpus, paths.CENTROIDS).to_pylist()
    for name in ("sp", "mc", "ss"):
        means = {row["cluster"]: np.array(row["embedding"]) for row in centroids if row["format"] == name}
        assert table[name].null_count == 0
        assert set(table[name].to_pylist()) == set(means)
        apart = {c: np.linalg.norm(vectors - mean, axis=1) for c, mean in means.items()}
        labels = np.array(table[name].to_pylist())
        far = sum(float(apart[c][row]) > min(float(one[row]) for one in apart.values()) for row, c in enumerate(labels))
        assert far <= 0.05 * len(labels)


def test_formats_are_clustered_with_seeds_of_their_own(corpus):
    assert len({seed_of(42, name) for name in ("sp", "mc", "ss")}) == 3
    run(corpus)
    assigned = read(corpus, paths.ASSIGNMENTS)
    assert len({tuple(assigned[name].to_pylist()) for name in ("sp", "mc", "ss")}) == 3


def test_centroids_are_the_means_of_their_training_sentences_alone(corpus):
    run(corpus)
    vectors = np.array(read(corpus, paths.EMBEDDINGS)["embedding"].to_pylist())
    assigned, train = read(corpus, paths.ASSIGNMENTS), training_rows(corpus)
    for row in read(corpus, paths.CENTROIDS).to_pylist():
        members = np.array(assigned[row["format"]].to_pylist()) == row["cluster"]
        assert row["size"] == members.sum()
        assert row["training"] == (members & train).sum() < row["size"]
        np.testing.assert_allclose(row["embedding"], vectors[members & train].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_the_backbones_centroid_is_the_mean_over_a_sample_of_the_clusters_sentences(corpus, tiny_models):
    import torch

    from model.sentence_encoder import BackboneEncoder, encode

    run(corpus)
    sentences, assigned, train = read(corpus, paths.SENTENCES), read(corpus, paths.ASSIGNMENTS), training_rows(corpus)
    ids = sentences["document_id"].combine_chunks(), sentences["index"].combine_chunks()
    keys = keys_of(*ids, 42, "backbone")
    texts = sentences["text"].to_pylist()
    vectors = encode(BackboneEncoder(tiny_models / "backbone", torch.device("cpu")), texts)
    for row in read(corpus, paths.CENTROIDS).to_pylist():
        members = np.flatnonzero((np.array(assigned[row["format"]].to_pylist()) == row["cluster"]) & train)
        sample = members[np.argsort(keys[members])][: SECTION["backbone_sentences"]]
        np.testing.assert_allclose(row["backbone"], vectors[sample].mean(axis=0), atol=1e-5)


def test_with_the_backbones_own_vectors_both_centroids_are_one(corpus):
    for name in SHARDS:
        embed_topics(corpus, name, model="backbone")
    corpus.sections["embed"] = {"model": "backbone"}
    run(corpus)
    table = read(corpus, paths.CENTROIDS)
    assert table["backbone"].to_pylist() == table["embedding"].to_pylist()
    assert not any("backbone/" in job for job in corpus.done)


def test_nearest_sentences_are_ranked_training_sentences_of_the_cluster_with_different_texts(corpus):
    run(corpus)
    assigned, train = read(corpus, paths.ASSIGNMENTS).to_pylist(), training_rows(corpus)
    texts = read(corpus, paths.SENTENCES)["text"].to_pylist()
    place = {(row["document_id"], row["index"]): number for number, row in enumerate(assigned)}
    table = read(corpus, paths.NEAREST).to_pylist()
    groups = {}
    for row in table:
        number = place[row["document_id"], row["index"]]
        assert train[number]
        assert assigned[number][row["format"]] == row["cluster"]
        assert texts[number] == row["text"]
        groups.setdefault((row["format"], row["cluster"]), []).append(row)
    assert len(groups) == 3 * TOPICS
    for rows in groups.values():
        assert [row["rank"] for row in rows] == [1, 2, 3]
        assert len({row["text"] for row in rows}) == 3
        assert [row["distance"] for row in rows] == sorted(row["distance"] for row in rows)


def test_small_clusters_are_merged_with_a_record(corpus):
    run(corpus, clusters=40, min_size=14)
    table = read(corpus, paths.CENTROIDS).to_pylist()
    metrics = orjson.loads((corpus.root / paths.CLUSTER_METRICS).read_bytes())
    plot = list(csv.DictReader((corpus.root / paths.CLUSTER_SIZES_PLOT).read_text().splitlines()))
    for name in ("sp", "mc", "ss"):
        rows = [row for row in table if row["format"] == name]
        merged = [one for row in rows for one in row["merged"]]
        assert min(row["training"] for row in rows) >= 14
        assert len(merged) == len(set(merged)) == metrics[name]["merged"] > 0
        assert len(rows) + metrics[name]["merged"] + metrics[name]["empty"] == 40
        assert sum(row["size"] for row in rows) == metrics["sentences"]
        listed = {
            int(row["cluster"]): row["into"] for row in plot if row["format"] == name and row["outcome"] == "merged"
        }
        assert listed == {one: str(row["cluster"]) for row in rows for one in row["merged"]}


def test_small_clusters_are_dropped_with_a_record(corpus):
    run(corpus, clusters=40, min_size=14, small="drop")
    metrics = orjson.loads((corpus.root / paths.CLUSTER_METRICS).read_bytes())
    assigned, table = read(corpus, paths.ASSIGNMENTS), read(corpus, paths.CENTROIDS).to_pylist()
    for name in ("sp", "mc", "ss"):
        kept = {row["cluster"] for row in table if row["format"] == name}
        assert metrics[name]["dropped"] > 0 == metrics[name]["merged"]
        assert assigned[name].null_count == metrics[name]["dropped_sentences"] > 0
        assert set(assigned[name].to_pylist()) == kept | {None}


def test_metrics_say_inertia_and_sizes(corpus):
    run(corpus)
    metrics = orjson.loads((corpus.root / paths.CLUSTER_METRICS).read_bytes())
    vectors = np.array(read(corpus, paths.EMBEDDINGS)["embedding"].to_pylist())
    assigned, train = read(corpus, paths.ASSIGNMENTS), training_rows(corpus)
    assert metrics["training_sentences"] == train.sum()
    for name in ("sp", "mc", "ss"):
        labels = np.array(assigned[name].to_pylist())
        groups = [vectors[(labels == one) & train] for one in np.unique(labels)]
        inertia = sum(((group - group.mean(axis=0)) ** 2).sum() for group in groups)
        assert metrics[name]["inertia"] == pytest.approx(inertia, rel=1e-6)
        sizes = [len(group) for group in groups]
        expected = {"min": min(sizes), "median": np.median(sizes), "mean": np.mean(sizes), "max": max(sizes)}
        assert metrics[name]["size"] == pytest.approx(expected)


def test_bytes_do_not_depend_on_the_order_of_work_and_nothing_is_done_twice(corpus):
    run(corpus)
    first = contents(corpus.root / "data")
    run(corpus)
    assert corpus.done == []
    remove(corpus.root / ".supmer")
    run(corpus, BackwardFanOut())
    assert contents(corpus.root / "data") == first


def test_bytes_do_not_depend_on_the_number_of_cores(corpus):
    run(corpus)
    first = contents(corpus.root / "data")
    remove(corpus.root / ".supmer")
    program = (
        "import sys; sys.path[:0] = ['tests']\n"
        "from pathlib import Path\n"
        "from support.vector_corpus import Corpus\n"
        "from tasks.cluster import stage as cluster\n"
        f"Corpus(Path({str(corpus.root)!r}), {corpus.sections!r}).run(cluster, {INPUTS!r}, {OUTPUTS!r})\n"
    )
    environment = {"OMP_NUM_THREADS": "3", "PATH": "/usr/bin", "PYTHONPATH": "."}
    repository = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", program], cwd=repository, env=environment, check=True)
    assert contents(corpus.root / "data") == first


def test_kmeans_is_trained_on_a_bounded_sample(corpus):
    run(corpus, points_per_cluster=9)
    store = corpus.root / ".supmer/shards/cluster"
    trained = [finished_record(folder) for folder in (store / "train").iterdir()]
    assert [record["points"] for record in trained] == [9 * TOPICS] * 3
    drawn = [finished_record(folder) for folder in (store / "draw").iterdir()]
    assert sum(record["rows"] for record in drawn) < 3 * (9 * TOPICS + 12 * np.sqrt(9 * TOPICS))


def test_a_seeded_hash_is_uniform_and_changes_with_seed_purpose_and_sentence():
    documents, index = pa.array(["x", "x", "y"] * 3_000), pa.array(range(9_000), pa.int32())
    keys = keys_of(documents, index, 1, "sp")
    assert len(set(keys.tolist())) == 9_000
    assert (keys == keys_of(documents, index, 1, "sp")).all()
    assert 0.47 < (keys < np.uint64(2**63)).mean() < 0.53
    for other in (keys_of(documents, index, 2, "sp"), keys_of(documents, index, 1, "mc")):
        assert (keys != other).all()


def test_more_clusters_than_training_sentences_are_refused(corpus):
    with pytest.raises(InputError, match=r"params.yaml: cluster.clusters: 900: more than the 552 training sentences"):
        run(corpus, clusters=900)


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN or infinity"), (-np.inf, "NaN or infinity"), (0, "is zero")])
def test_a_bad_vector_is_refused_by_file_and_row(corpus, value, what):
    damage(corpus, "own--b-00000.parquet", 17, value)
    with pytest.raises(InputError, match=rf"data/embeddings/own--b-00000\.parquet: row 18: .*{what}"):
        run(corpus)


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN or infinity"), (0, "zeros")])
def test_a_backbone_that_gives_no_vector_for_a_sentence_is_refused_by_file_and_row(corpus, monkeypatch, value, what):
    def spoilt(_encoder, texts):
        vectors = np.ones((len(texts), 32), np.float32)
        vectors[-1] = value
        return vectors

    monkeypatch.setattr(backbone_centroids, "encode", spoilt)
    with pytest.raises(InputError, match=rf"data/corpus/sentences/own--a-00000\.parquet: row \d+: .*gives {what}"):
        run(corpus)


def test_vectors_of_another_model_than_configured_are_refused(corpus):
    for name in SHARDS:
        embed_topics(corpus, name, model="backbone")
    with pytest.raises(InputError, match=r"data/embeddings: made by the backbone .* but embed.model is the embedder"):
        run(corpus)


def test_vectors_of_an_earlier_version_of_the_model_are_refused(corpus):
    manifest = corpus.root / "data/sources/embedder/source.json"
    source = orjson.loads(manifest.read_bytes())
    source["sources"][0]["files"][0]["sha256"] = "0" * 64
    manifest.write_bytes(orjson.dumps(source))
    with pytest.raises(InputError, match=r"made by the embedder \w{8}, but embed.model is the embedder \w{8}"):
        run(corpus)


def test_shards_of_documents_are_found_by_name(corpus):
    run(corpus)
    before = contents(corpus.root / paths.CENTROIDS)
    documents = corpus.root / paths.DOCUMENTS
    (documents / "own--0-00000.parquet").write_bytes((documents / "own--b-00000.parquet").read_bytes())
    run(corpus)
    assert corpus.done == []
    assert contents(corpus.root / paths.CENTROIDS) == before
    (documents / "own--b-00000.parquet").unlink()
    with pytest.raises(InputError, match=r"documents/own--b-00000.parquet: not there.*`supmer run --force sample`"):
        run(corpus)


def test_vectors_of_other_sentences_are_refused(corpus):
    corpus.add_shard("own--b-00000.parquet", 3)
    with pytest.raises(InputError, match="not the vectors of the sentences"):
        run(corpus)


def test_too_few_clusters_left_for_ss_are_refused():
    tally = Tally.empty(5, 2)
    tally.size[:] = tally.training[:] = [9, 9, 9, 1, 1]
    params = ClusterParams(clusters=5, min_size=5)
    settle("sp", tally, np.zeros((5, 2), np.float32), params)
    with pytest.raises(InputError, match=r"cluster.min_size: 5: leaves 3 clusters for ss, which needs 4"):
        settle("ss", tally, np.zeros((5, 2), np.float32), params)


def test_a_stage_with_too_large_a_minimum_is_refused_in_one_line(corpus):
    with pytest.raises(InputError, match=r"cluster.min_size: 500: leaves 0 clusters for sp") as refused:
        run(corpus, min_size=500)
    assert "\n" not in str(refused.value)


def test_small_clusters_go_to_the_nearest_large_one_and_empty_ones_nowhere():
    tally = Tally.empty(5, 1)
    tally.size[:] = tally.training[:] = [9, 2, 9, 0, 1]
    tally.size[4], tally.training[4] = 1, 0  # a validation sentence alone
    centroids = np.array([[0], [9], [10], [5], [1]], np.float32)
    params = ClusterParams(clusters=5, min_size=5)
    settled = settle("sp", tally, centroids, params)
    assert settled.into.tolist() == [0, 2, 2, -1, 0]
    assert [settled.outcome(one) for one in range(5)] == ["kept", "merged", "kept", "empty", "merged"]
    assert (settled.merged(0), settled.merged(2)) == ([4], [1])
    assert settled.final.size.tolist() == [10, 0, 11, 0, 0]
    said = figures(settled)
    assert (said["clusters"], said["empty"], said["merged"], said["dropped"]) == (2, 1, 2, 0)
