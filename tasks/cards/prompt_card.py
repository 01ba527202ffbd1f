"""The model card of a learned prompt: its nature, the data it was learned from, its use."""

from collections.abc import Sequence

from tasks.methods import method_of
from tasks.stage.contract import Record


def _learned(kinds: Sequence[Record]) -> str:
    """Return a table of the held-out tasks by kind, with a warning line if no kind is above chance."""
    lines = [
        "| held-out tasks | right | before the inner step | chance | mass on label words |",
        "|---|---|---|---|---|",
    ]
    for kind in kinds:
        adapted = kind["right_after"] is not None
        right, mass = (kind[f"{name}_after" if adapted else f"{name}_before"] for name in ("right", "mass"))
        shares = [f"{100 * share:.0f} %" for share in (right, kind["right_before"], kind["chance"], mass)]
        shares[1] = shares[1] if adapted else "–"
        lines.append(f"| {kind['kind']} | {' | '.join(shares)} |")
    if not any(kind["learned"] for kind in kinds):
        lines += ["", "**It ended at chance on every kind of task**: it has learned the label words at most."]
    return "\n".join(lines)


def prompt_card(about: Record, shape: Sequence[int]) -> str:
    """Return the card of a prompt that the metatrain stage learned."""
    training, result = about["training"], about["result"]
    variant, backbone = training["variant"], about["backbone"]
    lower = result["held_out_loss"] < result["start_loss"]
    against = "below" if lower else "not below"
    regularizer = (
        f"`regularizer.safetensors` is φ*, the gradient regularizer (rank {training['rank']}, {training['gate']} "
        "gate): keep it fixed while tuning.\n"
        if training["rank"]
        else "It was learned without a gradient regularizer.\n"
    )
    return f"""# Soft prompt `{variant}` for {backbone["source"]}

{method_of(variant).card}.

`prompt.safetensors` is θ*, {shape[0]} rows of {shape[1]} numbers to stand before the encoder's input embeddings.
{regularizer}
| | |
|---|---|
| backbone | {backbone["source"]}, files {backbone["hash"][:16]} |
| task formats | {", ".join(training["formats"])} |
| templates | {training["template"]} |
| meta steps | {result["steps"]:,}, the best after {result["best_step"]:,} |
| held-out loss | {result["held_out_loss"]:.4f}, {against} the {result["start_loss"]:.4f} of the initial prompt |
| precision | {training["precision"]} |
| seed | {about["seed"]} |
| tasks | {about["tasks"]["train"]} (train), {about["tasks"]["validation"]} (validation) |

{_learned(result["kinds"])}

Every other setting is in `config.json`. Where the text came from: `supmer lineage artifacts/prompt`.

## Use

The prompt fits this backbone only. It is a starting point for few-shot tuning, not a classifier: tune it on a few
labeled examples of your task. It carries whatever the backbone and the corpus carry, biases included.
"""
