"""Who is let through to Prefect, and with what; benchmarks/hostile/server.py attacks a real one."""

import asyncio
import json
import re

import pytest

from pipeline import gate, secret

KEY = "polygrain:0123456789abcdef0123456789abcdef"
WORD = {"host": "127.0.0.1:4200", "authorization": f"Basic {secret.basic(KEY)}"}
DIRECTORY = {gate.STEP: {"directory": "/clone"}}


async def echo(scope, receive, send) -> None:
    """An app that answers with what it has received."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message.get("body", b"")})


def ask(door: gate.Gate, path: str, headers=WORD, method="GET", body=b"", kind="http") -> tuple[int, str, dict]:
    """Status, text and headers of the answer; a socket that is opened is 101, one that is refused 403."""
    path, _, query = path.partition("?")
    scope = {"type": kind, "path": path, "method": method, "query_string": query.encode(), "root_path": ""}
    pairs = headers.items() if isinstance(headers, dict) else headers
    scope["headers"] = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(door(scope, receive, send))
    if kind == "websocket":
        return {"websocket.accept": 101, "websocket.close": 403}[sent[0]["type"]], "", {}
    text = b"".join(message.get("body", b"") for message in sent).decode()
    return sent[0]["status"], text, {name.decode(): value.decode() for name, value in sent[0]["headers"]}


@pytest.fixture
def door():
    return gate.Gate(echo, 4200, KEY)


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:4200"},
        {"host": "localhost:4200"},
        {"host": "127.0.0.1:4201"},
        {"host": "127.0.0.1:4200.evil.example"},
        {},
        [("host", "127.0.0.1:4200"), ("host", "evil.example")],
        {"host": "127.0.0.1:4200", "origin": "http://evil.example"},
        {"host": "127.0.0.1:4200", "origin": "http://127.0.0.1:8000"},
        {"host": "127.0.0.1:4200", "origin": "https://127.0.0.1:4200"},
        {"host": "127.0.0.1:4200", "origin": "null"},
        {"host": "127.0.0.1:4200", "origin": ""},
        [("host", "127.0.0.1:4200"), ("origin", "http://127.0.0.1:4200"), ("origin", "http://evil.example")],
    ],
)
def test_gate__a_foreign_host_or_origin(door, headers, kind):
    """Wherever it goes, and with the secret too."""
    headers = [*(headers.items() if isinstance(headers, dict) else headers), ("authorization", WORD["authorization"])]
    for path in ("/api/flows/filter", "/api/health", "/", "/proof?of=x", f"/enter?ticket={secret.ticket(KEY)}"):
        assert ask(door, path, headers, "POST", b"{}", kind)[0] == 403


@pytest.mark.parametrize(
    "word", [None, "", "Basic", "Basic !", "Bearer x", f"Basic {secret.basic('polygrain:x')}", "é"]
)
def test_gate__the_api_wants_the_secret(door, word):
    headers = {"host": WORD["host"]} | ({} if word is None else {"authorization": word})
    status, text, _ = ask(door, "/api/flows/filter", headers, "POST", b"{}")
    assert status == 401 and "open the link that `polygrain ui` prints" in text
    assert ask(door, "/api/health", headers)[0] == 200
    assert ask(door, "/api/flows/filter", WORD, "POST", b'{"limit": 1}')[:2] == (200, '{"limit": 1}')


def test_gate__pages_may_ask_this_server_only(door):
    status, _, headers = ask(door, "/runs", {"host": WORD["host"]})
    assert status == 200
    policy = headers["content-security-policy"]
    assert "connect-src 'self' ws://127.0.0.1:4200;" in policy and "frame-ancestors 'none'" in policy
    assert "http:" not in policy and "*" not in policy


def test_enter__hands_the_secret_over_once(door):
    word = secret.ticket(KEY)
    status, text, headers = ask(door, f"/enter?ticket={word}", {"host": WORD["host"]})
    assert status == 200 and secret.basic(KEY) in text and headers["cache-control"] == "no-store"
    nonce = re.search(r"'nonce-([\w-]+)'", headers["content-security-policy"])[1]
    assert f'<script nonce="{nonce}">' in text
    for again in (word, "", secret.ticket("polygrain:x"), f"{word}0", secret.ticket(KEY)[:-1]):
        status, text, _ = ask(door, f"/enter?ticket={again}", {"host": WORD["host"]})
        assert status == 403 and secret.basic(KEY) not in text


def test_enter__a_ticket_of_before_the_start_or_long_ago(door, monkeypatch):
    word = secret.ticket(KEY)
    assert ask(gate.Gate(echo, 4200, KEY), f"/enter?ticket={word}")[0] == 403
    monkeypatch.setattr(gate, "TICKET_SECONDS", 0)
    assert ask(door, f"/enter?ticket={word}")[0] == 403


@pytest.mark.parametrize("to", ["//evil.example/", "/\\evil.example", "</script>", "http://evil.example", '");x("'])
def test_enter__leads_to_this_server_only(door, to):
    _, text, _ = ask(door, f"/enter?ticket={secret.ticket(KEY)}&to={to}")
    place = json.loads(re.search(r"location.replace\((.*)\)</script>", text)[1])
    assert place.startswith("http://127.0.0.1:4200/") and text.count("</script>") == 1


@pytest.mark.parametrize(
    "body",
    [
        {"pull_steps": [{"prefect.deployments.steps.run_shell_script": {"script": "touch planted"}}]},
        {"pull_steps": [DIRECTORY, {"os.system": {"command": "true"}}]},
        {"pull_steps": [DIRECTORY | {"os.system": {}}]},
        {"pull_steps": [{gate.STEP: {"directory": "/", "requires": "evil"}}]},
        {"pull_steps": "x"},
        {"entrypoint": "evil.py:main"},
        {"entrypoint": "os.system"},
        {"job_variables": {"command": "touch planted"}},
        {"infra_overrides": {"env": {"PYTHONSTARTUP": "evil.py"}}},
        {"storage_document_id": "0"},
        {"base_job_template": {"variables": {"properties": {"command": {"default": "touch planted"}}}}},
        {"actions": [{"type": "run-deployment", "job_variables": {"command": "x"}}]},
        {"deployments": [[{"parameters": {}, "entrypoint": "x"}]]},
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_call__no_program_but_the_projects_flows(door, body, method):
    status, text, _ = ask(door, "/api/deployments/1", WORD, method, json.dumps(body).encode())
    assert status == 403 and "this server runs pipeline/flows.py:reproduce" in text
    assert ask(door, "/api/deployments/1", WORD, method, json.dumps(body).encode("utf-16"))[0] == 403


def test_call__what_serve_and_worker_send_passes(door):
    from prefect.workers.process import ProcessWorker

    for body in (
        {"entrypoint": gate.FLOWS[0], "pull_steps": [DIRECTORY], "job_variables": {}, "parameters": {"entrypoint": 1}},
        {"entrypoint": gate.FLOWS[1], "pull_steps": [], "job_variables": None},
        {"name": "polygrain", "type": "process", "base_job_template": ProcessWorker.get_default_base_job_template()},
    ):
        said = ask(door, "/api/deployments/", WORD, "POST", json.dumps(body).encode())
        assert said[0] == 200 and json.loads(said[1]) == body


@pytest.mark.parametrize("body", [b"x", b"\xff\xfe\x00", b"[" * 100_000, b'{"a": '])
def test_call__a_body_that_is_no_json(door, body):
    assert ask(door, "/api/deployments/", WORD, "POST", body)[0] == 400


def test_live__holds_nothing_and_runs_nothing_but_itself(door):
    """Its data come through the API, which wants the secret; scripts in them would lack the nonce."""
    status, page, headers = ask(door, gate.LIVE, {"host": "127.0.0.1:4200"})
    policy = headers["content-security-policy"]
    (nonce,) = re.findall(r"script-src 'nonce-([\w-]+)'", policy)
    assert status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
    assert page.count(f'nonce="{nonce}"') == 2 == page.count("nonce=")
    assert KEY not in page and secret.basic(KEY) not in page and "innerHTML" not in page
    assert nonce not in ask(door, gate.LIVE, {"host": "127.0.0.1:4200"})[1]
    assert ask(door, gate.LIVE, {"host": "evil.example"})[0] == 403
