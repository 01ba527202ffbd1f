"""Compare bfloat16 with float32 on real tasks and texts: `python benchmarks/bench_precision.py --workspace FOLDER`.

The workspace is one in which the quickstart, or bench_systems.py, has run at least until `materialize`. Measured are

    gradients    of θ and φ in a meta step, for every kind of anchor task, both forms of templates and both orders: the
                 cosine between the precisions for θ, and the lowest over the matrices of φ
    predictions  of the labels of test examples, by the template alone and after every tuned prompt that is there: how
                 many differ, and by which margin float32 preferred its label in those rows (in log-probability)

Nothing is timed: bench_meta_step.py, bench_tuning.py, bench_predict.py and bench_embed.py compare speeds.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from records import Record, Row  # noqa: E402
from torch import Tensor  # noqa: E402

from model.meta.meta_step import MixedTask, StepForm, meta_gradients  # noqa: E402
from model.prompt.initial_prompt import initial_prompt  # noqa: E402
from model.prompt.passes import Passes  # noqa: E402
from model.prompt.regularizer import GradientRegularizer  # noqa: E402
from model.prompt.rows import Centroids  # noqa: E402
from model.t5.backbone import Backbone, load_backbone  # noqa: E402
from model.text.tokenization import TemplateTokenizer  # noqa: E402
from model.text.tokenized_tasks import Task  # noqa: E402
from storage import paths  # noqa: E402
from storage.prompts.prompt_artifact import read_prompt  # noqa: E402
from storage.sources.source import read_manifest  # noqa: E402
from storage.task_formats import ANCHOR_KINDS  # noqa: E402
from storage.vectors.centroids import read_centroids  # noqa: E402
from tasks.labeled.dataset import read_dataset, test_examples  # noqa: E402
from tasks.metatrain.task_reader import TaskReader  # noqa: E402
from tasks.methods import METHODS  # noqa: E402
from tasks.params.file import load  # noqa: E402
from tasks.tune.evaluation import labeled  # noqa: E402
from tasks.tune.tokenized_form import TokenizedForm  # noqa: E402

FORMS, ORDERS = ("sentinel", "instruction"), (1, 2)
PRECISIONS = ("float32", "bfloat16")
PROMPT, RANK, LONGEST, B, SHARE = 16, 64, 256, 0.3, 0.7
TEMPLATE_ALONE = "template alone"
_CPU = torch.device("cpu")

Gradients = dict[str, Tensor]
Scores = NDArray[np.float64]


def backbones(root: Path) -> tuple[Path, list[Backbone]]:
    """Return the folder of the workspace's backbone, and the backbone in both precisions."""
    folder = root / read_manifest(root / paths.BACKBONE)[0].folder
    return folder, [load_backbone(folder, _CPU, precision=precision) for precision in PRECISIONS]


def tasks_of(root: Path, folder: Path, form: str, kind: str, pairs: int) -> list[Sequence[Task]]:
    """Return pairs of tasks of a kind: the second is the partner of the first."""
    tokenizer = TemplateTokenizer.from_folder(folder, LONGEST)
    with TaskReader(root / paths.TASKS, tokenizer, form, batch_size=2, kinds=(kind,)).once() as stream:
        return [batch.tasks for _, batch in zip(range(pairs), stream, strict=False) if len(batch.tasks) > 1]


def regularizer_of(width: int) -> GradientRegularizer:
    """Return a regularizer that is not the identity, so that every matrix of φ has a gradient."""
    torch.manual_seed(0)
    regularizer = GradientRegularizer(width, RANK)
    with torch.no_grad():
        regularizer.up.normal_(std=width**-0.5)
    return regularizer


def gradients(passes: Passes, prompt: Tensor, pair: Sequence[Task], order: int) -> Gradients:
    """Return the gradients of θ and of the matrices of φ in one step."""
    form = StepForm(order=order, inner_form="rms", similarity_at="theta_prime")
    mixed = [MixedTask(pair[0], pair[1], SHARE)]
    result = meta_gradients(passes, prompt, regularizer_of(prompt.shape[1]), mixed, form, B)
    return {"prompt": result.prompt} | result.regularizer


