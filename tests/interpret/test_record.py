"""Recording attention: the model is not disturbed, and what is recorded is what it did."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest
import torch
from torch import Tensor

import jumok
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, RungConfig
from jumok.errors import ConfigError, ViewError
from jumok.inference.generate import generate_ids
from jumok.inference.sampling import Sampling
from jumok.interpret.record import record
from jumok.models import Model, build

VOCAB, LENGTH = 20, 12
SHAPE = {"vocab_size": VOCAB, "context_length": 32, "n_layer": 2, "n_head": 4, "n_embd": 16}


def model_of(kind: str) -> Model:
    torch.manual_seed(0)
    model: Model
    if kind == "bert":
        model = build(BERTConfig(**SHAPE, dropout=0.0, attention_dropout=0.0))
    elif kind == "encoder-decoder":
        model = build(EncoderDecoderConfig(**SHAPE, n_decoder_layer=3, n_decoder_head=2, dropout=0.0))
    else:
        model = build(GPTConfig(**SHAPE, family="modern" if kind == "modern" else "classic", n_kv_head=HEADS[kind]))
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.4)  # so that attention is not uniform
    return model.eval()


HEADS = {"modern": 2, "classic": 4}
KINDS = ("modern", "classic", "bert", "encoder-decoder")


def ids_of(batch: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randint(VOCAB, (batch, length), generator=torch.Generator().manual_seed(1))


def run(model: Model, **cache: object) -> Tensor:
    if isinstance(model, jumok.EncoderDecoder):
        return model(ids_of(length=9), ids_of())
    return model(ids_of())


@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_as_if_nobody_looked(kind: str) -> None:
    """Gradients are the same, dropout draws the same numbers, and the recording keeps no graph."""
    model = model_of(kind).train()
    gradients = []
    for watched in (False, True):
        torch.manual_seed(5)
        model.zero_grad()
        if watched:
            with record(model, residual=True) as recording:
                run(model).sum().backward()
            assert not any(entry.weights().requires_grad for entry in recording.attentions)
        else:
            run(model).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert model.training
    assert gradients[0]
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_layers_are_named_in_the_order_of_the_model() -> None:
    model = model_of("encoder-decoder")
    with record(model, residual=True) as recording:
        run(model)
    assert [entry.name for entry in recording.attentions] == [
        "encoder.0.attention", "encoder.1.attention",
        "decoder.0.attention", "decoder.0.cross_attention", "decoder.1.attention", "decoder.1.cross_attention",
        "decoder.2.attention", "decoder.2.cross_attention",
    ]  # fmt: skip
    assert [entry.block for entry in recording.attentions][:4] == ["encoder", "encoder", "decoder", "cross"]
    cross = recording.attention("cross", 1)
    assert (cross.n_head, cross.t, cross.s, cross.causal) == (2, LENGTH, 9, False)
    assert cross.weights().shape == (2, 2, LENGTH, 9)
    assert recording.attention("decoder", 1).causal
    assert {name: len(stream) for name, stream in recording.residual.items()} == {"encoder": 3, "decoder": 4}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_that_made_the_output(kind: str) -> None:
    """The weights times the values, through the layer's output projection, are what the layer returned."""
    model = model_of(kind)
    layer = model.decoder[1].cross_attention if isinstance(model, jumok.EncoderDecoder) else model.blocks[1].attention
    returned = []
    layer.register_forward_hook(lambda _, __, output: returned.append(output))
    with record(model) as recording:
        run(model)
    entry = next(e for e in recording.attentions if e.layer == 1 and e.block in ("self", "cross"))
    values = entry.v.repeat_interleave(entry.n_head // entry.n_kv_head, dim=1)
    heads = entry.weights() @ values
    torch.testing.assert_close(layer.o_proj(heads.transpose(1, 2).flatten(2)), returned[0])


@pytest.mark.parametrize("kind", ["modern", "classic"])
@torch.inference_mode()
def test_the_last_call_is_recorded(kind: str) -> None:
    """With a cache its queries are the last of all positions, and keys are views of a buffer that is written again."""
    model, ids = model_of(kind), ids_of()
    with record(model, residual=True) as whole:
        model(ids)
    cache = model.new_cache(2)
    with record(model, residual=True) as last:
        model(ids[:, :5], cache)
        model(ids[:, 5:], cache)
    cache.begin_at([0, 0], 0)
    model(torch.zeros_like(ids), cache)  # would overwrite what was not copied
    for one, other in zip(whole.attentions, last.attentions, strict=True):
        assert (other.t, other.s) == (LENGTH - 5, LENGTH)
        torch.testing.assert_close(one.weights()[:, :, 5:], other.weights())
    for one, other in zip(whole.residual["self"], last.residual["self"], strict=True):
        torch.testing.assert_close(one[:, 5:], other, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_the_decoder_with_a_cache() -> None:
    """Padding of a source is masked in the keys that the cache holds, too."""
    model, source, target = model_of("encoder-decoder"), ids_of(length=9), ids_of()
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 6:] = False
    with record(model) as whole:
        model(source, target, mask)
    with record(model) as last:
        encoded, cache = model.encode(source, mask), model.new_cache(2)
        for token in target.split(1, dim=1):
            model.decode(token, encoded, mask, cache)
    for one, other in zip(whole.attentions, last.attentions, strict=True):
        torch.testing.assert_close(one.weights()[:, :, -other.t :], other.weights())
    assert float(last.attention("cross", 0).weights()[1, :, :, 6:].max()) == 0


def test_generated_tokens_are_recorded() -> None:
    """The native step does not reach the seam, so the model runs its own modules inside the block."""
    model = model_of("classic")
    with record(model) as recording:
        tokens = list(islice(generate_ids(model, [1, 2, 3], Sampling(temperature=0)), 4))
    assert recording.attentions[1].s == 3 + len(tokens) - 1
    assert recording.attentions[1].t == 1


def test_a_subset_of_layers_and_heads() -> None:
    """Also of grouped-query heads, whose keys are then kept for each head."""
    model = model_of("modern")
    with record(model) as whole:
        run(model)
    with record(model, layers=[1], heads=[3, 0]) as some:
        run(model)
    (entry,) = some.attentions
    assert (entry.name, entry.heads, entry.k.shape[1]) == ("blocks.1.attention", (0, 3), 2)
    torch.testing.assert_close(entry.weights(), whole.attentions[1].weights()[:, [0, 3]])
    torch.testing.assert_close(entry.weights(3), whole.attentions[1].weights(3))
    with pytest.raises(ConfigError, match=r"head=1 of blocks\.1\.attention was not recorded; there are \[0, 3\]"):
        entry.weights(1)
    with pytest.raises(ConfigError, match=r"self 0 was not recorded; there are self 1\."):
        some.attention("self", 0)


def test_rows_sum_to_one_empty_rows_are_zero_and_nan_stays_nan() -> None:
    """A text that is all padding has nothing to attend to; a damaged model must not look healthy."""
    model = model_of("bert")
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[1] = False
    with record(model) as recording:
        model(ids_of(), mask)
    weights = recording.attentions[0].weights()
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(4, LENGTH))
    assert not weights[1].any()
    with torch.no_grad():
        model.blocks[0].attention.q_proj.weight[0, 0] = float("nan")
    with record(model) as recording:
        model(ids_of())
    assert recording.attentions[0].weights(0).isnan().all()
    assert not recording.attentions[0].weights(1).isnan().any()


