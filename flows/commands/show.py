"""`supmer show`: print anchor tasks as the model sees them, and clusters with their nearest sentences."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.options import set_option
from flows.terminal import cut, printable
from flows.workspace import enter
from storage import paths
from storage.counts import counted
from storage.task_formats import ANCHOR_KINDS, FORMATS, LABELED, SPLITS

if TYPE_CHECKING:
    from model.text.templates import Form
    from model.text.tokenization import TemplateTokenizer
    from storage.queries.cluster_views import Cluster, Clustering
    from storage.tables.task_shards import StoredExample, StoredTask, TaskIndex

TASKS, BACKBONE = Path(paths.TASKS), Path(paths.BACKBONE)
TOPIC_CELLS = 60  # width of the sentence that stands for a centroid


@click.group(name="show")
def command() -> None:
    """Look at the anchor tasks as the model will see them, and at the clusters they come from.

    \b
    Examples:
      supmer show tasks --kind ss -n 2
      supmer show tasks --split validation --json
      supmer show clusters --format sp
    """


@dataclass(frozen=True)
class Shown:
    """An example in the words of its template; token counts are None without the backbone's tokenizer."""

    example_id: str
    task_id: str
    kind: str
    role: str
    label: int
    text: str
    target: str
    sentence_ids: tuple[str, ...]
    choices: tuple[int, ...]
    tokens: int | None
    full_tokens: int | None


