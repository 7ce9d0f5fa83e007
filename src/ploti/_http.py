"""HTTP of the SDK: JSON calls with retries, and downloads of signed links.

The API key goes with calls to the API's own address and with nothing else; redirects are not followed.
"""

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final

import httpx2

from ploti._signing import authorization, origin
from ploti.errors import BadAnswer, FixRequest, LinkExpired, NoAnswer, NotAllowed, PlotiError, RetryLater, error_kind

TIMEOUT_SECONDS: Final = 30.0
"""For connecting, and for each wait for more of an answer."""
_TIMEOUT_MOST = 60.0
STALLED_SECONDS: Final = 60.0
STALLED_BYTES: Final = 64 * 1024
"""What does not bring so many bytes in so many seconds is given up."""
_ANSWER_BYTES_MOST = 256 * 1024 * 1024
RETRY_AFTER_MOST: Final = 86_400.0
"""A wish to wait longer is taken for a day."""
_LINK_GONE = frozenset({400, 401, 403, 404, 410})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

Query = Mapping[str, str | int | bool | None]


@dataclass(frozen=True)
class Retries:
    """How often and how long to wait before a call is given up; seconds."""

    attempts: int = 5
    first_wait: float = 0.5
    longest_wait: float = 60.0

    def wait(self, attempt: int, asked: float | None, chance: float) -> float | None:
        """Give the seconds before the next attempt; None to give up.

        `attempt` counts from 1, `asked` is the answer's own wish, `chance` is between 0 and 1.
        """
        if attempt >= self.attempts or (asked is not None and asked > self.longest_wait):
            return None
        backoff = min(self.first_wait * 2.0 ** (attempt - 1), self.longest_wait) * (0.5 + chance / 2)
        return backoff if asked is None else max(asked, backoff)


@dataclass(frozen=True)
class Download:
    """An open download: its bytes begin at `start` of the file, 0 where the server sent the whole file."""

    start: int
    total: int | None
    etag: str | None
    chunks: Iterator[bytes]


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """Read a `Retry-After` header, seconds or a date, as seconds from now, a day at most; None for none to read."""
    if header is None:
        return None
    seconds: float | None = _count(header.strip())
    if seconds is None:
        moment = _http_date(header)
        seconds = None if moment is None else (moment - now).total_seconds()
    return None if seconds is None else min(max(0.0, float(seconds)), RETRY_AFTER_MOST)


