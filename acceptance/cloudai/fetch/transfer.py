"""The files of one source on their way to one place."""

from __future__ import annotations

import fnmatch
import json
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from acceptance.cloudai.fetch.faults import Fault, Passing, Stopped, gb, tried
from acceptance.cloudai.fetch.hub import Hub
from acceptance.cloudai.fetch.ngc import Ngc
from acceptance.cloudai.fetch.place import (
    COMPLETE,
    PART,
    SOURCE,
    File,
    Place,
    digest_of,
    part_of,
    plain_file,
    size_of,
    write_note,
)
from acceptance.cloudai.fetch.tokens import token_of
from acceptance.cloudai.fetch.web import blocks_of

AT_ONCE = 8  # files at a time, as huggingface_hub does
_PROGRESS_S = 30


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
        self._done = total - sum(file.size - size_of(part_of(final)) for final, file in missing.items())
        self._check_space(total - self._done)
        print(f"{spec['source']}: {len(files)} files, {gb(total)}; {gb(self._done)} are there", flush=True)
        self._fetch_all(list(missing.values()), total)
        for file in files:
            self._place.link(file)
        self._check_sizes(files)
        if not spec["plain"] and spec["revision"] != commit:
            reference = folder / "refs" / spec["revision"]
            self._place.make(reference.parent)
            write_note(reference, commit)
        names = {str(final.relative_to(folder)): size for final, size in sizes.items()}
        note = {"source": spec["source"], "include": spec["include"], "commit": commit, "files": names}
        write_note(folder / COMPLETE, json.dumps(note, indent=1) + "\n")
        print(f"{spec['source']}: complete: {len(files)} files, {gb(total)} in {folder}", flush=True)

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
        with suppress(FileNotFoundError), open(folder / SOURCE, encoding="utf-8", opener=plain_file) as stream:
            before = stream.read(1000)
        if before not in ("", source) and not all(file.checksum for file in files):
            rule = f"has files of {before!r}, and {source} states no checksums that distinguish them"
            raise Fault(f"{folder}: {rule}. Hint: give another folder, or remove this one")
        write_note(folder / SOURCE, source)

    def _check_space(self, needed: int) -> None:
        folder = Path(self._spec["folder"])
        system = os.statvfs(folder)
        free = system.f_bavail * system.f_frsize
        if needed > free:
            hint = "make room, or give another folder; what is there is kept"
            raise Fault(f"{folder}: needs {gb(needed)} more, and {gb(free)} are free. Hint: {hint}")

    def _check_sizes(self, files: list[File]) -> None:
        wrong = [file.path for file in files if size_of(self._place.final(file)) != file.size]
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
                    print(f"{gb(self._done)} of {gb(total)}, {gb(rate)}/s", flush=True)
            finally:
                self._stop.set()

    def _fetch(self, file: File) -> None:
        """Download one file. The hash of what a killed program left is computed again from the data itself."""
        if self._stop.is_set():
            return
        final = self._place.final(file)
        part = part_of(final)
        self._place.make(final.parent)
        with open(part, "ab", opener=plain_file) as stream:
            tried(lambda: self._receive(file, stream), f"{file.path}: ", self._stop.wait)
            stream.flush()
            os.fsync(stream.fileno())
        self._compare(file, part)
        part.replace(final)

    def _receive(self, file: File, stream: Any) -> None:
        """Append what is missing to a part. Raises Passing where another try goes on."""
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
            for block in blocks_of(answer, start, file.size + 1):
                if self._stop.is_set():
                    raise Stopped
                stream.write(block)
                start += len(block)
                self._count(len(block))
        if start < file.size:
            raise Passing(f"the answer ended after {start} of {file.size} bytes", start)
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
        (kind, wanted), has = file.checksum, digest_of(file, part)
        if has != wanted:
            part.unlink()
            rule = f"its {kind} checksum is {has}, and the source states {wanted}"
            raise Fault(f"{file.path}: {rule}: not kept. Hint: run it again")


def _usable(name: str) -> bool:
    """Return whether a file of the source may have this name: it stays in the folder and is not one of ours."""
    mine = name.startswith(".slipway-") or name.endswith(PART)
    return name.isprintable() and name not in ("", ".", "..") and not mine and len(name.encode()) <= 255 - len(PART)
