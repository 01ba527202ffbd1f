import gzip
import io
from contextlib import nullcontext
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import InputError
from storage.records.documents import ADVICE, read_documents
from storage.records.formats import file_kind, is_ignored
from storage.records.parts import Part, count_rows, cut
from storage.records.reader import Expected, JsonLines

TEXTS = ["First document.", 'Second, with "quotes"\nand a line break.', "Third: ünïcödé."]


def json_lines(texts) -> bytes:
    return b"".join(orjson.dumps({"id": number, "text": text}) + b"\n" for number, text in enumerate(texts))


def part(folder: Path, name: str, content: bytes) -> Part:
    (folder / name).write_bytes(content)
    return Part(folder / name, name)


def texts(read: Part, field: str = "text") -> list[str | None]:
    return [document.text for document in read_documents(read, field)]


def message(read: Part, field: str = "text") -> str:
    with pytest.raises(InputError) as error:
        list(read_documents(read, field))
    said = str(error.value)
    assert "\n" not in said
    assert said.startswith(str(read.path))
    return said.removeprefix(f"{read.path}: ")


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("form", ["jsonl", "csv", "tsv"])
def test_every_form_gives_the_same_documents(tmp_path, form, suffix):
    delimiter = "\t" if form == "tsv" else ","
    rows = [
        "id" + delimiter + "text",
        *(f'{number}{delimiter}"{text.replace(chr(34), chr(34) * 2)}"' for number, text in enumerate(TEXTS)),
    ]
    content = json_lines(TEXTS) if form == "jsonl" else ("\n".join(rows) + "\n").encode()
    pack = {"": bytes, ".gz": gzip.compress, ".zst": lambda data: pa.compress(data, "zstd", asbytes=True)}[suffix]
    documents = list(read_documents(part(tmp_path, f"a.{form}{suffix}", pack(content)), "text"))
    assert [document.text for document in documents] == TEXTS
    assert [document.row for document in documents] == [1, 2, 3]
    for document in documents:
        assert document.offset is not None
        assert content[document.offset :].startswith((b'{"id":%d' % (document.row - 1), b"%d" % (document.row - 1)))


def test_parquet_is_read_by_column_and_rows_are_counted(tmp_path):
    pq.write_table(pa.table({"text": [*TEXTS, None], "other": [[1]] * 4}), tmp_path / "a.parquet", row_group_size=3)
    documents = list(read_documents(Part(tmp_path / "a.parquet", "a.parquet"), "text"))
    assert [(document.text, document.row, document.offset) for document in documents] == [
        (text, row, None) for row, text in enumerate([*TEXTS, None], start=1)
    ]


def test_a_text_file_is_one_document(tmp_path):
    assert texts(part(tmp_path, "a.txt", "\ufeffOne\n\ntwo".encode())) == ["One\n\ntwo"]


def test_gzip_of_several_members_is_read_to_its_end(tmp_path):
    packed = gzip.compress(json_lines(TEXTS)) + gzip.compress(json_lines(TEXTS))
    assert texts(part(tmp_path, "a.jsonl.gz", packed)) == TEXTS * 2


def test_zstandard_of_several_frames_is_read_to_its_end(tmp_path):
    frame = pa.compress(json_lines(TEXTS), "zstd", asbytes=True)
    assert texts(part(tmp_path, "a.jsonl.zst", frame * 2)) == TEXTS * 2


def test_blank_lines_are_skipped_but_counted_and_null_is_no_text(tmp_path):
    read = part(tmp_path, "a.jsonl", b'\xef\xbb\xbf{"text": "a"}\r\n\n{"text": null}\n{"text": ""}')
    assert [(document.text, document.row) for document in read_documents(read, "text")] == [
        ("a", 1),
        (None, 3),
        ("", 4),
    ]


