"""`supmer params`: list, show, compare and choose parameter profiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.completion import profile_names
from flows.options import PARAMS_FILE, overlaid, print_json, set_option
from flows.workspace import FIND_ONE
from storage.errors import InputError

if TYPE_CHECKING:
    from tasks.params.schema import Params


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List, show, compare and choose parameter profiles.

    params.yaml holds the active parameters; profiles/ holds complete sets to start from.

    \b
    Examples:
      supmer params list
      supmer params show --explain
      supmer params use paper-t5-base
      supmer params set sample.budget_mb=5
      supmer params unset sample.budget_mb
      supmer params diff quickstart paper-t5-base
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def list_profiles(*, as_json: bool) -> None:
    """List the profiles, and mark the active one or the one nearest to the active parameters.

    \b
    Examples:
      supmer params list
      supmer params list --json
    """
    from tasks.params.diff import nearest_profile, profiles, purpose

    root = _root()
    name, differences, problem = None, 0, None
    try:
        nearest = nearest_profile(root, _active(root))
        name, differences = (nearest[0], len(nearest[1])) if nearest else (None, 0)
    except InputError as error:
        problem = str(error)
    known = {profile: purpose(path) for profile, path in profiles(root).items()}
    if as_json:
        listed = [{"name": profile, "purpose": text} for profile, text in known.items()]
        print_json({"profiles": listed, "nearest": name, "changes": differences, "problem": problem})
        return
    width = max(map(len, known), default=0)
    for profile, text in known.items():
        click.echo(f"{'*' if profile == name else ' '} {profile:<{width}}  {text}")
    if problem:
        click.echo(f"params.yaml is not valid:\n{problem}")
    elif name:
        click.echo(f"active: {name}{_with_changes(differences)}")


@command.command()
@click.argument("name", required=False, shell_complete=profile_names)
@click.option("--explain", is_flag=True, help="Explain each key.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@set_option
def show(name: str | None, *, explain: bool, as_json: bool, settings: tuple[str, ...]) -> None:
    """Show the active parameters, or those of the profile NAME: one key per line, defaults included.

    NAME may also be a key or a group of keys, of which the active values are shown.

    \b
    Examples:
      supmer params show
      supmer params show sample.near_duplicates --explain
      supmer params show paper-t5-base --explain
      supmer params show -S sample.budget_mb=5 --json
    """
    from tasks.params.reference import entry_parameters, flatten, parameters
    from tasks.params.schema_base import shown

    root = _root()
    key = name if name and _is_key(name) else None
    if name and settings and not key:
        raise click.UsageError("-S changes the active parameters: leave NAME out, or leave -S out.")
    params = _named(root, name) if name and not key else overlaid(root, settings)[0]
    values = params.model_dump(mode="json")
    if key:
        values = {found: value for found, value in flatten(values).items() if f"{found}.".startswith(f"{key}.")}
    if as_json:
        print_json(values)
        return
    rows = [row for parameter in parameters() for row in (parameter, *entry_parameters(parameter.key))]
    meanings = {row.key: f"{row.description} ({row.type})" for row in rows}
    for key, value in flatten(values).items():
        click.echo(f"{key}: {shown(value)}")
        if explain:
            mapping, _, leaf = key.rpartition(".")
            entry = f"{mapping.rpartition('.')[0]}.NAME.{leaf}"
            click.echo(f"    {meanings.get(key) or meanings.get(entry) or meanings[mapping]}")


def _is_key(name: str) -> bool:
    """True if the schema has this key or group."""
    from tasks.params.reference import value_type

    try:
        value_type(tuple(name.split(".")))
    except KeyError:
        return False
    return True


@command.command()
@click.argument("name", shell_complete=profile_names)
def use(name: str) -> None:
    """Make the profile NAME the active one. Your own changes are kept in params.yaml.bak-N.

    \b
    Examples:
      supmer params use quickstart
      supmer params use paper-flan-t5-xl
    """
    from flows.lock import workspace_lock
    from storage.atomic import write_bytes
    from storage.sources.local import missing_sources
    from tasks.params.diff import profile, profiles
    from tasks.params.file import load

    root = _root()
    path = profile(root, name)
    params = load(path)
    active = root / PARAMS_FILE
    with workspace_lock(root, f"supmer params use {name}"):  # a run reads the parameters until it ends
        content = active.read_bytes() if active.exists() else None
        if content == path.read_bytes():
            click.echo(f"{PARAMS_FILE} is already {name}")
            return
        if content is not None and content not in [other.read_bytes() for other in profiles(root).values()]:
            kept = _unused_backup(root)
            write_bytes(kept, content)
            click.echo(f"{PARAMS_FILE} had changes of its own: saved as {kept.name}")
        write_bytes(active, path.read_bytes())
    click.echo(f"{PARAMS_FILE} is now {name}")
    for source in missing_sources(root, params.acquire):
        click.echo(f"still to be supplied: {source.parameter}: {source.spec.location} (docs/sources.md)")


@command.command("set")
@click.argument("assignments", metavar="KEY=VALUE...", nargs=-1, required=True)
def set_values(assignments: tuple[str, ...]) -> None:
    """Set parameters in params.yaml; nothing is written if one of them is refused.

    \b
    Examples:
      supmer params set sample.budget_mb=5
      supmer params set acquire.corpus.mine=path:/data/texts sample.language=de
    """
    from flows.dvc_state.local_inputs import check_sources
    from flows.lock import workspace_lock
    from flows.options import persisted

    root = _root()
    with _without_option(), workspace_lock(root, "supmer params set"):  # a run reads the parameters until it ends
        params = overlaid(root, assignments)[0]
        check_sources(root, params.acquire)
        changed = persisted(root, assignments)[1]
    for line in changed or ["nothing changes"]:
        click.echo(f"{PARAMS_FILE}: {line}")


@command.command("unset")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
def unset_values(keys: tuple[str, ...]) -> None:
    """Set parameters back to their values in the nearest profile; remove an entry that the profile does not have.

    \b
    Examples:
      supmer params unset sample.budget_mb
      supmer params unset acquire.corpus.mine
    """
    from flows.lock import workspace_lock
    from tasks.params.diff import changes, nearest_profile, profile
    from tasks.params.file import read, save, validate
    from tasks.params.overrides import reset

    root = _root()
    with _without_option(), workspace_lock(root, "supmer params unset"):
        before = _active(root)
        nearest = nearest_profile(root, before)
        if nearest is None:
            raise InputError(f"{root / 'profiles'}: no profile to take the values from")
        document = reset(read(root / PARAMS_FILE), keys, read(profile(root, nearest[0])).values)
        changed = changes(before.model_dump(), validate(document).model_dump())
        if changed:
            save(document)
    for line in [str(change) for change in changed] or ["nothing changes"]:
        click.echo(f"{PARAMS_FILE}: {line} (as in {nearest[0]})")


@command.command()
@click.argument("first", metavar="[A]", required=False, shell_complete=profile_names)
@click.argument("second", metavar="[B]", required=False, shell_complete=profile_names)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@set_option
def diff(first: str | None, second: str | None, *, as_json: bool, settings: tuple[str, ...]) -> None:
    """Show the changes from profile A to profile B, one key per line.

    Without B: from A to the active parameters. Without A and B: from the nearest profile to the active parameters.

    \b
    Examples:
      supmer params diff
      supmer params diff quickstart
      supmer params diff paper-t5-base paper-flan-t5-xl
    """
    from tasks.params.diff import ABSENT, changes, nearest_profile

    root = _root()
    after = _named(root, second) if second else overlaid(root, settings)[0]
    if first:
        differences = changes(_named(root, first).model_dump(), after.model_dump())
    else:
        nearest = nearest_profile(root, after)
        if nearest is None:
            raise InputError(f"{root / 'profiles'}: no profile to compare with")
        first, differences = nearest
    if as_json:
        sides = {
            item.key: [None if side is ABSENT else side for side in (item.before, item.after)] for item in differences
        }
        print_json({"from": first, "to": second or PARAMS_FILE, "changes": sides})
        return
    click.echo(f"{first} → {second or PARAMS_FILE}: {_counted(len(differences))}", err=True)
    for change in differences:
        click.echo(str(change))


@contextmanager
def _without_option() -> Iterator[None]:
    """Raise an InputError about -S without naming that option, which the user did not write."""
    try:
        yield
    except InputError as error:
        raise InputError("\n".join(line.removeprefix("-S: ") for line in str(error).splitlines())) from None


def _root() -> Path:
    """Return the workspace; unlike other verbs, these also work if params.yaml is missing."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "dvc.yaml").is_file():
            return folder
    raise InputError(f"{here}: not inside a supmer workspace (no dvc.yaml here or above): {FIND_ONE}")


def _active(root: Path) -> Params:
    return overlaid(root, ())[0]


def _named(root: Path, name: str) -> Params:
    from tasks.params.diff import profile
    from tasks.params.file import load

    return load(profile(root, name))


def _unused_backup(root: Path) -> Path:
    number = 1
    while (root / f"{PARAMS_FILE}.bak-{number}").exists():
        number += 1
    return root / f"{PARAMS_FILE}.bak-{number}"


def _with_changes(count: int) -> str:
    return f" with {_counted(count)} (supmer params diff)" if count else ""


def _counted(count: int) -> str:
    return f"{count or 'no'} change{'' if count == 1 else 's'}"
