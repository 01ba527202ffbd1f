"""The one place that picks a device: a GPU where there is one, else this process's share of the cores."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_chosen: int | None = None


def device(number: int = 0) -> "torch.device":
    """The device of this process: the first call's `number` decides which GPU, and it stays with that one.

    Callers give the number of their shard: the first shards go to different workers, so that the workers spread over
    the GPUs, and none loads its model on more than one.
    """
    import torch

    global _chosen  # noqa: PLW0603 - a fact about this process
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if _chosen is None:
        _chosen = number % torch.cuda.device_count()
    return torch.device("cuda", _chosen)


@cache
def cpu_threads() -> int:
    """This process's share of the cores: OMP_NUM_THREADS, which the worker pool and Dask set, else all of them."""
    import torch

    return torch.get_num_threads()


def make_deterministic(where: "torch.device") -> None:
    """Have a GPU give the same bits again, as far as torch can; on a processor the number of threads decides."""
    import torch

    if where.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first product
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        # What torch would only warn of: the backward passes of attention's fused kernels add up in any order.
        torch.backends.cuda.enable_mem_efficient_sdp(enabled=False)
        torch.backends.cuda.enable_cudnn_sdp(enabled=False)


def leave_gpu(where: "torch.device") -> None:
    """Give back to a GPU what this process keeps of it for later: another one's turn has come."""
    import torch

    if where.type == "cuda":
        torch.cuda.empty_cache()


def total_memory(where: "torch.device") -> int:
    """Bytes of memory that a device has."""
    import psutil
    import torch

    if where.type == "cuda":
        return int(torch.cuda.get_device_properties(where).total_memory)
    return int(psutil.virtual_memory().total)


@contextmanager
def single_threaded() -> Iterator[None]:
    """One core for each operation: sums then come out the same, bit for bit, whatever the number of cores."""
    import torch

    before, _ = torch.get_num_threads(), cpu_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