class Http:
    """Calls to one API address with one key.

    `skew` is how many seconds the server's clock was ahead of this machine's at the last answer, None where unknown.
    `waiting` is told of trouble that is waited out, with the seconds.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx2.BaseTransport | None = None,
        proxy: str | None = None,
        retries: Retries | None = None,
        waiting: Callable[[RetryLater, float], object] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base_url = _checked_base(base_url)
        self._api_key = _checked_key(api_key)
        self._retries, self._sleep, self._clock = retries or Retries(), sleep, clock
        if not 0 < timeout <= _TIMEOUT_MOST:
            raise FixRequest(f"Give a timeout of at most {_TIMEOUT_MOST:.0f} seconds.", code="invalid_input")
        self._timeout, self._seconds, self._waiting = timeout, seconds, waiting
        self.skew: float | None = None
        self._connect = partial(connections, self.base_url, timeout, transport, proxy)
        self._client, self._process = self._connect(), os.getpid()

    def close(self) -> None:
        """Close the connections."""
        self._own().close()

    def _own(self) -> httpx2.Client:
        """Give this process's connections: those of before a fork are its parent's, and bring others' answers."""
        if self._process != os.getpid():
            self._client, self._process = self._connect(), os.getpid()
        return self._client

    def get(self, path: str, query: Query | None = None, *, wait: float = 0) -> dict[str, Any]:
        """Read a resource; tried again where that can help. `wait` is how many seconds the server may take besides."""
        return self._call("GET", path, query=query, wait=wait)

    def pause(self, seconds: float) -> None:
        """Wait, as between two attempts."""
        self._sleep(seconds)

    def post(self, path: str, body: object, *, once: str | None = None, again: bool = False) -> dict[str, Any]:
        """Send a JSON body; `once` is an Idempotency-Key, and with it, or with `again`, the call may be repeated."""
        headers = {} if once is None else {"idempotency-key": once}
        return self._call("POST", path, body=body, headers=headers, again=again or once is not None)

    def patch(self, path: str, body: object) -> dict[str, Any]:
        """Change a resource; repeated only where the answer said that nothing was done."""
        return self._call("PATCH", path, body=body, again=False)

    def delete(self, path: str) -> dict[str, Any]:
        """Delete a resource; repeated only where the answer said that nothing was done."""
        return self._call("DELETE", path, again=False)

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
        wait: float = 0,
    ) -> dict[str, Any]:
        attempt = 1
        while True:
            try:
                return self._once(method, path, query=query or {}, body=body, headers=headers or {}, wait=wait)
            except RetryLater as problem:
                refused = problem.code in {"busy", "rate_limited", "plan_unavailable", "idempotency_in_progress"}
                chance = random.random()  # noqa: S311  # spreads retries, guards nothing
                pause = self._retries.wait(attempt, problem.retry_after, chance)
                if pause is None or not (again or refused):
                    raise
                if self._waiting is not None:
                    self._waiting(problem, pause)
            self._sleep(pause)
            attempt += 1

    def _once(
        self, method: str, path: str, *, query: Query, body: object, headers: Mapping[str, str], wait: float
    ) -> dict[str, Any]:
        if self._api_key is None:
            raise NotAllowed("Set PLOTI_API_KEY to an API key, or run `ploti login`.", code="unauthenticated")
        url = self.base_url + path
        request = self._own().build_request(
            method,
            url,
            params=_query_texts(query),
            content=None if body is None else json.dumps(body).encode(),
            timeout=httpx2.Timeout(self._timeout, read=self._timeout + wait),
            headers={
                **authorization(self._api_key, self.base_url, url),
                "accept": "application/json",
                **({} if body is None else {"content-type": "application/json"}),
                **headers,
            },
        )
        with self._opened(request) as response:
            content = _whole(response, self._seconds)
            self.skew = _skew(response.headers.get("date"), self._clock())
            if response.is_success:
                return _json_object(response, content)
            raise _refusal(response, content, self._clock())

    @contextmanager
    def _opened(self, request: httpx2.Request) -> Iterator[httpx2.Response]:
        """Send a request and hold its answer open; trouble of the network becomes NoAnswer."""
        try:
            response = self._own().send(request, stream=True)
            try:
                yield response
            finally:
                response.close()
        except httpx2.TimeoutException:
            raise NoAnswer(f"No answer from {_origin(request.url)} in time: try again.", code="no_answer") from None
        except httpx2.HTTPError as problem:
            raise _unreached(request.url, str(problem).rstrip(".") or type(problem).__name__) from problem

    @contextmanager
    def stream(self, url: str, start: int = 0, if_range: str | None = None) -> Iterator[Download]:
        """Download a signed link from byte `start` on, without the API key.

        With `if_range` (an earlier answer's `etag`) the server sends the whole file if it is no longer the same: look
        at the `start` of what comes. Raises LinkExpired where a fresh link is needed, FixRequest where the file is
        shorter than `start`, NoAnswer where the connection breaks, RetryLater where the server is in trouble.
        """
        headers = {"accept-encoding": "identity"}
        if start > 0:
            headers["range"] = f"bytes={start}-"
            if if_range is not None:
                headers["if-range"] = if_range
        try:
            request = self._own().build_request("GET", url, headers=headers)
        except httpx2.InvalidURL as problem:
            raise BadAnswer("A link is not an address: ask for a fresh one.", code="bad_answer") from problem
        with self._opened(request) as response:
            if response.status_code not in {200, 206}:
                raise _link_refusal(response, self._clock())
            begins, total = _extent(response, start)
            yield Download(begins, total, response.headers.get("etag"), response.iter_raw())


def _skew(header: str | None, now: datetime) -> float | None:
    """Read a `Date` header as seconds from now."""
    moment = None if header is None else _http_date(header)
    return None if moment is None else (moment - now).total_seconds()


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _checked_base(base_url: str) -> str:
    """Give an API address without a trailing slash; raises FixRequest for one that cannot be called."""
    base_url = base_url.strip()
    parts = httpx2.URL(base_url) if is_address(base_url) else None
    if parts is None or parts.query or parts.fragment or parts.userinfo:
        message = "Give the API's address as http(s)://host[:port], for example in PLOTI_API_URL."
        raise FixRequest(message, code="invalid_input")
    base_url = base_url.rstrip("/")
    if base_url.endswith("/v1"):
        message = f"Give the API's address without /v1: {base_url.removesuffix('/v1')}"
        raise FixRequest(message, code="invalid_input")
    return base_url


