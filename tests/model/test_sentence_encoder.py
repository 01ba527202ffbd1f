import numpy as np
import pytest
import torch

from model import device as devices
from model.sentence_encoder import BackboneEncoder, SentenceEncoder, encode, load_encoder

TEXTS = ["A sentence", "to see", "A", "see a sentence to see A sentence", "to", "see see see"] * 9
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def backbone(tiny_models):
    return BackboneEncoder(tiny_models / "backbone", CPU)


@pytest.fixture(scope="module")
def sentences(tiny_models):
    return SentenceEncoder(tiny_models / "embedder", CPU)


def test_the_backbone_gives_the_mean_over_positions_that_are_not_padding(tiny_models, backbone):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_models / "backbone")
    encoder = AutoModelForSeq2SeqLM.from_pretrained(tiny_models / "backbone").eval().get_encoder()
    with torch.inference_mode():
        alone = [encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0) for text in TEXTS]
    np.testing.assert_allclose(encode(backbone, TEXTS), torch.stack(alone).numpy(), atol=1e-5)


def test_an_embedder_gives_what_sentence_transformers_gives(tiny_models, sentences):
    from sentence_transformers import SentenceTransformer

    expected = SentenceTransformer(str(tiny_models / "embedder"), device="cpu").encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(encode(sentences, TEXTS), expected, atol=1e-5)


def static_model(folder):
    """Static embeddings: their tokenizer is none of transformers'."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "A": 1, "sentence": 2, "to": 3, "see": 4}, unk_token="[UNK]"))  # noqa: S106 - a word
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=8)], device="cpu").save(str(folder))


def prompted_model(folder, embedder):
    """A model that puts a text before every sentence unless told otherwise."""
    from sentence_transformers import SentenceTransformer

    prompts = {"query": "see to see ", "passage": "A "}
    options = {"prompts": prompts, "default_prompt_name": "query"}
    SentenceTransformer(str(embedder), device="cpu", **options).save(str(folder))


@pytest.mark.parametrize("kind", ["static", "prompted"])
def test_every_kind_of_embedder_gives_what_encode_gives(tmp_path, tiny_models, kind):
    from sentence_transformers import SentenceTransformer

    static_model(tmp_path) if kind == "static" else prompted_model(tmp_path, tiny_models / "embedder")
    expected = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(encode(SentenceEncoder(tmp_path, CPU), TEXTS), expected, atol=1e-5)


def test_a_prompt_that_the_model_applies_by_default_changes_the_vectors(tmp_path, tiny_models, sentences):
    prompted_model(tmp_path, tiny_models / "embedder")
    assert not np.allclose(encode(SentenceEncoder(tmp_path, CPU), TEXTS), encode(sentences, TEXTS), atol=1e-4)


def test_long_texts_are_cut_at_the_models_limit(sentences):
    endless = "see " * 500
    assert sentences.lengths([endless]) == [16]
    assert np.isfinite(encode(sentences, [endless])).all()


def test_a_backbone_cuts_at_the_limit_it_names(backbone):
    assert backbone.lengths(["see " * 5000]) == [512]


@pytest.mark.parametrize("threads", [2, 3])
def test_the_bits_do_not_depend_on_the_number_of_cores(backbone, monkeypatch, threads):
    alone = encode(backbone, TEXTS)
    monkeypatch.setattr("model.sentence_encoder.cpu_threads", lambda: threads)
    assert encode(backbone, TEXTS).tobytes() == alone.tobytes()


def test_no_texts_give_no_vectors(backbone):
    assert encode(backbone, []).shape == (0, 8)


def test_torch_has_its_threads_back_afterwards(backbone):
    before = torch.get_num_threads()
    encode(backbone, TEXTS[:3])
    assert torch.get_num_threads() == before


def test_a_model_is_loaded_once_a_process_and_again_when_its_files_change(tiny_models):
    first = load_encoder("backbone", tiny_models / "backbone", "content-1", CPU, "float32")
    assert load_encoder("backbone", tiny_models / "backbone", "content-1", CPU, "float32") is first
    assert load_encoder("backbone", tiny_models / "backbone", "content-2", CPU, "float32") is not first


@pytest.mark.parametrize(("role", "kind"), [("backbone", BackboneEncoder), ("embedder", SentenceEncoder)])
def test_vectors_in_bfloat16_are_float32_and_close_to_those_of_float32(tiny_models, role, kind):
    wide, low = (encode(kind(tiny_models / role, CPU, precision), TEXTS) for precision in ("float32", "bfloat16"))
    assert low.dtype == np.float32
    assert not np.array_equal(low, wide)
    cosines = (low * wide).sum(1) / np.linalg.norm(low, axis=1) / np.linalg.norm(wide, axis=1)
    assert cosines.min() > 0.999


def test_another_precision_is_another_encoder(tiny_models):
    first = load_encoder("backbone", tiny_models / "backbone", "content-1", CPU, "float32")
    assert load_encoder("backbone", tiny_models / "backbone", "content-1", CPU, "bfloat16") is not first


def test_without_a_gpu_the_device_is_the_cpu():
    assert devices.device(3) == CPU


def test_workers_spread_over_the_gpus_and_keep_theirs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for first, chosen in ((0, 0), (1, 1), (5, 1)):
        monkeypatch.setattr(devices, "_chosen", None)
        assert [devices.device(number) for number in (first, first + 1)] == [torch.device("cuda", chosen)] * 2
