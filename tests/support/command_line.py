"""Commands of `supmer` in contexts as the command line makes them.

A command keeps the help option of the first context it is asked in: a context made without the settings of `cli` would
leave it without `-h` for the rest of the process.
"""

import click

from flows.cli import cli


def resolve(words):
    """Return the command that `words` begin with, its context, and the words that are left for its parser.

    Raise LookupError if a word where a verb belongs is none.
    """
    command, context = cli, click.Context(cli, info_name="supmer", **cli.context_settings)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        command = command.get_command(context, name)
        if command is None:
            raise LookupError(f"there is no {name}")
        context = click.Context(command, info_name=name, parent=context, **command.context_settings)
    return command, context, list(words)
