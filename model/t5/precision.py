"""The only module that picks a precision: bfloat16 where the device computes in it, float32 elsewhere.

The precision is that of a model's frozen weights and of the products with them. What is learned, its gradients and the
optimizer's state, losses, norms and the sums of softmax are float32 in either.
"""

import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "bfloat16"]
WantedPrecision = Literal["auto", "float32", "bfloat16"]

_UNITS = ("amx_bf16", "avx512_bf16")  # names of processor features, as torch.cpu.get_capabilities spells them
_ROWS, _WIDTH, _REPEATS = 256, 512, 3  # of the product that is timed


@dataclass(frozen=True)
class Choice:
    """A precision, and the reason why it was chosen.

    Attributes:
        why: the reason, for a line that is printed.
        warning: the expected cost, if the device has no units for the precision that was asked for; "" otherwise.
    """

    precision: Precision
    why: str
    warning: str = ""

    def __str__(self) -> str:
        return f"{self.precision} ({self.why})"


def choose(wanted: WantedPrecision, where: "torch.device") -> Choice:
    """Return the precision for a device: `auto` takes bfloat16 if the device has units for it."""
    if wanted == "float32":
        return Choice("float32", "as asked for")
    units = bfloat16_units(where)
    if wanted == "auto":
        name = "processor" if where.type == "cpu" else "GPU"
        if units:
            return Choice("bfloat16", f"auto: this {name} has {units}")
        return Choice("float32", f"auto: this {name} does not compute in bfloat16")
    if units:
        return Choice("bfloat16", "as asked for")
    warning = (
        f"precision: bfloat16: no units for it here: a product takes {slow_down(where):.1f} times as long as in "
        "float32; `auto` takes float32"
    )
    return Choice("bfloat16", "as asked for", warning)


def bfloat16_units(where: "torch.device") -> str:
    """Return the name of the units of a device that compute in bfloat16, or "" if it has none."""
    import torch

    if where.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else ""
    features = processor_features() if where.type == "cpu" else frozenset()
    return next((unit.upper() for unit in _UNITS if unit in features), "")


@cache
def processor_features() -> frozenset[str]:
    """Return the features that the processor says it has, in lower case; the system must support them too."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return frozenset(name for name, present in capabilities.items() if present is True)


def slow_down(where: "torch.device") -> float:
    """Return how many times as long as in float32 a product takes in bfloat16, measured in a moment on this device."""
    import torch

    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = (torch.ones(rows, _WIDTH, dtype=dtype, device=where) for rows in (_ROWS, _WIDTH))
        taken = []
        for _ in range(_REPEATS + 1):  # the first makes the kernel
            start = time.perf_counter()
            float(torch.nn.functional.linear(left, right)[0, 0])  # waits for a GPU
            taken.append(time.perf_counter() - start)
        seconds[dtype] = min(taken[1:])
    return seconds[torch.bfloat16] / seconds[torch.float32]


def weights_dtype(precision: Precision) -> "torch.dtype":
    """Return the type of a model's weights."""
    import torch

    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]
