"""Options shared by the commands: `-S stage.key=value`, and where shards run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from flows.completion import parameter_keys, stage_names
from flows.workspace import find_root
from model.t5.precision import WantedPrecision
from storage.errors import InputError

if TYPE_CHECKING:
    from tasks.params.diff import Change
    from tasks.params.file import Document
    from tasks.params.schema import Params

PARAMS_FILE = "params.yaml"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def set_option(command: _Command) -> _Command:
    """Add the option `-S KEY=VALUE` to a command, which receives it as `settings`, a tuple of strings."""
    return click.option(
        "-S",
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=parameter_keys,
        help="Set a parameter, for example -S sample.budget_mb=5. May be repeated.",
    )(command)


def stage_option(*names: str, help: str, multiple: bool = False) -> Callable[[_Command], _Command]:  # noqa: A002 - click's
    """Return a decorator that adds an option which takes the name of a stage."""
    return click.option(*names, metavar="STAGE", multiple=multiple, shell_complete=stage_names, help=help)


def precision_option(default: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the option `--precision`; `default` says what holds without it."""
    return click.option(
        "--precision",
        type=click.Choice(get_args(WantedPrecision)),
        show_default=default,
        help="Of the model's products; auto: bfloat16 where the device computes in it.",
    )


def print_json(value: object) -> None:
    """Print a value as JSON."""
    import orjson

    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def place_options(command: _Command) -> _Command:
    """Add the options that say where shards run to a command: `runner`, `address`, `workers`, `ranks`."""
    for option in (
        click.option(
            "--ranks", type=click.IntRange(1), show_default="the GPUs, or 1", help="Processes that train a prompt."
        ),
        click.option(
            "--workers",
            type=click.IntRange(1),
            default=os.cpu_count(),
            show_default="cores",
            help="Shards computed at once.",
        ),
        click.option(
            "--dask", "address", metavar="ADDRESS", help="Address of a Dask scheduler; default: a local cluster."
        ),
        click.option("--runner", type=click.Choice(["threads", "dask"]), default="threads", help="Where shards run."),
    ):
        command = option(command)
    return command


def node_options(command: _Command) -> _Command:
    """Add the options for training on several nodes to a command: `nodes`, `rendezvous`."""
    for option in (
        click.option(
            "--rendezvous",
            metavar="HOST:PORT",
            help="Address of this node at which the others find it (`supmer join HOST:PORT`).",
        ),
        click.option(
            "--nodes", type=click.IntRange(1), show_default="1", help="Nodes that train a prompt or a model together."
        ),
    ):
        command = option(command)
    return command


def accept_settings(command: click.Command) -> click.Command:
    """Let a command that reads no parameters accept `-S` too: the setting is checked and otherwise ignored.

    `--help` does not list it, because it does nothing here.
    """
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            accept_settings(inner)
    elif all(option.name != "settings" for option in command.params):
        option = click.Option(["-S", "--set", "settings"], multiple=True, metavar="KEY=VALUE", hidden=True)
        option.expose_value, option.callback = False, _check
        command.params.append(option)
    return command


def _check(_context: click.Context, _option: click.Parameter, settings: tuple[str, ...]) -> None:
    if settings:
        overlaid(find_root(), settings)


def overlaid(root: Path, settings: Sequence[str]) -> tuple[Params, dict[str, Any] | None]:
    """Return the parameters with the settings applied, and the values params.yaml would then hold (None: the same).

    params.yaml is not changed.
    """
    document, params, changed = _applied(root, settings)
    return params, dict(document.values) if changed else None


def persisted(root: Path, settings: Sequence[str]) -> tuple[Params, list[str]]:
    """Write the settings into params.yaml, as `dvc exp run -S` does.

    Return the parameters, and a line like `sample.budget_mb: 20 → 5` for each change. Nothing is written if a setting
    is refused or no value changes.
    """
    from tasks.params.file import save

    document, params, changed = _applied(root, settings)
    if changed:
        save(document)
    return params, [str(change) for change in changed]


def _applied(root: Path, settings: Sequence[str]) -> tuple[Document, Params, list[Change]]:
    from tasks.params.file import read, validate

    document = read(root / PARAMS_FILE)
    if not settings:
        return document, _whole(document), []
    from tasks.params.diff import changes
    from tasks.params.overrides import override

    changed = override(document, settings)
    params = _whole(changed)
    try:
        before, after = validate(document).model_dump(), params.model_dump()
    except InputError:  # the settings repair an invalid file: only the written values can be compared
        before, after = document.values, changed.values
    return changed, params, changes(before, after)


def _whole(document: Document) -> Params:
    """Return the parameters; raise InputError if the file has a wrong value or leaves out a key.

    DVC compares what is written, and would not notice a new default.
    """
    from tasks.params.file import validate
    from tasks.params.reference import flatten
    from tasks.params.schema_base import shown

    try:
        params = validate(document)
    except InputError as error:
        raise InputError("\n".join([*_earlier_version(document), str(error)])) from None
    written = flatten(document.values)
    missing = [
        f"{document.path.name}: {key}: is missing: add it (its default is {shown(value)})"
        for key, value in flatten(params.model_dump()).items()
        if key not in written and not any(other.startswith(f"{key}.") for other in written)
    ]
    if missing:
        raise InputError("\n".join(missing))
    return params


def _earlier_version(document: Document) -> list[str]:
    """Return a line that says what to do with a file that has keys of an earlier version; none for other files."""
    from tasks.params.changed_keys import changed
    from tasks.params.reference import flatten, parameters

    written = flatten(document.values)
    if not any(changed(key.split(".")) for key in written):
        return []
    new = [
        parameter.key
        for parameter in parameters()
        if not any(f"{key}.".startswith(f"{parameter.key}.") for key in written)
    ]
    lacks = f", and lacks {', '.join(new)}" if new else ""
    advice = "correct it, or `supmer params use PROFILE` replaces it and saves yours"
    return [f"{document.path.name}: written for an earlier version (it has the keys named below{lacks}): {advice}"]
