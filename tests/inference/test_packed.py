"""The next logits, quickly: the prepared decoder against the model, texts side by side against each alone."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok.config import GPTConfig, RungConfig
from jumok.errors import ConfigError, JumokError
from jumok.inference import matrices
from jumok.inference.decoding import Decoding, generate_ids
from jumok.inference.generate import generate
from jumok.inference.logits import GrowingTexts, next_logits, window_start
from jumok.inference.matrices import PANEL
from jumok.inference.packed import PackedGPT, can_pack
from jumok.inference.sampling import Sampling
from jumok.models.gpt import GPT
from jumok.models.rung import Rung
from jumok.nn.attention import ScaledDotProductAttention
from jumok.nn.cache import KVCache, LayerCache
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.slow

V = 2 * PANEL + 9  # no whole number of panels
GREEDY = Sampling(temperature=0)
SHAPES: dict[str, dict[str, Any]] = {
    "modern": {},
    "shared-keys": {"n_kv_head": 2},
    "classic": {"family": "classic"},
    "relu-narrow-heads": {"family": "classic", "activation": "relu", "head_dim": 4, "tie_embeddings": False},
    "wide-heads": {"head_dim": 12, "n_kv_head": 1, "tie_embeddings": False},
    "with-classes": {"labels": ("a", "b"), "pooling": "attention"},
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
FAMILIES = ("modern", "classic")


def tiny(seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> GPT:
    """A small model with random weights, norms and biases included."""
    torch.manual_seed(seed)
    shape = {"context_length": 12, "n_layer": 2, "n_head": 4, "n_embd": 32, "dropout": 0.5, **changes}
    model = GPT(GPTConfig(vocab_size=V, **shape)).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.3)
    return model.to(dtype)


def some_ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def written(model: GPT, prompts: Sequence[Sequence[int]], number: int, sampling: Sampling = GREEDY, **how: Any) -> Any:
    """The ids that each row gets, (rows, number)."""
    texts = Decoding(model, prompts, sampling, seed=3, **how)
    return [list(row) for row in zip(*(texts.step() for _ in range(number)), strict=True)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows the decoder was given at each step that it took."""
    calls: list[int] = []
    logits = PackedGPT.logits

    def counting(self: PackedGPT, ids: Tensor, cache: KVCache, positions: Tensor | None = None) -> Tensor:
        calls.append(len(ids))
        return logits(self, ids, cache, positions)

    monkeypatch.setattr(PackedGPT, "logits", counting)
    return calls


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what the model itself was given."""
    shapes: list[tuple[int, ...]] = []
    hidden = GPT.hidden

    def watching(self: GPT, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        shapes.append(tuple(ids.shape))
        return hidden(self, ids, cache)

    monkeypatch.setattr(GPT, "hidden", watching)
    return shapes


# --- the window -------------------------------------------------------------------------------------------------------


def test_window_start():
    assert [window_start(n, 4) for n in range(1, 12)] == [0, 0, 0, 0, 2, 2, 4, 4, 6, 6, 8]
    assert [window_start(n, 5) for n in range(1, 12)] == [0, 0, 0, 0, 0, 2, 2, 4, 4, 6, 6]
    assert [window_start(n, 1) for n in range(1, 5)] == [0, 1, 2, 3]
    assert [window_start(n, 2) for n in range(1, 5)] == [0, 0, 1, 2]


@pytest.mark.parametrize("context", [1, 2, 3, 7, 8, 256])
def test_the_window_fits_and_never_goes_back(context: int):
    starts = [window_start(n, context) for n in range(1, 5 * context)]
    assert starts == sorted(starts)
    for length, start in enumerate(starts, start=1):
        assert min(length, (context + 1) // 2) <= length - start <= context
    moves = len(set(starts)) - 1
    assert moves <= -(-4 * context // max(1, context // 2))  # a refill costs as much as half a context of tokens


@pytest.mark.parametrize("prompt_length", [1, 12, 13, 100])
@pytest.mark.parametrize("context", [1, 2, 5, 12])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_cached_and_uncached_logits_are_equal_past_the_context(family: str, context: int, prompt_length: int):
    """At every step, over several moves of the window, and for prompts that are much longer than the context."""
    model = tiny(dtype=torch.float64, family=family, context_length=context)
    ids = some_ids(2, prompt_length + 26)
    cache = model.new_cache(2)
    for length in range(prompt_length, prompt_length + 26):
        cached, uncached = (next_logits(model, ids[:, :length], c) for c in (cache, None))
        torch.testing.assert_close(cached, uncached, rtol=0, atol=1e-10)
        assert 0 < cache.length <= context


def test_the_model_reads_a_window_once_and_the_decoder_the_rest(fed: list[tuple[int, ...]], taken: list[int]):
    """The cache is worth nothing if each step past the context fills it anew."""
    written(tiny(context_length=16), [range(6)], 100)
    assert fed[0] == (1, 5)  # all but the newest
    assert set(fed[1:]) == {(1, 8)}  # after a move, the half of the context that is left
    assert len(fed) - 1 == math.ceil((6 + 99 - 16) / 8)
    assert taken == [1] * 100


# --- the decoder and the model ----------------------------------------------------------------------------------------


@each_shape
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-6)], ids=str)
@torch.no_grad()
def test_logits_are_those_of_the_model(shape: dict[str, Any], dtype: torch.dtype, tolerance: float):
    """At every step of two texts over several windows. In float64 RMSNorm's statistics are float32 in the model."""
    model = tiny(dtype=dtype, context_length=24, **shape)
    ids = some_ids(2, 60)
    texts = GrowingTexts(model, ids[:, :3].tolist())
    assert can_pack(model)
    for length in range(3, 60):
        found, wanted = texts.next_logits(), next_logits(model, ids[:, :length])
        assert found.dtype == dtype
        torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))
        texts.append(ids[:, length].tolist())


