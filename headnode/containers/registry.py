"""Ask a registry for an image: the digest of its manifest, and its layers with their sizes in bytes.

enroot's master has `enroot digest`: this file can go when ParallelCluster's image ships a release with it.

The distribution protocol: https://distribution.github.io/distribution/spec/api/ (read 2026-11). The answer to a
request without credentials names the server that issues tokens; the credentials are those of that server, as for
curl with a netrc file, which is what enroot uses.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headnode.containers.credentials import Credential, of_registry
from headnode.containers.images import Image

TIMEOUT_S = 30
TRIES = 3
# Registries need not take larger manifests (OCI distribution specification 1.1, "Pushing Manifests"); a configuration
# has some 50 kB.
LARGEST_ANSWER = 4 << 20
DOCKER_FORMS = (
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
OCI_FORMS = ("application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json")
ACCEPT = ", ".join((*DOCKER_FORMS, *OCI_FORMS))
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class RegistryError(Exception):
    """Why a registry gave no manifest: one line for the user. `final`: another try changes nothing."""

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


@dataclass(frozen=True)
class Manifest:
    """An image as the registry has it now.

    `layers`: digest (hexadecimal, config included) -> compressed bytes; `zstd`: a layer is compressed with zstd.
    """

    digest: str
    layers: Mapping[str, int]
    zstd: bool

    @property
    def size(self) -> int:
        """Bytes to fetch when nothing of the image is here yet."""
        return sum(self.layers.values())


def manifest(image: Image, credentials: Mapping[str, Credential], known: str = "") -> Manifest:
    """Return the manifest of an image for this machine's architecture; tries again what may pass.

    `known`: the digest of the file that is here: the registry is not asked for that one's architecture.
    Raises RegistryError if the registry refuses, has it for other architectures only, or does not answer in time.
    """
    for left in reversed(range(TRIES)):
        try:
            return _Client(image, credentials).manifest(known)
        except RegistryError as error:
            if error.final or not left:
                raise
            time.sleep(TRIES - left)
    raise AssertionError("unreachable")


def digest(image: Image, credentials: Mapping[str, Credential]) -> str:
    """Return the digest that the tag names now; empty if the registry states none. Raises RegistryError as above."""
    return _Client(image, credentials).digest()


def machine() -> str:
    """Return this machine's architecture as registries name it."""
    return _ARCHITECTURES.get(os.uname().machine, os.uname().machine)


