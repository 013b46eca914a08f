"""Downloads a repository of Hugging Face or a model of NGC: the program of a download job, on a node, by itself.

`python3 -I fetch.py SPEC.json` needs Python 3.9 and nothing else; for a token in Secrets Manager the AWS CLI.

Each file is written under another name, goes on where a killed program ended, is compared with the size and the
checksum that the source states, and then renamed. The note COMPLETE is written last. The token is in the memory of
this process only, and goes to no other host than the source's.

Sources: huggingface_hub 2.4.0 (hf_api.py, file_download.py, utils/_http.py: the addresses, the headers, the layout of
the cache, the codes of errors) and ngcsdk 4.37.0 (registry/api/models.py, ngcbase/api/authentication.py,
ngcbase/transfer/async_download.py: the same for NGC).
"""

from __future__ import annotations

import base64
import configparser
import errno
import fcntl
import fnmatch
import hashlib
import http.client
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPLETE = ".slipway-complete.json"  # what was downloaded; written when all of it is there
LOCK = ".slipway-lock"
SOURCE = ".slipway-source"  # what was begun last
PART = ".incomplete"
AT_ONCE = 8  # files at a time, as huggingface_hub does
_TRIES, _PAUSE_S, _TIMEOUT_S, _AWS_S, _PROGRESS_S = 5, 2.0, 60, 30, 30
_LONGEST_WAIT_S = 600  # the Hub counts requests in windows of 300 s
_BEARER_S = 240  # a token of NGC holds five minutes
_BLOCK = 1 << 20
_LARGEST_ANSWER = 256 << 20  # bytes of a list of files
_SLOWEST = 1 << 16  # bytes in _TIMEOUT_S; with less another connection may help
_AGAIN = (408, 425, 429, 500, 502, 503, 504)  # answers of HTTP after which another try may help
_TOKEN = re.compile(r"[A-Za-z0-9+/=_.:,@%^~-]+")
_HINTS = {  # of errors of the file system
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room, and run it again: it goes on"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "may this user write there?"),
}
_FORM = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # an answer of another form


class Fault(Exception):
    """Why the download is not whole: one line for the user."""


class _Passing(Exception):
    """A fault after which another try may help.

    at: the byte up to which the file is there; after_s: how long the host asks to wait.
    """

    def __init__(self, rule: str, at: int = 0, after_s: int = 0) -> None:
        super().__init__(rule)
        self.at, self.after_s = at, after_s


class _Stopped(Exception):
    """Another file failed."""


@dataclass(frozen=True)
class File:
    """A file of a source. path: in the source; checksum: `sha256` or `git` (a blob's SHA-1), and hexadecimal digits."""

    path: str
    size: int
    checksum: tuple[str, str] | None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or self.size < 0:
            raise ValueError(self.path)


@dataclass(frozen=True)
class Token:
    """A token and where it is from, for messages."""

    value: str
    origin: str


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Passes the token on within a host only: the places that a Hub redirects to for the data must not see it.

    A redirect from https to http is refused: the address of the data is signed.
    """

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        old, to = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if to.scheme not in ("https", old.scheme):
            raise Fault(f"{old.netloc}: redirects from {old.scheme} to {to.scheme}: refused. Hint: is a proxy between?")
        if new is not None and (old.scheme, old.netloc) == (to.scheme, to.netloc):
            new.unredirected_hdrs.update(req.unredirected_hdrs)
        return new


class _Answer(http.client.HTTPResponse):
    """An answer whose headers come in _TIMEOUT_S: the time-out of a socket bounds each of its reads only."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self._socket = sock

    def begin(self) -> None:
        until = time.monotonic() + _TIMEOUT_S
        timer = threading.Timer(_TIMEOUT_S, self._end)
        timer.start()
        try:
            super().begin()
        finally:
            timer.cancel()
            if time.monotonic() >= until:
                raise TimeoutError(f"its headers did not come in {_TIMEOUT_S} s")

    def _end(self) -> None:
        with suppress(OSError):  # the other side may have ended it
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # also below TLS: the reader sees the end