def gradient_rows(root: Path, folder: Path, both: Sequence[Backbone], pairs: int) -> Iterator[Row]:
    """Yield the cosines for every form, kind and order."""
    table = read_centroids(root / paths.CENTROIDS)
    centroids = Centroids(torch.from_numpy(table.vectors), table.numbers)
    passes = [Passes(backbone, centroids) for backbone in both]
    prompt = initial_prompt(both[0], PROMPT, "vocabulary", 1)
    for form in FORMS:
        for kind in ANCHOR_KINDS:
            for order in ORDERS:
                of_theta, of_phi = [], []
                for pair in tasks_of(root, folder, form, kind, pairs):
                    wide, low = (gradients(one, prompt, pair, order) for one in passes)
                    cosines = {name: _cosine(low[name], wide[name]) for name in wide if wide[name].any()}
                    of_theta.append(cosines.pop("prompt"))
                    of_phi.append(min(cosines.values()))
                yield {
                    "what": "gradients",
                    "form": form,
                    "kind": kind,
                    "order": order,
                    "theta": of_theta,
                    "phi": of_phi,
                }


def prediction_rows(
    root: Path, folder: Path, both: Sequence[Backbone], names: Sequence[str], limit: int
) -> Iterator[Row]:
    """Yield how predictions differ, for every set and every tuned prompt of it."""
    form = load(root / "params.yaml").metatrain.template
    passes = [Passes.for_tuning(backbone) for backbone in both]
    tokenizer = TemplateTokenizer.from_folder(folder, LONGEST)
    sources = {source.name: source for source in read_manifest(root / paths.DATASETS)}
    for name in names:
        dataset = read_dataset(sources[name], root)
        words = TokenizedForm.of(dataset.form, form, tokenizer)
        examples = test_examples(dataset, limit, 0)
        for title, prompt in prompts(root / paths.TUNED_PROMPTS / name, both[0].width):
            wide, low = (labeled(one, words, prompt, examples, "").scores.log_probabilities for one in passes)
            yield {"what": "predictions", "set": name, "prompt": title, "rows": len(examples), **differences(wide, low)}


def prompts(folder: Path, width: int) -> Iterator[tuple[str, Tensor]]:
    """Yield no prompt, and the tuned prompts of a set that ask by the set's own template."""
    yield TEMPLATE_ALONE, torch.zeros(0, width)
    for name, row in METHODS.items():
        if row.trains == "prompt" and row.asks == "template" and (folder / name).is_dir():
            yield row.title, torch.from_numpy(read_prompt(folder / name).prompt.copy())


def differences(wide: Scores, low: Scores) -> Row:
    """Return how many predictions differ, with float32's margins in those rows and the median margin of all."""
    second, first = np.sort(wide, axis=1)[:, -2:].T
    margins, differs = first - second, low.argmax(1) != wide.argmax(1)
    largest = float(np.abs(low - wide).max())
    return {"margins": margins[differs].tolist(), "median_margin": float(np.median(margins)), "apart": largest}


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(torch.cosine_similarity(one.flatten().double(), other.flatten().double(), dim=0))


def main() -> None:
    """Compare, print and write a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, default=ROOT, help="where the quickstart has run")
    parser.add_argument("--pairs", type=int, default=2, help="pairs of tasks for each kind, form and order")
    parser.add_argument("--sets", nargs="+", default=["movies"], help="labeled sets that were acquired")
    parser.add_argument("--examples", type=int, default=500, help="test examples of each set, at most")
    options = parser.parse_args()
    record = Record(__file__, parser, options)
    root = options.workspace.absolute()
    folder, both = backbones(root)
    for row in gradient_rows(root, folder, both, options.pairs):
        record.add(**row)
        print(f"{row['form']:12}{row['kind']:11} order {row['order']}: ∇θ {min(row['theta']):.5f}, "
              f"∇φ {min(row['phi']):.5f}", flush=True)  # fmt: skip
    for row in prediction_rows(root, folder, both, options.sets, options.examples):
        record.add(**row)
        largest, usual = max(row["margins"], default=0), row["median_margin"]
        print(f"{row['set']:9}{row['prompt']:28} {len(row['margins'])} of {row['rows']} differ, margins up to "
              f"{largest:.3f} (median of all {usual:.2f})", flush=True)  # fmt: skip
    record.write()


if __name__ == "__main__":
    main()
