"""The processes that train together: each computes the gradients of whole tasks, and the gradients are summed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

PATIENCE = timedelta(minutes=30)  # for a rank that validates or writes; torchrun notices at once if a rank dies


@dataclass(frozen=True)
class Ranks:
    """The place of this process among `count` processes; if there is only one, every exchange is a no-op."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """True for the rank that writes files and messages."""
        return self.rank == 0

    def summed(self, values: Tensor) -> Tensor:
        """Return the sum of `values` over all ranks."""
        if self.count > 1:
            values = values.contiguous()
            distributed.all_reduce(values)
        return values

    def gathered(self, value: Any) -> list[Any]:
        """Return the `value` of every rank, in the order of ranks."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values

    def same(self, value: Any) -> Any:
        """Return the `value` of the first rank, for decisions that depend on a clock or a file."""
        if self.count == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values)
        return values[0]


@contextmanager
def ranks_of_torchrun(device: torch.device) -> Iterator[Ranks]:
    """Yield the rank of this process under torchrun; nccl connects GPUs, gloo CPUs, and gloo exchanges all objects."""
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend, timeout=PATIENCE)
    yield Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    distributed.destroy_process_group()  # not after an error, because other ranks may never answer
