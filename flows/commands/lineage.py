"""`supmer lineage`: print what an artifact was made from, down to the sources."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.terminal import printable, size, table
from flows.workspace import enter
from storage.counts import counted

if TYPE_CHECKING:
    from storage.lineage.ancestry import ArtifactNode, StageNode
    from storage.lineage.folder_ancestry import FolderOrigin
    from storage.lockfile import Pipeline
    from storage.sources.source import AcquiredSource

SHOWN_FILES = 5
EXAMPLES = """\b
Examples:
  supmer lineage
  supmer lineage data/corpus/sentences
  supmer lineage sample --json
  supmer lineage my-prompt
"""


@click.command(name="lineage", epilog=EXAMPLES)
@click.argument("artifact", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(artifact: str | None, *, as_json: bool) -> None:
    """Print what ARTIFACT was made from: stages, parameters, code and inputs, down to sources with hash and licence.

    ARTIFACT is an output of dvc.yaml, a file inside one, a stage, or any folder of a prompt or adapter, such as
    `supmer tune` and `supmer export` write. Without it, list the artifacts.
    """
    here = Path.cwd()
    if artifact is not None and _print_shipped(here / artifact, artifact, as_json=as_json):
        return
    root = enter()
    from storage.lineage.ancestry import Ancestry, file_md5_in, resolve
    from storage.lockfile import read_pipeline

    pipeline = read_pipeline(root)
    if artifact is None:
        _list(pipeline, as_json=as_json)
        return
    if origin := _origin(pipeline, here, artifact):
        _print_origin(pipeline, origin, as_json=as_json)
        return
    paths = resolve(pipeline, artifact, here)
    ancestry = Ancestry(pipeline)
    trees = [ancestry.tree(path) for path in paths]
    if as_json:
        click.echo(json.dumps([asdict(tree) for tree in trees], indent=2, default=str))
        return
    inside = Path(os.path.relpath(here / artifact, root))
    if len(paths) == 1 and inside != Path(paths[0]) and inside.is_relative_to(paths[0]):
        md5 = file_md5_in(pipeline, paths[0], str(inside))
        click.echo(f"{inside} is a file of {paths[0]}, " + (f"md5 {md5}" if md5 else "which dvc.lock does not know"))
    printed: set[str] = set()
    for tree in trees:
        _print_artifact(tree, "", "", printed)


def _print_shipped(folder: Path, name: str, *, as_json: bool) -> bool:
    """Print the provenance that a shipped prompt carries; return False if the folder holds none."""
    from storage.prompts.shipped_prompt import DOCUMENTS, shipping_record

    record = shipping_record(folder)
    if record is None:
        return False
    if as_json:
        click.echo(json.dumps(record, indent=2))
        return True
    learned = record["learned"]
    when = f", learned {str(learned['time'])[:10]}" if learned.get("time") else ""
    click.echo(f"{click.style(printable(name), bold=True)}  shipped prompt {printable(record['variant'])}{when}")
    for source in record["sources"]:
        spec, licence = printable(source["spec"]), printable(source["licence"])
        click.echo(f"  {source['role']} {printable(source['name'])}: {spec}, licence {licence}")
        for file in source["files"][:SHOWN_FILES]:
            click.echo(f"    {printable(file['name'])}  {size(file['bytes'])}, sha256 {file['sha256']}")
        if len(source["files"]) > SHOWN_FILES:
            click.echo(f"    … and {len(source['files']) - SHOWN_FILES} more files (--json lists them)")
    click.echo(f"  {record['documents']:,} documents: {printable(name)}/{DOCUMENTS} lists them")
    click.echo("  parameters: --json lists them")
    return True


def _origin(pipeline: Pipeline, here: Path, name: str) -> FolderOrigin | None:
    """Return the origin of a prompt's or adapter's folder that is not among the outputs; None for other names."""
    from storage.lineage.folder_ancestry import folder_origin
    from storage.lineage.prompt_folders import read_folder

    folder = next((path for path in (here / name, pipeline.root / name) if path.is_dir()), None)
    inside = folder is not None and folder.resolve().is_relative_to(pipeline.root)
    if folder is None or (
        inside and any(folder.resolve().is_relative_to(pipeline.root / output) for output in pipeline.artifacts())
    ):
        return None
    prompt = read_folder(folder)
    return folder_origin(pipeline, name, prompt) if prompt else None


def _print_origin(pipeline: Pipeline, origin: FolderOrigin, *, as_json: bool) -> None:
    from storage.lineage.ancestry import Ancestry

    tree = Ancestry(pipeline).tree(origin.artifact) if origin.artifact else None
    if as_json:
        record = asdict(origin) | {"made_from": asdict(tree) if tree else _shipping_record(pipeline, origin)}
        click.echo(json.dumps(record, indent=2, default=str))
        return
    click.echo(f"{click.style(printable(origin.path), bold=True)}  {origin.kind}, sha256 {origin.hash or 'unknown'}")
    for name, value in origin.facts.items():
        click.echo(f"  {name.replace('_', ' ')}: {printable(value)}")
    if origin.relation is None:
        click.echo("  no prompt of this workspace, in any version, has its hash or that of its start")
    else:
        click.echo(f"  {origin.relation} {origin.prompt or origin.earlier}")
    if tree is not None:
        _print_artifact(tree, "  ", "  ", set())
    elif origin.prompt is not None:
        _print_shipped(pipeline.root / origin.prompt, origin.prompt, as_json=False)


def _shipping_record(pipeline: Pipeline, origin: FolderOrigin) -> dict[str, Any] | None:
    """Return the provenance of the shipped prompt that a folder comes from, if it comes from one."""
    from storage.prompts.shipped_prompt import shipping_record

    return shipping_record(pipeline.root / origin.prompt) if origin.prompt and not origin.artifact else None


def _list(pipeline: Pipeline, *, as_json: bool) -> None:
    rows = []
    for path, stage in pipeline.artifacts().items():
        locked = pipeline.locked_output(path)
        rows.append((path, stage, size(locked.bytes) if locked else None, locked.md5 if locked else "not made yet"))
    if as_json:
        listed = [dict(zip(("path", "stage", "size", "md5"), row, strict=True)) for row in rows]
        click.echo(json.dumps(listed, indent=2))
        return
    shown = [(path, stage, "–" if taken is None else taken, md5) for path, stage, taken, md5 in rows]
    for line in table(("artifact", "stage", "size", "md5"), shown, (False, False, True, False)):
        click.echo(line)


def _print_artifact(node: ArtifactNode, first: str, rest: str, printed: set[str]) -> None:
    """Print an artifact and, below it, the stage that made it.

    `first` and `rest` are the left margins, with the lines of the tree, of the first and of the following lines.
    """
    rows = f", {counted(node.rows, 'row')}" if node.rows is not None else ""
    name = printable(node.parameter or node.path)
    click.echo(f"{first}{click.style(name, bold=True)}  {size(node.bytes)}{rows}, md5 {node.md5}")
    if node.note:
        click.echo(f"{rest}  {click.style(node.note, fg='yellow')}")
    for source in node.sources:
        _print_source(source, rest)
    if node.stage is not None:
        _print_stage(node.stage, rest, printed)


def _print_source(source: AcquiredSource, left: str) -> None:
    click.echo(
        f"{left}  source {printable(source.name)}: {printable(source.spec)}, licence {printable(source.licence)}"
    )
    for file in source.files[:SHOWN_FILES]:
        click.echo(f"{left}    {printable(file.name)}  {size(file.bytes)}, sha256 {file.sha256}")
    if len(source.files) > SHOWN_FILES:
        click.echo(f"{left}    … and {len(source.files) - SHOWN_FILES} more files (--json lists them)")


def _print_stage(stage: StageNode, left: str, printed: set[str]) -> None:
    name = click.style(stage.name, fg="cyan")
    if stage.name in printed:
        click.echo(f"{left}└─ {name} (above)")
        return
    printed.add(stage.name)
    click.echo(f"{left}└─ {name}: {_run_facts(stage)}")
    below = f"{left}   "
    if stage.parameters:
        shown = ", ".join(f"{key}={_value(value)}" for key, value in stage.parameters.items())
        width = max(shutil.get_terminal_size((120, 24)).columns - len(below) - 4, 40)
        lines = textwrap.wrap(f"parameters: {printable(shown)}", width, break_long_words=False, break_on_hyphens=False)
        for number, line in enumerate(lines):
            click.echo(f"{below}{'│' if stage.inputs else ' '} {'  ' if number else ''}{line}")
    if stage.code:
        click.echo(f"{below}{'│' if stage.inputs else ' '} code: {', '.join(stage.code)}")
    for acceptance in stage.accepted:
        accepted = f"accepted on {acceptance.time[:10]}, although code changed: {printable(acceptance.reason)}"
        click.echo(f"{below}{'│' if stage.inputs else ' '} {accepted}")
    for number, item in enumerate(stage.inputs):
        last = number == len(stage.inputs) - 1
        _print_artifact(item, f"{below}{'└─ ' if last else '├─ '}", f"{below}{'   ' if last else '│  '}", printed)


def _run_facts(stage: StageNode) -> str:
    if stage.time is None:
        return "no lineage event for this version (it was made without supmer, or the log is gone)"
    facts = [f"ran {stage.time[:19].replace('T', ' ')} UTC"]
    if stage.seconds is not None:
        facts.append(f"{stage.seconds:.1f} s")
    if stage.peak_memory_bytes is not None:
        facts.append(f"{size(stage.peak_memory_bytes)} of memory")
    if stage.git_commit:
        dirty = " with uncommitted changes" if stage.git_commit.endswith("+") else ""
        facts.append(f"git {stage.git_commit[:12].rstrip('+')}{dirty}")
    if stage.prefect_run_id:
        facts.append(f"Prefect run {stage.prefect_run_id}")
    return ", ".join(facts)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
