"""`supmer status`: what is fresh, what is not, and why."""

import click
import orjson

from flows.options import set_option
from flows.session import open_session


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@set_option
def command(as_json: bool, settings: tuple[str, ...]) -> None:
    """Say of every stage whether it is fresh, would be restored or would run, and why.

    Changes nothing; with -S it answers for other parameters. Exits 0 if all is fresh, else 1.
    """
    session = open_session(settings, keep=False)
    from flows.plan import plan

    nodes = session.pipeline.nodes()
    steps = plan(session, nodes)
    if as_json:
        listed = [{"stage": step.stage, "action": step.action, "why": list(step.why)} for step in steps]
        click.echo(orjson.dumps(listed, option=orjson.OPT_INDENT_2))
    else:
        width = max((len(node.name) for node in nodes), default=0)
        for step in steps:
            click.echo(step.line(width))
    click.get_current_context().exit(0 if all(step.action == "fresh" for step in steps) else 1)
