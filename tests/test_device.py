"""What is asked of the machine at hand."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

from jumok import device
from jumok.device import describe_machine, measure_machine, multiplies_bfloat16, own_random, seed_random

FAULTS = """
import resource, torch
from jumok.device import keeping_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        torch.ones(16 << 20)  # 64 MB, 16,384 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
with keeping_memory(torch.device("cpu")):
    kept = min(faults() for _ in range(20))  # small blocks may take a part of a gap first, until gaps fit
print(given_back, kept, faults())
"""


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone gives memory back so readily")
def test_memory_that_is_kept_is_not_cleared_again() -> None:
    """In a process of its own, for it holds for the whole process: as long as a block lasts, and no longer."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    given_back, kept, afterwards = map(int, done.stdout.split())
    if given_back < 16_384:
        pytest.skip("this C library, or huge pages, keep the memory anyway")
    assert kept < 1_000
    assert afterwards > 16_384


def asked(**variables: str) -> str:
    """What a new process says of bfloat16, with these variables in its environment."""
    code = "import torch; from jumok.device import multiplies_bfloat16 as f; print(f(torch.device('cpu')))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **variables}
    )
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the variables are for x86")
def test_a_processor_is_asked_as_it_may_be_used() -> None:
    """The processor may have the instructions, and oneDNN, which computes the products, may not use them."""
    assert hasattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")  # otherwise another way to ask must be found
    assert asked(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2") == "False"
    if multiplies_bfloat16(torch.device("cpu")):
        assert asked() == "True"
    assert multiplies_bfloat16(torch.device("cuda"))  # GPUs are measured, as before


def test_a_product_that_is_emulated_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`jumok bench` multiplied 1024 columns ten times, which takes a minute on a processor without bfloat16."""
    monkeypatch.setattr(device, "multiplies_bfloat16", lambda _: False)
    products: list[torch.dtype] = []
    multiply = torch.Tensor.__matmul__

    def counted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        products.append(a.dtype)
        return multiply(a[:8, :8], b[:8])

    monkeypatch.setattr(torch.Tensor, "__matmul__", counted)
    found = measure_machine(torch.device("cpu"))
    assert found["bfloat16_gflops"] is None
    assert set(products) == {torch.float32}


def test_another_gpu_of_the_same_kind_is_the_same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in two processes that went on in one was told that the machine had changed, from cuda:0 to cuda."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    before, now = (describe_machine(torch.device(name)) for name in ("cuda:0", "cuda"))
    assert device.differences(before, now) == []


def test_a_generator_of_random_numbers_goes_on_where_it_was() -> None:
    cpu = torch.device("cpu")
    torch.manual_seed(3)
    wanted = torch.rand(3)
    torch.manual_seed(3)
    with own_random(cpu):
        seed_random(cpu, 1)
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), wanted)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), inside)
