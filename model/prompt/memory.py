"""What a kept graph costs, measured on a first chunk; and doing work in smaller pieces when memory runs out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from model.prompt.passes import Passes
from model.prompt.rows import Row, chunked
from model.t5.backbone import attention_kernel, precision

PROBE_TOKENS = 1024  # of a chunk that is only measured
SMALLEST_CHUNK = 64  # tokens; a chunk holds one row at least
Result = TypeVar("Result")


def graph_bytes(passes: Passes, prompts: Tensor, rows: Sequence[Row]) -> int:
    """Bytes that the graph of the gradients under prompts [K, P, d] would hold, by a first chunk of the longest rows.

    What two graphs of the same chunk, both alive, hold in common (weights, position biases) is not the graph's own.
    """
    passes = replace(passes, chunk_tokens=min(passes.chunk_tokens, PROBE_TOKENS))
    first, *others = chunked(rows, prompts.shape[1], passes.chunk_tokens)
    (once, _alive), (again, _also_alive) = _held(passes, prompts, first), _held(passes, prompts, first)
    return sum(size for place, size in once.items() if place not in again) * (1 + len(others))


def _held(passes: Passes, prompts: Tensor, chunk: Sequence[Row]) -> tuple[dict[int, int], Tensor]:
    """Sizes, by address, of the memory that the graph of a chunk's gradient refers to; and the gradient, its root."""
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    leaf = prompts.detach().clone().requires_grad_()
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, precision(passes.backbone), attention_kernel(twice=True):
        each, _, _ = passes.losses(leaf, chunk)
        (gradient,) = torch.autograd.grad(each.sum(), leaf, create_graph=True)
    return found, gradient


def within_memory(work: Callable[[], Result], smaller: Callable[[], bool]) -> Result:
    """Do the work; when memory runs out, make the pieces smaller and do it again, as long as that is possible."""
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


def halved(passes: Passes, told: Callable[[str], None]) -> bool:
    """Take chunks of half the tokens from here on, and say so; False where they are as small as they get."""
    if passes.chunk_tokens <= SMALLEST_CHUNK:
        return False
    passes.chunk_tokens //= 2
    told(f"memory ran out: chunks of {passes.chunk_tokens:,} tokens from here on")
    return True


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or here."""
    said = ("allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(text in str(error) for text in said)
