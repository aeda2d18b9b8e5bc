"""Which server a run speaks with, who is let in, and what is said when there is none."""

import os
import socket
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline import server
from pipeline.server import Server
from tests.helpers import driven, toy


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
        monkeypatch.delenv(name, raising=False)


def code_of(address: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=60) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.slow
def test_serve__who_is_let_in(pages):
    """Who has the auth string of this start, at this host; health alone is everyone's."""
    word = {"Authorization": f"Basic {pages.word()}"}
    asked = f"{pages.api}/admin/version"
    assert code_of(asked, **word) == 200
    assert code_of(asked) == 401
    assert code_of(asked, Authorization=f"Basic {Server(pages.api, 'polygrain:other').word()}") == 401
    assert code_of(asked, **word, Host="evil.example") == 400
    assert code_of(f"{pages.pages}/enter", Host="evil.example") == 400
    assert code_of(f"{pages.api}/health") == 200


@pytest.mark.slow
def test_serve__a_page_of_another_site_is_not_allowed_in(pages):
    """Its browser asks first whether it may send the auth string, and is told no."""
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    asked = urllib.request.Request(f"{pages.api}/flow_runs/filter", headers=headers, method="OPTIONS")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=60)
    with refused.value as reply:
        assert reply.code == 400 and reply.headers["access-control-allow-origin"] is None


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/enter", "/api/health"])
def test_serve__pages_load_and_send_nothing_elsewhere(pages, path):
    with urllib.request.urlopen(f"{pages.pages}{path}", timeout=60) as reply:
        policy, text = reply.headers["content-security-policy"], reply.read().decode()
    assert policy.startswith("default-src '") and "://" not in policy.replace("ws://127.0.0.1:*", "")
    assert pages.auth not in text and pages.word() not in text


@pytest.mark.slow
@driven.needed
def test_serve__the_link_opens_the_runs(pages):
    """Whatever kind of pages another Prefect of this machine had the browser prefer."""
    with driven.Driven() as browser:
        browser.call("Network.setCookie", name="prefect_ui_version", value="v2", url=pages.pages)
        browser.go(pages.link())
        shown = browser.until("/Deployments/.test(document.body?.innerText) && document.body.innerText")
        assert browser.value("location.pathname") == "/runs" and "V2" not in shown


@pytest.mark.slow
def test_main__runs_until_it_is_killed_and_is_found_meanwhile(tmp_path, monkeypatch):
    folder = toy.make(tmp_path / "toy", first=1, second=1)
    port, mark = server.free_port(), str(tmp_path)
    command = [sys.executable, "-m", "polygrain", "ui", "--port", str(port)]
    environment = toy.ENVIRONMENT | {"TOY_MARK": mark}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith(f"Watch runs at http://127.0.0.1:{port}/enter#")
        found = server.find(folder)
        assert found.api == f"http://127.0.0.1:{port}/api" and found.answers()
        assert stat.S_IMODE((folder / ".prefect/auth").stat().st_mode) == 0o600
        assert found.link() in toy.polygrain(folder, "ui")  # no second one
        process.kill()
    assert toy.survivors(mark) == []
    assert server.find(folder) is None  # the files that are left lead nowhere


def test_call__a_busy_server_is_asked_again(monkeypatch):
    """And one that stays busy is not asked for ever; any other error is said at once."""
    monkeypatch.setattr(server.time, "sleep", lambda seconds: None)
    replies = iter([503, 503, 200, 503, 503, 404])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(next(replies))
            self.end_headers()
            self.wfile.write(self.rfile.read(int(self.headers["Content-Length"])))

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as busy:
        threading.Thread(target=busy.serve_forever).start()
        asked = Server(f"http://127.0.0.1:{busy.server_port}")
        try:
            assert asked.call("/x", {"a": 1}) == {"a": 1}
            for code in (503, 404):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    asked.call("/x", {}, tries=2)
                with refused.value as error:
                    assert error.code == code
        finally:
            busy.shutdown()


def test_find__a_named_one_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.free_port()}/api")
    with pytest.raises(ValueError, match="does not answer or refuses access"):
        server.find(tmp_path)


def test_start__a_taken_port_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} is taken"):
            server.start(tmp_path, port)


def test_start__one_that_ends_at_once_shows_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(server.sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\necho the reason; exit 1\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(ValueError, match=r"did not start; .*server.log ends with:\nthe reason"):
        server.start(tmp_path, server.free_port())


def test_settings__nothing_is_reported_and_nothing_listens_outside():
    program = (
        "import pipeline, prefect.settings as s, urllib.request as r; c = s.get_current_settings(); "
        "print(c.server.analytics_enabled, c.server.api.host, c.server.ephemeral.enabled, c.flows.heartbeat_frequency, "
        "c.home, r.proxy_bypass('127.0.0.1'), r.proxy_bypass('a.example'))"
    )
    output = toy.run(toy.ROOT, sys.executable, "-c", program, http_proxy="http://192.0.2.1:1", no_proxy="b.example")
    assert output.split() == ["False", "127.0.0.1", "False", "30", str(toy.ROOT / ".prefect"), "True", "False"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"NO_PROXY": "a"}, "a,127.0.0.1"),
        ({"no_proxy": "a,127.0.0.1", "NO_PROXY": "c"}, "a,127.0.0.1"),
        ({}, "127.0.0.1"),
    ],
)
def test_settings__hosts_that_need_no_proxy_are_the_same_in_both_names(given, expected):
    program = "import os, pipeline; print(os.environ['no_proxy'], os.environ['NO_PROXY'])"
    environment = {"no_proxy": "", "NO_PROXY": ""} | given
    assert toy.run(toy.ROOT, sys.executable, "-c", program, **environment).split() == [expected, expected]


@pytest.mark.parametrize(("name", "value"), [("SSL_CERT_FILE", "/nowhere"), ("http_proxy", "http://a:port")])
def test_use__names_a_variable_that_prefects_client_cannot_use(name, value):
    program = "import prefect; from pipeline.server import Server; Server('http://127.0.0.1:9/api').use()"
    output = toy.run(toy.ROOT, sys.executable, "-c", program, check=False, **{name: value})
    assert f"{name}" in output.splitlines()[-1] and "one of these variables cannot be used" in output


def test_main__outside_a_repository(tmp_path, refusal):
    assert "is in no project" in refusal(tmp_path, "ui")


def test_end_without__ends_when_nobody_listens_any_more():
    """And not while someone does, however slow the answer."""
    program = "import sys; from pipeline import server; server.end_without(server.Server(sys.argv[1]), 0)"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        command = [sys.executable, "-c", program, address]
        process = subprocess.Popen(command, cwd=toy.ROOT, env=os.environ, stderr=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(4)
    _, output = process.communicate(timeout=20)
    assert process.returncode == 1 and f"the server at {address} is gone" in output
