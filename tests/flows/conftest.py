"""A real workspace with tiny models and a small corpus of its own, run once, copied for each test."""

import io
import shutil
import sys
from dataclasses import replace

import pytest

from flows.cli import main
from support.audited import lay_out_audited
from support.made_once import made_once
from support.workspaces import Workspace, lay_out


@pytest.fixture(scope="session")
def template(tmp_path_factory, tiny_models, prefect_home):
    """A workspace under git in which `supmer run` has ended well."""

    def make(root):
        workspace = Workspace(root)
        lay_out(root, tiny_models)
        shutil.copytree(prefect_home, root / ".prefect")
        workspace.git("init", "--quiet")
        workspace.git("config", "user.email", "tests@example.org")
        workspace.git("config", "user.name", "Tests")
        workspace.git("add", ".")
        workspace.git("commit", "--quiet", "-m", "A workspace")
        workspace.run("run")

    return Workspace(made_once(tmp_path_factory, "template", make))


@pytest.fixture
def workspace(template, tmp_path):
    """A copy of the template, caches included, at its own place."""
    return template.copied_to(tmp_path / "workspace")


@pytest.fixture
def served(workspace, prefect_api):
    """A workspace whose runs find a Prefect server."""
    return replace(workspace, api=prefect_api)


@pytest.fixture
def command_line(monkeypatch, capsys):
    """Run `supmer` in this process and return its exit code, its output and its errors."""

    def call(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["supmer", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def supmer(workspace, command_line):
    """Run `supmer` in the workspace of the test."""
    return command_line


@pytest.fixture(scope="session")
def audited_template(tmp_path_factory):
    return made_once(tmp_path_factory, "audited", lay_out_audited)


@pytest.fixture
def audited(audited_template, tmp_path, monkeypatch):
    """A small workspace with outputs, cache and lineage, as the working directory."""
    root = tmp_path / "workspace"
    shutil.copytree(audited_template, root)
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "200")
    return root
