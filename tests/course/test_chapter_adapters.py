"""Chapter 25: its LoRA is that of `jumok train --lora`."""

from __future__ import annotations

import copy

import pytest
import torch

import jumok
from jumok.course.chapters.adapters import LoRALinear, add_adapters, merge_adapters, parts
from jumok.training.adapters import Adapters


def test_the_adapters_are_those_of_jumok() -> None:
    """On the same layers, with the same output for the same A and B; and merged, a plain GPT with this output."""
    pytest.importorskip("peft")
    config = jumok.GPTConfig(family="classic", vocab_size=30, context_length=16, n_layer=2, n_head=2, n_embd=16)
    torch.manual_seed(0)
    plain = jumok.GPT(config).double().eval()
    ids = torch.randint(30, (2, 16))
    own, production = copy.deepcopy(plain), copy.deepcopy(plain)
    add_adapters(own, rank=3)
    assert torch.equal(own(ids), plain(ids))
    tensors = Adapters(production, 3, seed=0).tensors
    trained = {name: parameter for name, parameter in own.named_parameters() if parameter.requires_grad}
    assert trained.keys() == tensors.keys()
    with torch.no_grad():
        for name, parameter in trained.items():
            tensors[name].copy_(parameter.normal_())
    torch.testing.assert_close(own(ids), production(ids), rtol=0, atol=1e-12)
    wanted = own(ids)
    assert (wanted - plain(ids)).abs().max() > 0.1
    merge_adapters(own)
    assert list(parts(own, LoRALinear)) == []
    plain.load_state_dict(own.state_dict())
    torch.testing.assert_close(plain(ids), wanted, rtol=0, atol=1e-12)
