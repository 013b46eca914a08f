"""How much memory a rehearsal takes: the sum over all its processes, sampled while it runs."""

from __future__ import annotations

import re
import shutil
import threading
import time
from pathlib import Path

INTERVAL_S = 3.0  # at least
CPU_SHARE = 0.02
"""At most, of one CPU: the kernel walks all pages of all processes, which takes 0.2 s for a fleet."""
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
        pause_s = INTERVAL_S
        while not self._stop.wait(pause_s):
            begin = time.thread_time()
            self.peak_mb = max(self.peak_mb, total_pss_mb() + self._files_mb())
            pause_s = max(INTERVAL_S, (time.thread_time() - begin) / CPU_SHARE)

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
