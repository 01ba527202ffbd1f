"""The checkpoints that the authors released: θ as a bare tensor, φ as the state dict of their own regularizer.

Their ψ differs from ALGORITHM §4 so much that no choice of U, V, c, W and b there is equal to it. It is kept as it is:

    h(g) = (f_n ∘ … ∘ f_1)(g), rescaled row by row,   f_k(x) = max(0, U_k·V_k·x + c_k)      no identity, no sign
    z    = 1 − σ(w·max(0, W·H̄ + b) + β), one gate                    their gate is the share of the raw gradient

Because of the max(0, ·) between them, the layers cannot be folded into one. The direction of the gate can be converted
exactly, because 1 − σ(a) = σ(−a).
"""

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.prompt.regularizer import GradientRegularizer
from storage.errors import InputError, first_line
from storage.prompts.prompt_artifact import Array, PromptArtifact

FORM = "released"
_UNUSED = ("grad_mean", "grad_std", "grad_s", "k")  # statistics that their forward pass does not use; initially NaN
_LAYER = re.compile(r"mlp\.layers\.(\d+)\.(u|v|bias)")
_LAYER_NAMES = {"u": "up", "v": "down", "bias": "shift"}
_GATE_NAMES = {"mlp.linear_1": "gate_hidden", "mlp.linear_2": "gate"}
_SMALL = 1e-8  # added to a norm in their code
_TINY = 1e-30  # added to a squared norm, so that a row of zeros has a derivative


class ReleasedRegularizer(nn.Module):
    """The authors' ψ, with the interface of `GradientRegularizer`.

    Attributes:
        layers: U [d, r], V [r, d] and c [d] of each layer.
        gate_hidden: W and b of the gate's hidden layer.
        gate: −w and −β; with the sign reversed, z is the share of h, as in the paper.
    """

    def __init__(self, width: int, rank: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(width, rank) for _ in range(layers))
        self.gate_hidden = nn.Linear(width, hidden)
        self.gate = nn.Linear(hidden, 1)

    def gates(self, hidden_mean: Tensor) -> Tensor:
        """Return the gates z in (0, 1), [K, 1], for H̄ [K, d]; no gradient passes to H̄."""
        return torch.sigmoid(self.gate(self.gate_hidden(hidden_mean.detach()).relu()))

    def forward(self, gradient: Tensor, gates: Tensor) -> Tensor:
        """Return ψφ of prompt gradients [K, P, d] with gates [K, 1]."""
        moved = gradient
        for layer in self.layers:
            moved = layer(moved)
        turned = moved * ((_norm(gradient) + _SMALL) / (_norm(moved) + _SMALL))
        z = gates.unsqueeze(1)
        return z * turned + (1 - z) * gradient


class _Layer(nn.Module):
    """max(0, U·V·x + c)."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.zeros(width, rank))
        self.down = nn.Parameter(torch.zeros(rank, width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, rows: Tensor) -> Tensor:
        moved: Tensor = (rows @ self.down.T) @ self.up.T + self.shift
        return moved.relu()


def _norm(rows: Tensor) -> Tensor:
    return (rows.square().sum(-1, keepdim=True) + _TINY).sqrt()


def regularizer_of(artifact: PromptArtifact) -> GradientRegularizer | ReleasedRegularizer | None:
    """Return ψφ of an artifact, in this project's form or the authors'; None if it has no regularizer.

    Raise InputError if its tensors do not make a regularizer that fits the prompt.
    """
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in artifact.regularizer.items()}
    if not tensors:
        return None
    regularizer: GradientRegularizer | ReleasedRegularizer
    try:
        if artifact.about.get("regularizer") == FORM:
            width, rank = tensors["layers.0.up"].shape
            layers = sum(name.endswith(".up") for name in tensors)
            regularizer = ReleasedRegularizer(width, rank, layers, len(tensors["gate_hidden.bias"]))
        else:
            width, rank = tensors["up"].shape
            regularizer = GradientRegularizer(width, rank, "scalar" if artifact.gate == "scalar" else "vector")
        regularizer.load_state_dict(tensors)
    except (KeyError, ValueError, RuntimeError) as error:
        names = ", ".join(sorted(tensors))
        raise InputError(f"the prompt's regularizer has the tensors {names}, which fit no known regularizer") from error
    if width != artifact.prompt.shape[1]:
        rows = artifact.prompt.shape[1]
        raise InputError(
            f"the prompt's regularizer is for rows of {width} numbers, but the prompt's rows have {rows}: use files "
            "that belong together"
        )
    return regularizer


def read_official(prompt: Path, regularizer: Path | None) -> PromptArtifact:
    """Return released files as an artifact; raise InputError, with the name of the file, if one is wrong."""
    theta = _prompt(prompt)
    if regularizer is None:
        return PromptArtifact(theta)
    phi = _regularizer(regularizer, theta.shape[1])
    return PromptArtifact(theta, phi, {"regularizer": FORM})


def _prompt(path: Path) -> Array:
    """Return θ [P, d] from a file that holds a tensor [P, d] or [1, P, d]."""
    content = _loaded(path)
    if not isinstance(content, Tensor):
        kind = f"the tensors {_some(content)}" if isinstance(content, Mapping) else f"a {type(content).__name__}"
        raise InputError(f"{path}: holds {kind}: a prompt_*.pt holds one bare tensor [prompt tokens, width]")
    value = _numbers(path, "the prompt", content)
    value = value[0] if value.ndim == 3 and len(value) == 1 else value
    if value.ndim != 2 or 0 in value.shape:
        raise InputError(f"{path}: the prompt has the shape {list(content.shape)}, not [prompt tokens, width]")
    return value


def _regularizer(path: Path, width: int) -> dict[str, Array]:
    """Return φ under this project's names, from the state dict of their module."""
    tensors = _loaded(path)
    if not isinstance(tensors, Mapping) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise InputError(f"{path}: holds no state dict: a gradient_edit_*.pt holds tensors by name")
    layers = sorted({int(match[1]) for name in tensors if (match := _LAYER.fullmatch(str(name)))})
    expected = [f"mlp.layers.{number}.{part}" for number in range(max(len(layers), 1)) for part in _LAYER_NAMES]
    expected += [f"{linear}.{part}" for linear in _GATE_NAMES for part in ("weight", "bias")]
    missing = [name for name in expected if name not in tensors]
    if missing:
        raise InputError(f"{path}: no tensor {missing[0]} among {_some(tensors)}: not a released gradient_edit_*.pt")
    unknown = [name for name in tensors if name not in expected and name not in _UNUSED]
    if unknown:
        raise InputError(f"{path}: cannot be converted: it has the unknown tensors {_some(unknown)}")
    values = {name: _numbers(path, name, tensors[name]) for name in expected}
    _check_shapes(path, values, width)
    return {_our_name(name): -value if name.startswith("mlp.linear_2") else value for name, value in values.items()}