class _Bounded(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Takes its answers as _Answer."""

    def do_open(self, http_class: Any, req: Any, **arguments: Any) -> Any:
        bounded: Any = type("_Connection", (http_class,), {"response_class": _Answer})
        return super().do_open(bounded, req, **arguments)


_OPENER = urllib.request.build_opener(_Redirects, _Bounded)


def _open(url: str, authorization: str = "", start: int = 0) -> http.client.HTTPResponse:
    """Ask for a URL, from byte `start` on. Raises HTTPError for an answer that is no data, Fault and _Passing."""
    host = _host(url)
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
            raise _Passing(f"{host} answered HTTP {error.code}", after_s=_after_s(error.headers)) from None
        if 300 <= error.code < 400:
            rule = "redirects without end, or to no address of http or https"
            raise Fault(f"{host}: {rule} (HTTP {error.code}): refused. Hint: is a proxy between?") from None
        raise
    except urllib.error.URLError as error:
        raise _Passing(f"{host} cannot be reached ({error.reason})") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Passing(f"{host} broke the connection ({error})") from None
    except ValueError:  # not quoted: it may have the token
        raise Fault(f"{host}: sent an address or a token that no request can have: refused") from None
    return answer


def _after_s(headers: Any) -> int:
    """Return how long an answer asks to wait: by RateLimit, as the Hub's where nothing remains, or Retry-After."""
    limit = re.search(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,4})", headers.get("RateLimit", ""))
    match = limit or re.fullmatch(r"\s*(\d{1,4})\s*", headers.get("Retry-After", ""))
    return min(int(match[1]) + 1, _LONGEST_WAIT_S) if match else 0


def _host(url: str) -> str:
    """Return the host of an address. Raises Fault if it is not one of http or https, such as a file."""
    with suppress(ValueError):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme in ("http", "https"):
            return parts.netloc
    raise Fault(f"{url.partition('?')[0]!r}: is what the source names, no address of http or https: refused")


def _blocks(answer: http.client.HTTPResponse, start: int, end: int) -> Iterator[bytes]:
    """The data of an answer, which is that from byte `start` to `end` of a file. Raises _Passing."""
    least, until = start + _SLOWEST, time.monotonic() + _TIMEOUT_S
    while start < end:
        try:
            block = answer.read1(min(_BLOCK, end - start))
        except (OSError, http.client.HTTPException) as error:
            raise _Passing(f"the connection broke ({error})", start) from None
        if not block:
            return
        yield block
        start += len(block)
        if time.monotonic() > until:
            if start < least:
                raise _Passing(f"less than {_SLOWEST} bytes came in {_TIMEOUT_S} s", start)
            least, until = start + _SLOWEST, time.monotonic() + _TIMEOUT_S


def _ask(url: str, authorization: str) -> Any:
    """Return the JSON of an answer. Raises HTTPError and Fault."""
    return _tried(lambda: _read_json(url, authorization))


def _read_json(url: str, authorization: str) -> Any:
    with _open(url, authorization) as answer:
        data = b"".join(_blocks(answer, 0, _LARGEST_ANSWER + 1))
    if len(data) > _LARGEST_ANSWER:
        raise Fault(f"{_host(url)}: answered with more than {_gb(_LARGEST_ANSWER)}: refused. Hint: is a proxy between?")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Fault(f"{_host(url)}: answered without JSON. Hint: is a proxy between?") from None


def _tried(do: Callable[[], Any], place: str = "", pause: Callable[[float], Any] = time.sleep) -> Any:
    """Return what `do` returns, tried again after what may pass; tries that get farther do not count. Raises Fault."""
    number, farthest = 0, 0
    while True:
        try:
            return do()
        except _Passing as error:
            farther = error.at >= farthest + _SLOWEST
            number, farthest = (1 if farther else number + 1), max(farthest, error.at)
            if number == _TRIES:
                raise Fault(f"{place}{error} ({_TRIES} tries). Hint: run it again: it goes on") from None
            pause_s = max(_PAUSE_S * number, error.after_s)
            print(f"{place}{error}: tried again in {pause_s:g} s", flush=True)
        if pause(pause_s):
            raise _Stopped


