"""The images that a list names: lines of `docker://REGISTRY#NAME:TAG` or `docker://REGISTRY/NAME:TAG`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCKER_HUB = "registry-1.docker.io"
_REGISTRY = r"[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?"
# Source: github.com/distribution/reference, the grammar of names.
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_LINE = re.compile(
    rf"docker://(?:(?P<hash>{_REGISTRY})\#|(?P<slash>(?:[^/#]*[.:][^/#]*|localhost))/)?"
    rf"(?P<name>{_COMPONENT}(?:/{_COMPONENT})*)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.VERBOSE,
)
RULE = "not docker://REGISTRY/NAME:TAG"


@dataclass(frozen=True)
class Image:
    """One image of the list. `line` is the text of its line."""

    line: str
    registry: str
    repository: str
    tag: str
    digest: str

    @property
    def reference(self) -> str:
        """The reference to ask the registry for: the digest if the line names one, else the tag."""
        return self.digest or self.tag

    @property
    def stem(self) -> str:
        """The file's name without its suffix, such as `nvcr.io_nvidia_pytorch-24.01-py3`."""
        name = re.sub(r"[/#]", "_", self.line[len("docker://") :])
        return re.sub(r"[:@]", "-", name)

    @property
    def enroot_uri(self) -> str:
        """Return the reference as every enroot understands it: `#` after the registry; a slash needs enroot 4.0.

        A digest takes the place of the tag: enroot 3 does not know `@`, and asks for the text after the colon.
        """
        hub = self.registry == DOCKER_HUB
        return f"docker://{'' if hub else self.registry + '#'}{self.repository}:{self.reference}"

    @property
    def apptainer_uri(self) -> str:
        """The form of Docker's own tools."""
        registry = "docker.io" if self.registry == DOCKER_HUB else self.registry
        separator = "@" if self.digest else ":"
        return f"docker://{registry}/{self.repository}{separator}{self.reference}"


def parse(line: str) -> Image:
    """Return the image of one line.

    Raises ValueError if the line is not a reference to an image; the text is the rule.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(RULE)
    registry = match["hash"] or match["slash"] or DOCKER_HUB
    if not re.fullmatch(_REGISTRY, registry):
        raise ValueError(RULE)
    if registry in ("docker.io", "index.docker.io"):
        registry = DOCKER_HUB
    name = match["name"]
    if registry == DOCKER_HUB and "/" not in name:
        name = f"library/{name}"
    return Image(line, registry, name, match["tag"] or "latest", match["digest"] or "")


def read_list(file: Path) -> tuple[list[Image], list[str]]:
    """Return the images of a list in its order, each once, and one warning for each line that was left out.

    Empty lines and comments ("#" at the start or after a blank) are skipped.

    Raises OSError if the list cannot be read.
    """
    images: dict[str, Image] = {}
    warnings: list[str] = []
    for number, raw in enumerate(file.read_text(encoding="utf-8-sig", errors="replace").splitlines(), start=1):
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        if not line:
            continue
        try:
            image = parse(line)
        except ValueError as error:
            warnings.append(f"{file}:{number}: {line!a}: {error}; left out")
            continue
        if image.stem in images:
            warnings.append(f"{file}:{number}: {line!a}: is there already in another line; left out")
            continue
        images[image.stem] = image
    return list(images.values()), warnings
