"""Workspaces like a user's clone, with tiny models and a small corpus, and commands that run in them."""

import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
from ruamel.yaml import YAML

from tasks.stage.contract import MARKER

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
CODE = ("flows", "model", "storage", "tasks")
STAGES = ("local", "remote", "acquire", "sample")  # these tests are about how stages are run, not about what each does
PROSE = (
    "the of and to in a is that for it was on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made over "
    "did down only way find use may water long little very after words called just where most know river city council "
    "market history science music garden letter winter summer morning evening journey question answer"
)
WORDS = PROSE.split()
ONE_WORKER = ("--workers", "1")  # each loads torch: with tiny models, that is most of the time
LABELED = ("movies", "products", "editorials", "tweets", "trec", "sms")  # the labeled sets of the quickstart
KEY = "tests:key"  # of the Prefect servers that tests start


@dataclass(frozen=True)
class Workspace:
    root: Path
    api: str | None = None  # a Prefect server that is already running

    @property
    def environment(self):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        served = {"PREFECT_SERVER_API_AUTH_STRING": KEY}
        if self.api:
            served |= {"PREFECT_API_URL": self.api, "PREFECT_API_AUTH_STRING": KEY}
        return inherited | served | {"PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "200"}

    def start(self, *arguments, program="supmer", **options):
        return subprocess.Popen(
            [BIN / program, *arguments],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )

    def run(self, *arguments, program="supmer", expect=0):
        """Run a command to its end and return what it printed."""
        with self.start(*arguments, program=program) as process:
            output, _ = process.communicate(timeout=300)
        assert process.returncode == expect, output
        return output

    def run_with(self, settings, *arguments):
        """Run the pipeline with settings KEY=VALUE, and return what it printed."""
        return self.run("run", *arguments, *(part for setting in settings for part in ("-S", setting)))

    def copied_to(self, root):
        """Return a copy of the workspace, caches included, at its own place."""
        subprocess.run(["cp", "-a", self.root, root], check=True)
        return replace(self, root=root)

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True)

    def status(self):
        process = subprocess.run(
            [BIN / "supmer", "status", "--json"], cwd=self.root, env=self.environment, capture_output=True, check=False
        )
        return {stage["stage"]: stage for stage in orjson.loads(process.stdout) if "@" not in stage["stage"]}

    def finished_shards(self, step="*"):
        """Return the markers of shards that are whole, of a step or of all."""
        markers = (self.root / ".supmer/shards/sample").glob(f"{step}/*/{MARKER}")
        return sorted(marker for marker in markers if ".partial-" not in marker.parent.name)


def prose(seed, words):
    """Readable nonsense: sentences of common English words, paragraphs of five."""
    generator = random.Random(seed)
    sentences = []
    while words > 0:
        length = generator.randint(8, 16)
        sentences.append(" ".join(generator.choices(WORDS, k=length)).capitalize() + ".")
        words -= length
    return "\n\n".join(" ".join(sentences[i : i + 5]) for i in range(0, len(sentences), 5))


def write_corpus(path, seed, documents, words=120):
    lines = [orjson.dumps({"id": i, "text": prose(f"{seed}/{i}", words)}) for i in range(documents)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(lines) + b"\n")


def keep_stages(root, *names):
    """Leave only these stages in dvc.yaml."""
    pipeline = YAML(typ="safe").load((REPOSITORY / "dvc.yaml").read_text())
    pipeline["stages"] = {name: pipeline["stages"][name] for name in names}
    with (root / "dvc.yaml").open("w") as file:
        YAML(typ="safe").dump(pipeline, file)


def lay_out(root, models, stages=STAGES):
    """A clone's worth of files with some of its stages, and local sources in place of the quickstart's wheels."""
    for name in CODE:
        shutil.copytree(REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (
        ".dvc/config",
        ".dvc/.gitignore",
        ".dvcignore",
        ".gitignore",
        "dvc.yaml",
        "forgotten.csv",
        "inputs.yaml",
        "inputs/README.md",
        "params.yaml",
        "prompts/README.md",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, root / name)
    keep_stages(root, *stages)
    shutil.copytree(REPOSITORY / "profiles", root / "profiles")
    write_corpus(root / "texts" / "first.jsonl", 1, 40)
    write_corpus(root / "texts" / "second.jsonl", 2, 40)
    (root / "labels.csv").write_text("text,label\nfine,1\npoor,0\n")
    parameters = (root / "params.yaml").read_text()
    start, end = parameters.index("acquire:\n"), parameters.index("\n# Documents drawn")
    local = f"acquire:\n  backbone: path:{models}/backbone\n  embedder: path:{models}/embedder\n"
    local += "  corpus:\n    own: path:texts\n  datasets:\n"
    local += "".join(f"    {name}: path:labels.csv\n" for name in LABELED)
    parameters = parameters[:start] + local + parameters[end:]
    parameters = parameters.replace(", supmer-shipped]", "]")  # the shipped prompt does not fit the tiny backbone
    (root / "params.yaml").write_text(parameters.replace("shard_mb: 0.25", "shard_mb: 0.01"))
    with (root / ".gitignore").open("a") as file:
        file.write("/texts/\n")