def is_address(text: str) -> bool:
    """Tell whether requests can be sent to an address: http or https, with a host."""
    try:
        parts = httpx2.URL(text)
        parts.raw_host.decode("ascii").encode("idna")  # as the resolver has it
        origin(text)
    except (httpx2.InvalidURL, ValueError):
        return False
    return parts.scheme in {"http", "https"} and bool(parts.host) and not re.search(r"\s", text)


def connections(
    base_url: str, timeout: float, transport: httpx2.BaseTransport | None = None, proxy: str | None = None
) -> httpx2.Client:
    """Make the connections: by the environment's proxies unless one is given, to this machine by none.

    Raises FixRequest for a proxy that cannot be used.
    """
    try:
        if transport is None and proxy is None and origin(base_url)[1] in _LOOPBACK:
            transport = httpx2.HTTPTransport()
        return httpx2.Client(
            timeout=timeout,
            proxy=proxy,
            transport=transport,
            follow_redirects=False,
            headers={"user-agent": "ploti-python"},
        )
    except (ValueError, httpx2.InvalidURL) as problem:
        told = "Give the proxy's address as http://host:port, as argument or in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY."
        raise FixRequest(told, code="invalid_input", field="proxy") from problem
    except OSError as problem:
        named = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
        told = f"SSL_CERT_FILE or SSL_CERT_DIR names no certificates ({named}: {problem.strerror or problem})."
        raise FixRequest(told, code="invalid_input") from problem
    except ImportError as problem:
        told = "A SOCKS proxy needs another package: pip install socksio, or give a proxy as http://host:port."
        raise FixRequest(told, code="invalid_input", field="proxy") from problem


def _checked_key(api_key: str | None) -> str | None:
    """Give a key without outer white space; raises NotAllowed for one that no header can carry."""
    key = api_key.strip() if api_key is not None else None
    if key is not None and not re.fullmatch("[!-~]+", key):
        message = "The API key is empty or has characters that no key has: check PLOTI_API_KEY, or run `ploti login`."
        raise NotAllowed(message, code="unauthenticated")
    return key


def _origin(url: httpx2.URL) -> str:
    """Name scheme, host and port; the rest of a link is a secret."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _query_texts(query: Query) -> dict[str, str]:
    """Write query values as the wire has them, those that are None left out."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in query.items()
        if value is not None
    }


def _whole(
    response: httpx2.Response, seconds: Callable[[], float] = time.monotonic, most: int = _ANSWER_BYTES_MOST
) -> bytes:
    """Read an answer whole; raises BadAnswer beyond any answer's size, NoAnswer where it only drips (F083)."""
    content = bytearray()
    mark, since = 0, seconds()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > most:
            raise BadAnswer("The answer does not end: check the API's address.", code="bad_answer")
        if seconds() - since >= STALLED_SECONDS:
            if len(content) - mark < STALLED_BYTES:
                raise NoAnswer(
                    f"The answer of {_origin(response.url)} arrives too slowly: try again.", code="no_answer"
                )
            mark, since = len(content), seconds()
    return bytes(content)


def _json_object(response: httpx2.Response, content: bytes) -> dict[str, Any]:
    """Read an answer; raises NoAnswer for one that was cut on its way, BadAnswer for one that is not the API's."""
    host, known = _origin(response.url), _known(response)
    try:
        value = json.loads(content)
    except RecursionError:
        value = None
    except ValueError as problem:
        if content.lstrip().startswith(b"{"):
            raise NoAnswer(f"The answer of {host} is not whole: try again.", code="no_answer", **known) from problem
        value = None
    if not isinstance(value, dict):
        raise BadAnswer(f"{host} does not answer as the API does: check the address.", code="bad_answer", **known)
    return value


def _known(response: httpx2.Response) -> dict[str, Any]:
    """Give what each exception of an answer tells of it."""
    return {"status": response.status_code, "request_id": response.headers.get("x-request-id")}