@torch.no_grad()
def test_classic_logits_are_exact_in_float64():
    """What differs in float32 is rounding if it is gone here."""
    model = tiny(dtype=torch.float64, family="classic")
    ids = some_ids(3, 9)
    found = GrowingTexts(model, ids.tolist()).next_logits()
    torch.testing.assert_close(found, model(ids)[:, -1], rtol=0, atol=1e-12)


@torch.no_grad()
def test_without_mkl_the_products_are_the_usual_ones(monkeypatch: pytest.MonkeyPatch):
    """Panels are for MKL; other libraries would run them one by one."""
    model, ids = tiny(), some_ids(2, 9)
    wanted = GrowingTexts(model, ids.tolist()).next_logits()
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    torch.testing.assert_close(GrowingTexts(model, ids.tolist()).next_logits(), wanted, rtol=0, atol=1e-4)


@pytest.mark.slow
@each_shape
def test_greedy_ids_are_those_without_a_cache(shape: dict[str, Any]):
    model = tiny(**shape)
    for prompt in ([5], [3, 1, 4, 1, 5], some_ids(30).tolist()):
        assert written(model, [prompt], 60) == written(model, [prompt], 60, cache=False)


def test_drawn_ids_are_those_without_a_cache(taken: list[int]):
    model = tiny()
    sampling = Sampling(temperature=1, top_k=20, top_p=0.9, repetition_penalty=1.2)
    for prompt in ([5], some_ids(30).tolist()):
        fast = written(model, [prompt], 40, sampling, samples=3)
        assert taken == [3] * 40
        taken.clear()
        assert fast == written(model, [prompt], 40, sampling, samples=3, cache=False)
        assert taken == []


def test_under_autocast_the_decoder_computes_as_without(taken: list[int]):
    """Trap: autocast casts each matrix anew for each token, which made samples in a bfloat16 run ten times slower."""
    model = tiny()
    alone = written(model, [[1, 2, 3]], 30)
    with torch.autocast("cpu", torch.bfloat16):
        assert written(model, [[1, 2, 3]], 30) == alone
    assert len(taken) == 60


@pytest.mark.parametrize("prompt", [1, 20])
@pytest.mark.parametrize("part", ["q_proj", "v_proj"])
def test_one_damaged_number_is_still_found(part: str, prompt: int):
    """Trap: for few keys the fused kernel turns the NaN of a query into zeros, and the text looks fine."""
    model = tiny(context_length=40)
    with torch.no_grad():
        getattr(model.blocks[1].attention, part).weight[0, 0] = math.nan
    with pytest.raises(JumokError, match="not finite"):
        written(model, [range(prompt)], 2)


