"""Convert a T5 exported to ONNX (encoder.onnx, decoder.onnx and tokenizer.json) to a transformers folder.

Quantizers store a weight `W` as three initializers, `W_quantized`, `W_scale` and `W_zero_point`, with
W = scale · (quantized − zero point). An exporter that folds transposes renames linear layers to `onnx::MatMul_123`;
such a layer is identified by the scope of the node that reads it: `/enc/block.0/layer.0/SelfAttention/q/MatMul`.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from storage.atomic import replacing_file, write_bytes
from storage.errors import InputError

ENCODER, DECODER, TOKENIZER, WEIGHTS = "encoder.onnx", "decoder.onnx", "tokenizer.json", "model.safetensors"
MAX_TOKENS = 512  # the length T5 was trained on; its relative positions have no limit

Array = NDArray[np.float32]

_PARTS = ("_quantized", "_scale", "_zero_point")
_LINEAR = {"MatMul", "MatMulInteger", "Gemm"}  # they store weights as (in, out), torch stores (out, in)
_PASSING = {"DequantizeLinear", "Cast", "Identity"}
_KNOWN_PLACE = re.compile(r"(?:^|\.)(block\.\d+\..+|final_layer_norm|embed_tokens|shared|lm_head)$")
_BIAS_TABLE = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
_TIED_PLACES = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}  # copies of the shared table


@dataclass
class Graph:
    """The content of one ONNX graph: its weights under transformers' names, and the constants of its nodes."""

    path: Path
    side: str  # "encoder" or "decoder"
    weights: dict[str, Array] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)  # a weight's quantization step; 0 if it was not quantized
    constants: dict[str, float] = field(default_factory=dict)  # scalar float constants by node name
    operators: set[str] = field(default_factory=set)


def is_onnx_t5(folder: Path) -> bool:
    """Return True if a folder holds an exported T5 and no transformers weights."""
    names = (ENCODER, DECODER, TOKENIZER)
    return all((folder / name).is_file() for name in names) and not (folder / WEIGHTS).exists()


def convert(source: Path, target: Path) -> None:
    """Convert the exported T5 in `source` to a transformers folder in float32 at `target`.

    Raise InputError if the files are damaged or not those of a plain T5.
    """
    from safetensors.numpy import save_file

    encoder, decoder = _read_graph(source / ENCODER, "encoder"), _read_graph(source / DECODER, "decoder")
    weights = _joined(encoder, decoder)
    config = _config(encoder, decoder, weights)
    if config["tie_word_embeddings"]:
        del weights["lm_head.weight"]
    _check_complete(source, config, weights)
    with replacing_file(target / WEIGHTS) as beside:
        save_file({name: weights[name] for name in sorted(weights)}, beside, metadata={"format": "pt"})
        beside.chmod(0o644)  # safetensors writes files that only their owner can read
    _write_json(target / "config.json", config)
    _write_tokenizer(source / TOKENIZER, target)


def _read_graph(path: Path, side: str) -> Graph:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import numpy_helper

    try:
        graph = onnx.load(path).graph
    except (DecodeError, OSError, onnx.checker.ValidationError) as error:
        raise InputError(f"{path}: not a whole ONNX file ({error}): acquire the backbone again") from error
    read = Graph(path, side, operators={node.op_type for node in graph.node})
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            value = numpy_helper.to_array(node.attribute[0].t)
            if value.size == 1 and value.dtype.kind == "f":
                read.constants[node.name] = float(value.reshape(()))
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    readers = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    for base, parts in _grouped(stored).items():
        _take_weight(read, base, parts, readers)
    return read


