import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model import sentence_encoder as encoders
from storage import paths
from storage.errors import InputError
from storage.parquet import provenance
from support.vector_corpus import BackwardFanOut, Corpus, contents
from tasks.embed import stage as embed

INPUTS, OUTPUTS = [paths.SENTENCES], [paths.EMBEDDINGS]


@pytest.fixture
def corpus(tmp_path, tiny_models):
    corpus = Corpus(tmp_path, {"embed": {"model": "embedder"}})
    corpus.link_models(tiny_models)
    corpus.add_shard("own--a-00000.parquet", 5)
    corpus.add_shard("own--b-00000.parquet", 3)
    return corpus


def run(corpus, **options):
    return corpus.run(embed, INPUTS, OUTPUTS, **options)


@pytest.mark.parametrize("model", ["embedder", "backbone"])
def test_every_sentence_has_its_vector_in_the_order_of_its_shard(corpus, tiny_models, model):
    record = run(corpus, embed={"model": model, "dtype": "float32"})
    assert (record["rows"], record["dimension"], record["model"]) == (96, 8, model)
    kind = {"embedder": encoders.SentenceEncoder, "backbone": encoders.BackboneEncoder}[model]
    import torch

    loaded = kind(tiny_models / model, torch.device("cpu"))
    for path in sorted((corpus.root / paths.SENTENCES).iterdir()):
        sentences, found = pq.read_table(path), pq.read_table(corpus.root / paths.EMBEDDINGS / path.name)
        assert found.select(["document_id", "index"]).equals(sentences.select(["document_id", "index"]))
        vectors = np.array(found["embedding"].to_pylist(), np.float32)
        np.testing.assert_allclose(vectors, encoders.encode(loaded, sentences["text"].to_pylist()), atol=1e-6)


def test_vectors_are_float16_by_default_and_say_what_made_them(corpus):
    record = run(corpus)
    path = corpus.root / paths.EMBEDDINGS / "own--a-00000.parquet"
    assert pq.read_schema(path).field("embedding").type == pa.list_(pa.float16(), 8)
    said = provenance(path)
    assert said.pop("model_hash") == record["model_hash"]
    assert said == {"stage": "embed", "model": "embedder", "dimension": 8, "dtype": "float16"}


def test_an_added_file_embeds_its_own_shards_only(corpus):
    run(corpus)
    assert corpus.done == ["embed-embed/own--a-00000", "embed-embed/own--b-00000"]
    corpus.add_shard("own--aa-00000.parquet", 2)
    run(corpus)
    assert corpus.done == ["embed-embed/own--aa-00000"]


def test_another_model_or_number_format_embeds_anew(corpus):
    run(corpus)
    for change in ({"model": "backbone"}, {"dtype": "float32"}):
        run(corpus, embed=change)
        assert len(corpus.done) == 2


def test_bytes_do_not_depend_on_order_of_work_or_cores(corpus, monkeypatch, tmp_path):
    run(corpus)
    before = contents(corpus.root / paths.EMBEDDINGS)
    from storage.atomic import remove

    remove(corpus.root / ".supmer")
    monkeypatch.setattr("model.sentence_encoder.cpu_threads", lambda: 2)
    run(corpus, fan_out=BackwardFanOut())
    assert contents(corpus.root / paths.EMBEDDINGS) == before


class Broken:
    """An encoder whose third text has a value that is no good; None for nothing but zeros."""

    dimension = 2

    def __init__(self, value):
        self.value = value

    def lengths(self, texts):
        return [1] * len(texts)

    def forward(self, texts):
        import torch

        vectors = torch.ones(len(texts), 2)
        vectors[2] = torch.tensor([0.0, 0.0] if self.value is None else [1.0, self.value])
        return vectors


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "the model gives NaN or infinity"),
        (float("inf"), "the model gives NaN or infinity"),
        (1e30, "dtype: float32"),
        (None, "the model gives zeros"),
    ],
)
def test_a_vector_that_is_zero_or_not_finite_is_named_by_its_sentence(corpus, monkeypatch, value, message):
    monkeypatch.setattr(embed, "load_encoder", lambda *_: Broken(value))
    first = pq.read_table(corpus.root / paths.SENTENCES / "own--a-00000.parquet")["document_id"][2]
    place = rf"sentences/own--a-00000\.parquet: row 3, sentence {first}:2"
    with pytest.raises(InputError, match=rf"{place}.*{message}"):
        run(corpus, embed={"batch_size": 100})


def test_a_corpus_without_shards_is_an_error(corpus):
    for path in (corpus.root / paths.SENTENCES).iterdir():
        path.unlink()
    with pytest.raises(InputError, match="no shard"):
        run(corpus)


def test_a_shard_without_sentences_gives_one_without_vectors(corpus):
    corpus.add_shard("own--c-00000.parquet", 1, sentences=0)
    assert run(corpus)["rows"] == 96
    assert pq.read_table(corpus.root / paths.EMBEDDINGS / "own--c-00000.parquet").num_rows == 0
