"""Measure the memory that a kept graph needs, and redo work in smaller pieces when memory runs out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from model.prompt.passes import Passes
from model.prompt.rows import Row, chunked
from model.prompt.sizes import SMALLEST_CHUNK
from model.t5.backbone import attention_kernel, computing

PROBE_TOKENS = 1024  # tokens of the chunk that is measured
Result = TypeVar("Result")


def graph_bytes(passes: Passes, prompts: Tensor, rows: Sequence[Row]) -> int:
    """Estimate the bytes that the graph of the gradients of prompts [K, P, d] holds, from a chunk of the longest rows.

    The graph of that chunk is built twice. Memory that both graphs refer to (weights, position biases) is not counted.
    """
    passes = replace(passes, chunk_tokens=min(passes.chunk_tokens, PROBE_TOKENS))
    first, *others = chunked(rows, prompts.shape[1], passes.chunk_tokens)
    # The roots keep both graphs alive while they are compared.
    (once, _root), (again, _other_root) = _saved(passes, prompts, first), _saved(passes, prompts, first)
    return sum(size for address, size in once.items() if address not in again) * (1 + len(others))


def _saved(passes: Passes, prompts: Tensor, chunk: Sequence[Row]) -> tuple[dict[int, int], Tensor]:
    """Return the sizes, by address, of the tensors that the graph of a chunk's gradient saves, and that gradient."""
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    leaf = prompts.detach().clone().requires_grad_()
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, computing(passes.backbone), attention_kernel(twice=True):
        each, _, _ = passes.losses(leaf, chunk)
        (gradient,) = torch.autograd.grad(each.sum(), leaf, create_graph=True)
    return sizes, gradient


def within_memory(work: Callable[[], Result], smaller: Callable[[], bool]) -> Result:
    """Return the result of `work()`; each time memory runs out, call `smaller()` and try again.

    Raise MemoryError if memory runs out and `smaller()` returns False.
    """
    while True:
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not smaller():
            raise MemoryError(reason)


def halved(passes: Passes, say: Callable[[str], None]) -> bool:
    """Halve the tokens of a chunk from now on, and say so; return False if chunks cannot get any smaller."""
    if passes.chunk_tokens <= SMALLEST_CHUNK:
        return False
    passes.chunk_tokens //= 2
    say(f"memory ran out: continuing with chunks of {passes.chunk_tokens:,} tokens")
    return True


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error says that memory ran out, on a GPU or on the CPU."""
    phrases = ("allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(text in str(error) for text in phrases)
