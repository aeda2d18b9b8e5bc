"""Results go to the team and come back: a second clone runs nothing and has the same bytes."""

import os
import re
import shutil
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline import server, share
from tests.pipeline import sshd, toy


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A repository whose every stage has run, with its dvc.lock committed."""
    folder = toy.make(tmp_path_factory.mktemp("share") / "made")
    toy.run(folder, "dvc", "repro")
    toy.commit(folder)
    return folder


@pytest.fixture
def owner(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "owner", symlinks=True))


def call(folder: Path, what: str, *arguments: str, **options) -> str:
    return toy.run(folder, sys.executable, "-m", "polygrain", what, *arguments, **options)


def clone(owner: Path, name: str) -> Path:
    """What a colleague has after `git clone`: no data, no cache, no remote."""
    toy.run(owner.parent, "git", "clone", "-q", str(owner), name)
    return owner.parent / name


def ran(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("Running stage")]


def exchange(owner: Path, url: str, settings: dict[str, str] | None = None, **environment: str) -> None:
    """Pushes, fetches in a second clone, and restores in a third that has no dvc.lock; compares bytes."""
    second, third = clone(owner, "second"), clone(owner, "third")
    lines = [f"    {name} = {value}" for name, value in {"url": url, **(settings or {})}.items()]
    config = "\n".join(["[core]", f"    remote = {share.NAME}", f"['remote \"{share.NAME}\"']", *lines, ""])
    for folder in (owner, second, third):
        (folder / ".dvc" / "config.local").write_text(config)
    assert "The results of 8 of 8 stages are on the remote 'team'." in call(owner, "share", **environment)
    assert call(second, "fetch", **environment) == "All 8 stages are up to date: there is nothing to run.\n"
    assert ran(toy.run(second, "dvc", "repro", **environment)) == []
    (third / "dvc.lock").unlink()
    assert call(third, "fetch", **environment) == "All 8 stages are up to date: there is nothing to run.\n"
    assert len(toy.texts(owner)) == 9
    assert toy.texts(second) == toy.texts(third) == toy.texts(owner)


@pytest.fixture
def ssh(tmp_path) -> Iterator[tuple[str, str]]:
    """The address of a folder behind a real ssh server on loopback, and the key that opens it."""
    if sshd.PROGRAM is None:
        pytest.skip("no ssh server is installed here: apt-get install openssh-server")
    with sshd.served(tmp_path) as served:
        yield served


@pytest.mark.slow
def test_exchange__ssh(owner, ssh):
    url, key = ssh
    exchange(owner, url, {"keyfile": key, "allow_agent": "false"})


@pytest.fixture
def s3(tmp_path) -> Iterator[str]:
    """The address of an S3 server on loopback with one bucket, `team`."""
    port = server.free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "s3.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(f"{address}/team", method="PUT")).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, "the S3 server did not start"
                time.sleep(0.1)
        yield address
        process.terminate()


@pytest.mark.slow
def test_exchange__s3(owner, s3):
    keys = {"AWS_ACCESS_KEY_ID": "toy", "AWS_SECRET_ACCESS_KEY": "toy", "AWS_DEFAULT_REGION": "us-east-1"}
    exchange(owner, "s3://team/project", {"endpointurl": s3}, **keys)


@pytest.mark.slow
def test_fetch__partial_work_brings_only_what_it_reads(owner, tmp_path):
    """A change to a late stage fetches its direct inputs alone; also those that a folder gathers."""
    remote = str(tmp_path / "remote")
    call(owner, "share", "--remote", remote)
    second = clone(owner, "second")
    share.use_remote(second, remote)
    graph = second / "dvc.yaml"
    more = graph.read_text().replace("data/last/text;", "data/last/text; echo more >> data/last/text;")
    graph.write_text(more)
    said = call(second, "fetch", "last")
    assert said.startswith("Brought second@s00, second@s01, second@s02, second@s03. Next: ")
    assert ran(toy.run(second, "dvc", "repro", "--allow-missing", "last")) == ["Running stage 'last':"]
    assert (second / "data/second/s00/text").exists() and not (second / "data/source").exists()
    graph.write_text(more.replace("${key}/text; ${extra.second}", "${key}/text; echo 2 >> data/second/${key}/text"))
    assert call(second, "fetch", "second@s03").startswith("Brought first@f1. Next: ")
    said = toy.run(second, "dvc", "repro", "--allow-missing", "second@s03")
    assert ran(said) == ["Running stage 'second@s03':"]
    assert (second / "data/first/f1").exists() and not (second / "data/first/f0").exists()


def on_a_terminal(folder: Path, *arguments: str) -> tuple[str, str]:
    """What a call writes, and what its user sees of it meanwhile."""
    ours, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (40, 160))
    command = [sys.executable, "-m", "polygrain", *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=toy.ENVIRONMENT | {"TERM": "xterm"}, stdout=subprocess.PIPE, stderr=terminal, text=True
    ) as process:
        os.close(terminal)
        seen = b""
        with suppress(OSError):  # Linux's word for a terminal that nobody writes to any more
            while part := os.read(ours, 4096):
                seen += part
        said = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    return said, seen.decode(errors="replace")


@pytest.mark.slow
def test_exchange__dvcs_progress_is_seen_on_a_terminal_only(owner, tmp_path):
    second = clone(owner, "second")
    url = f"--remote={tmp_path / 'remote'}"
    said, seen = on_a_terminal(owner, "share", url)
    assert said.startswith("The results of 8 of 8 stages are on the remote") and "Pushing" in seen
    said, seen = on_a_terminal(second, "fetch", url)
    assert said.startswith("All 8 stages are up to date")
    assert re.search(r"Fetching from team.*\d+/\d+", seen)
    assert call(owner, "share") == "The results of 8 of 8 stages are on the remote 'team'.\n"


def test_reason__what_a_terminal_has_shown_is_not_said_again():
    done = subprocess.CompletedProcess([], 1, "", None)
    assert share.reason(done) == "dvc says above what went wrong"


def test_push__without_a_remote_says_what_to_give(tmp_path, monkeypatch):
    folder = toy.make(tmp_path / "toy")
    said = toy.refusal("share", folder, monkeypatch)
    assert (
        said == "error: no remote is known here: give --remote /folder, ssh://user@host/path or s3://bucket/prefix once"
    )


@pytest.mark.slow
def test_push__a_remote_that_refuses(owner):
    """What was not pushed is listed, and everything is still here."""
    before = toy.texts(owner)
    said = call(owner, "share", "--remote", "/proc/nothing/here", check=False)
    assert said.startswith("error: the remote 'team' did not take everything: ")
    (listed,) = [line for line in said.splitlines() if line.startswith("Not pushed: ")]
    assert len(listed.split(", ")) == 8 and "data/first/f1" in listed and "data/last" in listed
    assert "All results are kept here" in said
    assert toy.texts(owner) == before and toy.up_to_date(owner)


@pytest.mark.slow
def test_push__says_what_is_not_up_to_date(owner, tmp_path):
    params = owner / "params.json"
    params.write_text(params.read_text().replace('"s03"', '"s04"'))
    said = call(owner, "share", "--remote", str(tmp_path / "remote"))
    assert "Not up to date here, so not all of it is shared: second@s04, last" in said
    second = clone(owner, "second")
    (second / "params.json").write_text(params.read_text())
    said = call(second, "fetch", "--remote", str(tmp_path / "remote"))
    assert said.startswith("6 of 8 stages are up to date.") and "second@s04, last" in said
