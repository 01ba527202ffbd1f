"""Gradient checkpointing: the activations of a layer are computed again for the backward pass instead of being kept."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

Function = Callable[..., Tensor]


def directly(function: Function, *arguments: object) -> Tensor:
    """Call a function, keeping its activations."""
    return function(*arguments)


def recomputed(function: Function, *arguments: object) -> Tensor:
    """Call a function, and call it again where the backward pass needs its activations.

    The second call comes when the context of the first is gone, but the kernel of attention must be chosen as it was
    then: `sdpa_kernel(MATH)`, which second derivatives need, switches the flash kernel off.
    """
    flash: bool = torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]  # torch has no type for it

    def again(*given: object) -> Tensor:
        with nullcontext() if flash else sdpa_kernel(SDPBackend.MATH):
            return function(*given)

    found: Tensor = checkpoint(again, *arguments, use_reentrant=False)
    return found
