"""Stand-in sources of NCCL, its plugin and its tests (see make.py)."""