def _grouped(stored: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """Group initializers by weight: {weight: {"" or "_quantized", "_scale", "_zero_point": array}}."""
    quantized = {name.removesuffix(_PARTS[0]) for name in stored if name.endswith(_PARTS[0])}
    grouped: dict[str, dict[str, NDArray[Any]]] = defaultdict(dict)
    for name, array in stored.items():
        part = next((part for part in _PARTS if name.endswith(part) and name.removesuffix(part) in quantized), "")
        grouped[name.removesuffix(part)][part] = array
    return grouped


def _take_weight(read: Graph, base: str, parts: Mapping[str, NDArray[Any]], readers: Mapping[str, list[Any]]) -> None:
    """Add one weight to `read`, under its transformers name and in torch's orientation."""
    if "" in parts and (parts[""].size == 1 or parts[""].dtype.kind in "iub"):
        return  # a number or a shape of the graph, not a weight
    stored_name = base if "" in parts else base + _PARTS[0]
    node, transposed = _reading_node(stored_name, readers)
    place = _place(base, node.name) if node is not None else None
    if node is None or place is None:
        raise InputError(f"{read.path}: no place in a T5 for the initializer {stored_name}: not a plain T5 export")
    array, step = _dequantized(read.path, base, parts)
    name = place if place in {"shared", "lm_head"} else f"{read.side}.{place}"
    name += ".weight"
    array = array.T if (node.op_type in _LINEAR) != transposed else array
    if name in read.weights:
        raise InputError(f"{read.path}: two initializers for {name}, the second is {stored_name}")
    read.weights[name] = np.ascontiguousarray(array)
    read.steps[name] = step


def _reading_node(name: str, readers: Mapping[str, list[Any]]) -> tuple[Any | None, bool]:
    """Return the node that computes with an initializer, and True if there is a transpose between them."""
    transposed = False
    while readers.get(name):
        node = readers[name][0]
        if node.op_type == "Transpose":
            transposed = not transposed
        elif node.op_type not in _PASSING:
            return node, transposed
        name = node.output[0]
    return None, transposed


def _place(base: str, node_name: str) -> str | None:
    """Return the place of a weight in a T5, from its own name or from the scope of the node that reads it."""
    scope = node_name.rpartition("/")[0].strip("/").replace("/", ".")
    for candidate in (base.removesuffix(".weight"), scope):
        match = _KNOWN_PLACE.search(candidate)
        if match:
            return "shared" if match[1] == "embed_tokens" else match[1]
    return None


def _dequantized(path: Path, base: str, parts: Mapping[str, NDArray[Any]]) -> tuple[Array, float]:
    """Return the float32 values of a weight and its largest quantization step."""
    if "" in parts:
        return parts[""].astype(np.float32), 0.0
    missing = [base + part for part in _PARTS if part not in parts]
    if missing:
        raise InputError(f"{path}: the initializer {base}{_PARTS[0]} lacks {missing[0]}: export the model again")
    scale = parts["_scale"].astype(np.float32)
    centred = parts["_quantized"].astype(np.float32) - parts["_zero_point"].astype(np.float32)
    return centred * scale, float(np.abs(scale).max())  # scales of columns broadcast over the last axis


def _joined(encoder: Graph, decoder: Graph) -> dict[str, Array]:
    """Return the weights of both graphs; both contain the embedding table, which must be the same."""
    ours, theirs = encoder.weights.get("shared.weight"), decoder.weights.get("shared.weight")
    if ours is None or theirs is None:
        lacking = encoder if ours is None else decoder
        raise InputError(f"{lacking.path}: no embedding table (shared or embed_tokens) among its initializers")
    if not _same(ours, theirs, encoder.steps["shared.weight"] + decoder.steps["shared.weight"]):
        raise InputError(f"{encoder.path.parent}: encoder and decoder have different embedding tables: not the same T5")
    return decoder.weights | encoder.weights


def _same(first: Array, other: Array, tolerance: float) -> bool:
    return first.shape == other.shape and bool(np.abs(first - other).max() <= tolerance)


def _config(encoder: Graph, decoder: Graph, weights: Mapping[str, Array]) -> dict[str, Any]:
    """Return a T5Config as JSON, from the shapes of the weights and the constants of the graphs."""
    needed = [f"{side}.{_BIAS_TABLE}" for side in ("encoder", "decoder")]
    needed += ["lm_head.weight", "encoder.block.0.layer.0.SelfAttention.q.weight"]
    for name in needed:
        if name not in weights:
            raise InputError(f"{encoder.path.parent}: no initializer for {name}: not a T5")
    vocabulary, width = weights["shared.weight"].shape
    buckets, heads = weights[needed[0]].shape
    inner = weights[needed[-1]].shape[0]
    feed_forward, hidden = _feed_forward(encoder, weights)
    tolerance = encoder.steps["shared.weight"] + decoder.steps["lm_head.weight"]
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "vocab_size": vocabulary,
        "d_model": width,
        "d_kv": inner // heads,
        "d_ff": hidden,
        "num_heads": heads,
        "num_layers": _layers(weights, "encoder"),
        "num_decoder_layers": _layers(weights, "decoder"),
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": _max_distance(encoder, buckets // 4),
        "layer_norm_epsilon": _epsilon(encoder),
        "feed_forward_proj": feed_forward,
        "tie_word_embeddings": _same(weights["shared.weight"], weights["lm_head.weight"], tolerance),
        "dropout_rate": 0.1,
        "is_encoder_decoder": True,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "dtype": "float32",
    }


