"""Which server a run speaks with, and what is said when there is none."""

import http.server
import socket
import sys
import threading

import pytest

from pipeline import server
from tests.pipeline import toy


@pytest.fixture
def answering():
    """The address of something that answers as a Prefect server does when asked for its health."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/api/health" else 404)
            self.end_headers()
            self.wfile.write(b"true")

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}/api"
        made.shutdown()


def test_find__the_named_one_then_the_projects_own(answering, tmp_path, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert server.find(tmp_path) is None
    (tmp_path / ".prefect").mkdir()
    server.address_file(tmp_path).write_text(answering + "\n")
    assert server.find(tmp_path) == answering
    server.address_file(tmp_path).write_text(f"http://127.0.0.1:{server.free_port()}/api")  # it was killed
    assert server.find(tmp_path) is None
    monkeypatch.setenv("PREFECT_API_URL", answering)
    assert server.find(tmp_path) == answering


def test_find__a_named_one_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.free_port()}/api")
    with pytest.raises(ValueError, match=r"no Prefect server answers at .*: start one with `make ui`, or unset"):
        server.find(tmp_path)


def test_answers__not_to_anyone(answering):
    assert server.answers(answering)
    assert not server.answers(answering.replace("/api", "/other"))
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
    with pytest.raises(ValueError, match=r"did not start; .*server.log ends with:\nthe reason"):
        server.start(tmp_path, server.free_port())


def test_settings__nothing_is_reported_and_nothing_listens_outside():
    program = (
        "import pipeline, prefect.settings as s; c = s.get_current_settings(); "
        "print(c.server.analytics_enabled, c.server.api.host, c.server.ephemeral.enabled, c.flows.heartbeat_frequency, "
        "c.home)"
    )
    said = toy.run(toy.ROOT, sys.executable, "-c", program)
    assert said.split() == ["False", "127.0.0.1", "False", "30", str(toy.ROOT / ".prefect")]


def test_main__outside_a_repository(tmp_path, monkeypatch):
    assert "no DVC repository" in toy.refusal(server.main, tmp_path, monkeypatch)
