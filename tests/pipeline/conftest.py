"""One real server for all tests that watch a run."""

import pytest

from pipeline import server


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
