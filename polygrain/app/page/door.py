"""Lets in the browser of the user who started the page, and no one else; says what the page may do there."""

import hmac

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.gate import foreign

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Door:
    """Hands on to the app what is asked of this host below /SECRET/, under the path behind it.

    A page of another site has another Origin, or another Host where its name leads here; another user of this machine
    does not know the secret, which is drawn for this one start.
    """

    def __init__(self, app: ASGIApp, host: str, secret: str) -> None:
        self.app, self.host, self.prefix = app, host, f"/{secret}/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif wrong := foreign(Headers(scope=scope), self.host):
            await PlainTextResponse(wrong, 403)(scope, receive, send)
        elif not hmac.compare_digest(scope["path"][: len(self.prefix)].encode(), self.prefix.encode()):
            hint = "open the whole address that `polygrain search --page` prints\n"
            await PlainTextResponse(hint, 403)(scope, receive, send)
        else:
            inner = scope | {"path": scope["path"][len(self.prefix) - 1 :], "raw_path": None}
            await self.app(inner, receive, self.with_headers(send))

    def with_headers(self, send: Send) -> Send:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        return sent