@contextmanager
def _form_of(address: str) -> Iterator[None]:
    """Raise Fault where what an address answered has another form than the block reads."""
    try:
        yield
    except _FORM:
        raise Fault(f"{address}: an answer of a form that is not known here") from None


class Hub:
    """A repository of a Hub of Hugging Face."""

    def __init__(self, spec: Mapping[str, Any], token: Token | None) -> None:
        self._repository, self._revision, self._token = spec["repository"], spec["revision"], token
        kind, self._endpoint = spec["kind"], spec["endpoint"].rstrip("/")
        revision = urllib.parse.quote(self._revision, safe="")
        self._list = f"{self._endpoint}/api/{kind}/{self._repository}/revision/{revision}?blobs=true"
        self._files = self._endpoint + ("" if kind == "models" else f"/{kind}") + f"/{self._repository}/resolve"

    def listing(self) -> tuple[str, list[File]]:
        """Return the commit and its files. Raises Fault."""
        try:
            answer = _ask(self._list, self._authorization())
        except urllib.error.HTTPError as error:
            raise self._refused(error, "") from None
        with _form_of(self._list):
            self._commit = _hexadecimal(answer["sha"])
            return self._commit, [self._file(one) for one in answer["siblings"]]

    def _file(self, entry: Mapping[str, Any]) -> File:
        large = entry.get("lfs")
        checksum = ("sha256", large["sha256"]) if large else ("git", entry["blobId"])
        return File(entry["rfilename"], int(entry["size"]), (checksum[0], _hexadecimal(checksum[1])))

    def open(self, file: File, start: int) -> http.client.HTTPResponse:
        """Ask for a file, from byte `start` on. Raises Fault and _Passing."""
        try:
            return _open(f"{self._files}/{self._commit}/{urllib.parse.quote(file.path)}", self._authorization(), start)
        except urllib.error.HTTPError as error:
            raise self._refused(error, file.path) from None

    def _authorization(self) -> str:
        return f"Bearer {self._token.value}" if self._token else ""

    def _refused(self, error: urllib.error.HTTPError, path: str) -> Fault:
        """The answers of the Hub: 401 without a valid token, also for names that do not exist; 403 for a gated one."""
        code, name = error.headers.get("X-Error-Code", ""), f"{self._repository} at {self._endpoint}"
        host = urllib.parse.urlsplit(error.url).netloc
        error.close()
        if host != urllib.parse.urlsplit(self._endpoint).netloc:
            return Fault(f"{path}: {host}, which has its data, answered HTTP {error.code}. Hint: run it again")
        if code == "RevisionNotFound":
            return Fault(f"{name}: has no revision {self._revision!r} (HTTP {error.code}). Hint: correct it")
        if code == "EntryNotFound":
            return Fault(f"{name}: has no file {path!r} any more (HTTP {error.code}). Hint: run it again")
        if code == "GatedRepo" or error.code == 403:
            rule = f"is gated, and the account of the token has no access (HTTP {error.code})"
            what = rule if self._token else f"is gated, and there is no token (HTTP {error.code})"
            return Fault(f"{name}: {what}. Hint: ask for access on its page; {_hint_of(self._token, 'hf')}")
        if error.code == 401 and self._token:
            return Fault(f"{name}: refused the token of {self._token.origin} (HTTP 401). Hint: is it valid?")
        if error.code in (401, 404):
            hint = f"is the name right? {_hint_of(self._token, 'hf')}"
            return Fault(f"{name}: does not exist, or is private (HTTP {error.code}). Hint: {hint}")
        return Fault(f"{name}: answered HTTP {error.code}{f' for {path}' if path else ''}")


