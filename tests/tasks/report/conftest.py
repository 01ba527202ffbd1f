"""Workspaces with made-up results, of which the report is made."""

import pytest

from support.report_room import furnish, run


@pytest.fixture
def root(tmp_path):
    return furnish(tmp_path)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A workspace with the report of the quickstart's methods, and the stage's record; only to be read."""
    root = furnish(tmp_path_factory.mktemp("report"))
    return root, run(root)
