"""A workspace for the report: every table that it reads, in the schemas of the stages, with made-up figures."""

import hashlib
import math
import random

import orjson
import pyarrow as pa
from ruamel.yaml import YAML

from storage import paths
from storage.hashing import document_id
from storage.parquet import write_shard
from storage.sources.source import AcquiredSource, SourceFile, write_manifest
from storage.tables.cluster_tables import NEAREST, centroids_schema
from storage.tables.corpus_tables import DOCUMENTS, EXCLUDED
from storage.tables.training_tables import HELD_OUT, KINDS, MEASURES, TRAINING_STEPS
from storage.tables.tuning_tables import COSTS, CURVES, PREDICTIONS, SCORES, TESTED_EXAMPLES
from support import tiny_tokenizers
from support.task_tables import write_tasks
from tasks.params.schema import Params
from tasks.report import stage as report
from tasks.stage.contract import InlineFanOut, SilentReporter, Stage

NASTY = '<script>window.hurt = 1</script><img src=x onerror="window.hurt = 2"> & \u202e"quoted" | `code` *bold*'
STAGES = {  # inputs and outputs of each stage as in dvc.yaml, without code
    "acquire": ([], [paths.BACKBONE, paths.CORPUS, paths.DATASETS, paths.EMBEDDER]),
    "sample": ([paths.CORPUS], [paths.DOCUMENTS, paths.EXCLUDED, paths.SENTENCES]),
    "embed": ([paths.SENTENCES, paths.EMBEDDER], [paths.EMBEDDINGS]),
    "cluster": ([paths.SENTENCES, paths.EMBEDDINGS, paths.BACKBONE],
                [paths.CENTROIDS, paths.NEAREST]),
    "materialize": ([paths.CENTROIDS, paths.SENTENCES], [paths.TASKS]),
    "metatrain": ([paths.TASKS, paths.BACKBONE, paths.CENTROIDS],
                  [paths.PROMPTS, paths.HELD_OUT, paths.KINDS, paths.TRAINING_STEPS]),
    "tune": ([paths.PROMPTS, paths.BACKBONE, paths.DATASETS, paths.EMBEDDER],
             [paths.TUNED_PROMPTS, paths.COSTS, paths.CURVES, paths.PREDICTIONS, paths.SCORES,
              paths.TESTED_EXAMPLES]),
}  # fmt: skip
INPUTS = [
    paths.CENTROIDS, paths.NEAREST, paths.DOCUMENTS, paths.EXCLUDED,
    paths.BACKBONE, paths.CORPUS, paths.DATASETS, paths.EMBEDDER, paths.TASKS,
    paths.HELD_OUT, paths.KINDS, paths.TRAINING_STEPS, paths.COSTS, paths.CURVES,
    paths.PREDICTIONS, paths.SCORES, paths.TESTED_EXAMPLES,
]  # fmt: skip
OUTPUTS = [paths.REPORT_PAGE, paths.REPORT_TEXT, paths.REPORT_METRICS]
DOMAINS = ("movies", "products", "editorials", "tweets")
LEVEL = {"zero-shot": 0.71, "pt-vocabulary": 0.74, "supmer": 0.80, "without-mgr": 0.78}
TESTED = 50  # test examples of a made-up dataset
LABELS = ("negative", "positive")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def params(**sections):
    """Return the parameters of a quickstart; the values of `sections` replace the defaults."""
    acquire = {"backbone": "hf:a/b", "embedder": "hf:a/b", "corpus": {"news": "path:x"}}
    acquire["datasets"] = dict.fromkeys((*DOMAINS, "sst-2", "cr", "airlines", "books"), "path:x")
    base = {
        "metatrain": {"template": "instruction", "max_length": 130, "variants": ["supmer", "without-mgr"]},
        "tune": {
            "datasets": ["movies"],
            "domains": {"source": "movies", "targets": list(DOMAINS[1:])},
            "methods": list(LEVEL),
            "seeds": [10, 20, 30],
            "learning_rates": [0.1, 0.3],
        },
        "report": {"datasets": list(DOMAINS)},
    }
    merged = {name: base.get(name, {}) | sections.get(name, {}) for name in {*base, *sections}}
    return Params(acquire=acquire, **merged)


