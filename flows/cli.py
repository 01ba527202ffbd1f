"""The `supmer` command: one verb a module, imported only when it is called."""

import os
import signal
import sys
from importlib import import_module
from importlib.metadata import version

import click

from storage.errors import InputError, TransientError

VERBS = {
    "run": "run the pipeline, or the stages named, and say of each why it ran or did not",
    "status": "what is fresh, what is not, and why",
    "why": "everything that makes one stage stale or fresh",
    "dag": "the pipeline as text or Mermaid",
    "params": "list, show, compare and choose parameter profiles",
    "show": "anchor tasks as the model sees them, clusters with their nearest sentences",
    "sql": "query every dataset of the workspace with DuckDB",
    "lineage": "what an artifact was made from, down to the sources",
    "trace": "from a training example, sentence or document back to file and offset",
    "uses": "which datasets saw a document",
    "verify": "re-hash every output against dvc.lock",
    "gc": "free what no commit and no current output needs",
    "stage": "run one stage's function; what dvc repro calls",
}


class Verbs(click.Group):
    """Subcommands listed from a table, so that `--help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The verbs, in the order a person meets them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a verb's module and return its command."""
        if cmd_name not in VERBS:
            return None
        from flows.options import accept_settings

        command: click.Command = import_module(f"flows.commands.{cmd_name}").command
        return accept_settings(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the verbs with their one-line help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("supmer"), prog_name="supmer")
def cli() -> None:
    """Self-supervised meta-prompt learning as a pipeline with auditable lineage.

    \b
    Examples:
      supmer run                       run what is not fresh
      supmer run sample -S sample.budget_mb=5
      supmer why sample                what makes a stage stale
      supmer sql "SELECT reason, count(*) FROM excluded GROUP BY 1"
    """


def main() -> None:
    """Run the command line and leave with its exit code."""
    # Not from within `_run`: an exception in hand would keep its frames, and what they hold, alive to the very end.
    sys.exit(_run())


def _run() -> int:
    """Bad input is one line and exit code 2, never a traceback."""
    try:
        code = cli(standalone_mode=False)  # what a verb passes to Context.exit, or nothing
    except click.exceptions.Abort:
        return 130
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "supmer"
        return _refuse(f"{error.format_message()} (see `{path} --help`)")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again at exit
        return 128 + signal.SIGPIPE
    except (click.ClickException, InputError, TransientError, OSError) as error:
        return _refuse(error.format_message() if isinstance(error, click.ClickException) else str(error))
    return code if isinstance(code, int) else 0


def _refuse(message: str) -> int:
    click.echo(f"supmer: {message}", err=True)
    return 2
