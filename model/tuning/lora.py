"""LoRA by the library PEFT: products of two small matrices beside some of the backbone's, which stay as they are."""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from model.t5.backbone import Backbone, backbone_of, load_model
from model.t5.precision import Precision, weights_dtype
from storage.errors import UNLOADABLE, InputError, first_line

PACKAGE = "peft"


def with_lora(folder: Path, rank: int, alpha: int, seed: int) -> Any:
    """Return a model with new LoRA matrices at the places that PEFT takes for its family; only they are trained."""
    from peft import LoraConfig, get_peft_model

    model = load_model(folder)
    config = LoraConfig(task_type="SEQ_2_SEQ_LM", r=rank, lora_alpha=alpha, lora_dropout=0.0)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            return get_peft_model(model, config)
        except ValueError as error:
            raise InputError(
                f"{folder}: PEFT has no LoRA for this model ({first_line(error)}): leave lora out"
            ) from error


def adapted_backbone(folder: Path, adapter: Path, device: torch.device, precision: Precision) -> Backbone:
    """Return a frozen backbone to which a LoRA adapter was added; raise InputError if it does not fit."""
    if find_spec(PACKAGE) is None:
        raise InputError(f"{adapter}: a LoRA adapter needs the package {PACKAGE}: pip install 'supmer[lora]'")
    from peft import PeftModel

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Input and output embeddings are no longer tied", UserWarning)
            model = PeftModel.from_pretrained(load_model(folder), adapter).merge_and_unload()
    except (*UNLOADABLE, SafetensorError) as error:
        raise InputError(f"{adapter}: cannot be added to {folder} ({first_line(error)}): give its backbone") from error
    return backbone_of(model.to(device, weights_dtype(precision)))
