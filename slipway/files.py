"""Files for the user: written completely or not at all, and never in place of another without `--force`."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from slipway.errors import SlipwayError, UsageError
from slipway.text import visible


def refuse_existing(path: Path | None, force: bool) -> None:
    """Raise UsageError if `path` is no file, its folder does not exist, or it exists and `force` is not given.

    A device such as /dev/null is refused too: root would replace it by a file.
    """
    if path is None:
        return
    try:
        other, exists = path.exists() and not path.is_file(), path.exists() or path.is_symlink()
    except (OSError, ValueError) as error:  # a name that is too long, or with a null byte
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--output {path}: cannot be a file: {reason}. Hint: another --output") from None
    if not path.name or other:
        raise UsageError(f"--output {path or repr('')}: is not a file. Hint: name the file to write")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}. Hint: mkdir -p {shlex.quote(str(path.parent))}")
    if not force and exists:
        raise UsageError(f"{path}: exists already. Hint: --force replaces it, or name another --output")


def write_whole(path: Path, text: str, *, force: bool = False) -> None:
    """Write `path` completely or not at all. Raises UsageError for an existing file, SlipwayError if it fails."""
    refuse_existing(path, force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    except OSError as error:
        raise SlipwayError(f"{path}: cannot be written: {error.strerror}. Hint: another --output") from None
    finally:
        remove(temporary)


def remove(path: Path) -> None:
    """Delete `path` if it exists. Errors are ignored: if it cannot be reached, this program did not create it."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def write_folder(folder: Path, texts: Mapping[str, str], mark: str, *, force: bool = False) -> None:
    """Write `texts`, by their names in `folder`, in one step: all of them or none. Each file begins with `mark`.

    With `force` they replace a folder whose files all begin with `mark`. Raises UsageError for any other folder that is
    not empty, SlipwayError if it fails.
    """
    made = [parent for parent in folder.parents if not parent.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(folder)
        _refuse_folder(folder, mark, force)
        part, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{end}") for end in ("part", "old"))
        try:
            for name, text in texts.items():
                path = part / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(mark + text.removeprefix(mark), encoding="utf-8", newline="\n")
            if folder.exists():
                folder.rename(old)  # if this process is killed here, the next one puts it back
            part.rename(folder)
        finally:
            _put_back(old, folder)
            for left in (part, old):
                shutil.rmtree(left, ignore_errors=True)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        for parent in made:  # the nearest first; one that has become another's stays
            with contextlib.suppress(OSError, ValueError):
                parent.rmdir()
        reason = getattr(error, "strerror", None) or error
        raise SlipwayError(f"{folder}: cannot be written: {reason}. Hint: name another folder") from None


def _refuse_folder(folder: Path, mark: str, force: bool) -> None:
    """Raise UsageError at the first thing that no export wrote: a large folder is not read to its end."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder}: is not a folder. Hint: name another one")
    for where, folders, names in os.walk(folder, onerror=_raise) if folder.exists() else ():
        if (folders or names) and not force:
            hint = "--force replaces an export, or name another folder"
            raise UsageError(f"{folder}: exists and is not empty. Hint: {hint}")
        links = (name for name in folders if Path(where, name).is_symlink())
        for path in (Path(where, name) for name in sorted((*names, *links))):
            if not _begins_with(path, mark):
                name = visible(str(path.relative_to(folder)))
                raise UsageError(f"{folder}: has {name}, which no export wrote. Hint: name another folder")


def _raise(error: OSError) -> None:
    raise error


def _begins_with(path: Path, mark: str) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(mark.encode())) == mark.encode()


def _put_back(old: Path, folder: Path) -> None:
    """Give an earlier folder its name back, where no new one came into its place."""
    if old.exists() and not folder.exists():
        old.rename(folder)


def _remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left of their attempts to write `folder`, and put back what they had moved away."""
    for path in folder.parent.glob(f".{glob.escape(folder.name)}.*"):
        match = re.fullmatch(r"([0-9]+)\.(part|old)", path.name.removeprefix(f".{folder.name}."))
        if match and not _is_running(int(match[1])):
            if match[2] == "old":
                _put_back(path, folder)
            shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True
