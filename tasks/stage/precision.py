"""The precision of a stage: resolved once for all its shards, printed, and part of their keys."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from model.device import device
from model.t5.precision import Precision, WantedPrecision, choose
from tasks.stage.contract import Shard, ShardFunction, Stage

_OTHER: dict[Precision, Precision] = {"float32": "bfloat16", "bfloat16": "float32"}


def stage_precision(stage: Stage, own: WantedPrecision | None) -> Precision:
    """Return the precision for a stage: its own, or the one for all stages; `auto` asks this machine.

    The precision is printed. If this machine has no units for it, a warning says what that costs.
    """
    choice = choose(own or stage.params.precision, device())
    stage.reporter.say(f"{stage.name}: precision {choice}")
    if choice.warning:
        stage.reporter.say(f"{stage.name}: warning: {choice.warning}")
    return choice.precision


def say_restarts(
    stage: Stage, step: str, function: ShardFunction, shards: Iterable[Shard], work: Path, within: str
) -> None:
    """Print a line for each unfinished shard that has checkpoints in the other precision: they are not continued.

    Args:
        stage: the stage.
        step: the step of the shards.
        function: their function.
        shards: their payloads have the precision at `within`.
        work: the folder that has the checkpoints of a shard in a folder named by its key.
        within: the name of the part of a payload that has the key `precision`.
    """
    for shard in shards:
        part = shard.payload[within]
        here: Precision = part["precision"]
        there = _OTHER[here]
        twin = replace(shard, payload=shard.payload | {within: part | {"precision": there}})
        own, other = (work / stage.key(function, each) for each in (shard, twin))
        left = any(other.rglob("step-*")) and not own.is_dir()
        if left and len(stage.unfinished(step, function, [shard, twin])) == 2:  # neither is finished
            stage.reporter.say(
                f"{stage.name}: {shard.name}: starts again in {here}: its checkpoints were made in {there} "
                f"(set {stage.name}.precision: {there} to go on from them)"
            )
