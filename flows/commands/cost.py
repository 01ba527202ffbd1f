"""`supmer cost`: estimate tokens, operations, memory, disk and time of each stage before it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.completion import profile_names, stage_names
from flows.options import overlaid, print_json, set_option
from flows.terminal import size, table
from flows.workspace import enter

if TYPE_CHECKING:
    from tasks.cost.estimate import RunCost, StageCost
    from tasks.params.schema import Params

COLUMNS = ("stage", "tokens", "operations", "device memory", "host memory", "disk", "time", "")


@click.command()
@click.argument("stages", nargs=-1, shell_complete=stage_names)
@click.option("--profile", metavar="NAME", shell_complete=profile_names, help="A profile instead of params.yaml.")
@click.option("--device", metavar="NAME", help="A GPU of the table instead of this machine, for example A100-80.")
@click.option("--devices", "lists", is_flag=True, help="List the GPUs of the table.")
@click.option("--cores", type=click.IntRange(1), show_default="this machine's, or 16", help="Cores of the host.")
@click.option("--explain", is_flag=True, help="Say what each number is made from.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@set_option
def command(  # noqa: PLR0913, PLR0917 - one argument for each option
    stages: tuple[str, ...],
    profile: str | None,
    device: str | None,
    lists: bool,
    cores: int | None,
    explain: bool,
    as_json: bool,
    settings: tuple[str, ...],
) -> None:
    """Estimate the cost of the pipeline, or of STAGES, on this machine or on a GPU.

    This machine is measured for a few seconds. Stages that have run make the estimate better: the sentences are then
    counted, and the models' shapes are read from their files.

    \b
    Examples:
      supmer cost                                        the active parameters on this machine
      supmer cost --profile paper-t5-base --device A100-80
      supmer cost metatrain --device RTX-4090 --explain  where its numbers come from
      supmer cost -S metatrain.steps=1000 --json
      supmer cost --devices                              the GPUs of the table
    """
    if lists:
        _list_devices(as_json=as_json)
        return
    root = enter()
    cost = run_cost(root, _params(root, profile, settings), profile or "params.yaml", device, cores, stages)
    show(cost, explain=explain, as_json=as_json)


def run_cost(
    root: Path, params: Params, profile: str, device: str | None, cores: int | None, stages: Sequence[str] = ()
) -> RunCost:
    """Return the estimate of the stages named, or of all; raise InputError for an unknown stage or device."""
    from flows.dvc_state.dag import require
    from tasks.cost.devices import device_named
    from tasks.cost.estimate import estimate, plan_of, shapes_of
    from tasks.cost.machine import named_machine, this_machine
    from tasks.cost.work import STAGES

    for stage in stages:
        require(list(STAGES), stage)
    plan = plan_of(params, root)
    if device is not None:
        machine = named_machine(device_named(device), cores)
    else:
        machine = this_machine(shapes_of(plan), cores, _progress)
        _progress("")
    return estimate(plan, machine, profile, stages or None)


def _params(root: Path, profile: str | None, settings: tuple[str, ...]) -> Params:
    if profile is None:
        return overlaid(root, settings)[0]
    from tasks.params.diff import profile as profile_file
    from tasks.params.file import read, validate
    from tasks.params.overrides import override

    return validate(override(read(profile_file(root, profile)), settings))


def _progress(what: str) -> None:
    """Show on standard error, in a terminal, what is being measured; an empty text removes the line."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{f'measuring this machine: {what} …' if what else ''}", nl=False, err=True)


def show(cost: RunCost, *, explain: bool, as_json: bool) -> None:
    """Print an estimate as a table or as JSON."""
    if as_json:
        stages = [stage.as_json() for stage in cost.stages]
        told = {"profile": cost.profile, "machine": cost.machine.name, "measured": list(cost.machine.measured)}
        print_json(told | {"stages": stages, "together": cost.total.as_json()})
        return
    click.echo(f"{cost.profile} on {cost.machine.name}, estimated:")
    total = [cost.total] if len(cost.stages) > 1 else []
    rows = [_cells(stage) for stage in (*cost.stages, *total)]
    columns = [column for column in range(len(COLUMNS)) if any(row[column] for row in rows)]
    kept = [[row[column] for column in columns] for row in rows]
    for line in table([COLUMNS[column] for column in columns], kept, [0 < column < 7 for column in columns]):
        click.echo(line)
    for line in cost.machine.measured if explain else ():
        click.echo(f"  {line}")
    for stage in cost.stages:
        for line in stage.assumptions if explain else ():
            click.echo(f"  {stage.stage}: {line}")
    if not explain:
        click.echo("`--explain` says what each number is made from.")


def _cells(stage: StageCost) -> tuple[str, ...]:
    return (
        stage.stage,
        amount(stage.tokens, ("", "k", "M", "G", "T")) if stage.tokens else "",
        amount(stage.operations, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"))
        if stage.operations
        else "",
        size(int(stage.device_memory)) if stage.device_memory else "",
        size(int(stage.host_memory)),
        size(int(stage.disk)),
        duration(stage.seconds),
        _remark(stage),
    )


def _remark(stage: StageCost) -> str:
    if not stage.fits:
        return "does not fit"
    return f"ft: {stage.devices} GPUs" if stage.devices > 1 else ""


def amount(value: float, units: Sequence[str]) -> str:
    """Return a large number with a unit of thousands."""
    for unit in units[:-1]:
        if value < 1000:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value:,.3g} {units[-1]}"


def duration(seconds: float) -> str:
    """Return a time as text, with two units at most."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = seconds / 3600
    return f"{hours:.0f} h" if hours < 72 else f"{hours / 24:,.1f} days"


def _list_devices(*, as_json: bool) -> None:
    from dataclasses import asdict

    from tasks.cost.devices import DEVICES

    if as_json:
        print_json([asdict(device) for device in DEVICES.values()])
        return
    columns = ("device", "memory, GB", "bfloat16", "float16", "float32, TFLOP/s", "bandwidth, GB/s")
    rows = [tuple("–" if value is None else value for value in vars(device).values()) for device in DEVICES.values()]
    for line in table(columns, [tuple(map(_plain, row)) for row in rows], [False, *[True] * 5]):
        click.echo(line)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
