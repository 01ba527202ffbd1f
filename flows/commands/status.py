"""`supmer status`: show which stages are fresh, which are not, and why."""

import click

from flows.options import print_json, set_option
from flows.run.session import open_session


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@set_option
def command(as_json: bool, settings: tuple[str, ...]) -> None:
    """Show for every stage whether it is fresh, would be restored or would run, and why.

    Changes nothing; with -S it answers for other parameters. Exits with 0 if every stage is fresh, else with 1.

    \b
    Examples:
      supmer status
      supmer status -S sample.min_words=20     what that change would do
      supmer status --json | jq -r '.[] | select(.action == "run").stage'
    """
    session = open_session(settings, keep=False)
    from flows.run.plan import plan, print_steps

    steps = plan(session, session.pipeline.nodes())
    if as_json:
        print_json([step.as_json() for step in steps])
    else:
        print_steps(steps)
    click.get_current_context().exit(0 if all(step.action == "fresh" for step in steps) else 1)