@command.command(name="tasks")
@click.option("--kind", metavar="KIND", help=f"Show only this kind: {', '.join(ANCHOR_KINDS)}, {LABELED}-NAME.")
@click.option("-n", "--number", type=click.IntRange(min=1), default=5, show_default=True, help="Number of examples.")
@click.option("--split", type=click.Choice(SPLITS), default="train", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Chooses the examples.")
@set_option
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def show_tasks(
    kind: str | None, number: int, split: str, seed: int, settings: tuple[str, ...], *, as_json: bool
) -> None:
    """Print examples of the tasks as the model will see them: template, texts cut to length, centroids marked ⟨μ⟩.

    The form and the length are metatrain.template and metatrain.max_length of params.yaml.
    """
    root = enter()
    from flows.options import overlaid
    from storage.tables.task_shards import read_index
    from tasks.report.shown_examples import backbone_tokenizer

    metatrain = overlaid(root, settings)[0].metatrain
    index = read_index(TASKS, split, kinds=None if kind is None else [kind])
    tokenizer = backbone_tokenizer(root, BACKBONE, metatrain.max_length)
    drawn = _draw(index, number, random.Random(seed))  # noqa: S311 - draws examples, no secret
    topics = _topics(root, drawn)
    shown = [_shown(task, example, metatrain.template, tokenizer, topics) for task, example in drawn]
    if as_json:
        click.echo(json.dumps([asdict(shown_example) for shown_example in shown], indent=2, ensure_ascii=False))
        return
    for shown_example in shown:
        _print_example(shown_example)
    if tokenizer is None:
        click.echo(f"(texts are not cut: no fast tokenizer in {BACKBONE}, `supmer run acquire` fetches it)", err=True)


def _draw(index: TaskIndex, number: int, chance: random.Random) -> list[tuple[StoredTask, StoredExample]]:
    """Return examples of tasks drawn at random, taking the kinds in turn."""
    from storage.tables.task_shards import TaskShards

    shards = TaskShards(index)
    by_kind = [index.of_kind(kind).tolist() for kind, _ in sorted(index.kinds)]
    kinds = [numbers for numbers in by_kind if numbers]
    drawn = []
    for turn in range(number):
        task = shards.read(chance.choice(kinds[turn % len(kinds)]))
        drawn.append((task, chance.choice(task.examples)))
    return drawn


def _topics(root: Path, drawn: list[tuple[StoredTask, StoredExample]]) -> dict[tuple[str, int], str]:
    """Return the nearest sentence of every cluster among the choices, by format and cluster."""
    wanted: dict[str, set[int]] = {}
    for task, example in drawn:
        wanted.setdefault(task.format, set()).update(example.choices)
    if not any(wanted.values()):
        return {}
    from storage.queries.cluster_views import nearest
    from storage.queries.views import connect, one_line_errors

    with connect(root) as connection, one_line_errors(root):
        return {
            (form, cluster): sentences[0].text
            for form, clusters in wanted.items()
            for cluster, sentences in nearest(root, connection, form, sorted(clusters), 1).items()
        }


def _shown(
    task: StoredTask,
    example: StoredExample,
    form: Form,
    tokenizer: TemplateTokenizer | None,
    topics: dict[tuple[str, int], str],
) -> Shown:
    from model.text.templates import anchor_template
    from tasks.report.shown_examples import in_words

    template = anchor_template(task.kind, form, len(example.texts), task.labels)
    slots = [_slot(cluster, topics.get((task.format, cluster))) for cluster in example.choices]
    seen = in_words(template, example.label, example.texts, slots, tokenizer)
    return Shown(
        example.example_id,
        task.task_id,
        task.kind,
        example.role,
        example.label,
        seen.rendered.text,
        seen.target,
        example.sentence_ids,
        example.choices,
        seen.tokens,
        seen.full_tokens,
    )


def _slot(cluster: int, topic: str | None) -> str:
    return f"⟨μ {cluster}: {cut(topic, TOPIC_CELLS)}⟩" if topic else f"⟨μ {cluster}⟩"


def _print_example(example: Shown) -> None:
    click.echo(
        click.style(f"{example.kind}  {example.example_id}", bold=True) + f"  {example.role}, label {example.label}"
    )
    click.echo(f"  input   {printable(example.text)}")
    click.echo(f"  target  {printable(example.target)}")
    if example.tokens is not None:
        longer = f", cut from {example.full_tokens}" if example.full_tokens != example.tokens else ""
        click.echo(f"  tokens  {example.tokens}{longer}")


@command.command(name="clusters")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Show only this format.")
@click.option(
    "-n", "--number", type=click.IntRange(min=1), default=10, show_default=True, help="Number of clusters per format."
)
@click.option(
    "--sentences", type=click.IntRange(min=1), default=3, show_default=True, help="Number of sentences per cluster."
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def show_clusters(form: str | None, number: int, sentences: int, *, as_json: bool) -> None:
    """Print the largest clusters of each format with the sentences nearest to their centroids."""
    root = enter()
    from storage.queries.cluster_views import clusterings, largest
    from storage.queries.views import connect, one_line_errors

    with connect(root) as connection, one_line_errors(root):
        matching = [clustering for clustering in clusterings(root, connection) if form in {None, clustering.format}]
        clusters = {
            clustering.format: largest(root, connection, clustering.format, number, sentences)
            for clustering in matching
        }
    if as_json:
        listed = [
            asdict(clustering) | {"largest": [asdict(c) for c in clusters[clustering.format]]}
            for clustering in matching
        ]
        click.echo(json.dumps(listed, indent=2, ensure_ascii=False))
        return
    for clustering in matching:
        _print_clustering(clustering, clusters[clustering.format])


def _print_clustering(clustering: Clustering, clusters: list[Cluster]) -> None:
    of = f"{counted(clustering.clusters, 'cluster')} of {counted(clustering.sentences, 'sentence')}"
    click.echo(click.style(f"{clustering.format}: {of}", bold=True))
    for cluster in clusters:
        merged = f", including the former {', '.join(map(str, cluster.merged))}" if cluster.merged else ""
        click.echo(f"  cluster {cluster.cluster}: {counted(cluster.size, 'sentence')}{merged}")
        for near in cluster.nearest:
            click.echo(f"    {near.distance:7.3f}  {cut(printable(near.text), 110)}")
