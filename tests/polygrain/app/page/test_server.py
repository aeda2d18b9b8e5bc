import socket

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from polygrain.app.page.server import below_secret, listen

ADDRESS, SECRET = "http://127.0.0.1:4300", "s" * 32


@pytest.fixture
def client() -> TestClient:
    def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.path_params["path"])

    page = Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST"])])
    return TestClient(below_secret(page, SECRET), base_url=ADDRESS)


def test_listen__on_this_machine_at_a_free_port() -> None:
    with listen(0) as listening, socket.create_connection(listening.getsockname(), timeout=5):
        host, port = listening.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(ValueError, match=f"port {port} cannot be used"):
            listen(port)


def test_below_secret__the_page_and_its_headers(client: TestClient) -> None:
    reply = client.get(f"/{SECRET}/image/3")
    assert (reply.status_code, reply.text) == (200, "image/3")
    assert client.post(f"/{SECRET}/search").status_code == 200
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
    assert reply.headers["cache-control"] == "no-store" and reply.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/", f"/{SECRET[:-1]}x/image/3", f"/x/{SECRET}/"])
def test_below_secret__nothing_without_it(client: TestClient, path: str) -> None:
    reply = client.get(path)
    assert reply.status_code == 403 and "whole address" in reply.text


def test_below_secret__nothing_by_another_host_name_and_no_websocket(client: TestClient) -> None:
    """A page of another site may have a name that leads to 127.0.0.1."""
    assert client.post(f"/{SECRET}/search", headers={"host": "evil.example"}).status_code == 400
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(f"/{SECRET}/"):
        pass
