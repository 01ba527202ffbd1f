"""Conversion of a prompt to and from an adapter of Hugging Face PEFT, without importing PEFT.

adapter_config.json          PROMPT_TUNING of a SEQ_2_SEQ_LM, one transformer submodule: only the encoder is prompted
adapter_model.safetensors    θ: `prompt_embeddings` [P, d], put before the encoder's input embeddings
supmer.json                  the prompt's own config.json; PEFT does not read it
README.md                    the model card
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from storage.atomic import write_bytes
from storage.errors import InputError, first_line
from storage.prompts.prompt_artifact import CARD, KIND, Array

CONFIG, TENSORS, PICKLED, OURS = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "supmer.json"
TENSOR = "prompt_embeddings"
PEFT_TYPE, TASK_TYPE = "PROMPT_TUNING", "SEQ_2_SEQ_LM"

_OTHER_TASKS = "only prompt tuning of an encoder-decoder can be read"
_NUMBERS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class Adapter:
    """θ [P, d], the name of its base model in PEFT, and the content of the prompt's own config.json, if known."""

    prompt: Array
    base: str
    revision: str | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def names_a_folder(self) -> bool:
        """True if the base model is a folder, relative to the adapter's, and not a name on the hub."""
        return self.base.startswith(".")


def write_adapter(folder: Path, adapter: Adapter, card: str) -> None:
    """Write the folder of an adapter; the same content gives the same bytes."""
    tokens, width = adapter.prompt.shape
    config = {
        "auto_mapping": None,
        "base_model_name_or_path": adapter.base,
        "inference_mode": True,
        "num_attention_heads": None,  # PEFT reads it from the model
        "num_layers": None,
        "num_transformer_submodules": 1,
        "num_virtual_tokens": tokens,
        "peft_type": PEFT_TYPE,
        "prompt_tuning_init": "RANDOM",  # without effect: PEFT loads the stored numbers
        "prompt_tuning_init_text": None,
        "revision": adapter.revision,
        "task_type": TASK_TYPE,
        "token_dim": width,
        "tokenizer_name_or_path": None,
    }
    tensors = {TENSOR: np.ascontiguousarray(adapter.prompt, np.float32)}
    write_bytes(folder / TENSORS, save(tensors, metadata={"format": "pt"}))
    write_bytes(folder / CONFIG, _json(config))
    if adapter.about:
        write_bytes(folder / OURS, _json(adapter.about))
    write_bytes(folder / CARD, card.encode())


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read_adapter(folder: Path) -> Adapter:
    """Read an adapter, whoever wrote it. Raise InputError if it is not a prompt for the encoder only."""
    config = _object(folder / CONFIG)
    _check(folder / CONFIG, config)
    prompt = _prompt(folder)
    shape = [config.get("num_virtual_tokens"), config.get("token_dim")]
    if list(prompt.shape) != shape:
        said = f"{shape[0]} × {shape[1]}"
        raise InputError(f"{folder / TENSORS}: is {prompt.shape[0]} × {prompt.shape[1]}, but {CONFIG} says {said}")
    about = _object(folder / OURS) if (folder / OURS).is_file() else {}
    if about and about.get("kind") != KIND:
        raise InputError(f"{folder / OURS}: does not describe a supmer prompt: remove it")
    base, revision = config.get("base_model_name_or_path"), config.get("revision")
    return Adapter(prompt, str(base or ""), str(revision) if revision else None, about)


def _check(path: Path, config: dict[str, Any]) -> None:
    kind, task, submodules = (config.get(name) for name in ("peft_type", "task_type", "num_transformer_submodules"))
    if kind != PEFT_TYPE:
        raise InputError(f"{path}: an adapter of type {kind}: {_OTHER_TASKS} ({PEFT_TYPE})")
    if task != TASK_TYPE:
        raise InputError(f"{path}: an adapter for the task {task}: {_OTHER_TASKS} ({TASK_TYPE})")
    if submodules != 1:
        raise InputError(
            f"{path}: num_transformer_submodules is {submodules}, which prompts the decoder too: train it with "
            "PromptTuningConfig(num_transformer_submodules=1, …)"
        )


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{path.parent}: no {path.name} in it: give the folder of a PEFT adapter") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)})") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a JSON object")
    return value


def _prompt(folder: Path) -> Array:
    """Return θ [P, d] as float32; a pickled file is never opened, because that could run a program."""
    path = folder / TENSORS
    if not path.is_file() and (folder / PICKLED).is_file():
        raise InputError(
            f"{folder / PICKLED}: pickled files may hold programs and are not opened: save the adapter again with "
            "safe_serialization=True"
        )
    try:
        tensors = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)}): the adapter is not whole") from error
    if tensors.keys() != {TENSOR}:
        names = ", ".join(sorted(tensors)) or "nothing"
        raise InputError(f"{path}: holds {names}, where a prompt has {TENSOR} alone")
    view = tensors[TENSOR]
    if view["dtype"] not in _NUMBERS or len(view["shape"]) != 2 or 0 in view["shape"]:
        raise InputError(
            f"{path}: {TENSOR} is {view['dtype']} of shape {view['shape']}, not numbers of [tokens, width]"
        )
    values = np.frombuffer(view["data"], _NUMBERS[view["dtype"]]).reshape(view["shape"])
    if view["dtype"] == "BF16":  # the upper half of a float32
        values = (values.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # numbers too large for a float32 become infinite, and are refused below
        prompt = np.array(values, np.float32)
    if not np.isfinite(prompt).all():
        raise InputError(f"{path}: {TENSOR} should hold finite numbers")
    return prompt