# --- who may use it ---------------------------------------------------------------------------------------------------


class Doubling(nn.Linear):
    """Somebody's own layer in the place of ours."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def exchanged(model: GPT) -> GPT:
    model.blocks[0].mlp.down_proj = Doubling(model.config.mlp_width, 32, bias=False)
    return model


def hooked(model: GPT) -> GPT:
    model.blocks[0].mlp.register_forward_hook(lambda part, given, out: 2 * out)
    return model


class Sharper(GPT):
    """Somebody's own model."""

    def hidden(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        return 2 * super().hidden(ids, cache)


OTHERS: dict[str, Callable[[], GPT]] = {
    "exchanged": lambda: exchanged(tiny()),
    "hooked": lambda: hooked(tiny()),
    "subclass": lambda: Sharper(GPTConfig(vocab_size=V, context_length=12, n_layer=1, n_head=1, n_embd=8)),
    "rung": lambda: Rung(RungConfig(vocab_size=V, context_length=12, n_layer=1, n_head=1, n_embd=8, residual=False)),
    "bfloat16": lambda: tiny(dtype=torch.bfloat16),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
def test_any_other_model_does_it_itself(make: Callable[[], GPT], taken: list[int]):
    model = make()
    assert not can_pack(model)
    assert written(model, [[1, 2, 3]], 5) == written(model, [[1, 2, 3]], 5, cache=False)
    assert taken == []


def test_hooks_for_all_modules_count_too():
    model = tiny()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not can_pack(model)
    finally:
        handle.remove()
    assert can_pack(model)


def test_who_begins_to_watch_in_the_middle_sees_everything(taken: list[int]):
    """A recording that is opened while a text is written must not be empty, and changes nothing."""
    model = tiny()
    alone = written(model, [[1, 2, 3]], 9)[0]
    taken.clear()
    seen: list[tuple[int, int]] = []

    def note(seam: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen.append((given[0].shape[-2], given[1].shape[-2]))

    ids = []
    with closing(generate_ids(model, [1, 2, 3], GREEDY)) as steps:
        ids += [next(steps) for _ in range(3)]
        seams = [part for part in model.modules() if isinstance(part, ScaledDotProductAttention)]
        handles = [seam.register_forward_pre_hook(note) for seam in seams]
        ids += [next(steps) for _ in range(2)]
        for handle in handles:
            handle.remove()
        ids += [next(steps) for _ in range(4)]
    assert ids == alone
    assert seen == [(6, 6), (6, 6), (7, 7), (7, 7)]  # two layers, whole windows
    assert len(taken) == 3 + 4


@pytest.mark.parametrize("watched", range(1, 9))
def test_what_grew_while_somebody_watched_is_read_again(watched: int):
    """The window moved by as many ids as were watched: the count of positions agreed, and the old keys were used."""
    model = tiny()
    alone = written(model, [[1, 2, 3, 4]], 24)[0]
    ids = []
    with closing(generate_ids(model, [1, 2, 3, 4], GREEDY)) as steps:
        ids += [next(steps) for _ in range(3)]
        handle = model.blocks[0].register_forward_hook(lambda *_: None)
        ids += [next(steps) for _ in range(watched)]
        handle.remove()
        ids += [next(steps) for _ in range(21 - watched)]
    assert ids == alone


# --- texts side by side -----------------------------------------------------------------------------------------------

LENGTHS = ([1, 1], [1, 7], [12, 13, 1], [3, 30, 5, 12, 4])


@pytest.mark.slow
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("shape", [SHAPES["shared-keys"], SHAPES["classic"]], ids=FAMILIES)
@torch.no_grad()
def test_logits_side_by_side_are_those_of_each_alone(shape: dict[str, Any], lengths: list[int]):
    """Each text has its own window, which moves when it is its turn."""
    model = tiny(**shape)
    ids = [some_ids(length + 40, seed=row) for row, length in enumerate(lengths)]
    texts = GrowingTexts(model, [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)])
    for step in range(40):
        found = texts.next_logits()
        for row, length in enumerate(lengths):
            wanted = next_logits(model, ids[row][None, : length + step])[0]
            torch.testing.assert_close(found[row], wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))
        texts.append([int(row[length + step]) for row, length in zip(ids, lengths, strict=True)])


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_side_by_side_are_those_of_each_alone(family: str, cache: bool):
    model = tiny(family=family)
    prompts = [some_ids(length, seed=length).tolist() for length in (5, 1, 30, 5)]
    sampling = Sampling(temperature=1, repetition_penalty=1.3)
    together = written(model, prompts, 30, sampling, samples=2, cache=cache)
    alone = [row for prompt in prompts for row in written(model, [prompt], 30, sampling, samples=2)]
    assert together == alone


def test_a_watched_model_writes_texts_of_different_lengths_too(taken: list[int]):
    model = hooked(tiny())
    prompts = [some_ids(length, seed=length).tolist() for length in (5, 1, 30, 5)]
    assert written(model, prompts, 20) == [row for prompt in prompts for row in written(model, [prompt], 20)]
    assert taken == []


def test_all_prompts_are_read_in_one_pass_and_equal_ones_once(fed: list[tuple[int, ...]]):
    written(tiny(), [[1, 2, 3, 4], [5, 6], [1, 2, 3, 4]], 1, samples=4)
    assert fed == [(2, 3)]
    fed.clear()
    written(tiny(), [[1], [2]], 1)
    assert fed == []  # there is nothing before the newest


def prompts_of(text: str) -> Iterator[str]:
    yield from ("", text[:3], text[5:12], text[:90])


@pytest.mark.parametrize("family", FAMILIES)
def test_generate_takes_a_list_of_prompts(family: str, tales: str):
    """Random weights, real text: for each prompt just what it gives alone, stop strings and all."""
    tokenizer = train_tokenizer(tales, "char")
    torch.manual_seed(0)
    shape = {"context_length": 16, "n_layer": 2, "n_head": 2, "n_embd": 16}
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, family=family, **shape))
    model.tokenizer = tokenizer
    prompts = list(prompts_of(tales))
    stop = [generate(model, prompts[1], seed=1, tokens=30)[0].text[4]]
    together = generate(model, prompts, seed=1, tokens=30, samples=2, stop=stop)
    assert together == [generate(model, prompt, seed=1, tokens=30, samples=2, stop=stop) for prompt in prompts]
    assert together[1][0].finish == "stop"
    assert generate(model, []) == []
    assert generate(model, tuple(prompts[:1]), seed=1, tokens=30) == [generate(model, prompts[0], seed=1, tokens=30)]


