"""What is asked of the machine at hand."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from jumok.device import keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        torch.ones(16 << 20)  # 64 MB, 16,384 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
keep_memory()
faults()
print(given_back, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone gives memory back so readily")
def test_memory_that_is_kept_is_not_cleared_again() -> None:
    """In a process of its own, for it holds for the whole process."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    given_back, kept = map(int, done.stdout.split())
    if given_back < 16_384:
        pytest.skip("this C library, or huge pages, keep the memory anyway")
    assert kept < 1_000