class _Client:
    """One image's conversation with its registry."""

    def __init__(self, image: Image, credentials: Mapping[str, Credential]) -> None:
        self._image = image
        self._credentials = of_registry(image.registry, credentials)
        self._authorization = ""
        scheme = "http" if _plain_http(image.registry) else "https"
        self._base = f"{scheme}://{image.registry}/v2/{image.repository}"

    def digest(self) -> str:
        """Ask what the tag is now."""
        return self._ask(f"manifests/{self._image.reference}", "HEAD")[0]

    def manifest(self, known: str) -> Manifest:
        # HEAD first: the digest is the registry's own word for what the tag is now.
        digest = self.digest()
        found_digest, body = self._ask(f"manifests/{digest or self._image.reference}", "GET")
        digest = digest or found_digest
        try:
            if body.get("manifests"):
                body = self._ask(f"manifests/{self._for_this_machine(body['manifests'])}", "GET")[1]
            elif digest != known:
                self._refuse_other_machine(body["config"])
            parts = [body["config"], *body["layers"]]
            layers = {str(part["digest"]).rpartition(":")[2]: int(part.get("size", 0)) for part in parts}
            zstd = any("zstd" in str(part.get("mediaType", "")) for part in parts)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._error("answered with a manifest of a form that is not known here", final=True) from None
        return Manifest(digest, layers, zstd)

    def _for_this_machine(self, entries: list[dict[str, Any]]) -> str:
        platforms = [(entry.get("platform") or {}).get("architecture", "") for entry in entries]
        if machine() in platforms:
            return str(entries[platforms.index(machine())]["digest"])
        # The entries of signatures and build records are for "unknown".
        raise self._other_machine(sorted({str(one) for one in platforms} - {"", "unknown"}))

    def _refuse_other_machine(self, config: Mapping[str, Any]) -> None:
        """Compare the architecture in a plain manifest's configuration, if the registry gives it, with this machine's.

        A registry that does not is no reason to refuse: the import shows the architecture too.
        """
        if int(config.get("size", 0)) > LARGEST_ANSWER:
            return
        try:
            built_for = self._ask(f"blobs/{config['digest']}", "GET")[1].get("architecture")
        except RegistryError:
            return
        if built_for and built_for != machine():
            raise self._other_machine([str(built_for)])

    def _other_machine(self, architectures: list[str]) -> RegistryError:
        has = " and ".join(architectures) or "no architecture that it names"
        return self._error(
            f"has {self._image.repository}:{self._image.reference} for {has} only, and this node is {machine()}: "
            f"name a tag or digest for {machine()} in the list",
            final=True,
        )

    def _ask(self, path: str, method: str) -> tuple[str, dict[str, Any]]:
        """Return the digest the registry states, and the parsed body (empty for HEAD)."""
        url = f"{self._base}/{path}"
        try:
            return self._request(url, method)
        except urllib.error.HTTPError as error:
            if error.code != 401 or self._authorization:
                raise self._refused(error.code) from None
            self._authorize(error.headers.get("WWW-Authenticate", ""))
        try:
            return self._request(url, method)
        except urllib.error.HTTPError as error:
            raise self._refused(error.code) from None

    def _request(self, url: str, method: str, authorization: str = "") -> tuple[str, dict[str, Any]]:
        request = urllib.request.Request(url, method=method, headers={"Accept": ACCEPT, "User-Agent": "slipway"})  # noqa: S310
        # Unredirected: where the registry sends us to must not see the token.
        if authorization or self._authorization:
            request.add_unredirected_header("Authorization", authorization or self._authorization)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310  (http only for loopback)
                text = _read(answer)
                body = json.loads(text) if text else {}
                if not isinstance(body, dict):
                    raise ValueError("no JSON object")
                return answer.headers.get("Docker-Content-Digest", ""), body
        except urllib.error.HTTPError:
            raise
        except ssl.SSLError as error:
            raise self._error(f"has a certificate that is not trusted here ({error.reason})", final=True) from None
        except TimeoutError:
            raise self._error(f"did not answer within {TIMEOUT_S} s", final=False) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, (socket.timeout, TimeoutError)):
                raise self._error(f"did not answer within {TIMEOUT_S} s", final=False) from None
            raise self._error(f"cannot be reached ({error.reason})", final=False) from None
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise self._error(f"broke off or did not answer in JSON ({error})", final=False) from None

    def _authorize(self, challenge: str) -> None:
        """Get what the registry asks for in its answer 401."""
        scheme = challenge.partition(" ")[0].lower()
        if scheme == "basic":
            self._authorization = self._basic(self._image.registry)
            if not self._authorization:
                raise self._refused(401)
            return
        asked = dict(_PARAMETER.findall(challenge))
        realm = urllib.parse.urlsplit(asked.pop("realm", ""))
        # "nvcr.io:@elsewhere" is not a place at nvcr.io.
        if scheme != "bearer" or realm.scheme not in ("https", "http") or not realm.hostname or "@" in realm.netloc:
            raise self._error(f"asks for an unknown kind of login ({scheme or 'none'})", final=True)
        if realm.scheme == "http" and not _plain_http(realm.netloc):
            raise self._error("asks to send the key to a place without encryption: refused", final=True)
        asked.setdefault("scope", f"repository:{self._image.repository}:pull")
        query = "&".join(filter(None, (realm.query, urllib.parse.urlencode(asked))))
        try:
            url = urllib.parse.urlunsplit(realm._replace(query=query))
            answer = self._request(url, "GET", self._basic(realm.netloc))[1]
        except urllib.error.HTTPError as error:
            raise self._refused(error.code) from None
        self._authorization = f"Bearer {answer.get('token') or answer.get('access_token') or ''}"

    def _basic(self, place: str) -> str:
        credential = self._credentials.get(place.partition(":")[0])
        if credential is None:
            return ""
        pair = f"{credential.user}:{os.environ[credential.variable]}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def _refused(self, code: int) -> RegistryError:
        if code in (401, 403):
            if self._image.registry.partition(":")[0] in self._credentials:
                return self._error(
                    f"refused the key (HTTP {code}): is it right, not expired, and allowed to pull this image?",
                    final=True,
                )
            return self._error(
                f"wants a key (HTTP {code}), and no key is set for it: see ngc_secret_arn, or NGC_API_KEY", final=True
            )
        if code == 404:
            what = f"{self._image.repository}:{self._image.tag}"
            return self._error(f"has no {self._image.digest or what} (HTTP 404): are name and tag right?", final=True)
        return self._error(f"answered HTTP {code}", final=code < 500 and code != 429)

    def _error(self, what: str, *, final: bool) -> RegistryError:
        return RegistryError(f"the registry {self._image.registry} {what}", final=final)


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Return a body of LARGEST_ANSWER bytes at most. Raises TimeoutError if all of it takes longer than TIMEOUT_S."""
    end, text = time.monotonic() + TIMEOUT_S, b""
    while len(text) < LARGEST_ANSWER and (part := answer.read1(1 << 16)):
        text += part
        if time.monotonic() > end:
            raise TimeoutError
    return text


def _plain_http(place: str) -> bool:
    """Whether to speak http: only with ENROOT_ALLOW_HTTP, as enroot does, and here only with this machine itself."""
    host = place.partition(":")[0]
    allowed = os.environ.get("ENROOT_ALLOW_HTTP", "").lower() in ("y", "yes", "true", "1")
    return allowed and (host == "localhost" or host.startswith("127."))
