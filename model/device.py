"""The only module that picks a device: a GPU if there is one, otherwise this process's share of the CPU cores."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_chosen: int | None = None


def device(number: int = 0) -> "torch.device":
    """Return the device of this process; `number` chooses the GPU in the first call, and later calls return the same.

    Callers pass the number of their shard. The first shards go to different workers, so the workers spread over the
    GPUs, and none loads its model on more than one.
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
    """Return this process's share of the cores: OMP_NUM_THREADS, which the worker pool and Dask set, or all cores."""
    import torch

    return torch.get_num_threads()


def make_deterministic(where: "torch.device") -> None:
    """Make a GPU give the same bits on every run, as far as torch can; on a CPU only the number of threads matters."""
    import torch

    if where.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first matrix product
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        # Torch would only warn about these: the backward passes of the fused attention kernels sum in any order.
        torch.backends.cuda.enable_mem_efficient_sdp(enabled=False)
        torch.backends.cuda.enable_cudnn_sdp(enabled=False)


def leave_gpu(where: "torch.device") -> None:
    """Free the GPU memory that this process caches, so that another process can use it."""
    import torch

    if where.type == "cuda":
        torch.cuda.empty_cache()


def total_memory(where: "torch.device") -> int:
    """Return the memory of a device in bytes."""
    import psutil
    import torch

    if where.type == "cuda":
        return int(torch.cuda.get_device_properties(where).total_memory)
    return int(psutil.virtual_memory().total)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Use one core for each operation: sums are then the same, bit for bit, on any number of cores."""
    import torch

    before, _ = torch.get_num_threads(), cpu_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
