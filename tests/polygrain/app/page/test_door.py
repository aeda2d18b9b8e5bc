import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from polygrain.app.page.door import Door

HOST, SECRET = "127.0.0.1:4300", "s" * 32


@pytest.fixture
def client() -> TestClient:
    def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.url.path)

    routes = [Route("/{path:path}", echo, methods=["GET", "POST"])]
    return TestClient(Door(Starlette(routes=routes), HOST, SECRET), base_url=f"http://{HOST}")


def test_door__lets_in_who_knows_the_secret(client: TestClient) -> None:
    reply = client.get(f"/{SECRET}/image/3")
    assert (reply.status_code, reply.text) == (200, "/image/3")
    assert client.post(f"/{SECRET}/search", headers={"origin": f"http://{HOST}"}).status_code == 200
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
    assert reply.headers["cache-control"] == "no-store" and reply.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path", ["/", "/image/3", f"/{SECRET}", f"/{SECRET[:-1]}/", f"/{SECRET[:-1]}x/image/3", f"/x/{SECRET}/"]
)
def test_door__refuses_other_addresses(client: TestClient, path: str) -> None:
    reply = client.get(path)
    assert reply.status_code == 403 and reply.text.startswith("open the whole address")


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"host": "localhost:4300"}, {"origin": "http://evil.example"}, {"origin": "null"}],
)
def test_door__refuses_other_hosts_and_origins(client: TestClient, headers: dict) -> None:
    reply = client.post(f"/{SECRET}/search", headers=headers)
    assert reply.status_code == 403 and "is not this server's" in reply.text


def test_door__refuses_sockets(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(f"/{SECRET}/"):
        pass
