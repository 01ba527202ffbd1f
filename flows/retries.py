"""Retries: how often a failed stage is tried again, and after how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Retries:
    """The number of retries of a failed stage and the delay before each; finished shards are not done again."""

    times: int = 0
    seconds: float = 0.0


ONCE = Retries()


def retry_options(times: int, seconds: float) -> Callable[[_Command], _Command]:
    """Return a decorator that adds `--retries` and `--retry-delay` to a command, with these defaults."""

    def decorate(command: _Command) -> _Command:
        delay = click.option(
            "--retry-delay",
            type=click.FloatRange(0),
            default=seconds,
            show_default=True,
            metavar="SECONDS",
            help="Time to wait before each retry.",
        )
        again = click.option(
            "--retries",
            type=click.IntRange(0),
            default=times,
            show_default=True,
            help="Retries of a failed stage; it continues from its finished shards.",
        )
        return again(delay(command))

    return decorate
