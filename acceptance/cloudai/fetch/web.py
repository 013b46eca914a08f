"""Asking over HTTP: every answer is bounded in time and size, and a token goes to its own host only."""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from acceptance.cloudai.fetch.faults import SLOWEST, Fault, Passing, gb, tried

_TIMEOUT_S = 60
_BLOCK = 1 << 20
_LONGEST_WAIT_S = 600  # the Hub counts requests in windows of 300 s
_LARGEST_ANSWER = 256 << 20  # bytes of a list of files
_MOST_LINES = 100  # of a proxy's answer, as http.client has it for headers
_AGAIN = (408, 425, 429, 500, 502, 503, 504)  # answers of HTTP after which another try may help


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Passes the token on within a host only: the places that a Hub redirects to for the data must not see it.

    A redirect from https to http is refused: the address of the data is signed.
    """

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        fp.close()  # urllib would read all of its body
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        old, to = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if to.scheme not in ("https", old.scheme):
            raise Fault(f"{old.netloc}: redirects from {old.scheme} to {to.scheme}: refused. Hint: is a proxy between?")
        if new is not None and (old.scheme, old.netloc) == (to.scheme, to.netloc):
            new.unredirected_hdrs.update(req.unredirected_hdrs)
        return new


class _Answer(http.client.HTTPResponse):
    """An answer whose headers come in _TIMEOUT_S."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self._socket = sock

    def begin(self) -> None:
        with _in_time(self._socket, "its headers"):
            super().begin()


class _ProxyLines(io.BufferedReader):
    """The lines of a proxy's answer to CONNECT: http.client bounds the length of each, before 3.12 not their number."""

    _left = _MOST_LINES

    def readline(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise http.client.HTTPException(f"the proxy's answer has more than {_MOST_LINES} lines")
        return super().readline(size)


class _ProxyAnswer(http.client.HTTPResponse):
    """What a proxy answers to CONNECT."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = _ProxyLines(self.fp.detach())


class _Connection:
    """A connection with bounded answers, also of a proxy to CONNECT: the first base, before a class of http.client."""

    response_class: Any = _Answer
    sock: socket.socket

    def _tunnel(self) -> None:
        self.response_class = _ProxyAnswer
        with _in_time(self.sock, "the proxy's answer"):
            super()._tunnel()  # type: ignore[misc]
        self.response_class = _Answer


class _Bounded(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Connects by _Connection."""

    def do_open(self, http_class: Any, req: Any, **arguments: Any) -> Any:
        return super().do_open(type("_Bounded", (_Connection, http_class), {}), req, **arguments)  # type: ignore[arg-type]


@contextmanager
def _in_time(sock: socket.socket, what: str) -> Iterator[None]:
    """End what a socket reads after _TIMEOUT_S: its own time-out bounds each of its reads only."""

    def end() -> None:
        with suppress(OSError):  # the other side may have ended it
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # also below TLS: the reader sees the end

    until, timer = time.monotonic() + _TIMEOUT_S, threading.Timer(_TIMEOUT_S, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if time.monotonic() >= until:
            raise TimeoutError(f"{what} did not come in {_TIMEOUT_S} s")


_OPENER = urllib.request.build_opener(_Redirects, _Bounded)


def open_url(url: str, authorization: str = "", start: int = 0) -> http.client.HTTPResponse:
    """Ask for a URL, from byte `start` on. Raises HTTPError for an answer that is no data, Fault and Passing."""
    host = host_of(url)
    request = urllib.request.Request(url, headers={"User-Agent": "slipway", "Accept-Encoding": "identity"})  # noqa: S310
    if start:
        request.add_header("Range", f"bytes={start}-")
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    try:
        answer: http.client.HTTPResponse = _OPENER.open(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code in _AGAIN:
            error.close()
            raise Passing(f"{host} answered HTTP {error.code}", after_s=_after_s(error.headers)) from None
        if 300 <= error.code < 400:
            rule = "redirects without end, or to no address of http or https"
            raise Fault(f"{host}: {rule} (HTTP {error.code}): refused. Hint: is a proxy between?") from None
        raise
    except urllib.error.URLError as error:
        raise Passing(f"{host} cannot be reached ({str(error.reason)[:200]})") from None
    except (OSError, http.client.HTTPException) as error:
        raise Passing(f"{host} broke the connection ({error})") from None
    except ValueError:  # not quoted: it may have the token
        raise Fault(f"{host}: sent an address or a token that no request can have: refused") from None
    return answer


def _after_s(headers: Any) -> int:
    """Return how long an answer asks to wait: by RateLimit, as the Hub's where nothing remains, or Retry-After."""
    limit = re.search(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,4})", headers.get("RateLimit", ""))
    match = limit or re.fullmatch(r"\s*(\d{1,4})\s*", headers.get("Retry-After", ""))
    return min(int(match[1]) + 1, _LONGEST_WAIT_S) if match else 0


def host_of(url: str) -> str:
    """Return the host of an address. Raises Fault if it is not one of http or https, such as a file."""
    with suppress(ValueError):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme in ("http", "https"):
            return parts.netloc
    raise Fault(f"{url.partition('?')[0]!r}: is what the source names, no address of http or https: refused")


def blocks_of(answer: http.client.HTTPResponse, start: int, end: int) -> Iterator[bytes]:
    """The data of an answer, which is that from byte `start` to `end` of a file. Raises Passing."""
    least, until = start + SLOWEST, time.monotonic() + _TIMEOUT_S
    while start < end:
        try:
            block = answer.read1(min(_BLOCK, end - start))
        except (OSError, http.client.HTTPException) as error:
            raise Passing(f"the connection broke ({error})", start) from None
        if not block:
            return
        yield block
        start += len(block)
        if time.monotonic() > until:
            if start < least:
                raise Passing(f"less than {SLOWEST} bytes came in {_TIMEOUT_S} s", start)
            least, until = start + SLOWEST, time.monotonic() + _TIMEOUT_S


def ask(url: str, authorization: str) -> Any:
    """Return the JSON of an answer. Raises HTTPError and Fault."""
    return tried(lambda: _read_json(url, authorization))


def _read_json(url: str, authorization: str) -> Any:
    with open_url(url, authorization) as answer:
        data = b"".join(blocks_of(answer, 0, _LARGEST_ANSWER + 1))
    if len(data) > _LARGEST_ANSWER:
        raise Fault(
            f"{host_of(url)}: answered with more than {gb(_LARGEST_ANSWER)}: refused. Hint: is a proxy between?"
        )
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Fault(f"{host_of(url)}: answered without JSON. Hint: is a proxy between?") from None
