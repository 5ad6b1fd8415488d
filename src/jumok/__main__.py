"""`python -m jumok` is the same as `jumok`; torchrun starts it as `torchrun -m jumok`."""

import os

from jumok.cli import main

if "RANK" in os.environ:  # PyTorch's warnings about a lost connection are pages of C++ frames
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
main()
