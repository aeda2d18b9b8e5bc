"""Which server a run speaks with, and what is said when there is none."""

import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

from pipeline import secret, server
from tests.pipeline import dying, toy


@pytest.fixture
def answering():
    """Starts what answers as a Prefect server does when asked for its health, and as ours does that knows a secret."""
    made = []

    def start(key: str | None = None, host: str | None = None) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path, _, query = self.path.partition("?of=")
                said = {"/api/health": "true", "/api/admin/version": '"3"'}
                if key:
                    said |= {"/proof": secret.proof(key, self.headers["Host"] if host is None else host, query)}
                let_in = (
                    not key
                    or path != "/api/admin/version"
                    or self.headers["Authorization"] == f"Basic {secret.basic(key)}"
                )
                self.send_response(404 if path not in said else 200 if let_in else 401)
                self.end_headers()
                self.wfile.write(said.get(path, "").encode())

            def log_message(self, *arguments):
                pass

        made.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=made[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{made[-1].server_port}/api"

    yield start
    for one in made:
        one.shutdown()
        one.server_close()


def test_find__the_named_one_then_the_projects_own(answering, tmp_path, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert server.find(tmp_path) is None
    server.address_file(tmp_path).write_text(answering() + "\n")
    assert server.find(tmp_path) is None  # someone else listens where ours was killed
    own = answering(secret.of(tmp_path))
    server.address_file(tmp_path).write_text(own + "\n")
    assert server.find(tmp_path) == own
    server.address_file(tmp_path).write_text(f"http://127.0.0.1:{server.free_port()}/api")
    assert server.find(tmp_path) is None
    named = answering()
    monkeypatch.setenv("PREFECT_API_URL", named)
    assert server.find(tmp_path) == named


def test_find__a_named_one_that_wants_another_secret(answering, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", answering("polygrain:another"))
    with pytest.raises(ValueError, match=r"wants the secret of the clone that started it: copy that clone's .prefect/"):
        server.find(tmp_path)
    monkeypatch.setenv(secret.VARIABLE, "polygrain:another")
    assert server.find(tmp_path) == os.environ["PREFECT_API_URL"]


def test_use__the_secret_goes_to_who_knows_it(answering, tmp_path, monkeypatch):
    key = secret.of(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", "")
    monkeypatch.setenv(secret.VARIABLE, "")
    # The last of them hands on what our server at another port has answered.
    for stranger in (answering(), answering("polygrain:another"), answering(key, "127.0.0.1:4200")):
        server.use(stranger, key)
        assert not os.environ[secret.VARIABLE]
        assert server.link(stranger, key, "/runs") == stranger.replace("/api", "/runs")
    own = answering(key)
    server.use(own, key)
    assert os.environ[secret.VARIABLE] == key
    assert server.link(own, key, "/runs").startswith(own.replace("/api", "/enter?ticket="))


def test_find__a_named_one_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.free_port()}/api")
    with pytest.raises(ValueError, match=r"no Prefect server answers at .*: start one with `polygrain ui`, or unset"):
        server.find(tmp_path)


def test_answers__not_to_anyone(answering):
    assert server.answers(address := answering())
    assert not server.answers(address.replace("/api", "/other"))
    assert not server.answers("no address")


def test_start__a_taken_port_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf"port {port} is taken: choose another"):
            server.start(tmp_path, port)


def test_start__one_that_ends_at_once_shows_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(server.sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\necho the reason; exit 1\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(ValueError, match=r"did not start, it ended with 1; .*server.log ends with:\nthe reason"):
        server.start(tmp_path, server.free_port())


class Alive:
    """A server's process that goes on."""

    def poll(self):
        return None


def test_wait_for__a_slow_server_is_waited_for_and_it_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(server, "SECONDS_BETWEEN_WORDS", 0)
    answers = iter([False, False, True])
    server.wait_for(Alive(), lambda: next(answers), tmp_path / "log")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert re.fullmatch(
        r"Waiting for the Prefect server to answer, 0 s so far \(load \d+ on \d+ cores; .*log\)", said[0]
    )


def test_wait_for__not_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "START_SECONDS", 0)
    (tmp_path / "log").write_text("what it did last\n")
    with pytest.raises(ValueError, match=r"did not start, no answer in 0 minutes; .*log ends with:\nwhat it did last"):
        server.wait_for(Alive(), lambda: False, tmp_path / "log")


def test_settings__nothing_is_reported_and_nothing_listens_outside():
    program = (
        "import pipeline, prefect.settings as s; c = s.get_current_settings(); "
        "print(c.server.analytics_enabled, c.server.api.host, c.server.ephemeral.enabled, c.flows.heartbeat_frequency, "
        "c.home)"
    )
    said = toy.run(toy.ROOT, sys.executable, "-c", program)
    assert said.split() == ["False", "127.0.0.1", "False", "30", str(toy.ROOT / ".prefect")]


def test_main__outside_a_repository(tmp_path, monkeypatch):
    assert "no DVC repository" in toy.refusal("ui", tmp_path, monkeypatch)


def test_end_without__ends_when_nobody_listens_any_more():
    """And not while someone does, however slow the answer."""
    program = "import sys; from pipeline import server; server.end_without(sys.argv[1], 0)"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        process = subprocess.Popen(
            [sys.executable, "-c", program, address], cwd=toy.ROOT, stderr=subprocess.PIPE, text=True
        )
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(6)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said == f"error: the server at {address} is gone; run again: finished stages are kept, others continue\n"


@pytest.mark.parametrize(("lower", "upper"), [("", ""), ("a.example", ""), ("", "a.example,127.0.0.1"), ("*", "")])
def test_settings__no_proxy_hears_what_is_for_this_machine(lower, upper):
    """The secret would be in it."""
    program = (
        "import pipeline, urllib.request as r; print(*(bool(r.proxy_bypass(h)) for h in ('127.0.0.1', 'a.example')))"
    )
    proxies = {"http_proxy": "http://192.0.2.1:1", "no_proxy": lower, "NO_PROXY": upper}
    said = toy.run(toy.ROOT, sys.executable, "-c", program, **proxies)
    assert said.split() == ["True", str(bool(lower or upper))]


@pytest.mark.parametrize(("before", "after"), [("000", "0o2"), ("022", "0o22"), ("077", "0o77"), ("007", "0o7")])
def test_settings__others_never_write_and_the_group_as_the_user_has_it(before, after):
    program = "import os, pipeline; print(oct(os.umask(0)))"
    said = toy.run(toy.ROOT, "sh", "-c", f"umask {before}; exec {sys.executable} -c '{program}'")
    assert said.strip() == after


@pytest.mark.slow
def test_main__ends_with_the_make_that_started_it(tmp_path):
    """And `polygrain ui` again, while it runs, gives another link instead of another server."""
    folder, mark = toy.make(tmp_path / "toy"), str(tmp_path)
    command = [*dying.make_command(folder, "ui"), f"PORT={server.free_port()}"]
    environment = toy.ENVIRONMENT | {"TOY_MARK": mark}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        first = next(line for line in process.stdout if line.startswith("Watch runs at http://127.0.0.1:"))
        again = toy.run(folder, *command)
        assert "The server runs already. Open http://127.0.0.1:" in again
        assert first.split("ticket=")[1].strip() not in again
        process.kill()
    deadline = time.monotonic() + 20
    while dying.marked(mark):
        assert time.monotonic() < deadline, "the server outlived make"
        time.sleep(0.1)
    assert not server.address_file(folder).exists()