def digest(*parts):
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def score_rows(methods=LEVEL, tuned=("movies",), tested=DOMAINS, shots=16, seeds=(10, 20, 30), rates=(0.1, 0.3)):
    """Return a row for each run and test; the last learning rate is chosen, the others are not tested."""
    rows = []
    for dataset in tuned:
        for method, level in methods.items():
            inference = method in {"zero-shot", "few-shot"}
            for seed in seeds[:1] if inference else seeds:
                for rate in (None,) if inference else rates:
                    chosen = inference or rate == rates[-1]
                    chance = random.Random(f"{dataset}/{method}/{seed}/{rate}/{shots}")
                    validation = None if inference else min(level + chance.uniform(-0.06, 0.04), 1.0)
                    for place, domain in enumerate(tested if chosen else (dataset,)):
                        rows.append(
                            {
                                "dataset": dataset, "tested_on": domain, "method": method, "shots": shots, "seed": seed,
                                "learning_rate": rate, "chosen": chosen, "metric": "accuracy",
                                "score": level - 0.03 * place + chance.uniform(-0.02, 0.02) if chosen else None,
                                "validation_score": validation, "best_step": None if inference else 40,
                                "steps": None if inference else 60, "status": "ok", "examples": 400,
                                "prompt_hash": digest(method),
                                "tuned_hash": digest(dataset, method, seed, rate),
                                "data_hash": digest(domain),
                            }
                        )  # fmt: skip
    return rows


def cost_rows(scores):
    """Return what each tuned seed took: 1,600 numbers, 90 seconds, 1.5 GB."""
    names = ("dataset", "method", "shots", "seed")
    tuned = dict.fromkeys(tuple(score[name] for name in names) for score in scores if score["learning_rate"])
    cost = {"parameters": 1600, "seconds": 90.0, "memory_bytes": 1_500_000_000}
    return [dict(zip(names, seed, strict=True)) | cost for seed in tuned]


def prediction_rows(scores):
    """Return predictions of two labels, of which the share of each tested run's score is right."""
    rows = []
    for score in scores:
        if not score["chosen"] or score["score"] is None:
            continue
        order = list(range(TESTED))
        random.Random(f"{score['method']}/{score['seed']}/{score['tested_on']}").shuffle(order)
        right = set(order[: round(score["score"] * TESTED)])
        for number in range(TESTED):
            label = number % 2
            predicted = label if number in right else 1 - label
            likely = [-0.1 - number / 100, -2.5] if predicted == 0 else [-2.5, -0.1 - number / 100]
            names = ("dataset", "tested_on", "method", "shots", "seed", "learning_rate", "tuned_hash", "data_hash")
            rows.append(
                {name: score[name] for name in names}
                | {"example_id": f"test.jsonl:{number + 1}", "label": label, "label_name": LABELS[label]}
                | {"predicted": predicted, "predicted_name": LABELS[predicted], "log_probabilities": likely}
            )
    return rows


def tested_rows(text, datasets):
    """Return the test examples of made-up datasets, with two labels in turn."""
    return [
        {"dataset": name, "example_id": f"test.jsonl:{number + 1}", "label": number % 2,
         "label_name": LABELS[number % 2], "texts": [f"{text} Review {number} of {name}, test."],
         "data_hash": digest(name)}
        for name in datasets
        for number in range(TESTED)
    ]  # fmt: skip


def curve_rows(scores):
    """Return curves that rise to the validation score of each tuned run."""
    rows, seen = [], set()
    for score in scores:
        run = tuple(score[name] for name in ("dataset", "method", "shots", "seed", "learning_rate"))
        if score["learning_rate"] is None or run in seen:
            continue
        seen.add(run)
        for step in range(0, 70, 10):
            share = 1 - math.exp(-step / 20)
            rows.append(
                dict(zip(("dataset", "method", "shots", "seed", "learning_rate"), run, strict=True))
                | {
                    "step": step,
                    "train_loss": 2.2 * math.exp(-step / 15),
                    "validation_loss": 0.6 + math.exp(-step / 18),
                }
                | {"validation_score": 0.5 + share * (score["validation_score"] - 0.5)}
            )
    return rows


