"""Every kind of input that a user, another program or a damaged disk gives to supmer, and how a case of it is made."""

import base64
import csv
import gzip
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from ruamel.yaml import YAML

from flows.cli import VERBS
from soak.mutations import (
    Random,
    damaged_bytes,
    odd_parquet,
    odd_tensors,
    odd_value,
    replaced_value,
)
from storage.records.formats import NAMES

PROMPT = "artifacts/tuned/movies/supmer"
THERE = "fuzz"  # the folder in the workspace for the files of a case
TEXTS = [("great film and a good story", "positive"), ("dull, long and poor", "negative")] * 6


@dataclass(frozen=True)
class Case:
    """A command, and the files that it meets; `files` are relative to the workspace, None: the file is absent."""

    words: tuple[str, ...]
    files: dict[str, bytes | None] = field(default_factory=dict)
    standard_input: bytes = b""
    variables: dict[str, str] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """Return the case as JSON, from which it can be repeated: without its files, which the seed makes again."""
        words = [word if len(word) < 120 else f"{word[:100]}… ({len(word)} characters)" for word in self.words]
        start = base64.b64encode(self.standard_input[:60]).decode()
        return {"words": words, "files": sorted(self.files), "input": start, "variables": self.variables}


Make = Callable[[Path, Random], Case]


def params_file(root: Path, generator: Random) -> Case:
    content = (root / "params.yaml").read_bytes()
    if generator.random() < 0.5:
        content = damaged_bytes(content, generator)
    else:
        content = _yaml(replaced_value(YAML(typ="safe").load(content), generator))
    words = (("params", "show"), ("run", "--dry-run"), ("status",), ("params", "diff"), ("why", "sample"))
    return Case(generator.choice(words), {"params.yaml": content})


def settings(_root: Path, generator: Random) -> Case:
    key = generator.choice((*_keys(), "", ".", "sample", "acquire.corpus.x", "nothing.here", "seed.more"))
    texts = (str(odd_value(generator)), f"[{'[' * generator.choice((3, 1000))}", "{a: &a [*a]}", "!!binary x", "'")
    value = generator.choice(texts).replace("\x00", "")
    setting = generator.choice((f"{key}={value}", f"{key}={value}", key, f"={value}", f"{key}=={value}"))
    return Case((*generator.choice((("run", "--dry-run"), ("params", "show"), ("status",))), "-S", setting))


def lock_file(root: Path, generator: Random) -> Case:
    content = damaged_bytes((root / "dvc.lock").read_bytes(), generator)
    words = (("status",), ("run", "--dry-run"), ("verify",), ("lineage", PROMPT), ("why", "embed"))
    return Case(generator.choice(words), {"dvc.lock": content})


def state_files(root: Path, generator: Random) -> Case:
    """Files that supmer and DVC keep: the events, the lock, the server's address, DVC's claims, the listings."""
    path = generator.choice(
        ("lineage/events.jsonl", ".supmer/lock", ".supmer/server", ".dvc/tmp/rwlock", "inputs.yaml", "forgotten.csv")
    )
    content = (root / path).read_bytes() if (root / path).exists() else b"{}"
    words = (("status",), ("lineage", PROMPT), ("why", "sample"), ("run", "--dry-run"), ("forget", "x", "--why", "y"))
    return Case((*generator.choice(words),), {path: damaged_bytes(content, generator)})


def pipeline_file(root: Path, generator: Random) -> Case:
    words = (("status",), ("dag",), ("run", "--dry-run"))
    return Case(generator.choice(words), {"dvc.yaml": damaged_bytes((root / "dvc.yaml").read_bytes(), generator)})


def tables(root: Path, generator: Random) -> Case:
    """A table of an output, damaged on disk."""
    shards = sorted((root / "data").rglob("*.parquet"))
    path = generator.choice(shards)
    words = (("verify",), ("sql",), ("sql", "FROM sentences"), ("show", "tasks"), ("show", "clusters"), ("trace", "x"))
    return Case(generator.choice(words), {str(path.relative_to(root)): damaged_bytes(path.read_bytes(), generator)})


