"""Running measurements through Slurm."""

from __future__ import annotations

from acceptance.runner.follow import Follower, JobOutcome
from acceptance.runner.slurm import JobInfo, Node, Slurm, submit_argv
from acceptance.runner.stop import Stop

__all__ = ["Follower", "JobInfo", "JobOutcome", "Node", "Slurm", "Stop", "submit_argv"]
