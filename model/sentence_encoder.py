"""Sentence vectors, from a sentence-transformers model or from the backbone's mean-pooled encoder (ALGORITHM §2)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from model.device import cpu_threads, single_threaded
from model.t5.precision import Precision

if TYPE_CHECKING:
    import torch

BATCH = 16  # sentences per forward pass: the fastest measured on a CPU
_LOCAL = {"local_files_only": True, "trust_remote_code": False}  # load weights only, never code
_LONGEST = 512  # tokens, if neither the tokenizer nor the model sets a limit
_UNLIMITED = 1_000_000  # a tokenizer without a limit reports a number above this
_TOKENIZED = 1_024  # texts tokenized at once


class Encoder(Protocol):
    """A model that turns a sentence into a vector."""

    dimension: int

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Return the length of each text after truncation, in tokens if the model has a tokenizer; batches use it."""

    def forward(self, texts: Sequence[str]) -> "torch.Tensor":
        """Return the vectors of one batch, [texts, dimension]."""


class BackboneEncoder:
    """The encoder of a sequence-to-sequence model; a sentence's vector is the mean of its last hidden states."""

    def __init__(self, folder: Path, where: "torch.device", precision: Precision = "float32") -> None:
        from transformers import AutoConfig, AutoTokenizer

        from model.t5.backbone import load_backbone

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **_LOCAL)
        self._backbone = load_backbone(folder, where, precision=precision)
        self._longest = _limit(self._tokenizer, AutoConfig.from_pretrained(folder, **_LOCAL))
        self.dimension: int = self._backbone.width

    def _tokens(self, texts: Sequence[str], **options: Any) -> Any:
        return self._tokenizer(list(texts), truncation=True, max_length=self._longest, **options)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text after truncation."""
        return [len(ids) for ids in self._tokens(texts).input_ids]

    def forward(self, texts: Sequence[str]) -> "torch.Tensor":
        """Return the means over the positions that are not padding, [texts, dimension]."""
        from model.t5.backbone import computing

        tokens = self._tokens(texts, padding=True, return_tensors="pt").to(self._backbone.device)
        mask = tokens.attention_mask.bool()
        with computing(self._backbone):
            hidden = self._backbone.encode(self._backbone.embed(tokens.input_ids).float(), mask)
        kept = mask.unsqueeze(-1)
        means: torch.Tensor = hidden.float().mul(kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)
        return means


def _limit(tokenizer: Any, config: Any) -> int:
    """Return the longest input, in tokens, that both the tokenizer and the model allow."""
    limits = (
        tokenizer.model_max_length,
        *(getattr(config, key, None) for key in ("n_positions", "max_position_embeddings")),
    )
    return min((int(limit) for limit in limits if limit and limit < _UNLIMITED), default=_LONGEST)


class SentenceEncoder:
    """Any model that sentence-transformers can load, with its own prompt, pooling, normalization, length and dimension.

    In float32 the vectors are the same as those of the model's `encode` without arguments. In bfloat16, matrices and
    products with them are bfloat16; embeddings, norms, pooling and the vectors are float32.
    """

    def __init__(self, folder: Path, where: "torch.device", precision: Precision = "float32") -> None:
        from sentence_transformers import SentenceTransformer

        self._model: Any = SentenceTransformer(str(folder), device=str(where), **_LOCAL).eval()
        self._device = where
        self._low = precision == "bfloat16"
        if self._low:
            _lower_matrices(self._model)
        name = self._model.default_prompt_name
        self._prompt: str | None = self._model.prompts[name] if name is not None else None
        self._kept: int | None = self._model.truncate_dim  # a Matryoshka model keeps only the first numbers of a vector
        self.dimension = int(self._model.get_embedding_dimension())

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text after truncation, or of characters if the model has no tokenizer."""
        from transformers import PreTrainedTokenizerBase

        tokenizer = getattr(self._model, "tokenizer", None)
        if not isinstance(tokenizer, PreTrainedTokenizerBase):  # static embeddings, bags of words
            return [len(text) for text in texts]
        longest = self._model.max_seq_length
        encoded = tokenizer(list(texts), truncation=longest is not None, max_length=longest)
        return [len(ids) for ids in encoded["input_ids"]]

    def forward(self, texts: Sequence[str]) -> "torch.Tensor":
        """Return the model's `sentence_embedding`, [texts, dimension]."""
        import torch

        features = {
            name: value.to(self._device) if hasattr(value, "to") else value
            for name, value in self._model.preprocess(list(texts), prompt=self._prompt).items()
        }
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._low):
            vectors: torch.Tensor = self._model(features)["sentence_embedding"]
        return vectors[:, : self._kept]


def _lower_matrices(model: "torch.nn.Module") -> None:
    """Convert the linear layers of a model to bfloat16; autocast then finds them converted."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.to(torch.bfloat16)


@lru_cache(maxsize=1)
def load_encoder(
    model: str,
    folder: Path,
    content: str,  # noqa: ARG001 - a key
    where: "torch.device",
    precision: Precision,
) -> Encoder:
    """Return the encoder in a folder whose files have the hash `content`; it is loaded once per process."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return (BackboneEncoder if model == "backbone" else SentenceEncoder)(folder, where, precision)


def encode(encoder: Encoder, texts: Sequence[str], batch_size: int = BATCH) -> npt.NDArray[np.float32]:
    """Return the vectors of the texts in their order, [texts, dimension].

    A batch holds texts of similar length, so there is little padding. On a CPU each batch runs on one core: this is
    faster than sharing a batch among cores, and the result does not depend on the number of cores.
    """
    import torch

    vectors = np.empty((len(texts), encoder.dimension), np.float32)
    starts = range(0, len(texts), _TOKENIZED)
    lengths = [length for start in starts for length in encoder.lengths(texts[start : start + _TOKENIZED])]
    order = sorted(range(len(texts)), key=lambda row: (-lengths[row], row))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

    def fill(rows: list[int]) -> None:
        with torch.inference_mode():
            vectors[rows] = encoder.forward([texts[row] for row in rows]).float().cpu().numpy()

    side_by_side = 1 if torch.cuda.is_available() else cpu_threads()
    with (
        single_threaded(),
        # Torch also keeps the number of threads of an operation for each calling thread.
        ThreadPoolExecutor(side_by_side, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for rows in batches[
            :1
        ]:  # the tokenizer is set up at first use, which must not happen in several threads at once
            fill(rows)
        for _ in pool.map(fill, batches[1:]):
            pass
    return vectors
