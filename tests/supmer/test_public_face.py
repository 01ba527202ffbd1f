"""`import supmer`: quick, complete, of one version; and docs/api.md shows what happens."""

import doctest
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import supmer
from support.tuned_prompts import save_backbone

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs/api.md"


def test_importing_it_brings_neither_torch_nor_numpy():
    program = "import sys, supmer; print({'torch', 'numpy', 'prefect', 'dvc', 'transformers'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.stdout == "set()\n"


def test_every_public_name_is_there_and_in_the_page():
    assert {name for name in supmer.__all__ if not hasattr(supmer, name)} == set()
    assert {name for name in supmer.__all__ if f"`{name}`" not in PAGE.read_text()} == set()
    assert {*supmer.__all__} <= {*dir(supmer)}
    with pytest.raises(AttributeError, match="no attribute 'Classifier'"):
        _ = supmer.Classifier


def test_the_version_is_that_of_the_package():
    assert supmer.__version__ == version("supmer")


def test_it_is_typed():
    assert (Path(supmer.__file__).with_name("py.typed")).is_file()


@pytest.mark.usefixtures("one_thread")
def test_the_page_shows_what_happens(tmp_path, monkeypatch):
    save_backbone(tmp_path / "t5")
    monkeypatch.chdir(tmp_path)
    blocks = "".join(part.partition("```")[0] for part in PAGE.read_text().split("```python\n")[1:])
    examples = doctest.DocTestParser().get_doctest(blocks, {}, "docs/api.md", str(PAGE), 0)
    assert len(examples.examples) >= 20
    said = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples, out=said.append)
    assert not failed, "".join(said)