def step_rows(variants, steps=30):
    rows = []
    for variant in variants:
        chance = random.Random(variant)
        for step in range(1, steps + 1):
            row = {"variant": variant, "step": step} | dict.fromkeys(MEASURES)
            row |= {"support_loss": 2.4 - step / 60, "query_loss": 2.5 - step / 60 + chance.uniform(-0.1, 0.1)}
            if not variant.startswith("ppt"):
                similarity = min(step / 40, 0.8) + chance.uniform(-0.1, 0.1)
                b = 2 ** ((1 + similarity) / 2) - 1
                row |= {"similarity": similarity, "s": similarity, "b": b, "lambda": chance.random() * b}
            if variant == "supmer":
                row |= {"gate": 0.5 + step / 100}
            rows.append(row)
    return rows


def held_out_rows(variants, steps=30, every=10):
    return [
        {"variant": variant, "step": step, "held_out_loss": 2.445 - step / 70, "best": step > 0}
        for variant in variants
        for step in range(0, steps + 1, every)
    ]


def kind_rows(variants, steps=30, every=10, right=0.5):
    rows = []
    for variant in variants:
        for step in range(0, steps + 1, every):
            for kind, labels in (("mc-next", 4), ("sp-cluster", 2)):
                share = right if step and kind == "mc-next" else 1 / labels
                rows.append(
                    {"variant": variant, "step": step, "kind": kind, "tasks": 12, "examples": 96,
                     "chance": 1 / labels, "chance_loss": math.log(labels), "right_before": 1 / labels,
                     "right_after": share, "loss_before": 1.4, "loss_after": 1.2, "mass_before": 0.3,
                     "mass_after": 0.98, "learned": share > 1 / labels + 0.1}
                )  # fmt: skip
    return rows


def write(root, path, schema, rows):
    write_shard(root / path / "0.parquet", schema, [pa.Table.from_pylist(rows, schema=schema)], {})


def write_tuning(root, scores, text=""):
    write(root, paths.SCORES, SCORES, scores)
    write(root, paths.CURVES, CURVES, curve_rows(scores))
    write(root, paths.COSTS, COSTS, cost_rows(scores))
    write(root, paths.PREDICTIONS, PREDICTIONS, prediction_rows(scores))
    tested = dict.fromkeys(score["tested_on"] for score in scores)
    write(root, paths.TESTED_EXAMPLES, TESTED_EXAMPLES, tested_rows(text, tested))


def write_training(root, variants=("supmer", "without-mgr"), steps=30, right=0.5):
    write(root, paths.TRAINING_STEPS, TRAINING_STEPS, step_rows(variants, steps))
    write(root, paths.HELD_OUT, HELD_OUT, held_out_rows(variants, steps))
    write(root, paths.KINDS, KINDS, kind_rows(variants, steps, right=right))


def write_corpus(root, text):
    documents = [
        {"document_id": document_id(f"{number}"), "source": "news", "file": "a.csv", "row": number, "offset": number,
         "bytes": 1000, "words": 180, "sentences": 12, "split": "validation" if number % 20 == 0 else "train",
         "shard": "0"}
        for number in range(60)
    ]  # fmt: skip
    write(
        root,
        paths.DOCUMENTS,
        DOCUMENTS,
        documents,
    )
    excluded = [
        {"document_id": document_id(f"x{number}"), "source": "news", "file": "a.csv", "row": number, "offset": 0,
         "reason": reason, "detail": "", "duplicate_of": None, "text": text}
        for number, reason in enumerate(["too_short"] * 9 + ["near_duplicate"] * 4 + [NASTY])
    ]  # fmt: skip
    write(root, paths.EXCLUDED, EXCLUDED, excluded)


