"""Damage for inputs: bytes flipped, cut and put in, values replaced by odd ones, and files of odd shapes."""

import io
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

Random = random.Random

ODD_BYTES = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n\n\n", b"\t", b"\x1b[31m", b'"', b"'", b"\\",
    b",", b"[" * 3000, b"{" * 3000, b"9" * 5000, b"NaN", b"1e999", b"-0", b"*a", b"&a [*a]", b"<<: *x", b": ", b"- ",
    b"#", b"!!python/object/apply:os.getcwd []", b"%YAML 9.9", b"..", b"/", b"~", b"null", b"true", b"PAR1",
    b"PK\x03\x04", "\u202e".encode(), "\u0000é🙂\u2028".encode(),
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 10**30, -(10**30), 0.0, -0.5, 1e308, float("inf"), float("nan"), "", " ", "\n", "\x00",
    "x" * 10_000, "2024", "1e5", "no", "../..", "/dev/null", "~", "*", "[", "{text}", "{", "<X>", "path:", "s3://",
    "\u202e", "é🙂", [], {}, [[]], [None], [1, "a"], {"": ""}, {"a": {"b": {"c": []}}}, [0] * 1000,
)  # fmt: skip


def damaged_bytes(content: bytes, generator: Random) -> bytes:
    """Return the content with one to three pieces of damage."""
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        content = generator.choice(BYTE_DAMAGE)(content, generator)
    return content


def _flip(content: bytes, generator: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(generator.choice((1, 1, 4, 64))):
        if changed:
            changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def _cut(content: bytes, generator: Random) -> bytes:
    return content[: generator.randrange(len(content) + 1)]


def _cut_within(content: bytes, generator: Random) -> bytes:
    start, end = sorted(generator.randrange(len(content) + 1) for _ in range(2))
    return content[:start] + content[end:]


def _insert(content: bytes, generator: Random) -> bytes:
    at = generator.randrange(len(content) + 1)
    return content[:at] + generator.choice(ODD_BYTES) + content[at:]


def _repeat(content: bytes, generator: Random) -> bytes:
    start, end = sorted(generator.randrange(len(content) + 1) for _ in range(2))
    return content[:end] + content[start:end] + content[end:]


def _zeros(content: bytes, generator: Random) -> bytes:
    start, end = sorted(generator.randrange(len(content) + 1) for _ in range(2))
    return content[:start] + bytes(end - start) + content[end:]


def _swap_lines(content: bytes, generator: Random) -> bytes:
    lines = content.split(b"\n")
    generator.shuffle(lines)
    return b"\n".join(lines)


def _noise(content: bytes, generator: Random) -> bytes:
    return generator.randbytes(min(len(content), 4096))


BYTE_DAMAGE: tuple[Callable[[bytes, Random], bytes], ...] = (
    _flip, _flip, _cut, _cut_within, _insert, _insert, _repeat, _zeros, _swap_lines, _noise
)  # fmt: skip


def odd_value(generator: Random) -> Any:
    return generator.choice(ODD_VALUES)


def replaced_value(tree: Any, generator: Random) -> Any:
    """Return a tree of lists and mappings in which one value or key is replaced, added or removed."""
    if generator.random() < 0.25 or not isinstance(tree, dict | list) or not tree:
        return odd_value(generator)
    if isinstance(tree, list):
        place = generator.randrange(len(tree))
        return [*tree[:place], replaced_value(tree[place], generator), *tree[place + 1 :]]
    key = generator.choice(list(tree))
    match generator.randrange(6):
        case 0:
            return {name: value for name, value in tree.items() if name != key}
        case 1:
            return tree | {str(odd_value(generator)): odd_value(generator)}
        case _:
            return tree | {key: replaced_value(tree[key], generator)}


def odd_parquet(generator: Random, columns: tuple[str, ...]) -> bytes:
    """Return a Parquet file whose columns are of odd types, twice there, or missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    odd = (
        pa.array([None, None]), pa.array([b"\xff\xfe", b""]), pa.array([[1], []]), pa.array([{"a": 1}, None]),
        pa.array([1.5, float("nan")]), pa.array([Decimal("1.0"), None]), pa.array(["a", None]).dictionary_encode(),
        pa.array(["", "x" * 100_000]), pa.array([True, False]), pa.array([2**63 - 1, -1]),
        pa.array([0, 1], pa.timestamp("ns")),
    )  # fmt: skip
    names = [name for name in (*columns, *generator.choices((*columns, "", "x", "é"), k=2)) if generator.random() < 0.8]
    chosen = [generator.choice(odd) for _ in names]
    table = pa.Table.from_arrays(chosen, names=names) if names else pa.table({})
    sink = io.BytesIO()
    pq.write_table(table.slice(0, generator.choice((0, 1, 2))), sink)
    return sink.getvalue()


def odd_tensors(generator: Random) -> bytes:
    """Return what torch.save writes for odd objects: tensors of odd shapes and types, and things that are none."""
    import torch

    shapes = ((0,), (1,), (8, 16), (0, 16), (3, 4, 5), (100, 768), (1, 1))
    tensor = torch.zeros(generator.choice(shapes), dtype=generator.choice((torch.float32, torch.int8, torch.complex64)))
    odd = (
        tensor, {"prompt": tensor}, {"": tensor}, [tensor], {"prompt_embeddings": tensor, "other": "text"}, "text", {},
        {"a": {"b": tensor}}, {1: tensor}, torch.empty((200_000, 200_000), device="meta"),
        torch.zeros(1).expand(200_000, 200_000), torch.full((8, 16), float("nan")), torch.zeros(8, 16).to_sparse(),
    )  # fmt: skip
    sink = io.BytesIO()
    torch.save(generator.choice(odd), sink)
    return sink.getvalue()