def test_equal_prompts_without_a_seed_give_different_texts():
    texts = Decoding(tiny(), [[1], [1]], Sampling(temperature=5))
    first, second = zip(*(texts.step() for _ in range(30)), strict=True)
    assert first != second


# --- texts that are done, and texts that fail -------------------------------------------------------------------------


def ids_of(model: GPT, prompts: Sequence[Sequence[int]], lengths: Sequence[int], **how: Any) -> list[list[Any]]:
    """What each prompt gets when it is let go after so many ids."""
    texts, found = Decoding(model, prompts, Sampling(), seed=3, **how), [[] for _ in prompts]  # type: ignore[var-annotated]
    while True:
        for row, token in zip(texts.rows, texts.step(), strict=True):
            found[row].append(token)
        going = [place for place, row in enumerate(texts.rows) if len(found[row]) < lengths[row]]
        if not going:
            return found
        texts.keep(going)


@pytest.mark.parametrize(
    ("family", "cache", "watched"),
    [("modern", True, False), ("classic", True, False), ("modern", False, False), ("modern", True, True)],
)
def test_texts_that_are_done_are_computed_no_more(
    family: str, cache: bool, watched: bool, fed: list[tuple[int, ...]], taken: list[int]
):
    """Finished rows of a batch kept computing until all were done. Those that go on are as without the others."""
    model = tiny(family=family)
    prompts, lengths = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10], [4, 5]], [2, 30, 1, 9]
    alone = [ids_of(model, [prompt], [length], cache=cache)[0] for prompt, length in zip(prompts, lengths, strict=True)]
    del taken[:], fed[:]
    if watched:
        model.blocks[0].register_forward_hook(lambda *_: None)
    assert ids_of(model, prompts, lengths, cache=cache) == alone
    if cache and not watched:
        assert taken == [4] + [3] + [2] * 7 + [1] * 21
    else:
        assert sum(rows for rows, _ in fed) == 4 + 3 + 2 * 7 + 21


