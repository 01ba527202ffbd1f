"""Models small enough to make and load in a moment, shared by all tests."""

import pytest


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory):
    """A folder with `backbone`, a T5, and `embedder`, a BERT, both random and both with a tokenizer."""
    from tiny_models import save_backbone, save_embedder

    folder = tmp_path_factory.mktemp("models")
    save_backbone(folder / "backbone")
    save_embedder(folder / "embedder")
    return folder