def prompt_folder(root: Path, generator: Random) -> Case:
    name = generator.choice(("config.json", "config.json", "prompt.safetensors", "README.md"))
    content = (root / PROMPT / name).read_bytes()
    if name == "config.json" and generator.random() < 0.6:
        content = _json(replaced_value(orjson.loads(content), generator))
    else:
        content = damaged_bytes(content, generator)
    files: dict[str, bytes | None] = {f"{THERE}/{path.name}": path.read_bytes() for path in (root / PROMPT).iterdir()}
    files |= {f"{THERE}/{name}": content, "texts.csv": as_csv(TEXTS)}
    use = ("--prompt", THERE)
    words = (
        ("predict", *use, "--data", "texts.csv"),
        ("evaluate", *use, "--data", "texts.csv"),
        ("export", "--to", "peft", f"{THERE}/out", *use),
        ("lineage", THERE),
    )
    return Case(generator.choice(words), files)


def texts(_root: Path, generator: Random) -> Case:
    name, content = _records(generator, ("text",))
    path = f"{THERE}/{name}"
    words = ("predict", "--prompt", PROMPT, "--data", path)
    return Case(words, {path: content})


def standard_input(_root: Path, generator: Random) -> Case:
    content = damaged_bytes(_jsonl(TEXTS), generator)
    form = ("--input-format", generator.choice(NAMES)) if generator.random() < 0.7 else ()
    return Case(("predict", "--prompt", PROMPT, "--data", "-", *form), standard_input=content)


def labels(_root: Path, generator: Random) -> Case:
    name, content = _records(generator, ("text", "label"))
    path = f"{THERE}/{name}"
    files: dict[str, bytes | None] = {path: content}
    if generator.random() < 0.3:
        files[f"{THERE}/labels.json"] = damaged_bytes(b'{"0": "negative", "1": "positive"}', generator)
    if generator.random() < 0.5:
        return Case(("evaluate", "--prompt", PROMPT, "--data", path), files)
    few = ("--shots", "1", "--epochs", "1", "--seeds", "1", "--learning-rates", "0.1", "--output", f"{THERE}/out")
    return Case(("tune", "--data", path, "--text", "text", *few), files)


def corpus(_root: Path, generator: Random) -> Case:
    name, content = _records(generator, ("text",), long=True)
    return Case(("alone", "sample", THERE), {f"{THERE}/corpus/{name}": content})


def official(_root: Path, generator: Random) -> Case:
    content = odd_tensors(generator)
    if generator.random() < 0.5:
        content = damaged_bytes(content, generator)
    words = ["import-official", "--prompt", f"{THERE}/p.pt", f"{THERE}/out"]
    if generator.random() < 0.3:
        words += ["--regularizer", f"{THERE}/p.pt"]
    return Case(tuple(words), {f"{THERE}/p.pt": content})


def adapter(root: Path, generator: Random) -> Case:
    """A PEFT adapter of the prompt's own numbers."""
    from safetensors.numpy import load, save

    prompt = load((root / PROMPT / "prompt.safetensors").read_bytes())["prompt"]
    tokens, width = prompt.shape
    config: Any = {"peft_type": "PROMPT_TUNING", "task_type": "SEQ_2_SEQ_LM", "num_virtual_tokens": tokens}
    config |= {"token_dim": width, "num_transformer_submodules": 1, "base_model_name_or_path": "t5"}
    weights = save({"prompt_embeddings": prompt})
    if generator.random() < 0.5:
        config = replaced_value(config, generator)
    else:
        weights = damaged_bytes(weights, generator)
    files = {f"{THERE}/adapter_config.json": _json(config), f"{THERE}/adapter_model.safetensors": weights}
    return Case(("import", "--from", "peft", THERE, f"{THERE}/out"), files)


def backbone(root: Path, generator: Random) -> Case:
    folder = root / "data/sources/backbone"
    there = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "source.json")
    files: dict[str, bytes | None] = {f"{THERE}/{path.name}": path.read_bytes() for path in there}
    name = generator.choice(sorted(files))
    content = files[name] or b""
    if name.endswith(".json") and generator.random() < 0.4:
        files[name] = _json(replaced_value(orjson.loads(content), generator))
    else:
        files[name] = damaged_bytes(content, generator)
    files["texts.csv"] = as_csv(TEXTS[:2])
    return Case(("predict", "--prompt", PROMPT, "--data", "texts.csv", "--backbone", THERE, "--any-backbone"), files)


def arguments(_root: Path, generator: Random) -> Case:
    """Words that a user could type: verbs, their options, and odd values, in any order; nothing that runs a stage."""
    verbs = [name for name in VERBS if name not in {"run", "ui", "serve", "stage", "tune", "accept", "forget", "gc"}]
    verb = generator.choice((*verbs, "rnu", "", "-h", "--version"))
    options = (
        "--json",
        "--help",
        "-n",
        "--data",
        "--prompt",
        "--text",
        "--label",
        "--format",
        "--limit",
        "--seed",
        "-S",
    )
    values = [str(odd_value(generator)).replace("\x00", "") for _ in range(4)]
    words = generator.choices((*options, *values, PROMPT, "sample", "artifacts", "data", "quickstart"), k=4)
    return Case((verb, *words[: generator.randrange(5)]))