def test_a_text_without_finite_logits_fails_alone():
    """A NaN row in a batch used to raise for all: here the embedding of one id is damaged, which one prompt holds."""
    model = tiny(tie_embeddings=False)
    wanted = written(model, [[1, 2], [4]], 4)
    damaged = next(token for token in range(5, V) if all(token not in ids for ids in wanted))
    with torch.no_grad():
        model.token_embedding.weight[damaged] = math.nan
    prompts = [[1, 2], [3, damaged], [4]]
    texts = Decoding(model, prompts, GREEDY)
    assert texts.step()[1] is None
    with pytest.raises(JumokError, match="not finite"):
        texts.step()
    texts = Decoding(model, prompts, GREEDY)
    first = texts.step()
    texts.keep([0, 2])
    rest = [texts.step() for _ in range(3)]
    assert [list(row) for row in zip(first[::2], *rest, strict=True)] == wanted


# --- matrices that are packed once ------------------------------------------------------------------------------------


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the matrices that are packed."""
    shapes: list[tuple[int, ...]] = []
    for kind in (matrices.Product, matrices.PanelProduct, matrices.Int8Product):
        pack = kind.pack

        def watching(matrix: Tensor, pack: Any = pack) -> Any:
            shapes.append(tuple(matrix.shape))
            return pack(matrix)

        monkeypatch.setattr(kind, "pack", staticmethod(watching))
    return shapes


def test_matrices_are_packed_once(packed: list[tuple[int, ...]]):
    """They were packed again at each call, which took a quarter of the time of one token."""
    model = tiny()
    first = written(model, [[1, 2]], 3)
    assert packed
    del packed[:]
    assert written(model, [[1, 2]], 3) == first
    assert written(model, [[1, 2], [1]], 3)[0] == first[0]  # another batch, the same matrices
    assert packed == []
    written(model, [[1, 2]], 3, quantize="int8")
    assert packed


def by_an_optimizer(model: GPT) -> None:
    model(torch.tensor([[1, 2, 3]])).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def by_loading(model: GPT) -> None:
    model.load_state_dict(tiny(seed=1, family=model.config.family).state_dict())


def by_data(model: GPT) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(1.25)


def one_number_by_data(model: GPT) -> None:
    model.blocks[1].mlp.up_proj.weight.data[2, 3] += 1.5


def by_swapping_rows(model: GPT) -> None:
    weight = model.head.weight.data
    weight[[1, 2]] = weight[[2, 1]]


def by_numpy(model: GPT) -> None:
    model.blocks[0].attention.v_proj.weight.detach().numpy()[:] *= -1


def by_a_new_layer(model: GPT) -> None:
    old = model.blocks[0].attention.k_proj
    model.blocks[0].attention.k_proj = nn.Linear(old.in_features, old.out_features, bias=old.bias is not None)


@pytest.mark.parametrize(
    "change",
    [by_an_optimizer, by_loading, by_data, one_number_by_data, by_swapping_rows, by_numpy, by_a_new_layer],
)
@pytest.mark.parametrize("family", ["modern", "classic"])
def test_changed_weights_are_packed_again(change: Callable[[GPT], None], family: str, packed: list[tuple[int, ...]]):
    """PyTorch's count of versions knows nothing of changes through `.data` or numpy; the logits must."""
    model = tiny(family=family)
    GrowingTexts(model, [[1, 2, 3]]).next_logits()
    del packed[:]
    change(model)
    with torch.no_grad():
        found, wanted = GrowingTexts(model, [[1, 2, 3]]).next_logits(), next_logits(model, torch.tensor([[1, 2, 3]]))
    assert packed
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))


