"""A tiny backbone and a prompt tuned for it, only to be read; made once for all tests of commands."""

import pytest


@pytest.fixture(scope="session")
def backbone(tmp_path_factory):
    from support.tuned_prompts import save_backbone

    return save_backbone(tmp_path_factory.mktemp("backbone") / "t5")


@pytest.fixture(scope="session")
def tuned(tmp_path_factory, backbone):
    from support.tuned_prompts import save_prompt

    return save_prompt(tmp_path_factory.mktemp("prompts") / "tuned", backbone)
