"""`supmer completion`: print the script that lets a shell complete verbs, options, stages, profiles and parameters."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that makes SHELL complete this command; load it from the shell's startup file.

    \b
    Examples:
      supmer completion bash >> ~/.bashrc
      supmer completion zsh >> ~/.zshrc
      supmer completion fish > ~/.config/fish/completions/supmer.fish
    """
    root = click.get_current_context().find_root()
    completer = get_completion_class(shell)
    assert completer is not None, "click knows all three"
    script = completer(root.command, {}, "supmer", "_SUPMER_COMPLETE")
    click.echo(script.source_template % script.source_vars())
