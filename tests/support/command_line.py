"""Commands of `supmer`, in contexts like those of the command line.

A command keeps the help option of its first context: a context made without the settings of `cli` would leave the
command without `-h` for the rest of the process.
"""

import click

from flows.cli import cli


def resolve(words):
    """Return the command named at the start of `words`, its context, and the remaining words for its parser.

    Raise LookupError if there is a word in the place of a verb that is not a verb.
    """
    command, context = cli, click.Context(cli, info_name="supmer", **cli.context_settings)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        command = command.get_command(context, name)
        if command is None:
            raise LookupError(f"there is no {name}")
        context = click.Context(command, info_name=name, parent=context, **command.context_settings)
    return command, context, list(words)
