"""`supmer why STAGE`: show every reason for a stage's state."""

import click

from flows.completion import stage_names
from flows.options import print_json, set_option
from flows.run.session import open_session


@click.command()
@click.argument("stage", shell_complete=stage_names)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@set_option
def command(stage: str, as_json: bool, settings: tuple[str, ...]) -> None:
    """Show every reason why STAGE is stale or fresh, and what it reads and writes.

    \b
    Examples:
      supmer why sample
      supmer why sample -S sample.min_words=20     what that change would do
      supmer why sample --json
    """
    session = open_session(settings, keep=False)
    from flows.dvc_state.dag import ancestors, require
    from flows.run.plan import plan
    from storage.lineage.events import acceptances, read_events

    nodes = {node.name: node for node in session.pipeline.nodes()}
    require(nodes, stage)
    node = nodes[stage]
    above = ancestors(nodes, stage)
    steps = {step.stage: step for step in plan(session, [n for n in nodes.values() if n.name in {stage, *above}])}
    reads = node.inputs
    versions = {str(out): str(out.hash_info.value) for out in session.pipeline.stage(stage).outs}
    accepted = acceptances(read_events(session.root), stage, versions)
    if as_json:
        details = {"accepted": accepted, "reads": reads, "writes": node.outputs, "after": node.upstream}
        print_json(steps[stage].as_json() | details)
        return
    click.echo(f"{stage}: {node.description}")
    click.echo(f"  {steps[stage].action}:")
    for reason in steps[stage].why:
        click.echo(f"    {reason}")
    for acceptance in accepted:
        click.echo(f"  accepted on {acceptance.time[:10]}: {acceptance.reason}")
        for change in acceptance.changes:
            click.echo(f"    although {change}")
    for label, paths in (("reads", reads), ("writes", node.outputs), ("comes after", node.upstream)):
        click.echo(f"  {label}: {', '.join(paths) or 'nothing'}")