def write_clusters(root, text):
    chance = random.Random(1)
    rows, near = [], []
    for form in ("sp", "mc", "ss"):
        for cluster in range(20):
            size = int(40 + 500 / (cluster + 2) + chance.randrange(30))
            place = [chance.gauss(0, 1), chance.gauss(0, 1)]
            rows.append({"format": form, "cluster": cluster, "size": size, "training": size - 3, "merged": [],
                         "embedding": place, "backbone": place})  # fmt: skip
            for rank in range(1, 4):
                said = f"{text} The council of the city met on the {rank}th of the month, {form} {cluster}."
                near.append({"format": form, "cluster": cluster, "rank": rank, "document_id": document_id("0"),
                             "index": rank, "distance": 0.1 * rank, "text": said})  # fmt: skip
    write(root, paths.CENTROIDS, centroids_schema(2, 2), rows)
    write(root, paths.NEAREST, NEAREST, near)


def write_sources(root):
    folder = root / "models"
    tiny_tokenizers.unigram().save_pretrained(folder)
    for role in ("backbone", "embedder", "corpus", "datasets"):
        names = DOMAINS if role == "datasets" else ("news",) if role == "corpus" else (role,)
        sources = [
            AcquiredSource(
                name, f"wheel:{name}-data==0.2.0#sha256={'a' * 64}", "MIT" if role != "corpus" else NASTY, str(folder),
                (SourceFile(f"{name}.bin", "", 1_234_567, digest(role, name)),),
            )
            for name in names
        ]  # fmt: skip
        write_manifest(root / paths.source(role), role, sources)


def write_history(root, *, runs=True):
    """Write dvc.yaml and dvc.lock of the stages and, if `runs` is true, an event for each stage."""
    yaml = YAML(typ="safe")
    md5 = {path: digest(path)[:32] + ".dir" for _, outs in STAGES.values() for path in outs}
    declared = {name: {"cmd": "x", "desc": f"Stage {name}", "outs": outs} for name, (_, outs) in STAGES.items()}
    locked = {
        name: {
            "cmd": "x",
            "deps": [{"path": path, "hash": "md5", "md5": md5[path], "size": 9} for path in deps],
            "params": {"params.yaml": {name: {"note": NASTY, "rate": 0.1}}},
            "outs": [{"path": path, "hash": "md5", "md5": md5[path], "size": 123456} for path in outs],
        }
        for name, (deps, outs) in STAGES.items()
    }
    for file, content in (("dvc.yaml", {"stages": declared}), ("dvc.lock", {"schema": "2.0", "stages": locked})):
        with (root / file).open("w") as stream:
            yaml.dump(content, stream)
    events = [
        event(name, {path: md5[path] for path in outs}, place) for place, (name, (_, outs)) in enumerate(STAGES.items())
    ]
    (root / paths.EVENTS).parent.mkdir(exist_ok=True)
    (root / paths.EVENTS).write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in events if runs))


def event(stage, outputs, place, seconds=None):
    record = {"seconds": seconds or 3.5 + 40 * place, "peak_memory_bytes": (300 + 100 * place) * 1_000_000}
    versions = [{"name": path, "facets": {"version": {"datasetVersion": md5}}} for path, md5 in outputs.items()]
    return {
        "eventType": "COMPLETE",
        "eventTime": f"2026-03-01T10:{10 + place:02d}:00.000000+00:00",
        "run": {"facets": {"supmer_stage": {"record": record, "prefectRunId": "x"}}},
        "job": {"name": stage, "facets": {"sourceCodeLocation": {"version": COMMIT}}},
        "outputs": versions,
    }


def furnish(root, text="", scores=None, variants=("supmer", "without-mgr"), steps=30):
    """Write everything that the report reads and return the root; every sentence of the corpus begins with `text`."""
    write_sources(root)
    write_corpus(root, text)
    write_clusters(root, text)
    for split in ("train", "validation"):
        write_tasks(root / paths.TASKS, {"sp-next": 4, "sp-cluster": 4, "mc-next": 4, "ss": 4}, split, words=9)
    write_training(root, variants, steps)
    write_tuning(root, score_rows() if scores is None else scores, text)
    write_history(root)
    return root


def run(root, **sections):
    """Run the stage and return its record."""
    stage = Stage(
        name="report", root=root, params=params(**sections), inputs=INPUTS, outputs=OUTPUTS, fingerprint="f" * 64,
        code="c" * 64, fan_out=InlineFanOut(), reporter=SilentReporter(),
    )  # fmt: skip
    stage.start()
    record = report.run(stage)
    stage.publish()
    return record
