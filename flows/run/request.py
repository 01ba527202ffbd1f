"""What a run is asked to do: the options of `supmer run`, which are the parameters of the Prefect flow as well."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from flows.retries import ONCE, Retries
from storage.errors import InputError
from tasks.stage.contract import RANKS

if TYPE_CHECKING:
    from flows.dvc_state.dag import Node, Pipeline


@dataclass(frozen=True)
class Places:
    """Execution settings of shards: `runner` is threads or dask, `address` an existing Dask scheduler."""

    workers: int
    runner: str = "threads"
    address: str | None = None
    ranks: int | None = None  # processes that train a prompt; None: the GPUs, or 1

    def __post_init__(self) -> None:
        if self.address is not None and "://" not in self.address:
            raise InputError(f"--dask {self.address}: not a scheduler address: write it like tcp://10.0.0.1:8786")

    def announce_ranks(self) -> None:
        """Tell the process that trains, on whatever machine, how many ranks to start."""
        os.environ[RANKS] = str(self.ranks or os.environ.get(RANKS, ""))


@dataclass(frozen=True)
class Request:
    """The stages to run, the settings to run them with, and where and how often to try."""

    places: Places
    stages: tuple[str, ...] = ()
    start: str | None = None
    end: str | None = None
    forced: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()  # KEY=VALUE
    retries: Retries = ONCE

    def nodes(self, pipeline: Pipeline) -> list[Node]:
        """Return the stages to run, in order; raise InputError if there is none, or if a name is wrong."""
        from flows.dvc_state.dag import require, select

        every = pipeline.nodes()
        nodes = select(every, self.stages, self.start, self.end)
        for name in self.forced:
            require([node.name for node in every], name)
            if name not in {node.name for node in nodes}:
                raise InputError(f"--force {name}: is not among the stages to run: name it too, or leave --force out")
        if not nodes:
            raise InputError("no stage is left to run: check the names and their order with `supmer dag`")
        return nodes

    def parameters(self) -> dict[str, Any]:
        """Return the request as parameters of the flow."""
        return {
            "stages": list(self.stages),
            "from_stage": self.start,
            "until_stage": self.end,
            "force": list(self.forced),
            "settings": mapping(self.settings),
            "workers": self.places.workers,
            "runner": self.places.runner,
            "dask_address": self.places.address,
            "ranks": self.places.ranks,
            "retries": self.retries.times,
            "retry_delay": self.retries.seconds,
        }


def mapping(assignments: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE texts as a mapping; a value is typed if that loses nothing, else it is its text."""
    pairs = [assignment.partition("=") for assignment in assignments]
    return {key.strip(): _typed(text.strip()) for key, _, text in pairs}


def _typed(text: str) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if not isinstance(value, str) and orjson.dumps(value).decode() == text else text


def assignments(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a mapping of settings, nested or with dotted keys, as KEY=VALUE texts."""
    from tasks.params.reference import flatten

    return tuple(
        f"{key}={value if isinstance(value, str) else _json(value)}" for key, value in flatten(settings).items()
    )


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
