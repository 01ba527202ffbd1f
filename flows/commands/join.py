"""`supmer join`: train on this node together with a run on another."""

from __future__ import annotations

import click

from tasks.stage.nodes import Group, given_rank

EXAMPLES = """\b
Examples:
  supmer run metatrain --nodes 2 --rendezvous 10.0.0.1:29400     on the first node
  supmer join 10.0.0.1:29400                                     on the second, in the same workspace
"""


@click.command(name="join", epilog=EXAMPLES)
@click.argument("address", metavar="HOST:PORT")
@click.option("--ranks", type=click.IntRange(1), show_default="the GPUs, or 1", help="Processes of this node.")
def command(address: str, ranks: int | None) -> None:
    """Take part in the trainings of the run at HOST:PORT (`supmer run --nodes 2 --rendezvous HOST:PORT`).

    This node must see the run's workspace under the same path, and have the same version of supmer and torch. It waits
    for meta-training and fine-tuning of that run, and ends when the run ends.
    """
    from flows.workspace import enter

    enter()
    _take_part(address, ranks)


def takes_part(group: Group | None) -> bool:
    """Take part in a run if the environment gives this process another rank than the first; True if it did."""
    given = given_rank() if group and group.given else None
    if group is None or given is None or given.rank == 0:
        return False
    _take_part(group.address, None)
    return True


def _take_part(address: str, ranks: int | None) -> None:
    """Take part in the trainings of a run until it is over."""
    from tasks.stage.nodes import join

    def ranks_here() -> int:
        import torch

        from tasks.stage.torchrun import rank_count

        return rank_count(str(ranks or ""), torch.cuda.device_count())

    join(address, ranks_here, lambda line: click.echo(f"join: {line}"))
