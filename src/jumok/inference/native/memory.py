"""NumPy arrays whose first number is at an address that suits the vectors of step.cpp."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LINE = 64  # bytes of a line of the cache; a vector across two lines is loaded at half the speed


def empty(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array with arbitrary numbers."""
    return _aligned(np.empty, shape, dtype)


def zeros(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array of zeros."""
    return _aligned(np.zeros, shape, dtype)


def _aligned(make: Any, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = make(size + LINE, np.uint8)
    first = -memory.ctypes.data % LINE
    return memory[first : first + size].view(dtype).reshape(shape)