def _check_shapes(path: Path, values: Mapping[str, Array], width: int) -> None:
    rank = values["mlp.layers.0.u"].shape[-1] if values["mlp.layers.0.u"].ndim else 0
    hidden = values["mlp.linear_1.bias"].size
    ends = {"u": (width, rank), "v": (rank, width), "linear_1.weight": (hidden, width), "linear_1.bias": (hidden,)}
    ends |= {"linear_2.weight": (1, hidden), "linear_2.bias": (1,), "bias": (width,)}
    for name, value in values.items():
        wanted = next(shape for end, shape in ends.items() if name.endswith(f".{end}"))
        if value.shape != wanted:
            shapes = f"{list(value.shape)}, not {list(wanted)}"
            raise InputError(f"{path}: {name} has the shape {shapes}, as a prompt of width {width} needs it")


def _our_name(name: str) -> str:
    if match := _LAYER.fullmatch(name):
        return f"layers.{match[1]}.{_LAYER_NAMES[match[2]]}"
    linear, _, part = name.rpartition(".")
    return f"{_GATE_NAMES[linear]}.{part}"


def _loaded(path: Path) -> Any:
    """Return the content of a file of torch, with tensors on the CPU; no code in the file is run."""
    _check_sums(path)
    try:
        with warnings.catch_warnings():
            # The warning is about the protocol of a pickle, which is refused below anyway.
            warnings.simplefilter("ignore", UserWarning)
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or first_line(error)})") from error
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path}: not a file of plain tensors: anything else is refused, as it could run code"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise InputError(f"{path}: not a whole file of torch.save ({first_line(error)})") from error


def _check_sums(path: Path) -> None:
    """Raise InputError if a part of the file does not have its checksum, which torch does not compare."""
    try:
        with zipfile.ZipFile(path) as archive:
            # torch.save does not compress, so a compressed part could only be one that unpacks to far too much.
            packed = [part.filename for part in archive.infolist() if part.compress_type != zipfile.ZIP_STORED]
            damaged = None if packed else archive.testzip()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError):
        return  # the older format of torch, or a file that torch refuses
    if packed:
        raise InputError(f"{path}: {packed[0]} is compressed, which torch.save does not do: fetch the file again")
    if damaged:
        raise InputError(f"{path}: damaged: {damaged} does not have its checksum: fetch the file again")


def _numbers(path: Path, name: str, tensor: Tensor) -> Array:
    if tensor.is_meta:
        raise InputError(f"{path}: {name} has a shape but no numbers (a meta tensor): save it from a real device")
    if tensor.layout == torch.strided and tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        stored = tensor.untyped_storage().nbytes() // tensor.element_size()
        shape = f"{list(tensor.shape)} but only {stored:,} numbers"
        raise InputError(f"{path}: {name} has the shape {shape}: save it whole, as tensor.contiguous()")
    if tensor.layout != torch.strided or not tensor.is_floating_point():
        raise InputError(f"{path}: {name} holds {tensor.dtype}, not floating point numbers".replace("torch.", ""))
    value: Array = tensor.detach().to(torch.float32).numpy()
    if not np.isfinite(value).all():
        raise InputError(f"{path}: {name} holds numbers that are not finite")
    return value


def _some(names: Any) -> str:
    listed = [str(name) for name in names]
    return ", ".join(listed[:8]) + (", …" if len(listed) > 8 else "") if listed else "(none)"
