"""How much memory a rehearsal takes: the sum over all its processes, sampled while it runs."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

INTERVAL_S = 3.0
PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


class MemoryWatch:
    """Samples the proportional set size of every process that /proc shows, and the files in `files`, until `stop`.

    Meant for its own pid namespace, where /proc shows the rehearsal's processes and no others. `files` is where
    a memory file system is mounted during the rehearsal.
    """

    def __init__(self, files: Path) -> None:
        self.peak_mb = 0
        self._files = files
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="memory")

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> None:
        """End sampling."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self.peak_mb = max(self.peak_mb, total_pss_mb() + self._files_mb())

    def _files_mb(self) -> int:
        return shutil.disk_usage(self._files).used // 1_000_000 if self._files.is_mount() else 0


def total_pss_mb() -> int:
    """Proportional set size of all processes in MB."""
    total_kib = 0
    for rollup in Path("/proc").glob("[0-9]*/smaps_rollup"):
        try:
            match = PSS.search(rollup.read_text(encoding="ascii", errors="replace"))
        except OSError:
            continue  # it ended meanwhile
        total_kib += int(match[1]) if match else 0
    return total_kib * 1024 // 1_000_000
