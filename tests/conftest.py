"""Shapes in signatures are checked while tests run, and only then (it costs nothing in production)."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("DVC_NO_ANALYTICS", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("POLYGRAIN_PRECISION", "float32")  # also on a GPU: many tests compare with other code
os.environ.setdefault("POLYGRAIN_ENGINE", "torch")  # a program of onnxruntime takes a second to make

from polygrain.runner import threads

# The processes of `make test` share the cores; threads that outnumber them wait for one another.
os.environ.update(threads.variables(int(os.environ.get("TEST_JOBS", "1"))))

import pytest
from jaxtyping import install_import_hook

hook = install_import_hook(["stages", "polygrain"], "beartype.beartype")

# Seconds of CPU. Five times as many pass, since a machine may be slow or busy; a test that imports much is not counted.
TEST, FILE, SLACK, MODULES = 1, 5, 5, 20
SPENT: Counter[Path] = Counter()


def pytest_collection_finish() -> None:
    from polygrain.store import arrays

    arrays.SHARD_BYTES = 2**20  # the index of a large shard of small pictures takes zarr up to seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test that is not marked slow where it takes too long, or its file does."""
    before, modules = sum(os.times()[:4]), len(sys.modules)  # with processes that have been awaited
    yield
    is_counted = len(sys.modules) - modules < MODULES and "TEST_ON" not in os.environ
    if is_counted and not item.get_closest_marker("slow"):
        spent = sum(os.times()[:4]) - before
        SPENT[item.path] += spent
        for name, seconds, allowed in ((item.name, spent, TEST), (item.path.name, SPENT[item.path], FILE)):
            if seconds - spent <= SLACK * allowed < seconds:  # a file is told once
                pytest.fail(f"{name} took {seconds:.1f} s of CPU, {allowed} allowed: make it smaller, or mark it slow")


@pytest.fixture(autouse=True)
def machine() -> Iterator[None]:
    """With TEST_ON=pretended_gpu every test has one."""
    if os.environ.get("TEST_ON") != "pretended_gpu":
        yield
        return
    from tests.helpers.pretended_gpu import pretended_gpu

    with pretended_gpu():
        yield


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def object_store(s3_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """An S3 stand-in with the bucket `pictures`, as s3fs sees it by the environment alone."""
    import s3fs

    values = {"AWS_ENDPOINT_URL": s3_address, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    values |= {"AWS_MAX_ATTEMPTS": "1", "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": "/dev/null"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    store.mkdir("pictures")
    yield store
    store.rm("pictures", recursive=True)
