"""One real server for all tests that watch a run."""

import os

import pytest

from pipeline import secret, server
from tests.pipeline import toy


@pytest.fixture(scope="session")
def api(tmp_path_factory):
    """The address of a server that keeps its history in a temporary folder."""
    root = tmp_path_factory.mktemp("server")
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("PREFECT_API")}
    settings = {"PREFECT_HOME": str(root / ".prefect"), "PREFECT_UI_STATIC_DIRECTORY": str(root / ".prefect/ui")}
    kept = {name: os.environ.get(name) for name in (*settings, secret.VARIABLE)}
    os.environ |= settings
    process, address = server.start(root, server.free_port())
    toy.let_in(root)
    yield address
    del toy.ENVIRONMENT[secret.VARIABLE]
    process.terminate()
    process.wait()
    for name, value in (kept | before).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
