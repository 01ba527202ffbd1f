"""Dependencies of stages that are URLs: DVC asks the storage for their ETags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from storage.lockfile import REMOTE_STAGE
from storage.sources.listing import parameter_of
from storage.sources.objects import explained


@contextmanager
def reaching(stage: Any) -> Iterator[None]:
    """Explain in one line what goes wrong while DVC looks at the dependencies of a stage, if one is a URL."""
    name, _, key = str(stage.name).partition("@")
    if name != REMOTE_STAGE:
        yield
        return
    [url] = [str(dep) for dep in stage.deps if "://" in str(dep)]
    with explained(parameter_of(key), url):
        yield
