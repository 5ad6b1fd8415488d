"""How many processors there are to use."""

from __future__ import annotations

import os


def processors() -> int:
    """The processors that this process may use, `os.process_cpu_count` of Python 3.13."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