@pytest.mark.parametrize("size", [1, 7, 20, 50, 1_000])
def test_parts_of_json_lines_hold_every_line_once(tmp_path, size):
    content = json_lines([f"document {number}" * (number % 5) for number in range(40)]).replace(b"\n", b"\n\n", 3)
    whole = part(tmp_path, "a.jsonl", content)
    expected = list(read_documents(whole, "text"))
    found, before = [], 0
    for each in cut(whole.path, "a.jsonl", size):
        found += [document._replace(row=document.row + before) for document in read_documents(each, "text")]
        before += count_rows(each)
    assert found == expected


class Counted(io.BytesIO):
    """A stream that counts the bytes of the lines it gave."""

    skipped = 0

    def readline(self, *most):
        line = super().readline(*most)
        self.skipped += len(line)
        return line


def test_a_part_within_a_long_line_scans_no_further_than_its_own_end(tmp_path):
    content = json_lines(["short", "long" * 1_000_000, "last"])
    whole = part(tmp_path, "a.jsonl", content)
    parts = cut(whole.path, "a.jsonl", 1 << 16)
    assert len(parts) > 50
    skipped = 0
    for each in parts:
        stream = Counted(content)
        reader = JsonLines(nullcontext(stream), "a.jsonl", "a.jsonl", Expected(text="text"))
        reader.part = each
        list(reader)
        skipped += stream.skipped
    assert skipped <= len(content)
    assert [text for each in parts for text in texts(each)] == texts(whole)


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", lambda data: pa.compress(data, "zstd"))])
def test_an_archive_that_unpacks_to_far_more_than_text_does_is_refused(tmp_path, suffix, pack):
    bomb = bytes(pack(b'{"text": "' + b"a" * (20 << 20) + b'"}\n'))
    assert len(bomb) < 50_000
    said = f"refused: {len(bomb):,} bytes that unpack to more than 16,777,216"
    assert message(part(tmp_path, f"a.jsonl.{suffix}", bomb)).startswith(said)


def test_parquet_is_cut_between_row_groups(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"{number}" * 500 for number in range(100)]}), path, row_group_size=10)
    parts = cut(path, "a.parquet", 20_000)
    assert len(parts) > 1
    assert [text for each in parts for text in texts(each)] == texts(Part(path, "a.parquet"))
    assert sum(count_rows(each) for each in parts) == 100


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"text": "a"}\n{"text": "b"\n', "line 2: not JSON"),
        (b'{"text": "a"}\n["b"]\n', "line 2: a list where an object was expected: write one JSON object per line"),
        (b'{"body": "a", "id": 1}\n', f"line 1: no field 'text' (found: body, id): {ADVICE}"),
        (b'{"text": 5}\n', f"line 1: field 'text' holds a number, not text: {ADVICE}"),
        (b'{"text": "a\xff"}\n', "line 1: not UTF-8 (byte 11 is 0xff): convert the file to UTF-8"),
    ],
)
def test_bad_json_lines_are_named_by_line(tmp_path, content, said):
    assert message(part(tmp_path, "a.jsonl", content)).startswith(said)


def test_the_line_number_is_the_files_even_in_a_later_part(tmp_path):
    path = part(tmp_path, "a.jsonl", json_lines(TEXTS * 10) + b"oops\n").path
    assert message(cut(path, "a.jsonl", 200)[-1]).startswith("line 31: not JSON")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"id,body\n1,a\n", f"line 1: no column 'text' (found: id, body): {ADVICE}"),
        (b'id,text\n1,a\n2,"b\n', "row 2 (line 3): not CSV (unexpected end of data): correct the row's quotes"),
        (
            b"id,text\n1,a,b\n",
            "row 1 (line 2): 3 fields where the header has 2: correct the row's quotes or delimiters",
        ),
        (b"id,text\n1,a\n2,\xe9\n", "line 3: not UTF-8 (byte 2 is 0xe9): convert the file to UTF-8"),
    ],
)
def test_bad_csv_is_named_by_row(tmp_path, content, said):
    assert message(part(tmp_path, "a.csv", content)) == said