class Ngc:
    """A version of a model in NVIDIA's registry."""

    def __init__(self, spec: Mapping[str, Any], token: Token | None) -> None:
        self._token, self._lock, self._bearer, self._until = token, threading.Lock(), "", 0.0
        self._name = f"{spec['repository']}:{spec['revision']}"
        org, *team, model = spec["repository"].split("/")
        self._scopes = [f"group/ngc:{org}", *(f"group/ngc:{org}/{one}" for one in team)]
        base = f"{spec['endpoint'].rstrip('/')}/v2/org/{org}" + "".join(f"/team/{one}" for one in team)
        self._list = f"{base}/models/{model}/versions/{spec['revision']}/files?page-size=1000"
        self._files = f"{base}/models/{model}/{spec['revision']}/files"
        self._login = f"{spec['login'].rstrip('/')}/token"

    def listing(self) -> tuple[str, list[File]]:
        """Return the version's files; it has no commit. Raises Fault."""
        files, page, pages = [], 0, 1
        while page < pages:
            answer = self._api(self._list + (f"&page-number={page}" if page else ""))
            with _form_of(self._list):
                pages = int((answer.get("paginationInfo") or {}).get("totalPages") or 1)
                more = [self._file(one) for one in answer.get("modelFiles") or []]
            if page and not more:
                raise Fault(f"{self._list}: page {page} of {pages} is empty. Hint: run it again")
            files += more
            page += 1
        return "", files

    def _file(self, entry: Mapping[str, Any]) -> File:
        encoded = entry.get("sha256_base64")
        checksum = ("sha256", base64.b64decode(encoded, validate=True).hex()) if encoded else None
        return File(entry["path"], int(entry["sizeInBytes"]), checksum)

    def open(self, file: File, start: int) -> http.client.HTTPResponse:
        """Ask for a file, from byte `start` on: its address is signed, and gets no token. Raises Fault and _Passing."""
        answer = self._api(f"{self._files}?{urllib.parse.urlencode({'path': file.path})}")
        with _form_of(self._files):
            address = str(answer["urls"][0])
        try:
            return _open(address, start=start)
        except urllib.error.HTTPError as error:
            error.close()
            raise Fault(f"{self._name}: {file.path}: its address answered HTTP {error.code}") from None

    def _api(self, url: str) -> Any:
        try:
            return _ask(url, self._authorization())
        except urllib.error.HTTPError as error:
            error.close()
            raise self._refused(error.code) from None

    def _authorization(self) -> str:
        """Keys that begin with nvapi- are tokens of the API; older ones are exchanged for one, which soon ends."""
        if self._token is None or self._token.value.startswith("nvapi-"):
            return f"Bearer {self._token.value}" if self._token else ""
        with self._lock:
            if time.monotonic() >= self._until:
                pair = base64.b64encode(f"$oauthtoken:{self._token.value}".encode()).decode()
                query = urllib.parse.urlencode(
                    [("service", "ngc"), *(("scope", one) for one in self._scopes)], safe=":/"
                )
                answer = _ask(f"{self._login}?{query}", f"Basic {pair}")
                with _form_of(self._login):
                    self._bearer = f"Bearer {answer['token']}"
                self._until = time.monotonic() + _BEARER_S
            return self._bearer

    def _refused(self, code: int) -> Fault:
        if code == 412:
            return Fault(f"{self._name}: its terms are not accepted (HTTP 412). Hint: accept them on its page of NGC")
        if code == 404:
            return Fault(f"{self._name}: does not exist in NGC (HTTP 404). Hint: are name and version right?")
        if code in (401, 403) and self._token:
            rule = f"refused the key of {self._token.origin} (HTTP {code})"
            return Fault(f"{self._name}: {rule}. Hint: is it valid, and may its organization download this?")
        if code in (401, 403):
            return Fault(f"{self._name}: needs a key (HTTP {code}). Hint: {_hint_of(None, 'ngc')}")
        return Fault(f"{self._name}: answered HTTP {code}")


def _hexadecimal(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40,64}", text):
        raise ValueError("no checksum")
    return text


def _hint_of(token: Token | None, kind: str) -> str:
    login = "huggingface-cli login" if kind == "hf" else "ngc config set"
    return f"its token is of {token.origin}" if token else f"give --secret ARN, or log in with `{login}`"


# ----------------------------------------------------------------------------------------------------------- the token


def token_of(spec: Mapping[str, Any]) -> Token | None:
    """Return the token of the secret, else that of the user's own login, else None. Raises Fault."""
    secret = spec["secret"]
    value = _of_secret(secret) if secret else _of_login(spec["kind"])
    origin = secret or ("~/.ngc/config" if spec["kind"] == "ngc" else "~/.cache/huggingface/token")
    if value and not _TOKEN.fullmatch(value):
        raise Fault(
            f"{origin}: is no token: one word of letters, digits and +/=_.:,@%^~- is expected. Hint: correct it"
        )
    return Token(value, origin) if value else None