def queries(_root: Path, generator: Random) -> Case:
    pieces = ("SELECT", "*", "FROM", "sentences", "documents", "excluded", "WHERE", "count(*)", "GROUP BY", "'", '"',
              ";", "readas_csv('/etc/passwd')", "COPY", "TO", "'x.csv'", "PRAGMA", "NULL", "(", ")", "é", "\x00", "--",
              "ATTACH", "text", "ORDER BY", "repeat('x', 10000000)", "range(10000000000)", "LIMIT 3")  # fmt: skip
    query = " ".join(generator.choices(pieces, k=generator.randint(1, 8)))
    if generator.random() < 0.4:
        query = (
            f"SELECT count(*), max(text) FROM sentences WHERE words {generator.choice('<>=')} {odd_value(generator)}"
        )
    form = ("--format", generator.choice(("table", "csv", "json")))
    if generator.random() < 0.5:
        return Case(("sql", "-", *form), standard_input=damaged_bytes(query.encode(), generator))
    return Case(("sql", query.replace("\x00", ""), *form))


def variables(_root: Path, generator: Random) -> Case:
    name = generator.choice(("SUPMER_UMASK", "COLUMNS", "NO_COLOR", "OMP_NUM_THREADS", "OPENLINEAGE_URL", "TMPDIR"))
    value = str(odd_value(generator)).replace("\x00", "")
    return Case(generator.choice((("status",), ("params", "show"), ("sql",))), variables={name: value})


INPUTS: dict[str, Make] = {
    "params.yaml": params_file,
    "-S": settings,
    "dvc.lock": lock_file,
    "dvc.yaml": pipeline_file,
    "files of the workspace": state_files,
    "tables": tables,
    "prompt folders": prompt_folder,
    "texts to label": texts,
    "standard input": standard_input,
    "labeled files": labels,
    "corpora": corpus,
    "official .pt": official,
    "PEFT adapters": adapter,
    "backbones": backbone,
    "arguments": arguments,
    "SQL": queries,
    "environment": variables,
}


def _records(generator: Random, columns: Sequence[str], *, long: bool = False) -> tuple[str, bytes]:
    """Return a file of records: its name, and its content, damaged or of an odd shape."""
    rows = [(f"{text}. " * (12 if long else 1), label)[: len(columns)] for text, label in TEXTS]
    form = generator.choice(("jsonl", "csv", "tsv", "txt", "parquet", "jsonl.gz"))
    match form:
        case "parquet":
            content = odd_parquet(generator, tuple(columns))
        case "csv" | "tsv":
            content = as_csv(rows, "\t" if form == "tsv" else ",", columns)
        case "txt":
            content = "\n".join(row[0] for row in rows).encode()
        case _:
            content = _jsonl(rows, columns)
    if generator.random() < 0.3 and form.startswith("jsonl"):
        content += _json({columns[0]: odd_value(generator), columns[-1]: odd_value(generator)}) + b"\n"
    elif form != "parquet" or generator.random() < 0.5:
        content = damaged_bytes(content, generator)
    if form.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
        content = damaged_bytes(content, generator) if generator.random() < 0.5 else content
    return f"records.{form}", content


def as_csv(rows: Sequence[Sequence[str]], delimiter: str = ",", columns: Sequence[str] = ("text", "label")) -> bytes:
    sink = io.StringIO()
    csv.writer(sink, delimiter=delimiter).writerows([columns, *rows])
    return sink.getvalue().encode()


def _jsonl(rows: Sequence[Sequence[str]], columns: Sequence[str] = ("text", "label")) -> bytes:
    return b"".join(_json(dict(zip(columns, row, strict=True))) + b"\n" for row in rows)


def _json(value: Any) -> bytes:
    import json

    return json.dumps(value).encode("utf-8", "surrogatepass")


def _yaml(value: Any) -> bytes:
    sink = io.BytesIO()
    YAML(typ="safe").dump(value, sink)
    return sink.getvalue()


@cache
def _keys() -> tuple[str, ...]:
    from tasks.params.reference import parameters

    return tuple(parameter.key for parameter in parameters())
