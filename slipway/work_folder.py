"""Names that `slipway rehearse` and the engine, which it starts, share: of the rehearsal's work folder and in it."""

from __future__ import annotations

WORK_PREFIX = "slipway-"  # of the folder's name
GROUP_PREFIX = "slipway-rehearsal-"  # of the hosts' control groups; the end of the work folder's name follows
END_FILE = "ended"  # the engine wrote its result
OUTPUT_FILE = "output"  # where the engine writes the reports and logs
SHELL_FILE = "shell.json"  # the engine waits for a shell on the head node: its command line
