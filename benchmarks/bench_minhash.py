"""How fast and how good our MinHash is beside rensa and datasketch: `python benchmarks/bench_minhash.py`.

Every contender turns the same texts into the same number of band keys. Two of each library: one is given the shingles
as strings, as its users would; one the hashes of the shingles that we compute, so that only the signatures are
compared. Speeds are medians of interleaved runs, in processor time, and shown as ratios to ours. Quality is that of
the pairs with an equal key in some band, among texts whose exact similarity is known.

Install the others for it: `pip install rensa datasketch`. Those that are not installed are left out.
"""

import argparse
import importlib.util
import random
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from records import Record

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tasks.params.schema import NearDuplicateParams  # noqa: E402
from tasks.sample.minhash import _shingles, band_keys  # noqa: E402 - the hashes that ours are made of

NEAR = NearDuplicateParams(enabled=True)
HASHES = NEAR.bands * NEAR.rows
THRESHOLD = (1 / NEAR.bands) ** (1 / NEAR.rows)  # similarity at which the chance to be found rises most steeply
BATCH_BYTES = 200_000  # as in tasks/sample/document_index.py
WORD = re.compile(r"[^\W_]+")

Keys = Callable[[Sequence[str]], Sequence[Sequence[object]]]


def shingles(text: str) -> list[str]:
    words = WORD.findall(text.lower())
    return [
        " ".join(words[place : place + NEAR.shingle_words])
        for place in range(max(len(words) - NEAR.shingle_words + 1, 1))
    ]


def ours(texts: Sequence[str]) -> Sequence[Sequence[object]]:
    return band_keys(texts, NEAR.shingle_words, NEAR.bands, NEAR.rows).tolist()


def banded(signatures: Sequence[Sequence[int]]) -> list[list[tuple[int, ...]]]:
    starts = range(0, HASHES, NEAR.rows)
    return [[tuple(row[start : start + NEAR.rows]) for start in starts] for row in signatures]


def rensa_strings(texts: Sequence[str]) -> Sequence[Sequence[object]]:
    from rensa import RMinHash

    return banded(RMinHash.digest_matrix_from_token_sets([shingles(text) for text in texts], HASHES, 1).to_rows())


def rensa_hashes(texts: Sequence[str]) -> Sequence[Sequence[object]]:
    from rensa import RMinHash

    hashes, starts = _shingles(texts, NEAR.shingle_words)
    offsets = [*starts.tolist(), len(hashes)]
    return banded(RMinHash.digest_matrix_from_flat_token_hashes(hashes.astype(np.uint64), offsets, HASHES, 1).to_rows())


def datasketch_strings(texts: Sequence[str]) -> Sequence[Sequence[object]]:
    from datasketch import MinHash

    sets = ([shingle.encode() for shingle in shingles(text)] for text in texts)
    return banded([made.hashvalues.tolist() for made in MinHash.generator(sets, num_perm=HASHES)])


def datasketch_hashes(texts: Sequence[str]) -> Sequence[Sequence[object]]:
    from datasketch import MinHash

    hashes, starts = _shingles(texts, NEAR.shingle_words)
    sets = np.split(hashes, starts[1:])
    made = MinHash.generator((one.tolist() for one in sets), num_perm=HASHES, hashfunc=int)
    return banded([one.hashvalues.tolist() for one in made])


CONTENDERS: dict[str, tuple[str, Keys]] = {
    "ours": ("numpy", ours),
    "rensa, strings": ("rensa", rensa_strings),
    "rensa, our hashes": ("rensa", rensa_hashes),
    "datasketch, strings": ("datasketch", datasketch_strings),
    "datasketch, our hashes": ("datasketch", datasketch_hashes),
}


def corpus(documents: int, seed: int = 1) -> list[str]:
    """Texts of 60 to 900 words, words as frequent as in English; each fourth is a copy with some words replaced."""
    source = random.Random(seed)
    vocabulary = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 9))) for _ in range(20_000)]
    weights = [1 / (place + 3) for place in range(len(vocabulary))]
    texts: list[list[str]] = []
    while len(texts) < documents:
        texts.append(source.choices(vocabulary, weights, k=source.randint(60, 900)))
        if len(texts) % 4 == 3:
            copy = list(texts[-1])
            for place in source.sample(range(len(copy)), int(len(copy) * source.uniform(0, 0.1))):
                copy[place] = source.choice(vocabulary)
            texts.append(copy)
    return [" ".join(words) for words in texts[:documents]]


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if sum(map(len, batch)) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def pairs(keys: Sequence[Sequence[object]]) -> set[tuple[int, int]]:
    buckets: dict[tuple[int, object], list[int]] = defaultdict(list)
    for number, row in enumerate(keys):
        for band, key in enumerate(row):
            buckets[band, key].append(number)
    return {pair for members in buckets.values() for pair in combinations(members, 2)}


def similarities(texts: Sequence[str]) -> dict[tuple[int, int], float]:
    """Return the Jaccard similarity of every pair that shares a shingle."""
    sets = [{*shingles(text)} for text in texts]
    shared: dict[tuple[int, int], int] = defaultdict(int)
    owners: dict[str, list[int]] = defaultdict(list)
    for number, held in enumerate(sets):
        for shingle in held:
            owners[shingle].append(number)
    for members in owners.values():
        for pair in combinations(members, 2):
            shared[pair] += 1
    return {(a, b): count / (len(sets[a]) + len(sets[b]) - count) for (a, b), count in shared.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs")
    arguments = parser.parse_args()
    there = {
        name: keys for name, (library, keys) in CONTENDERS.items() if importlib.util.find_spec(library) is not None
    }
    record = Record(__file__, parser, arguments)
    texts = corpus(arguments.documents)
    megabytes = sum(map(len, texts)) / 1e6
    exact = similarities(texts)
    near = {pair for pair, similarity in exact.items() if similarity >= THRESHOLD}
    expected = sum(1 - (1 - similarity**NEAR.rows) ** NEAR.bands for similarity in exact.values())
    print(
        f"{len(texts):,} texts, {megabytes:.1f} MB, {HASHES} hashes in {NEAR.bands} bands; similar by {THRESHOLD:.2f}"
    )
    print(f"or more: {len(near):,} pairs; a perfect MinHash finds {expected:.0f} pairs on average")
    seconds: dict[str, list[float]] = {name: [] for name in there}
    found: dict[str, set[tuple[int, int]]] = {}
    for _ in range(arguments.runs):
        for name, keys in there.items():
            start = time.process_time()
            rows = [row for batch in batches(texts) for row in keys(batch)]
            seconds[name].append(time.process_time() - start)
            found[name] = pairs(rows)
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    for name in there:
        right = len(found[name] & near)
        recall, precision = right / len(near), right / max(len(found[name]), 1)
        print(
            f"{name:24} {megabytes / middle[name]:7.2f} MB/s a core   time {middle[name] / middle['ours']:6.2f} × ours"
            f"   found {len(found[name]):,}   recall {recall:.3f}   precision {precision:.3f}"
        )
        record.add(way=name, text_mb=megabytes, cpu_seconds=seconds[name], recall=recall, precision=precision)
    record.write()


if __name__ == "__main__":
    main()