def _layers(weights: Mapping[str, Array], side: str) -> int:
    return len({match[0] for name in weights if (match := re.match(rf"{side}\.block\.\d+\.", name))})


def _feed_forward(encoder: Graph, weights: Mapping[str, Array]) -> tuple[str, int]:
    """Return the kind of feed-forward layer and its width; it is gated in T5 1.1 and flan, but not in the first T5."""
    layer = "encoder.block.0.layer.1.DenseReluDense"
    gated = f"{layer}.wi_0.weight" in weights
    activations = {"gelu": "Tanh", "relu": "Relu"}
    activation = next((name for name, operator in activations.items() if operator in encoder.operators), None)
    if activation is None:
        raise InputError(f"{encoder.path}: its activation is neither a gelu nor a relu: only plain T5 exports are read")
    width = weights.get(f"{layer}.wi_0.weight" if gated else f"{layer}.wi.weight")
    if width is None:
        raise InputError(f"{encoder.path}: no initializer for {layer}.wi.weight: not a T5")
    return ("gated-" if gated else "") + activation, width.shape[0]


def _numbers(graph: Graph, scope: str) -> Iterator[float]:
    return (value for name, value in graph.constants.items() if scope in name)


def _max_distance(encoder: Graph, exact: int) -> int:
    """Return the distance at which the last bucket of the relative attention begins.

    The graph scales logarithms by ln(max distance / exact). `exact` is the number of buckets for a single distance: a
    quarter of all buckets in the encoder, which attends in both directions.
    """
    logarithms = [value for value in _numbers(encoder, "/block.0/layer.0/SelfAttention/") if 0 < value < exact]
    if len(logarithms) != 1:
        raise InputError(f"{encoder.path}: no maximum distance found in its relative attention: not a T5 export")
    return round(exact * math.exp(logarithms[0]))


def _epsilon(encoder: Graph) -> float:
    small = [value for value in _numbers(encoder, "layer_norm/") if 0 < value < 1e-3]
    if not small:
        raise InputError(f"{encoder.path}: no epsilon found in its layer norms: not a T5 export")
    return float(f"{small[0]:.1e}")


def _check_complete(source: Path, config: Mapping[str, Any], weights: Mapping[str, Array]) -> None:
    """Raise InputError unless the weights are exactly the tensors of the transformers model, with their shapes."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    with torch.device("meta"):
        wanted = T5ForConditionalGeneration(T5Config(**config)).state_dict()
    tied = _TIED_PLACES | ({"lm_head.weight"} if config["tie_word_embeddings"] else set())
    shapes = {name: tuple(tensor.shape) for name, tensor in wanted.items() if name not in tied}
    for name in sorted(shapes.keys() | weights.keys()):
        if name not in weights:
            raise InputError(f"{source}: no initializer for {name}: not a whole T5")
        if name not in shapes:
            raise InputError(f"{source}: the initializer of {name} has no place in this T5")
        if weights[name].shape != shapes[name]:
            raise InputError(f"{source}: {name} has shape {weights[name].shape}, expected {shapes[name]}")


def _write_tokenizer(source: Path, target: Path) -> None:
    """Copy the tokenizer without the truncation and padding that the exporter stored in it."""
    try:
        tokenizer = orjson.loads(source.read_bytes())
        special = [token["content"] for token in tokenizer["added_tokens"] if token["special"]]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{source}: not a tokenizer file ({error}): acquire the backbone again") from error
    write_bytes(target / TOKENIZER, orjson.dumps(tokenizer | {"truncation": None, "padding": None}))
    named = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    extra = [token for token in special if token not in named.values()]
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MAX_TOKENS,
        "model_input_names": ["input_ids", "attention_mask"],  # T5 has no token types
        **named,
        "extra_special_tokens": extra,
    }
    _write_json(target / "tokenizer_config.json", settings)


def _write_json(path: Path, value: Any) -> None:
    write_bytes(path, orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
