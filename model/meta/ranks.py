"""The processes that train together: each takes whole tasks, their gradients are summed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

PATIENCE = timedelta(minutes=30)  # for a rank that validates or writes; one that died is noticed at once by torchrun


@dataclass(frozen=True)
class Ranks:
    """This process's place among `count`; alone, every exchange is a no-op."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def summed(self, values: Tensor) -> Tensor:
        """The sum over all ranks of a vector that each has of its own."""
        if self.count > 1:
            values = values.contiguous()
            distributed.all_reduce(values)
        return values

    def gathered(self, value: Any) -> list[Any]:
        """What each rank gives, in the order of ranks."""
        if self.count == 1:
            return [value]
        found: list[Any] = [None] * self.count
        distributed.all_gather_object(found, value)
        return found

    def same(self, value: Any) -> Any:
        """What the first rank gives: for decisions that follow from a clock or a file."""
        if self.count == 1:
            return value
        held = [value]
        distributed.broadcast_object_list(held)
        return held[0]


@contextmanager
def ranks_of_torchrun(device: torch.device) -> Iterator[Ranks]:
    """The ranks that torchrun started: nccl between GPUs, gloo between processors and for all but tensors."""
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend, timeout=PATIENCE)
    yield Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    distributed.destroy_process_group()  # not after an error: other ranks may never answer