def _of_secret(arn: str) -> str:
    """A secret of Secrets Manager. Its value is only in a pipe: in no argument, variable or file."""
    command = ["aws", "secretsmanager", "get-secret-value", "--secret-id", arn, "--region", arn.split(":")[3]]
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/local/bin"}
    try:
        done = subprocess.run(
            [*command, "--query", "SecretString", "--output", "text"],
            capture_output=True,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_AWS_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"no answer in {_AWS_S} s" if isinstance(error, subprocess.TimeoutExpired) else "no aws command"
        raise Fault(f"{arn}: cannot be read on this node ({reason})") from None
    if done.returncode:
        said = " ".join((done.stderr.strip().splitlines() or ["no message"])[-1].split())
        hint = "the role of this queue's nodes needs secretsmanager:GetSecretValue for it"
        raise Fault(f"{arn}: cannot be read: {said}. Hint: {hint}")
    if not done.stdout.strip():
        raise Fault(f"{arn}: is empty. Hint: put the token into it")
    return done.stdout.strip()


def _of_login(kind: str) -> str:
    """What `huggingface-cli login` or `ngc config set` left for this user."""
    try:
        if kind != "ngc":
            return (Path.home() / ".cache/huggingface/token").read_text("utf-8").strip()
        config = configparser.ConfigParser(interpolation=None)
        config.read(Path.home() / ".ngc/config", "utf-8")
        return config.get("CURRENT", "apikey", fallback="").strip()
    except (OSError, ValueError, RuntimeError, configparser.Error):
        return ""


# --------------------------------------------------------------------------------------------------------- the folder


@dataclass(frozen=True)
class Place:
    """Where the files of a source are: in a plain folder, or as huggingface_hub's cache has them (`plain` false)."""

    folder: Path
    plain: bool
    commit: str

    def final(self, file: File) -> Path:
        """Return the file that has the data."""
        return self.folder / (file.path if self.plain or not file.checksum else f"blobs/{file.checksum[1]}")

    def link(self, file: File) -> None:
        """Put the name of a file of the cache to its data."""
        if self.plain:
            return
        name = self.folder / "snapshots" / self.commit / file.path
        self.make(name.parent)
        target = os.path.relpath(self.final(file), name.parent)
        if not name.is_symlink() or str(name.readlink()) != target:
            part = name.with_name(f"{name.name}{PART}")
            with suppress(FileNotFoundError):
                part.unlink()
            part.symlink_to(target)
            part.replace(name)

    def make(self, folder: Path) -> None:
        """Make a folder of this place. Raises Fault where a link leads to another place."""
        if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(self.folder)):
            raise Fault(f"{folder}: is outside of {self.folder}, by a link: refused. Hint: remove the link")
        folder.mkdir(parents=True, exist_ok=True)

    def is_there(self, file: File) -> bool:
        """Return whether a file was downloaded. A plain one may be of another version or source: it is compared."""
        final = self.final(file)
        with suppress(OSError):
            same = final.stat().st_size == file.size
            return same and (not self.plain or not file.checksum or _digest(file, final) == file.checksum[1])
        return False


def _plain(path: str, flags: int) -> int:
    """Open a file (an `opener`): others may have put a link or a pipe in its place, never followed or waited for."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no plain file", path)
    return descriptor


def _digest(file: File, path: Path) -> str:
    """Return the checksum of what a path has, of the kind that the source states."""
    git = file.checksum is not None and file.checksum[0] == "git"
    digest = hashlib.sha1(f"blob {file.size}\0".encode()) if git else hashlib.sha256()  # noqa: S324 (git)
    with open(path, "rb", opener=_plain) as stream:
        for block in iter(lambda: stream.read(_BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def _part(path: Path) -> Path:
    return path.with_name(path.name + PART)


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def complete(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the note of a download that is whole and whose files are there, None otherwise."""
    folder = Path(spec["folder"])
    try:
        with open(folder / COMPLETE, encoding="utf-8", opener=_plain) as stream:
            note: dict[str, Any] = json.load(stream)
        same = [note[key] for key in ("source", "include")] == [spec["source"], spec["include"]]
        there = all((folder / path).stat().st_size == size for path, size in note["files"].items())
    except (OSError, RecursionError, *_FORM):
        return None
    return note if same and there else None


