"""`supmer stage NAME`: one stage's function, as `dvc repro` calls it."""

import os

import click

from flows.session import open_session


@click.command()
@click.argument("name")
def command(name: str) -> None:
    """Run the function of stage NAME once, without asking what is fresh: this is the command in dvc.yaml.

    DVC itself decides when to call it and records the result; people use `supmer run` or `dvc repro`.
    """
    session = open_session((), keep=False)
    from flows.dag import require
    from flows.runner import run_single

    nodes = {node.name: node for node in session.pipeline.nodes()}
    require(nodes, name)
    run_single(session, nodes[name], os.cpu_count() or 1)
