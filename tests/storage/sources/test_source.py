"""Specs, patterns and manifests of sources."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from storage.errors import InputError
from storage.sources.source import (
    AcquiredSource,
    Kind,
    SourceFile,
    compiled,
    fixed_folder,
    named_sources,
    parse_spec,
    read_manifest,
    select,
    write_manifest,
)

HASH = "0123456789abcdef" * 4


@dataclass
class Wanted:
    backbone: str = "hf:google-t5/t5-small"
    embedder: str = "hf:org/embedder"
    corpus: dict = field(default_factory=lambda: {"news": "path:news"})
    datasets: dict = field(default_factory=dict)


def test_a_wheel_spec_gives_name_version_hash_and_patterns():
    spec = parse_spec(f"wheel:My-Data==1.2.post3#sha256={HASH.upper()}&path=a/*.csv&path=b.txt")
    assert (spec.kind, spec.location, spec.version) == (Kind.WHEEL, "My-Data", "1.2.post3")
    assert (spec.sha256, spec.patterns) == (HASH, ("a/*.csv", "b.txt"))


def test_a_hub_spec_gives_repository_revision_and_patterns():
    spec = parse_spec("hf:google/flan-t5-xl@refs/pr/3#path=data/*.parquet&path=more/**")
    assert (spec.location, spec.version) == ("google/flan-t5-xl", "refs/pr/3")
    assert spec.patterns == ("data/*.parquet", "more/**")


def test_a_hub_spec_may_leave_out_organization_and_revision():
    spec = parse_spec("hf:gpt2")
    assert (spec.kind, spec.location, spec.version, spec.patterns) == (Kind.HUB, "gpt2", "", ())


def test_a_path_may_hold_every_sign_but_the_start_of_a_pattern():
    assert parse_spec("path:/data/a#1 & b@c.txt").location == "/data/a#1 & b@c.txt"
    spec = parse_spec("path:../texts#path=**/*.txt&path=x/*")
    assert (spec.location, spec.patterns) == ("../texts", ("**/*.txt", "x/*"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("news.csv", "a source starts with one of wheel:…, hf:…, path:…, s3://…, gs://…, https://…, made:…"),
        ("http://x/y", "a source starts with one of"),
        (f"wheel:name#sha256={HASH}", "'name' is not NAME==VERSION"),
        (f"wheel:-x==1#sha256={HASH}", "'-x==1' is not NAME==VERSION"),
        ("wheel:name==1", "a wheel needs its sha256"),
        ("wheel:name==1#sha256=abc", "one of 64 hex digits"),
        (f"wheel:name==1#sha256={HASH}&sha256={HASH}", "a wheel needs its sha256, one of"),
        (f"wheel:name==1#sha256={HASH}&glob=*", "unknown option 'glob' (known: sha256, path)"),
        (f"wheel:name==1#sha256={HASH}&path=../x", "path=../x must be a pattern relative to the source"),
        (f"wheel:name==1#sha256={HASH}&path=", "path= must be a pattern"),
        ("hf:a/b/c", "'a/b/c' is not org/name or org/name@revision"),
        ("hf:", "'' is not org/name"),
        ("hf:a/b#sha256=1", "unknown option 'sha256' (known: path)"),
        ("path:", "no file or folder given"),
        ("path:x#path=[z-a].txt", "path=[z-a].txt is not a pattern (bad character range z-a"),
        ("path:x#path=/etc/*", "path=/etc/* must be a pattern relative to the source"),
    ],
)
def test_a_bad_spec_is_refused_in_one_line_with_an_example(text, complaint):
    with pytest.raises(InputError) as caught:
        parse_spec(text)
    message = str(caught.value)
    assert complaint in message
    assert repr(text) in message
    assert "for example" in message
    assert "\n" not in message


def test_sources_come_by_role_and_sorted_name():
    sources = named_sources(Wanted(corpus={"b": "path:b", "a": "path:a"}, datasets={"x": "hf:x/y"}))
    assert [source.parameter for source in sources] == [
        "acquire.backbone",
        "acquire.embedder",
        "acquire.corpus.a",
        "acquire.corpus.b",
        "acquire.datasets.x",
    ]
    assert (sources[0].folder, sources[2].folder) == ("data/sources/backbone/backbone", "data/sources/corpus/a")


def test_a_bad_spec_in_the_parameters_is_named_by_its_key():
    with pytest.raises(InputError, match=r"^acquire\.corpus\.news: 'nope': a source starts"):
        named_sources(Wanted(corpus={"news": "nope"}))


@pytest.mark.parametrize("name", ["News", "a b", "../x", "", "-a"])
def test_a_name_that_is_no_slug_is_refused(name):
    with pytest.raises(InputError, match="is not a name: use a-z"):
        named_sources(Wanted(datasets={name: "path:x"}))


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a/*.csv", "a/b.csv", True),
        ("a/*.csv", "a/b/c.csv", False),
        ("a/**", "a/b/c.csv", True),
        ("**/*.csv", "c.csv", True),
        ("**/*.csv", "a/b/c.csv", True),
        ("a/**/c.csv", "a/c.csv", True),
        ("a/?.txt", "a/b.txt", True),
        ("a/?.txt", "a/bb.txt", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("a.txt", "aXtxt", False),
        ("a+(b).txt", "a+(b).txt", True),
        ("**", "a/b/c.csv", True),
        ("a/**.csv", "a/b/c.csv", True),
        ("a", "a/b.csv", False),
        ("a/b*", "a/bc/d.csv", False),
        ("**/a", "a/b.csv", False),
        ("*", ".hidden", True),
        ("#a!.txt", "#a!.txt", True),
    ],
)
def test_one_star_stays_in_its_folder_and_two_span_folders(pattern, name, matches):
    assert bool(compiled(pattern).fullmatch(name)) is matches


def test_the_fixed_folder_of_a_pattern_ends_at_its_first_wildcard():
    assert [fixed_folder(pattern) for pattern in ("a/b/*.csv", "a/b.csv", "*", "a/*/c/d", "a/**")] == [
        "a/b",
        "a",
        "",
        "a",
        "a",
    ]


def test_a_pattern_without_a_match_lists_what_is_near():
    names = ["pkg/data/en/a.csv", "pkg/data/en/b.csv", "pkg/code.py"]
    with pytest.raises(InputError) as caught:
        select(names, ["pkg/data/en/*.txt"], "wheel x==1")
    assert str(caught.value) == (
        "wheel x==1: nothing in it matches path=pkg/data/en/*.txt; it holds pkg/data/en/a.csv, pkg/data/en/b.csv"
    )


def test_a_long_list_of_what_is_there_is_cut():
    with pytest.raises(InputError, match=r"f000, .*f007 and 92 more$"):
        select([f"f{number:03}" for number in range(100)], ["nope/*"], "it")


def test_every_pattern_has_to_match_something():
    with pytest.raises(InputError, match=r"path=\*\.md"):
        select(["a.txt"], ["*.txt", "*.md"], "it")
    assert select(["b.txt", "a.txt", "c"], ["a.*", "*.txt"], "it") == {"a.txt": "a.*", "b.txt": "*.txt"}


def acquired(name="news", revision=""):
    file = SourceFile("a.csv", f"data/sources/corpus/{name}/a.csv", 3, HASH)
    return AcquiredSource(name, f"path:{name}", "MIT", f"data/sources/corpus/{name}", (file,), revision)


def test_a_manifest_reads_back_as_it_was_written(tmp_path):
    write_manifest(tmp_path, "corpus", [acquired("b", revision="f00"), acquired("a")])
    assert read_manifest(tmp_path) == [acquired("a"), acquired("b", revision="f00")]


def test_a_manifest_is_the_same_bytes_whatever_the_order(tmp_path):
    write_manifest(tmp_path / "one", "corpus", [acquired("a"), acquired("b")])
    write_manifest(tmp_path / "two", "corpus", [acquired("b"), acquired("a")])
    assert (tmp_path / "one/source.json").read_bytes() == (tmp_path / "two/source.json").read_bytes()
    assert b"revision" not in (tmp_path / "one/source.json").read_bytes()


def test_a_role_without_sources_has_an_empty_manifest(tmp_path):
    write_manifest(tmp_path, "datasets", [])
    assert read_manifest(tmp_path) == []


def test_a_missing_manifest_says_what_to_run(tmp_path):
    with pytest.raises(InputError, match=r"source\.json: not there: run `supmer run acquire`"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"sources": [{"name": 1}]}'])
def test_a_damaged_manifest_is_named(tmp_path, content):
    (tmp_path / "source.json").write_bytes(content)
    with pytest.raises(InputError, match=r"source\.json: not a source manifest"):
        read_manifest(tmp_path)


def test_what_is_made_here_has_options_with_usual_values():
    spec = parse_spec("made:reviews?examples=20")
    assert (spec.kind, spec.location) == (Kind.MADE, "reviews")
    assert dict(spec.options) == {"about": "movies", "examples": 20, "seed": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("made:novels", "'novels' is nothing that can be made (known: tiny-t5, tiny-embedder, stories, reviews)"),
        ("made:stories?pages=3", "unknown option 'pages' (known: documents, seed)"),
        ("made:stories?documents=-3", "documents=-3 is not a whole number up to 1,000,000"),
        ("made:reviews?about=cats", "about=cats is not one of movies, products, editorials, tweets"),
    ],
)
def test_what_cannot_be_made_is_refused(text, said):
    with pytest.raises(InputError) as caught:
        parse_spec(text)
    assert said in str(caught.value)
    assert str(caught.value).endswith("for example made:stories?documents=400&seed=1")


def test_what_is_made_here_is_made_for_one_role():
    wanted = SimpleNamespace(backbone="made:stories", embedder="made:tiny-embedder", corpus={}, datasets={})
    with pytest.raises(InputError, match=r"acquire\.backbone: 'made:stories': stories is for acquire\.corpus"):
        named_sources(wanted)


def test_urls_are_parsed_and_credentials_in_them_are_refused_without_being_repeated():
    spec = parse_spec("s3://bucket/texts/#path=a/*.txt&path=b/*.txt")
    assert (spec.kind, spec.location, spec.patterns) == ("s3", "s3://bucket/texts", ("a/*.txt", "b/*.txt"))
    assert parse_spec("https://example.org/a.jsonl?download=1").location == "https://example.org/a.jsonl?download=1"
    for text in (
        "s3://key:hunter2@bucket/texts",
        "https://me:hunter2@example.org/a.jsonl",
        "https://example.org/a.jsonl?X-Amz-Signature=hunter2",
        "https://example.org/a.jsonl?token=hunter2",
    ):
        with pytest.raises(InputError) as caught:
            parse_spec(text)
        assert "hunter2" not in str(caught.value)
        assert "environment" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("s3://", "not a bucket and the path"),
        ("https://example.org/", "not the URL of one file"),
        ("https://example.org/a.jsonl#path=*.jsonl", "a web server lists none"),
        ("gs://bucket/x#path=../y", "must be a pattern relative to the source"),
    ],
)
def test_a_bad_url_is_refused(text, complaint):
    with pytest.raises(InputError) as caught:
        parse_spec(text)
    assert complaint in str(caught.value)
