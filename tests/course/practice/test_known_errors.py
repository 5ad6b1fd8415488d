"""Errors of readers' code: each explanation is reached by code that raises the error with this version of torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumok.course.practice.earlier import load
from jumok.course.practice.known_errors import TEXTS, explained, line_of
from jumok.course.words import read_toml

CODE = {  # part of the message -> code whose last line raises it
    "view size is not compatible": "torch.ones(2, 3).T.view(6)",
    "before Module.__init__() call": "class A(nn.Module):\n    def __init__(self): self.a = nn.Linear(2, 2)\nA()",
    "is invalid for input of size": "torch.ones(2, 3).view(4, 2)",
    "shapes cannot be multiplied": "nn.Linear(4, 2)(torch.ones(2, 3))",
    "Expected size for first two dimensions of batch2": "torch.ones(2, 3, 4) @ torch.ones(2, 3, 4)",
    "only supports boolean masks": "torch.ones(2).masked_fill(torch.ones(2), 0.0)",
    "only implemented on integer and Boolean-type tensors": "~torch.ones(2)",
    "softmax() missing 1 required positional arguments": "torch.ones(2).softmax()",
    "must match the size of tensor b": "torch.ones(2, 3) + torch.ones(2, 4)",
    "modified by an inplace operation": "x = torch.ones(2, requires_grad=True).exp()\nx += 1\nx.sum().backward()",
    "a leaf Variable that requires grad is being used in an in-place": "x = nn.Parameter(torch.ones(2))\nx -= 1",
    "sqrt(): argument 'input'": "torch.sqrt(2)",
    "but got float": "torch.ones(6).view(2, 6 / 2)",
    "'NoneType' object": "None.shape",
    "Module [ModuleList] is missing": "nn.ModuleList()(1)",
    "required positional argument": "nn.Linear(2)",
    "unexpected keyword argument": "nn.Linear(2, 2, width=3)",
    "values to unpack": "B, T, C = torch.ones(2, 3).shape",
    "to be on the same device": "raise RuntimeError('Expected all tensors to be on the same device, cuda:0 and cpu')",
    "is not on the expected device": "torch.ones(2) + torch.ones(2, device='meta')",
    "must be Tensor, not": "torch.relu(nn.ReLU)",
    "argument #1 'indices'": "nn.Embedding(3, 2)(torch.ones(2))",
    "object is not subscriptable": "nn.Embedding(3, 2)[0]",
    "Expected floating point type for target": "F.cross_entropy(torch.ones(2, 3), torch.ones(2, 3).long())",
    "'Tensor' object is not callable": "torch.ones(3, 2)(0)",
    "out of bounds for dimension": "torch.ones(2, 3)[2]",
    "index out of range in self": "nn.Embedding(3, 2)(torch.tensor(3))",
    'is missing the required "forward"': "nn.Module()(1)",
    "NameError: name": "width",
    "can be converted to Python scalars": "import math\nmath.exp(torch.ones(2))",
    "cannot be converted to Scalar": "torch.ones(2).item()",
    "Boolean value of Tensor with more than one value": "torch.ones(2) and torch.ones(2)",
    "'Tensor' object has no attribute 'append'": "torch.ones(2).append(1)",
    "'Tensor' object has no attribute 'extend'": "torch.ones(2).extend([1])",
    "object has no attribute": "nn.Module().heads",
    "torch.return_types.": "torch.ones(2, 3) - torch.ones(2, 3).max(dim=1)",
    "bitwise_xor": "torch.ones(2) ^ 2",
    "Tensors must have same number of dimensions": "torch.cat([torch.ones(2, 3), torch.ones(2)])",
    "Sizes of tensors must match except in dimension": "torch.cat([torch.ones(2, 3), torch.ones(2, 4)])",
    "does not require grad and does not have a grad_fn": "torch.ones(2).sum().backward()",
    "No module named 'jumok.lessons'": "from jumok.lessons.practice import mine",
    "can't allocate memory": "torch.zeros(10**15)",
}


KNOWN = {part: known for known in read_toml(TEXTS)["error"] for part in known["message"]}


@pytest.mark.parametrize("part", KNOWN)
def test_each_explanation_is_reached(part: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    source = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n" + CODE[part]
    with pytest.raises(Exception, match=r".") as raised:
        load(path, source)
    words, mistake = explained(raised.value)
    assert mistake == KNOWN[part]["mistake"]
    assert words.en.startswith(KNOWN[part]["en"])
    assert words.ko.startswith(KNOWN[part]["ko"])
    assert line_of(raised.value, path) is not None