def test_the_residual_stream_ends_where_the_head_begins() -> None:
    model = model_of("modern")
    with record(model, layers=[0], residual=True) as recording:
        logits = run(model)
    stream = recording.residual["self"]
    assert len(stream) == 3
    assert torch.equal(stream[0], model.token_embedding(ids_of()))
    assert torch.equal(model.head(model.norm(stream[-1])), logits)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subset", "message"),
    [
        ({"layers": [0, 2]}, r"layers=\[0, 2\]: this model has layers 0 to 1"),
        ({"layers": []}, r"layers=\[\]: this model has layers 0 to 1; give some of them, or None"),
        ({"heads": [-1]}, r"heads=\[-1\]: this model has heads 0 to 3"),
    ],
)
def test_what_is_not_there_is_named_beside_what_is(subset: dict[str, list[int]], message: str) -> None:
    with pytest.raises(ConfigError, match=message), record(model_of("modern"), **subset):
        raise AssertionError("not reached")


def test_a_recording_of_nothing_is_an_error() -> None:
    model = model_of("modern")
    with record(model) as recording, pytest.raises(ViewError, match="call the model inside"):
        _ = recording.attentions
    with pytest.raises(ViewError, match="nothing was recorded"):
        recording.attention("self", 0)
    with record(model, residual=True) as recording:
        pass
    with pytest.raises(ViewError, match="nothing was recorded"):
        _ = recording.residual
    with record(model) as recording:
        run(model)
    with pytest.raises(ConfigError, match="residual=True"):
        _ = recording.residual


@pytest.mark.slow
def test_a_compiled_model_never_calls_its_hooks() -> None:
    """torch.compile traces the blocks as they are and ignores hooks that come later, without a word."""
    model = model_of("modern")
    ids = ids_of()
    compiled = torch.compile(model, backend="eager")
    with pytest.raises(ConfigError, match=r"not a OptimizedModule; record the model that was given to torch\.compile"):
        record(compiled).__enter__()
    compiled(ids)
    with record(model) as recording:
        compiled(ids)
    with pytest.raises(ViewError, match="A compiled model runs without its hooks"):
        _ = recording.attentions


@pytest.mark.parametrize("make", [lambda: torch.nn.Linear(2, 2), lambda: build(RungConfig(**SHAPE, mixing="none"))])
def test_other_models_are_refused(make: Callable[[], Model]) -> None:
    with pytest.raises(ConfigError, match=r"only a GPT, BERT or EncoderDecoder|no attention to record"):
        record(make()).__enter__()
