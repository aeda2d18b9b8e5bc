"""One server and one repository for all tests: each starts slowly."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import server
from polygrain.cli.main import main
from tests.helpers import toy


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """A server that keeps its history in a temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
            patch.delenv(name, raising=False)
        root = tmp_path_factory.mktemp("server")
        patch.setenv("PREFECT_UI_STATIC_DIRECTORY", str(root / ".prefect/ui"))
        process, found = server.start(root, server.free_port())
        yield found
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def ran(tmp_path_factory) -> Path:
    """A repository whose every stage has run; tests that change it copy it."""
    folder = toy.make(tmp_path_factory.mktemp("ran") / "toy")
    toy.run(folder, "dvc", "repro")
    return folder


@pytest.fixture
def refusal(monkeypatch) -> Callable[..., str]:
    """What a command says before it ends, run here and now, since a process of its own starts slowly."""

    def refusal(folder: Path, *arguments: str) -> str:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["polygrain", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return str(ended.value)

    return refusal
