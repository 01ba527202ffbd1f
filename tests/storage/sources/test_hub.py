"""The hub: a server on loopback that speaks the few endpoints a snapshot needs, and a client process that asks it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from storage.errors import InputError
from storage.sources.hub import needed_model_files
from storage.sources.source import parse_spec

COMMIT = "c0ffee" + "0" * 34
REPOSITORIES = {
    "models/org/model": {
        "README.md": b"---\nlanguage: en\nlicense:\n- apache-2.0\n---\n# A model\n",
        "config.json": b"{}",
        "model.safetensors": b"weights",
        "pytorch_model.bin": b"the same weights",
        "onnx/model.onnx": b"and again",
    },
    "datasets/org/data": {
        "README.md": b"# No licence",
        ".gitattributes": b"",
        "data/train.jsonl": b'{"text": "a"}\n',
        "load.py": b"evil()",
    },
}
CLIENT = """
import json, sys
from pathlib import Path
from storage.errors import InputError, TransientError
from storage.sources.hub import fetch_repository
from storage.sources.source import parse_spec
for role, text, folder in json.loads(sys.argv[1]):
    try:
        found = fetch_repository(parse_spec(text), role, Path(folder), f"acquire.{role}")
        print(json.dumps(["ok", found.commit, found.licence, list(found.files)]))
    except (InputError, TransientError) as error:
        print(json.dumps([type(error).__name__, str(error)]))
"""


class Hub(BaseHTTPRequestHandler):
    """Revision, tree and files of each repository; one that is gated, one that is out of order."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.answer(*self.found())

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def found(self):
        """Status, content and headers for the path that was asked for."""
        path = self.path.partition("?")[0].strip("/")
        if "gated" in path:
            return 403, b"", {"X-Error-Code": "GatedRepo"}
        if "broken" in path:
            return 503, b"", {}
        for name, files in REPOSITORIES.items():
            if path in {f"api/{name}/revision/main", f"api/{name}/revision/{COMMIT}"}:
                siblings = [{"rfilename": file} for file in files]
                return 200, json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode(), {}
            if path == f"api/{name}/tree/{COMMIT}":
                return 200, json.dumps([self.entry(*item) for item in files.items()]).encode(), {}
            file = path.partition(f"{name.removeprefix('models/')}/resolve/{COMMIT}/")[2]
            if file in files:
                etag = f'"{self.entry(file, files[file])["oid"]}"'
                return 200, files[file], {"ETag": etag, "X-Repo-Commit": COMMIT}
        known = any(path.startswith(f"api/{name}/") for name in REPOSITORIES)
        return 404, b"", {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"}

    def entry(self, path, content):
        return {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}  # noqa: S324

    def answer(self, status, content, headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(tmp_path, port, requests, **settings):
    """Fetch each (role, spec) in a process whose hub is the local one; what became of each."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1"}
    numbered = [(role, text, str(tmp_path / str(number))) for number, (role, text) in enumerate(requests)]
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, json.dumps(numbered)],
        env=environment | settings,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_files_come_at_a_known_commit_and_later_without_a_network(tmp_path, hub):
    wanted = [("backbone", "hf:org/model"), ("corpus", "hf:org/data"), ("corpus", "hf:org/data@main#path=data/*")]
    expected = [
        ["ok", COMMIT, "apache-2.0", ["config.json", "model.safetensors"]],
        ["ok", COMMIT, "unknown", ["data/train.jsonl"]],
        ["ok", COMMIT, "unknown", ["data/train.jsonl"]],
    ]
    assert ask(tmp_path, hub.server_port, wanted) == expected
    assert (tmp_path / "0/model.safetensors").read_bytes() == b"weights"
    assert not (tmp_path / "0/model.safetensors").is_symlink()
    assert not [path for path in hub.asked if "pytorch_model.bin" in path or "onnx" in path or "load.py" in path]
    hub.asked.clear()
    assert ask(tmp_path, hub.server_port, wanted, HF_HUB_OFFLINE="1") == expected
    assert hub.asked == []
    for listing in (tmp_path / "hf").rglob("trees"):
        shutil.rmtree(listing)  # a cache that an older version of the library filled
    assert ask(tmp_path, hub.server_port, wanted, HF_HUB_OFFLINE="1") == expected


def test_every_failure_is_one_line_with_the_way_out(tmp_path, hub):
    wanted = [
        ("backbone", "hf:org/nothing"),
        ("backbone", "hf:org/gated"),
        ("backbone", "hf:org/model@v9"),
        ("corpus", "hf:org/data#path=*.csv"),
        ("corpus", "hf:org/broken"),
    ]
    missing, gated, revision, pattern, broken = ask(tmp_path, hub.server_port, wanted)
    assert missing[0] == gated[0] == revision[0] == pattern[0] == "InputError"
    assert missing[1].startswith("acquire.backbone: hf:org/nothing: no such repository, or a private one")
    assert (
        f"gated: accept its terms at http://127.0.0.1:{hub.server_port}/org/gated and run `hf auth login`" in gated[1]
    )
    assert "hf:org/model@v9: no revision 'v9' in it" in revision[1]
    assert "nothing in it matches path=*.csv; it holds README.md, data/train.jsonl, load.py" in pattern[1]
    assert broken[0] == "TransientError"
    assert "-S acquire.corpus=path:/folder" in broken[1]
    assert not any("\n" in message for _, message in (missing, gated, revision, pattern, broken))


def test_no_network_may_pass_but_offline_is_a_choice(tmp_path):
    [down] = ask(tmp_path, 9, [("corpus", "hf:org/data")])
    assert down[0] == "TransientError"
    assert "the hub did not answer" in down[1]
    [offline] = ask(tmp_path, 9, [("corpus", "hf:org/data")], HF_HUB_OFFLINE="1")
    assert offline[0] == "InputError"
    assert "HF_HUB_OFFLINE is set: unset it, or give a folder: -S acquire.corpus=path:/folder" in offline[1]


def needed(*names, spec="hf:org/model"):
    return sorted(needed_model_files(names, parse_spec(spec), "acquire.backbone"))


def test_a_model_comes_with_one_copy_of_its_weights():
    common = ["config.json", "spiece.model", "tokenizer.json"]
    others = ["README.md", "flax_model.msgpack", "tf_model.h5", "rust_model.ot", "training_args.bin", ".gitattributes"]
    assert needed("model.safetensors", "pytorch_model.bin", *common, *others) == sorted(["model.safetensors", *common])
    assert needed("pytorch_model.bin", *common, *others) == sorted(["pytorch_model.bin", *common])


def test_weights_in_parts_come_with_their_index_alone():
    safe = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    pickled = ["pytorch_model-00001-of-00001.bin", "pytorch_model.bin.index.json"]
    assert needed(*safe, *pickled) == safe
    assert needed(*pickled) == pickled


def test_the_parts_of_a_sentence_embedder_are_kept():
    names = ["modules.json", "model.safetensors", "1_Pooling/config.json", "2_Dense/pytorch_model.bin", "vocab.txt"]
    assert needed(*names, "onnx/model.onnx", "onnx/config.json", "openvino/openvino_model.bin") == sorted(names)


def test_a_pattern_decides_alone_what_comes_of_a_model():
    assert needed("a.onnx", "b.bin", "config.json", spec="hf:org/model#path=*.onnx") == ["a.onnx"]


def test_a_repository_without_weights_is_refused():
    with pytest.raises(InputError, match="holds no safetensors or PyTorch weights"):
        needed("config.json", "tf_model.h5")
