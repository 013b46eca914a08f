"""A model of NVIDIA's registry.

Source: ngcsdk 4.37.0 (registry/api/models.py, ngcbase/api/authentication.py, ngcbase/transfer/async_download.py: the
addresses, the headers, the codes of errors).
"""

from __future__ import annotations

import base64
import http.client
import threading
import time
import urllib.error
import urllib.parse
from collections.abc import Mapping
from typing import Any

from acceptance.cloudai.fetch.faults import Fault, form_of
from acceptance.cloudai.fetch.place import File
from acceptance.cloudai.fetch.tokens import Token, hint_of
from acceptance.cloudai.fetch.web import ask, open_url

_BEARER_S = 240  # a token of NGC holds five minutes


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
            with form_of(self._list):
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
        """Ask for a file, from byte `start` on: its address is signed, and gets no token. Raises Fault and Passing."""
        answer = self._api(f"{self._files}?{urllib.parse.urlencode({'path': file.path})}")
        with form_of(self._files):
            address = str(answer["urls"][0])
        try:
            return open_url(address, start=start)
        except urllib.error.HTTPError as error:
            error.close()
            raise Fault(f"{self._name}: {file.path}: its address answered HTTP {error.code}") from None

    def _api(self, url: str) -> Any:
        try:
            return ask(url, self._authorization())
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
                answer = ask(f"{self._login}?{query}", f"Basic {pair}")
                with form_of(self._login):
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
            return Fault(f"{self._name}: needs a key (HTTP {code}). Hint: {hint_of(None, 'ngc')}")
        return Fault(f"{self._name}: answered HTTP {code}")
