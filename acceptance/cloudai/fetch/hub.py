"""A repository of Hugging Face.

Source: huggingface_hub 2.4.0 (hf_api.py, file_download.py, utils/_http.py: the addresses, the headers, the layout of
the cache, the codes of errors).
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.parse
from collections.abc import Mapping
from typing import Any

from acceptance.cloudai.fetch.faults import Fault, form_of
from acceptance.cloudai.fetch.place import File
from acceptance.cloudai.fetch.tokens import Token, hint_of
from acceptance.cloudai.fetch.web import ask, open_url


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
            answer = ask(self._list, self._authorization())
        except urllib.error.HTTPError as error:
            raise self._refused(error, "") from None
        with form_of(self._list):
            self._commit = _hexadecimal(answer["sha"])
            return self._commit, [self._file(one) for one in answer["siblings"]]

    def _file(self, entry: Mapping[str, Any]) -> File:
        large = entry.get("lfs")
        checksum = ("sha256", large["sha256"]) if large else ("git", entry["blobId"])
        return File(entry["rfilename"], int(entry["size"]), (checksum[0], _hexadecimal(checksum[1])))

    def open(self, file: File, start: int) -> http.client.HTTPResponse:
        """Ask for a file, from byte `start` on. Raises Fault and Passing."""
        try:
            return open_url(
                f"{self._files}/{self._commit}/{urllib.parse.quote(file.path)}", self._authorization(), start
            )
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
            return Fault(f"{name}: {what}. Hint: ask for access on its page; {hint_of(self._token, 'hf')}")
        if error.code == 401 and self._token:
            return Fault(f"{name}: refused the token of {self._token.origin} (HTTP 401). Hint: is it valid?")
        if error.code in (401, 404):
            hint = f"is the name right? {hint_of(self._token, 'hf')}"
            return Fault(f"{name}: does not exist, or is private (HTTP {error.code}). Hint: {hint}")
        return Fault(f"{name}: answered HTTP {error.code}{f' for {path}' if path else ''}")


def _hexadecimal(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40,64}", text):
        raise ValueError("no checksum")
    return text
