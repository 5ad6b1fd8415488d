"""A computation graph of ONNX, built one operation at a time.

Operators: https://onnx.ai/onnx/operators/. Values are named by strings, as in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

OPSET = 20  # the first with Gelu; onnxruntime 1.17 and newer

Shape = Sequence[str | int]


class Graph:
    """A graph that grows.

    Args:
        model: its parameters keep their names.
    """

    def __init__(self, model: nn.Module) -> None:
        self._names = {id(tensor): name for name, tensor in model.named_parameters()}
        self._nodes: list[onnx.NodeProto] = []
        self._stored: dict[str, TensorProto] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    # --- values -----------------------------------------------------------------------------------------------------

    def input(self, name: str, shape: Shape, *, ids: bool = False) -> str:
        """Add an input of float32, or of int64."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64 if ids else TensorProto.FLOAT, shape))
        return name

    def output(self, name: str, value: str, shape: Shape) -> None:
        """Make a value an output, of float32, under another name."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def constant(self, value: float | Sequence[int] | NDArray[np.generic]) -> str:
        """Return a constant: float32, or int64 of whole numbers. Equal ones are stored once."""
        array = np.asarray(value)
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        key = (array.dtype.kind, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = f"constant_{len(self._constants)}"
            self._stored[name] = numpy_helper.from_array(array, name)
        return self._constants[key]

    def parameter(self, tensor: Tensor) -> str:
        """Return a parameter of the model, as float32. A shared one is stored once."""
        name = self._names[id(tensor)]
        if name not in self._stored:
            array = tensor.detach().to("cpu", torch.float32).contiguous().numpy()
            self._stored[name] = numpy_helper.from_array(array, name)
        return name

    # --- operations -------------------------------------------------------------------------------------------------

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation with one result; return it."""
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, results: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add an operation with several results; return them."""
        made = [f"{kind}_{len(self._nodes)}_{i}" for i in range(results)]
        self._nodes.append(helper.make_node(kind, inputs, made, **attributes))
        return made

    def size(self, value: str, axis: int) -> str:
        """Return the size of a dimension, (1,)."""
        return self.add("Shape", value, start=axis, end=axis + 1)

    def scalar(self, value: str) -> str:
        """(1,) -> ()."""
        return self.add("Squeeze", value)

    def span(self, start: str, stop: str) -> str:
        """Return the whole numbers from `start` to before `stop`, both (1,)."""
        one = self.scalar(self.constant([1]))
        return self.add("Range", self.scalar(start), self.scalar(stop), one)

    def cast(self, value: str, kind: int) -> str:
        """Convert the type of a value to one of TensorProto."""
        return self.add("Cast", value, to=kind)

    # --- the file ---------------------------------------------------------------------------------------------------

    def finished(self, version: str, facts: Mapping[str, str]) -> onnx.ModelProto:
        """Return the model with its parameters.

        Args:
            version: of jumok.
            facts: go into the metadata.
        """
        graph = helper.make_graph(self._nodes, "jumok", self._inputs, self._outputs, list(self._stored.values()))
        made = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=9,  # that of opset 20
            producer_name="jumok",
            producer_version=version,
        )
        helper.set_model_props(made, dict(facts))
        return made
