"""What became of every value of an imported file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

from slipway.settings.source import Place, path_text


class Fate(StrEnum):
    """What became of a value: it is in the settings, Slipway writes it anyway, it is to be filled in, or nothing."""

    CARRIED = "carried"
    IMPLIED = "implied"
    TO_FILL = "to-fill"
    NOT_CARRIED = "not-carried"


@dataclasses.dataclass
class Entry:
    """One decision. ``path`` is a value of the file or a part with several; ``to`` the key of the settings, if any."""

    path: Place
    fate: Fate
    text: str = ""
    to: Place = ()


class Ledger:
    """Every leaf of the file (path -> value) and what became of it. The first decision about a leaf stays.

    ``spell`` writes a path the way the file's own documentation does.
    """

    def __init__(self, leaves: dict[Place, Any], spell: Callable[[Place], str] = path_text) -> None:
        self.leaves = leaves
        self.entries: list[Entry] = []
        self.spell = spell
        self._decided: dict[Place, Entry] = {}

    def decide(self, path: Place, fate: Fate, text: str = "", to: Place = ()) -> None:
        """Say what became of every leaf at or below ``path`` that is not decided yet."""
        entry = Entry(path, fate, text, to)
        open_leaves = [leaf for leaf in self.below(path) if leaf not in self._decided]
        for leaf in open_leaves:
            self._decided[leaf] = entry
        if open_leaves:
            self.entries.append(entry)

    def add(self, fate: Fate, text: str, to: Place) -> None:
        """An entry about what the settings need and the file does not have."""
        self.entries.append(Entry((), fate, text, to))

    def below(self, path: Place) -> Iterator[Place]:
        """The leaves at or below ``path``."""
        if path in self.leaves:  # nothing is below a leaf, and most decisions are about one
            return iter((path,))
        return (leaf for leaf in self.leaves if leaf[: len(path)] == path)

    def rest(self) -> list[Place]:
        """The leaves that nothing was decided about."""
        return [leaf for leaf in self.leaves if leaf not in self._decided]

    def take_back(self, to: Place, text: str) -> None:
        """What was carried to ``to`` or below is not in the settings after all; later items of its list move up."""
        taken = [entry for entry in self.entries if entry.to[: len(to)] == to and entry.fate is not Fate.NOT_CARRIED]
        for entry in taken:
            entry.fate, entry.text, entry.to = Fate.NOT_CARRIED, text, ()
        if not taken:
            self.entries.append(Entry((), Fate.NOT_CARRIED, text, to))
        if isinstance(to[-1], int):
            for entry in self.entries:
                entry.to = moved_up(entry.to, to)

    def of(self, *fates: Fate) -> list[Entry]:
        """The entries with one of these fates, in the order of the file, others after them."""
        order = {leaf: number for number, leaf in enumerate(self.leaves)}
        return sorted(
            (entry for entry in self.entries if entry.fate in fates),
            key=lambda entry: min((order[leaf] for leaf in self.below(entry.path)), default=len(order)),
        )

    def names(self, entry: Entry) -> str:
        """Where the entry is about: the path in the file, or the key of the settings."""
        return self.spell(entry.path) if entry.path else path_text(entry.to)


def moved_up(path: Place, removed: Place) -> Place:
    """``path`` after the list item at ``removed`` is gone."""
    last = len(removed) - 1
    if len(path) <= last or path[:last] != removed[:last]:
        return path
    here, gone = path[last], removed[last]
    if not isinstance(here, int) or not isinstance(gone, int) or here < gone:
        return path
    return (*path[:last], here - 1, *path[last + 1 :])
