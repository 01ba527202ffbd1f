"""`supmer why STAGE`: every reason for a stage's state."""

import click

from flows.options import set_option
from flows.session import open_session


@click.command()
@click.argument("stage")
@set_option
def command(stage: str, settings: tuple[str, ...]) -> None:
    """Say everything that makes STAGE stale or keeps it fresh, and what it reads and writes.

    \b
    Examples:
      supmer why sample
      supmer why sample -S sample.min_words=20     what that change would do
    """
    session = open_session(settings, keep=False)
    from flows.dag import ancestors, require
    from flows.plan import plan

    nodes = {node.name: node for node in session.pipeline.nodes()}
    require(nodes, stage)
    node = nodes[stage]
    above = ancestors(nodes, stage)
    steps = {step.stage: step for step in plan(session, [n for n in nodes.values() if n.name in {stage, *above}])}
    click.echo(f"{stage}: {node.description}")
    click.echo(f"  {steps[stage].action}:")
    for reason in steps[stage].why:
        click.echo(f"    {reason}")
    for label, paths in (("reads", node.inputs), ("writes", node.outputs), ("comes after", node.upstream)):
        click.echo(f"  {label}: {', '.join(paths) or 'nothing'}")