def test_text_that_is_not_utf8_is_named_by_byte(tmp_path):
    assert message(part(tmp_path, "a.txt", b"caf\xe9")) == "not UTF-8 (byte 3 is 0xe9): convert the file to UTF-8"


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda data: pa.compress(data, "zstd", asbytes=True)], ids=["gz", "zst"]
)
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda _: b"x" * 99], ids=["cut", "garbage"])
def test_a_damaged_archive_is_refused(tmp_path, pack, damage):
    suffix = "gz" if pack is gzip.compress else "zst"
    content = damage(pack(json_lines([str(number) * 50 for number in range(999)])))
    assert message(part(tmp_path, f"a.jsonl.{suffix}", content)).startswith("damaged or cut short (")


def test_a_truncated_parquet_file_is_refused(tmp_path):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "whole.parquet")
    damaged = part(tmp_path, "a.parquet", (tmp_path / "whole.parquet").read_bytes()[:-20])
    assert message(damaged).startswith("not a whole Parquet file (")


@pytest.mark.parametrize("change", [0x01, 0x80, 0xFF])
def test_a_damaged_footer_is_refused_or_does_no_harm(tmp_path, change):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    refused = 0
    for at in range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole)):
        path = part(tmp_path, "a.parquet", whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :]).path
        try:
            for each in cut(path, path.name, 1_000):
                texts(each)
        except InputError:
            refused += 1
    assert refused > 10


def test_parquet_with_two_columns_of_one_name_is_refused_if_it_is_the_text(tmp_path):
    def saved(names):
        columns = [pa.array(TEXTS), pa.array(TEXTS), pa.array(TEXTS)]
        pq.write_table(pa.Table.from_arrays(columns, names=names), tmp_path / "a.parquet")
        return Part(tmp_path / "a.parquet", "a.parquet")

    assert message(saved(["text", "text", "id"])) == "two columns 'text': rename or drop one of them"
    assert texts(saved(["text", "id", "id"])) == TEXTS


def test_parquet_with_a_damaged_page_is_refused(tmp_path):
    pq.write_table(pa.table({"text": [f"{number}" * 99 for number in range(999)]}), tmp_path / "whole.parquet")
    content = bytearray((tmp_path / "whole.parquet").read_bytes())
    content[10:2_000] = b"\xff" * 1_990
    assert message(part(tmp_path, "a.parquet", bytes(content))).startswith("damaged Parquet (")


def test_parquet_without_the_column_or_with_numbers_is_refused(tmp_path):
    pq.write_table(pa.table({"body": TEXTS, "text": [1, 2, 3]}), tmp_path / "a.parquet")
    read = Part(tmp_path / "a.parquet", "a.parquet")
    assert message(read) == f"column 'text' holds int64, not text: {ADVICE}"
    assert message(read, "content") == f"no column 'content' (found: body, text): {ADVICE}"


def test_parquet_text_that_is_not_utf8_is_named_by_row(tmp_path):
    column = pa.array([b"good", b"bad \xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    assert message(Part(tmp_path / "a.parquet", "a.parquet")).startswith("row 2: not UTF-8 (byte 4 is 0xff)")


def test_a_file_that_is_not_there_is_said(tmp_path):
    missing = Part(tmp_path / "a.jsonl", "a.jsonl")
    assert message(missing) == "cannot be read (No such file or directory): check the file and its rights"
    with pytest.raises(InputError, match="cannot be read"):
        cut(missing.path, "a.jsonl", 10)


@pytest.mark.parametrize("name", ["a.docx", "archive.zip", "noext", "a.parquet.gz", "a.gz"])
def test_other_files_are_refused_by_name(name):
    with pytest.raises(InputError, match=f"^{name}: unknown kind of file; what is read: JSON lines"):
        file_kind(name)


@pytest.mark.parametrize("name", ["README", "README.txt", "LICENSE.txt", "sub/README.md", ".hidden", "sub/.gitignore"])
def test_files_that_accompany_the_data_are_ignored(name):
    assert is_ignored(name)
    assert not is_ignored("readings.txt")
    assert not is_ignored("sub/notes.md")
