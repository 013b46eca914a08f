"""Known causes of failures: the table causes.json, and finding its rows in the lines of a log."""

from acceptance.causes.collect import CauseReader, Finding, nccl_version
from acceptance.causes.table import Cause, cause_of, known_causes

__all__ = ["Cause", "CauseReader", "Finding", "cause_of", "known_causes", "nccl_version"]
