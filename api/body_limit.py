"""The limit on request bodies, kept while they stream in, and an orderly end for those nobody reads."""

import asyncio
import contextlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.errors import BodyTooLargeError

LINGER_SECONDS = 2.0


class _Body:
    """A body on its way in."""

    def __init__(self, headers: Headers, receive: Receive, limit: int) -> None:
        length = headers.get("content-length", "0")
        self._declared = int(length) if length.isdecimal() else 0
        self._receive = receive
        self._limit = limit
        self._total = 0
        # A client that waits for "100 Continue" has sent nothing yet; reading would invite it to.
        self._invited = "expect" not in headers
        self.ended = self._declared == 0 and "transfer-encoding" not in headers

    async def receive(self) -> Message:
        self._check(self._declared)
        self._invited = True
        message = await self._next()
        self._check(self._total)
        return message

    async def _next(self) -> Message:
        message = await self._receive()
        self._total += len(message.get("body", b""))
        self.ended = not message.get("more_body", False)
        return message

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise BodyTooLargeError(f"the body is longer than max_body_bytes ({self._limit}): send a smaller one")

    async def read_off(self) -> None:
        """Drop the rest, within reason: a client still sending when the connection closes never sees its answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while self._invited and not self.ended and self._total <= 2 * self._limit:
                    await self._next()


class BodyLimit:
    """Refuses bodies longer than `limit` bytes, by their declared length and again while they stream in."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        """Wrap `app`."""
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; the error is raised where the body is read, and mapped with all others."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(Headers(scope=scope), receive, self._limit)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and not body.ended:
                await body.read_off()
                if not body.ended:
                    MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        await self._app(scope, body.receive, answer)
