"""`supmer ship`: a learned prompt leaves with recipe, documents and hashes; `verify` and `lineage` know the folder."""

import json
import subprocess

import numpy as np
import pyarrow.parquet as pq
import pytest

from storage.prompts.prompt_artifact import PromptArtifact, read_prompt, theta_hash, write_prompt
from storage.prompts.shipped_prompt import problems
from support.audited import FIRST, SECOND, dvc, overwrite

pytestmark = pytest.mark.slow

ABOUT = {
    "training": {
        "variant": "supmer", "rank": None, "gate": "vector", "formats": ["sp"], "template": "sentinel",
        "precision": "float32",
    },
    "result": {"held_out_loss": 1.0, "start_loss": 2.0, "steps": 3, "best_step": 2, "kinds": []},
    "backbone": {"source": "wheel:tiny==1.0", "hash": "b" * 64},
    "seed": 3,
    "tasks": {"train": "t" * 8, "validation": "v" * 8},
}  # fmt: skip


@pytest.fixture
def workspace(audited):
    """The audited workspace, with a prompt that its stage metatrain is recorded to have made."""
    pipeline = audited / "dvc.yaml"
    pipeline.write_text(pipeline.read_text().replace("outs: [data/prompt]", "outs: [artifacts/prompt]"))
    theta = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_prompt(audited / "artifacts/prompt/supmer", PromptArtifact(theta, {}, ABOUT), "# a prompt\n")
    dvc(audited, "commit", "--force", "metatrain")
    return audited


def test_the_folder_has_the_prompt_its_documents_its_recipe_and_hashes(supmer, workspace):
    code, out, err = supmer("ship", "supmer", "prompts/news", "--licence", "CC BY 4.0")
    assert code == 0, err
    assert "prompts/news: supmer, learned from 2 documents, " in out
    folder = workspace / "prompts/news"
    documents = pq.read_table(folder / "documents.parquet").to_pylist()
    assert {(row["document_id"], row["source"], row["file"]) for row in documents} == {
        (FIRST, "news", "news.txt"),
        (SECOND, "news", "news.txt"),
    }
    artifact = read_prompt(folder)
    assert artifact.prompt.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert artifact.about["shipped"]["sources"][0]["spec"] == "wheel:news==1.0"
    assert artifact.about["shipped"]["parameters"] == {"acquire.corpus": "wheel:news==1.0", "seed": 3}
    card = (folder / "README.md").read_text("utf-8")
    assert "supmer tune --prompt prompts/news" in card
    assert "| corpus | news | `wheel:news==1.0` | MIT |" in card
    assert "## Licence\n\nCC BY 4.0." in card
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    assert list(problems(folder)) == []


def test_lineage_prints_the_sources_that_the_folder_names(supmer, workspace):
    supmer("ship", "supmer", "prompts/news")
    code, out, _ = supmer("lineage", "prompts/news")
    assert code == 0
    assert "corpus news: wheel:news==1.0, licence MIT" in out
    assert "2 documents: prompts/news/documents.parquet lists them" in out
    assert json.loads(supmer("lineage", "prompts/news", "--json")[1])["documents"] == 2


def test_uses_of_a_document_names_the_shipped_prompt(supmer, workspace):
    supmer("ship", "supmer", "prompts/news")
    code, out, err = supmer("uses", FIRST)
    assert code == 0, err
    assert "prompts/news: shipped, learned from documents of which it is one (train)" in out


def test_what_was_tuned_from_the_shipped_prompt_is_traced_to_it(supmer, workspace):
    supmer("ship", "supmer", "prompts/news")
    start = theta_hash(read_prompt(workspace / "prompts/news").prompt)
    for name, factor in (("mine", 2), ("again", 3)):
        about = {"downstream": {"start": start, "dataset": name}}
        prompt = PromptArtifact(np.full((2, 3), factor, np.float32), {}, about)
        write_prompt(workspace / "prompts" / name, prompt, "# a prompt\n")
        start = theta_hash(prompt.prompt)
    code, out, err = supmer("lineage", "prompts/mine")
    assert code == 0, err
    assert "  tuned from " in out
    code, out, err = supmer("uses", FIRST)
    assert code == 0, err
    assert "  prompts/mine: tuned or exported from one of these prompts" in out
    assert "  prompts/again: tuned or exported from one of these prompts" in out
    assert "prompts/mine" not in supmer("verify")[1]


def test_verify_names_every_file_that_is_not_as_it_was_shipped(supmer, workspace):
    supmer("ship", "supmer", "prompts/news")
    folder = workspace / "prompts/news"
    _, before, _ = supmer("verify", "--json")
    overwrite(folder / "prompt.safetensors", (folder / "prompt.safetensors").read_bytes()[:-4] + b"\0\0\0\1")
    (folder / "README.md").unlink()
    (folder / "more.txt").write_text("x")
    code, out, _ = supmer("verify")
    assert code == 1
    found = [line for line in out.splitlines() if "prompts/news" in line]
    assert [line.split()[1].strip(":") for line in found] == [
        "prompts/news/README.md",
        "prompts/news/more.txt",
        "prompts/news/prompt.safetensors",
    ]
    assert all("`git checkout prompts/news`" in line for line in found)
    assert "prompts/" not in before


def test_an_unknown_variant_and_a_folder_that_exists_are_refused(supmer, workspace):
    code, _, err = supmer("ship", "without-mgr", "prompts/news")
    assert (code, err.count("\n")) == (2, 1)
    assert "no prompt in artifacts/prompt/without-mgr: there are supmer" in err
    (workspace / "prompts/news").mkdir(parents=True)
    (workspace / "prompts/news/mine.txt").write_text("x")
    code, _, err = supmer("ship", "supmer", "prompts/news")
    assert (code, err.count("\n")) == (2, 1)


def test_a_prompt_of_an_earlier_corpus_is_not_shipped_with_the_documents_of_another(supmer, workspace):
    lock = workspace / "dvc.lock"
    section, rest = lock.read_text().split("  metatrain:\n")
    md5 = next(line.split()[1] for line in rest.splitlines() if "md5:" in line)
    lock.write_text(f"{section}  metatrain:\n{rest.replace(md5, 'a' * 32 + '.dir', 1)}")
    code, _, err = supmer("ship", "supmer", "prompts/news")
    assert (code, err.count("\n")) == (2, 1)
    assert "`supmer run` first" in err
