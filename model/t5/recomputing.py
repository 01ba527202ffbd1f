"""Gradient checkpointing: the activations of a layer are computed again for the backward pass instead of being kept."""

from collections.abc import Callable
from contextlib import nullcontext

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from model.t5.attention import is_plain_kernel_asked_for

Function = Callable[..., Tensor]


def directly(function: Function, *arguments: object) -> Tensor:
    """Call a function, keeping its activations."""
    return function(*arguments)


def recomputed(function: Function, *arguments: object) -> Tensor:
    """Call a function, and call it again where the backward pass needs its activations.

    The second call comes when the context of the first is gone, but the kernel of attention must be chosen as it was
    then: `sdpa_kernel(MATH)`, which second derivatives need, switches the flash kernel off.
    """
    plain = is_plain_kernel_asked_for()

    def again(*given: object) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH) if plain else nullcontext():
            return function(*given)

    found: Tensor = checkpoint(again, *arguments, use_reentrant=False)
    return found
