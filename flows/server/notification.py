"""Tell people when a run fails or crashes, through a notification block of Prefect (docs/operations.md)."""

from __future__ import annotations

import os
from typing import Any

BLOCK = "SUPMER_NOTIFICATION"  # environment variable: the block's type and name
DEFAULT_BLOCK = "custom-webhook/supmer"


def notify(flow: Any, flow_run: Any, state: Any) -> None:
    """Send the name, state and message of a flow run; without a block do nothing. A hook of the flow."""
    import prefect.blocks.notifications  # noqa: F401 - makes the types of blocks known
    from prefect.blocks.core import Block
    from prefect.logging.loggers import flow_run_logger

    name = os.environ.get(BLOCK, DEFAULT_BLOCK)
    try:
        block: Any = Block.load(name)
    except ValueError as error:
        if BLOCK in os.environ:
            flow_run_logger(flow_run).warning("%s=%s: nobody is told: %s", BLOCK, name, error)
        return
    block.notify(f"{flow_run.name}\n{state.message or ''}", subject=f"{flow.name}: {state.name.lower()}")
