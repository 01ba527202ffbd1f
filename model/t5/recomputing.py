"""Gradient checkpointing: compute the activations of a layer again in the backward pass instead of keeping them."""

from collections.abc import Callable
from contextlib import nullcontext

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from model.t5.attention import is_plain_kernel_asked_for

Function = Callable[..., Tensor]


def directly(function: Function, *arguments: object) -> Tensor:
    """Call a function and keep its activations."""
    return function(*arguments)


def recomputed(function: Function, *arguments: object) -> Tensor:
    """Call a function, and call it again when the backward pass needs its activations.

    The second call happens outside the context of the first, but must use the same attention kernel. The context
    `sdpa_kernel(MATH)`, which second derivatives need, is recognized by the flash kernel being off.
    """
    plain = is_plain_kernel_asked_for()

    def again(*values: object) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH) if plain else nullcontext():
            return function(*values)

    result: Tensor = checkpoint(again, *arguments, use_reentrant=False)
    return result