def test_packed_matrices_go_with_their_model():
    model = tiny()
    written(model, [[1]], 1)
    head = model.head
    assert head in matrices._PACKED
    gone = weakref.ref(head)
    del model, head
    gc.collect()
    assert gone() is None


# --- the cache that they share ----------------------------------------------------------------------------------------


def test_rows_of_a_cache_go_on_where_each_of_them_is():
    cache = LayerCache(9, torch.zeros(2, 3, 0, 4))
    k, v = torch.randn(2, 2, 3, 1, 4).unbind()
    keys, values = cache.append_one(torch.cat((k, v), dim=1), torch.tensor([1, 5]))
    assert keys.shape == values.shape == (2, 3, 6, 4)
    for row, position in enumerate((1, 5)):
        assert torch.equal(keys[row, :, position], k[row, :, 0])
        assert torch.equal(values[row, :, position], v[row, :, 0])


def test_room_behind_the_end_of_a_shorter_row_holds_numbers():
    """Trap: a mask gives it the weight zero, and zero times the NaN that fresh memory may hold is a NaN."""
    cache = LayerCache(600, torch.zeros(2, 3, 0, 4))
    for last in (5, 300, 599):  # it grows twice
        rows = cache.append_one(torch.ones(2, 6, 1, 4), torch.tensor([0, last]))
        assert all(float(row[0, :, 1:].abs().sum()) == 0 for row in rows)


def test_rows_can_begin_with_those_of_another_cache():
    mine, other = LayerCache(9, torch.zeros(3, 2, 0, 4)), LayerCache(9, torch.zeros(2, 2, 0, 4))
    k, v = other.append(torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4))
    mine.append(torch.ones(3, 2, 6, 4), torch.ones(3, 2, 6, 4))
    mine.replace(torch.tensor([2, 0]), other, torch.tensor([1, 1]))
    assert mine.length == 5
    for row in (0, 2):
        assert torch.equal(mine.held()[0][row], k[1])
        assert torch.equal(mine.held()[1][row], v[1])
    assert float(mine.held()[0][1].mean()) == 1


def test_a_row_does_not_fit_behind_the_end_of_a_cache():
    cache = LayerCache(4, torch.zeros(1, 1, 0, 2))
    with pytest.raises(ValueError, match="5 positions do not fit into a cache for 4"):
        cache.append_one(torch.zeros(1, 2, 1, 2), torch.tensor([4]))


# --- 8-bit weights ----------------------------------------------------------------------------------------------------


@each_shape
@torch.no_grad()
def test_int8_logits_are_close(shape: dict[str, Any]):
    """About two digits are left; a wrong scale or a wrong row would leave none."""
    model = tiny(n_embd=64, **{"head_dim": 16, **shape})
    ids = some_ids(3, 10)
    wanted = model(ids)[:, -1]
    found = GrowingTexts(model, ids.tolist(), quantize="int8").next_logits()
    assert found.dtype == torch.float32
    assert float((found - wanted).norm() / wanted.norm()) < 0.05


@torch.no_grad()
def test_int8_takes_rows_of_zeros_and_of_very_different_sizes():
    layer = nn.Linear(64, 3, bias=False)
    layer.weight[0] = 0
    layer.weight[1] *= 1e6
    layer.weight[2] *= 1e-6
    x = torch.randn(2, 64)
    found, wanted = matrices.Matrices("int8").product(2, layer)(x), layer(x)
    assert torch.equal(found[:, 0], torch.zeros(2))
    torch.testing.assert_close(found[:, 1:] / wanted[:, 1:], torch.ones(2, 2), rtol=0, atol=0.2)


def test_int8_needs_the_decoder():
    model = hooked(tiny())
    with pytest.raises(ConfigError, match="quantize='int8' is for a plain GPT in float32 on the CPU"):
        written(model, [[1]], 1, quantize="int8")
    with pytest.raises(ConfigError, match="quantize='int8' is for a plain GPT"):
        written(tiny(), [[1]], 1, quantize="int8", cache=False)


def test_int8_needs_a_pytorch_that_has_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(torch, "_weight_int8pack_mm")
    with pytest.raises(ConfigError, match="needs a PyTorch that multiplies 8-bit matrices"):
        written(tiny(), [[1]], 1, quantize="int8")