def _refusal(response: httpx2.Response, content: bytes, now: datetime) -> PlotiError:
    """Build the exception of a refusal, by its code (D1.5)."""
    wait = retry_after_seconds(response.headers.get("retry-after"), now)
    try:
        error = json.loads(content)["error"]
        code, message, field = str(error["code"]), str(error["message"]), error.get("field")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        kind, message = _foreign(response)
        code, field = f"http_{response.status_code}", None
    else:
        kind = error_kind(code, response.status_code)
    return kind(message, code=code, field=field, retry_after=wait, **_known(response))


def _foreign(response: httpx2.Response) -> tuple[type[PlotiError], str]:
    """Tell what to do about a refusal that is not the API's: something between, or another server.

    Its status alone never says that something is gone: a balancer answers `404` while the API behind it restarts.
    """
    status = response.status_code
    told = f"{_origin(response.url)} answered {status}, not as the API does:"
    if response.has_redirect_location:
        return BadAnswer, f"{told} it points to {_goal(response)}. If that is the API, give it as PLOTI_API_URL."
    if status == 407:
        return (
            FixRequest,
            f"{told} the proxy wants a name and password, like HTTPS_PROXY=http://name:password@host:port.",
        )
    if status in {401, 403}:
        return NotAllowed, f"{told} check the key, the address, and what stands between, like a proxy."
    if status >= 500 or status in {408, 429}:
        return RetryLater, f"{told} try again; where it stays, look at what stands between, like a proxy."
    return BadAnswer, f"{told} check the address, and what stands between, like a proxy."


def _goal(response: httpx2.Response) -> str:
    """Name where a redirect points to."""
    try:
        return _origin(response.url.join(response.headers["location"]))
    except httpx2.InvalidURL:
        return "what is no address"


def _unreached(url: httpx2.URL, told: str) -> PlotiError:
    """Build the exception of a call that brought no answer, from what the connection said."""
    untrusted = re.search(r"certificate verify failed: (.*?)\.?( \(_ssl|$)", told)
    if untrusted:
        message = (
            f"The certificate of {_origin(url)} is not trusted ({untrusted[1]}): check the address and this machine's "
            "clock. Where your network has a CA of its own, name its file in SSL_CERT_FILE."
        )
        return BadAnswer(message, code="bad_answer")
    if told.startswith("407 "):
        message = "The proxy wants a name and password: give them like HTTPS_PROXY=http://name:password@host:port."
        return FixRequest(message, code="http_407", status=407)
    if "WRONG_VERSION_NUMBER" in told or "RECORD_LAYER_FAILURE" in told:
        told = "there is no TLS, perhaps its address begins with http://"
    names = [name for each in (f"{url.scheme}_proxy", "all_proxy") for name in (each, each.upper())]
    proxy = None if url.host in _LOOPBACK else next(filter(os.environ.get, names), None)
    between = "" if proxy is None else f", the proxy in {proxy}"
    message = f"No answer from {_origin(url)}: {told}. Check the address{between} and that it runs."
    return NoAnswer(message, code="no_answer")


def _link_refusal(response: httpx2.Response, now: datetime) -> PlotiError:
    """Build the exception of a link that did not give its file."""
    status, host = response.status_code, _origin(response.url)
    if status in _LINK_GONE:
        return LinkExpired(
            f"A link to {host} no longer answers: ask for a fresh one.", code="link_expired", status=status
        )
    if status == 416:
        return FixRequest("The file is shorter than what was asked for.", code="range_not_satisfiable", status=status)
    wait = retry_after_seconds(response.headers.get("retry-after"), now)
    if status >= 500 or status == 429:
        return RetryLater(f"{host} cannot serve the file now.", code=f"http_{status}", status=status, retry_after=wait)
    return BadAnswer(f"{host} answered {status} to a link.", code="bad_answer", status=status)


def _extent(response: httpx2.Response, start: int) -> tuple[int, int | None]:
    """Tell where an answer's bytes begin in the file, and the file's size; raises BadAnswer for another range."""
    if response.status_code == 200:
        return 0, _count(response.headers.get("content-length", ""))
    unit, _, rest = response.headers.get("content-range", "").partition(" ")
    span, _, total = rest.partition("/")
    first = span.partition("-")[0]
    if unit != "bytes" or first != str(start):
        raise BadAnswer("The server sent another part of the file than was asked for.", code="bad_answer", status=206)
    return start, _count(total)


def _count(text: str) -> int | None:
    """Read a whole number of a header; None for anything else."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None