def _write(path: Path, text: str) -> None:
    part = _part(path)
    with open(part, "w", encoding="utf-8", opener=_plain) as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises Fault if another download has it."""
    with open(folder / LOCK, "a", opener=_plain) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Fault(f"{folder}: another download writes into it. Hint: squeue shows it; wait for it") from None
        except OSError:  # a file system without locks
            print(f"{folder}: this file system has no locks: two downloads at once are not noticed", flush=True)
        yield


# ------------------------------------------------------------------------------------------------------- the download


class Download:
    """The files of one source on their way to one place."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec, self._stop, self._done = spec, threading.Event(), 0
        self._lock = threading.Lock()
        token = token_of(spec)
        self._source: Hub | Ngc = Ngc(spec, token) if spec["kind"] == "ngc" else Hub(spec, token)

    def run(self) -> None:
        """Download what is missing. Raises Fault and OSError."""
        spec, folder = self._spec, Path(self._spec["folder"])
        commit, files = self._source.listing()
        files = self._wanted(files)
        self._place = Place(folder, spec["plain"], commit)
        sizes = {self._place.final(file): file.size for file in files}
        total = sum(sizes.values())
        self._refuse_mixture(files)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            there = list(pool.map(self._place.is_there, files))
        missing = {self._place.final(file): file for file, one in zip(files, there) if not one}
        self._done = total - sum(file.size - _size(_part(final)) for final, file in missing.items())
        self._check_space(total - self._done)
        print(f"{spec['source']}: {len(files)} files, {_gb(total)}; {_gb(self._done)} are there", flush=True)
        self._fetch_all(list(missing.values()), total)
        for file in files:
            self._place.link(file)
        self._check_sizes(files)
        if not spec["plain"] and spec["revision"] != commit:
            reference = folder / "refs" / spec["revision"]
            self._place.make(reference.parent)
            _write(reference, commit)
        names = {str(final.relative_to(folder)): size for final, size in sizes.items()}
        note = {"source": spec["source"], "include": spec["include"], "commit": commit, "files": names}
        _write(folder / COMPLETE, json.dumps(note, indent=1) + "\n")
        print(f"{spec['source']}: complete: {len(files)} files, {_gb(total)} in {folder}", flush=True)

    def _wanted(self, files: list[File]) -> list[File]:
        include, source = self._spec["include"], self._spec["source"]
        wanted = {
            one.path: one for one in files if not include or any(fnmatch.fnmatchcase(one.path, p) for p in include)
        }
        if not wanted:
            raise Fault(f"{source}: no file of its {len(files)} matches {' '.join(include) or 'all'}. Hint: correct it")
        for path in wanted:
            parts = path.split("/")
            if not all(map(_usable, parts)) or any("/".join(parts[:end]) in wanted for end in range(1, len(parts))):
                raise Fault(f"{source}: names a file {path!r}, which cannot be one of its folder: refused")
        return list(wanted.values())

    def _refuse_mixture(self, files: list[File]) -> None:
        """A file without a checksum is known by name and size, which another version may have too. Raises Fault."""
        folder, source, before = Path(self._spec["folder"]), self._spec["source"], ""
        with suppress(FileNotFoundError), open(folder / SOURCE, encoding="utf-8", opener=_plain) as stream:
            before = stream.read(1000)
        if before not in ("", source) and not all(file.checksum for file in files):
            rule = f"has files of {before!r}, and {source} states no checksums that distinguish them"
            raise Fault(f"{folder}: {rule}. Hint: give another folder, or remove this one")
        _write(folder / SOURCE, source)

    def _check_space(self, needed: int) -> None:
        folder = Path(self._spec["folder"])
        system = os.statvfs(folder)
        free = system.f_bavail * system.f_frsize
        if needed > free:
            hint = "make room, or give another folder; what is there is kept"
            raise Fault(f"{folder}: needs {_gb(needed)} more, and {_gb(free)} are free. Hint: {hint}")

    def _check_sizes(self, files: list[File]) -> None:
        wrong = [file.path for file in files if _size(self._place.final(file)) != file.size]
        if wrong:
            raise Fault(f"{self._place.folder}: {wrong[0]} changed meanwhile. Hint: run it again")

    def _fetch_all(self, files: list[File], total: int) -> None:
        began, before = time.monotonic(), self._done
        with ThreadPoolExecutor(AT_ONCE) as pool:
            left = {pool.submit(self._fetch, file) for file in sorted(files, key=lambda one: -one.size)}
            try:
                while left:
                    ended, left = wait(left, _PROGRESS_S, FIRST_EXCEPTION)
                    for one in ended:
                        one.result()
                    rate = (self._done - before) / (time.monotonic() - began)
                    print(f"{_gb(self._done)} of {_gb(total)}, {_gb(rate)}/s", flush=True)
            finally:
                self._stop.set()

    def _fetch(self, file: File) -> None:
        """Download one file. The hash of what a killed program left is computed again from the data itself."""
        if self._stop.is_set():
            return
        final = self._place.final(file)
        part = _part(final)
        self._place.make(final.parent)
        with open(part, "ab", opener=_plain) as stream:
            _tried(lambda: self._receive(file, stream), f"{file.path}: ", self._stop.wait)
            stream.flush()
            os.fsync(stream.fileno())
        self._compare(file, part)
        part.replace(final)

    def _receive(self, file: File, stream: Any) -> None:
        """Append what is missing to a part. Raises _Passing where another try goes on."""
        stream.flush()
        start = stream.seek(0, os.SEEK_END)
        if start > file.size:
            start = self._empty(stream, start)
        if start == file.size:
            return
        with self._source.open(file, start) as answer:
            if start and answer.status != 206:  # the host sends all of it
                start = self._empty(stream, start)
            elif start and not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise Fault(f"{file.path}: the host sent another part of it than was asked for. Hint: run it again")
            for block in _blocks(answer, start, file.size + 1):
                if self._stop.is_set():
                    raise _Stopped
                stream.write(block)
                start += len(block)
                self._count(len(block))
        if start < file.size:
            raise _Passing(f"the answer ended after {start} of {file.size} bytes", start)
        if start > file.size:
            self._empty(stream, start)
            raise Fault(f"{file.path}: is larger than the {file.size} bytes that the source states: not kept")

    def _empty(self, stream: Any, start: int) -> int:
        stream.truncate(0)
        self._count(-start)
        return 0

    def _count(self, size: int) -> None:
        with self._lock:
            self._done += size

    def _compare(self, file: File, part: Path) -> None:
        """Compare a part with the checksum that the source states. Raises Fault."""
        if file.checksum is None:
            return
        (kind, wanted), has = file.checksum, _digest(file, part)
        if has != wanted:
            part.unlink()
            rule = f"its {kind} checksum is {has}, and the source states {wanted}"
            raise Fault(f"{file.path}: {rule}: not kept. Hint: run it again")


def _usable(name: str) -> bool:
    """Return whether a file of the source may have this name: none that leads elsewhere, or that is used here."""
    mine = name.startswith(".slipway-") or name.endswith(PART)
    return name.isprintable() and name not in ("", ".", "..") and not mine and len(name.encode()) <= 255 - len(PART)


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def main(argv: list[str]) -> int:
    """Download what a specification says; 0 if all of it is there."""
    spec = json.loads(Path(argv[0]).read_text("utf-8"))
    folder = Path(spec["folder"])
    try:
        if complete(spec):
            print(f"{spec['source']}: is complete: {folder}")
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            Download(spec).run()
    except Fault as fault:
        print(f"acceptance download: {fault}", file=sys.stderr)
        return 3
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "look at this place, and run it again: it goes on")
        print(
            f"acceptance download: {error.filename2 or error.filename or folder}: {error.strerror}. Hint: {hint}",
            file=sys.stderr,
        )
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
