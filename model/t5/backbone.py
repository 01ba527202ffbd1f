"""The frozen backbone: any Hugging Face encoder-decoder, with a faster implementation for the T5 family (ALGORITHM §1).

The method needs only three functions of a backbone: token embeddings, the encoder over input embeddings, and the
decoder over the encoder's hidden states. Its weights never get a gradient, an optimizer state or `train()` mode.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.t5.fast_t5 import FastT5, is_fast
from model.t5.precision import WantedPrecision, choose, weights_dtype
from model.t5.recomputing import directly, recomputed
from storage.errors import UNLOADABLE, InputError, load_failure

_LOCAL = {"local_files_only": True, "trust_remote_code": False}  # load weights only, never code


class Backbone(Protocol):
    """A frozen encoder-decoder; n is the number of input positions with the prompt, t of target positions, d its width.

    Attributes:
        side_by_side: True if several threads may use it at once, with one core each.
    """

    width: int
    vocabulary: int
    device: torch.device
    dtype: torch.dtype
    start_id: int
    pad_id: int
    side_by_side: bool

    def embed(self, ids: Tensor) -> Tensor:
        """Return the token embeddings that the encoder takes, [..., d], for ids [...]."""

    def encode(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Return the last hidden states [rows, n, d] for input embeddings [rows, n, d]; mask is False at padding."""

    def decode(self, hidden: Tensor, mask: Tensor, ids: Tensor) -> Tensor:
        """Return the logits [rows, t, V], in float32 or wider, for decoder inputs `ids` [rows, t]."""


class HuggingFaceBackbone:
    """Any encoder-decoder of transformers, with its own forward pass."""

    def __init__(self, model: Any, *, recompute: bool = False) -> None:
        self._model = model.eval().requires_grad_(requires_grad=False)
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm) and module.weight.dtype == torch.bfloat16:
                module.float()  # it gets float32 from sums with a prompt, and a CPU refuses to mix that with bfloat16
        self._run = recomputed if recompute else directly
        self.family: str = model.config.model_type
        self.width: int = model.get_input_embeddings().weight.shape[1]
        self.vocabulary: int = model.get_output_embeddings().weight.shape[0]
        self.device: torch.device = model.get_input_embeddings().weight.device
        self.dtype: torch.dtype = model.get_input_embeddings().weight.dtype
        self.start_id, self.pad_id = special_ids(model.config)
        self.side_by_side = False  # other people's code may keep state between passes

    def embed(self, ids: Tensor) -> Tensor:
        """Return the token embeddings, scaled as the model scales them."""
        embedded: Tensor = self._model.get_input_embeddings()(ids)
        return embedded

    def encode(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Run the model's own encoder."""
        refuse_too_long(self._model.config, inputs)
        return self._run(self._encoder, inputs, mask)

    def _encoder(self, inputs: Tensor, mask: Tensor) -> Tensor:
        hidden: Tensor = self._model.get_encoder()(
            inputs_embeds=inputs, attention_mask=mask.long(), return_dict=True
        ).last_hidden_state
        return hidden

    def decode(self, hidden: Tensor, mask: Tensor, ids: Tensor) -> Tensor:
        """Run the model's own decoder and output layer."""
        output = self._model(
            encoder_outputs=(hidden,), attention_mask=mask.long(), decoder_input_ids=ids, use_cache=False
        )
        logits: Tensor = output.logits
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def refuse_too_long(config: Any, inputs: Tensor) -> None:
    """Raise InputError if input embeddings [rows, n, d] have more positions than a model has."""
    most = getattr(config, "max_position_embeddings", None)
    if isinstance(most, int) and inputs.shape[1] > most:
        raise InputError(
            f"the backbone reads at most {most:,} positions, and prompt and text take {inputs.shape[1]:,}: lower "
            "tune.max_length or metatrain.prompt_tokens"
        )


def special_ids(config: Any) -> tuple[int, int]:
    """Return the id that a decoder starts with, and the id for padding."""
    pad = config.pad_token_id if config.pad_token_id is not None else 0
    start = getattr(config, "decoder_start_token_id", None)
    return (pad if start is None else start), pad


def load_backbone(
    folder: Path,
    device: torch.device,
    *,
    fast: bool = True,
    recompute: bool = False,
    precision: WantedPrecision = "auto",
) -> Backbone:
    """Load a frozen backbone; raise InputError if it cannot be loaded.

    Args:
        folder: a transformers folder.
        device: the device for the weights.
        fast: use the fast implementation if there is one for the model.
        recompute: compute the activations of a layer again in the backward pass, instead of keeping them (gradient
            checkpointing).
        precision: the precision of the weights and of products with them; `auto` depends on the device.
    """
    model = load_model(folder, weights_dtype(choose(precision, device).precision))
    return backbone_of(model.to(device), fast=fast, recompute=recompute)


def load_model(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Load an encoder-decoder of transformers on the CPU; raise InputError if it cannot be loaded."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoModelForSeq2SeqLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", "Detected pickle protocol")  # torch, about a file that it then refuses
    try:
        return AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype, **_LOCAL)
    except (*UNLOADABLE, SafetensorError, StrictDataclassError) as error:
        raise InputError(
            f"{folder}: cannot be loaded as a backbone ({load_failure(error)}): it should be a transformers folder of "
            "an encoder-decoder"
        ) from error


def backbone_of(model: Any, *, fast: bool = True, recompute: bool = False) -> Backbone:
    """Return a loaded transformers model as a backbone."""
    if fast and is_fast(model):
        return FastT5(model.eval().requires_grad_(requires_grad=False), *special_ids(model.config), recompute=recompute)
    return HuggingFaceBackbone(model, recompute=recompute)


@contextmanager
def computing(backbone: Backbone) -> Iterator[None]:
    """Compute matrix products in the weights' type, prompts and sums in float32, in the current thread."""
    low = backbone.dtype in (torch.bfloat16, torch.float16)
    with torch.autocast(backbone.device.type, torch.bfloat16) if low else nullcontext():
        yield


@contextmanager
def attention_kernel(*, twice: bool) -> Iterator[None]:
    """Use the plain attention kernel if passes will be differentiated twice, otherwise leave torch the choice.

    The setting holds for the whole process: it also changes passes that run in other threads at the same time.
    """
    with sdpa_kernel(SDPBackend.MATH) if twice else nullcontext():
        yield
