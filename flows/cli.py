"""The `supmer` command: each verb has its own module, which is imported only when the verb is called."""

import os
import signal
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from keyword import iskeyword
from typing import Any, TextIO

import click

from storage.errors import InputError, TransientError
from storage.signs_of_life import doing

VERBS = {
    "init": "make a workspace in a folder of its own, outside the source tree",
    "doctor": "check versions, disk, memory, the hub and ports, and say what to do",
    "run": "run the pipeline or some of its stages, and say why each ran or did not run",
    "status": "show which stages are fresh, which are not, and why",
    "why": "explain why one stage is fresh or stale",
    "cost": "estimate tokens, memory, disk and time of each stage before it runs",
    "params": "list, show, compare and choose parameter profiles",
    "sample": "preview what the filters of stage sample keep and drop",
    "show": "show anchor tasks as the model sees them, or clusters with their nearest sentences",
    "tune": "tune a prompt on a few labeled examples of your own",
    "evaluate": "measure a tuned prompt on a labeled file: accuracy, macro F1, confusion matrix, calibration",
    "predict": "label new texts with a tuned prompt",
    "sql": "query every table of the workspace with DuckDB",
    "runs": "list the runs of the pipeline with parameters and scores, or export them to MLflow or TensorBoard",
    "compare": "show what changed between two runs in parameters, data, code and scores",
    "lineage": "show what an artifact was made from, down to the sources",
    "trace": "trace a training example, sentence or document back to its file and offset",
    "uses": "list the tables and prompts that a document went into",
    "forget": "keep documents out of everything from now on, and certify it",
    "verify": "hash every output again and compare it with dvc.lock",
    "ui": "open Prefect's interface to the runs of this workspace in a browser",
    "serve": "run the pipeline on a schedule",
    "join": "train on this node together with a run on another",
    "dag": "print the pipeline as text or Mermaid",
    "accept": "record that a result stands although its code changed",
    "ship": "write a learned prompt with its provenance as a folder to keep with a project",
    "export": "convert a prompt to a Hugging Face PEFT adapter",
    "import": "convert a Hugging Face PEFT adapter to a prompt",
    "import-official": "convert the prompt and regularizer that the paper's authors released",
    "gc": "free disk space: remove what no commit and no current output needs",
    "completion": "print the code with which a shell completes this command",
    "stage": "run one stage's function, as `dvc repro` does",
}

UNDER_WAY = {
    "status": "comparing files with dvc.lock",
    "why": "comparing files with dvc.lock",
    "cost": "measuring the machine and the data",
    "accept": "hashing inputs and outputs",
    "dag": "reading dvc.yaml",
    "show": "reading the tables",
    "sql": "running the query",
    "lineage": "reading dvc.lock and the events",
    "trace": "searching the tables",
    "uses": "searching the tables",
    "verify": "hashing the outputs",
    "runs": "reading the events and DVC's cache",
    "compare": "reading the events and DVC's cache",
    "ship": "reading the prompt and what it was made from",
    "export": "reading the prompt and hashing its backbone",
    "import": "reading the adapter",
    "import-official": "reading the released files",
    "gc": "looking for what nothing needs any more",
    "init": "writing the workspace",
    "doctor": "checking the machine and the network",
}
"""The work of verbs that print nothing before their result, for those who wait."""
SPEAKING = frozenset({"run", "stage", "ui", "serve", "join", "tune", "predict", "evaluate", "forget"})
"""Verbs that say themselves what is loading or running."""

WRITERS = ("click.", "rich.", "flows.cli", "flows.commands.")  # the modules that write to standard output


class PipeClosedError(Exception):
    """The reader of standard output closed it; click would end with exit code 1 on a BrokenPipeError."""


class Verbs(click.Group):
    """A group that lists its subcommands from a table, so that `--help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the verbs in the order in which a person meets them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a verb's module and return its command."""
        if cmd_name not in VERBS:
            return None
        from flows.options import accept_settings

        module = cmd_name.replace("-", "_") + "_" * iskeyword(cmd_name)
        command: click.Command = import_module(f"flows.commands.{module}").command
        return accept_settings(command)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosedError from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb and its arguments; name the nearest verb if there is no such verb."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1, cutoff=0.5)
            hint = f": did you mean {near[0]}?" if near else "."
            raise click.UsageError(f"No such command {args[0]!r}{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the verbs with their one-line help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 a bug, or `status` or `verify` found a problem; 2 bad input; 130 interrupted. "
    "Output is coloured only in a terminal, and never if NO_COLOR is set.",
)
@click.version_option(version("supmer"), prog_name="supmer")
@click.pass_context
def cli(context: click.Context) -> None:
    """Self-supervised meta-prompt learning as a pipeline with auditable lineage.

    \b
    Examples:
      supmer run                       run what is not fresh
      supmer run sample -S sample.budget_mb=5
      supmer why sample                what makes a stage stale
      supmer sql "SELECT reason, count(*) FROM excluded GROUP BY 1"
    """
    verb = context.invoked_subcommand
    if verb in VERBS and verb not in SPEAKING:
        context.with_resource(doing(f"{verb}: {UNDER_WAY.get(verb, 'at work')}"))


def main() -> None:
    """Run the command line and exit with its exit code."""
    # Do not exit inside `_run`: while an exception is handled, its frames and their objects stay alive until the end.
    sys.exit(_run())


def _run() -> int:
    """Run the command and return its exit code; bad input gives one line and exit code 2, never a traceback."""
    try:
        colour = False if os.environ.get("NO_COLOR") else None  # None: colours in a terminal only
        code = cli(standalone_mode=False, color=colour)  # the code a verb passes to Context.exit, if any
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()  # here, where a failure can still be reported
    except click.exceptions.Abort:
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        return _incomplete(error.ctx)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "supmer"
        return _refuse(f"{error.format_message()} (see `{path} --help`)")
    except (BrokenPipeError, PipeClosedError):
        _give_up(sys.stdout)
        return 128 + signal.SIGPIPE
    except (click.ClickException, InputError, TransientError, OSError) as error:
        return _refuse(_said(error))
    return code if isinstance(code, int) else 0


def _incomplete(context: click.Context | None) -> int:
    """Report a group called without a command, naming its commands; for `supmer` alone, print the whole help."""
    if context is None or context.parent is None or not isinstance(context.command, click.Group):
        click.echo(context.get_help() if context else "", err=True)
        return 2
    known = ", ".join(context.command.list_commands(context))
    return _refuse(f"{context.info_name}: one of {known} is missing (see `{context.command_path} --help`)")


def _refuse(message: str) -> int:
    with suppress(OSError):  # standard error is gone; the exit code still reports the failure
        click.echo(f"supmer: {message}", err=True)
    return 2


def _said(error: Exception) -> str:
    """Return the message of an error.

    An OSError without a file name, raised by a module that writes to standard output, is about standard output.
    """
    if not isinstance(error, OSError):
        return error.format_message() if isinstance(error, click.ClickException) else str(error)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if error.filename is None and frame.f_globals["__name__"].startswith(WRITERS):
        _give_up(sys.stdout)
        return f"standard output: cannot be written ({error.strerror}): send it elsewhere, or make room"
    return str(error)


def _give_up(stream: TextIO) -> None:
    """Discard the buffered output of a stream, or Python would report the error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":  # a schedule starts its runs this way
    main()
