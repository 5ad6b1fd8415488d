"""Checks of the exercises on sampling, generation, the KV cache and beam search."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import (
    Code,
    Mistake,
    Steps,
    Wrong,
    compare,
    hidden,
    raises,
    require,
    require_tensor,
)
from jumok.course.practice.course import Words
from jumok.course.practice.parameters import copy_parameters
from jumok.inference import sampling
from jumok.nn import MultiHeadAttention
from jumok.nn.cache import LayerCache

# --- temperature ---


def temperature(code: Code) -> Steps:
    """Logits divided by the temperature, and the likeliest token at 0."""
    function = code.function("probabilities")
    logits = hidden(3, 7, scale=2)
    for warmth in (0.5, 2.0):
        right = (logits / warmth).softmax(-1)
        compare(function(logits.clone(), warmth), right, *_wrong_temperatures(logits, warmth))
    yield Words("로짓을 온도로 나눕니다.", "The logits are divided by the temperature.")
    certain = torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    cold = raises(_BY_ZERO, lambda: function(logits.clone(), 0), mistake="division-by-zero", text="ZeroDivisionError")
    compare(
        cold,
        certain,
        Mistake("division-by-zero", lambda result: bool(result.isnan().any()), _BY_ZERO),
        Mistake("ids-returned", lambda result: _equal(result.flatten(), logits.argmax(-1)), _IDS),
        Mistake("temperature-one-at-zero", logits.softmax(-1), _PLAIN_AT_ZERO),
    )
    compare(function(logits.clone(), 0.0), certain)
    yield Words("온도 0에서는 가장 큰 로짓의 확률이 1입니다.", "At temperature 0 the largest logit has probability 1.")


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def _wrong_temperatures(logits: Tensor, warmth: float) -> Iterator[Mistake]:
    yield Mistake("multiplied", (logits * warmth).softmax(-1), _MULTIPLIED)
    yield Mistake("after-softmax", logits.softmax(-1) / warmth, _AFTER_SOFTMAX)
    yield Mistake("no-effect", logits.softmax(-1), _NO_EFFECT)
    yield Mistake("no-softmax", logits / warmth, _NO_SOFTMAX)
    yield Mistake("dimension", (logits / warmth).softmax(0), _OVER_THE_BATCH)


_BY_ZERO = Words(
    "온도 0에서 0으로 나누었습니다. 0인 경우를 먼저 처리하세요: argmax의 확률이 1입니다.",
    "At temperature 0 there is a division by zero. Treat 0 first: argmax has the probability 1.",
)
_IDS = Words(
    "온도 0에서 토큰의 id를 돌려주었습니다. 다른 온도에서처럼 확률 (B, V)를 돌려주어야 뽑는 코드를 같이 쓸 수 "
    "있습니다.",
    "At temperature 0 the ids of the tokens are returned. Return probabilities, (B, V), as at other temperatures, so "
    "that the same code can draw from them.",
)
_PLAIN_AT_ZERO = Words(
    "온도 0이 온도 1과 같습니다. 온도가 0에 가까워지면 확률이 가장 큰 토큰 하나로 모이므로, 0에서는 그 토큰이 1입니다.",
    "Temperature 0 equals temperature 1. Towards 0, the probability gathers at the largest logit, so at 0 this token "
    "has 1.",
)
_MULTIPLIED = Words(
    "로짓에 온도를 곱했습니다. 그러면 높은 온도에서 오히려 확률이 한 토큰에 모입니다. 나누세요.",
    "The logits are multiplied by the temperature. A high temperature then makes the probabilities less even. Divide.",
)
_AFTER_SOFTMAX = Words(
    "소프트맥스 뒤에 확률을 나누었습니다. 합이 1이 아니게 되고, 모든 확률이 같은 비율로 바뀌므로 뽑히는 비율은 "
    "그대로입니다. 소프트맥스 전에 로짓을 나누세요.",
    "The probabilities are divided, after the softmax. They no longer sum to 1, and their ratios stay the same. "
    "Divide the logits, before the softmax.",
)
_NO_EFFECT = Words(
    "온도가 결과를 바꾸지 않습니다. 확률을 온도로 나누고 다시 합으로 나누면 온도는 약분됩니다. 소프트맥스 전에 로짓을 "
    "나누세요.",
    "The temperature changes nothing. If probabilities are divided by it and then by their sum, it cancels. Divide the "
    "logits, before the softmax.",
)
_NO_SOFTMAX = Words(
    "로짓을 나누었지만 소프트맥스가 없습니다. 확률은 합이 1이고 음수가 아니어야 합니다.",
    "The logits are divided, but the softmax is missing. Probabilities sum to 1, and are not negative.",
)
_OVER_THE_BATCH = Words(
    "소프트맥스가 배치 차원에 있습니다. 확률은 어휘 차원에서 합이 1이어야 합니다: dim=-1.",
    "The softmax runs over the batch. Probabilities sum to 1 over the vocabulary: dim=-1.",
)


# --- top_k ---

INFINITY = float("inf")


def top_k(code: Code) -> Steps:
    """All but the k largest of each row are -inf."""
    function = code.function("keep_top_k")
    logits, k = hidden(3, 9, seed=2), 4
    compare(_unchanged(function, logits, k), sampling.keep_top_k(logits, k), *_wrong_top_k(logits, k))
    yield Words("각 행에서 가장 큰 k개가 남습니다.", "The k largest of each row remain.")
    compare(function(logits.clone(), 1), sampling.keep_top_k(logits, 1))
    for large in (9, 50):
        kept = raises(
            Words(
                "k가 어휘보다 크면 topk가 오류를 냅니다. min(k, logits.shape[-1])을 쓰세요.",
                "topk raises an error if k is larger than the vocabulary. Use min(k, logits.shape[-1]).",
            ),
            partial(function, logits.clone(), large),
            mistake="k-too-large",
            text=("out of range", "IndexError", "out of bounds"),
        )
        compare(kept, logits)
    yield Words("k가 어휘보다 커도 됩니다.", "k may be larger than the vocabulary.")


def _unchanged(function: Callable[..., object], logits: Tensor, most: float) -> object:
    """The result for these logits.

    Raises:
        Wrong: the function changed them.
    """
    given = logits.clone()
    result = function(given, most)
    require(torch.equal(given, logits), _CHANGED, mistake="in-place")
    return result


def _wrong_top_k(logits: Tensor, k: int) -> Iterator[Mistake]:
    ordered = logits.sort(-1, descending=True).values
    least = ordered[:, k - 1 : k]
    yield Mistake("zeros", logits.masked_fill(logits < least, 0.0), _ZEROS)
    yield Mistake("one-fewer", logits.masked_fill(logits <= least, -INFINITY), _ONE_FEWER)
    yield Mistake("one-more", logits.masked_fill(logits < ordered[:, k : k + 1], -INFINITY), _ONE_MORE)
    smallest = ordered[:, -k, None]
    yield Mistake("smallest", logits.masked_fill(logits > smallest, -INFINITY), _SMALLEST)
    yield Mistake("removed-the-largest", logits.masked_fill(logits >= least, -INFINITY), _REMOVED)
    yield Mistake("one-threshold", logits.masked_fill(logits < least[0], -INFINITY), _ONE_THRESHOLD)
    overall = logits.flatten().topk(k).values[-1]
    yield Mistake("one-threshold", logits.masked_fill(logits < overall, -INFINITY), _ONE_THRESHOLD)
    yield Mistake("values-only", ordered[:, :k], _VALUES_ONLY)


_CHANGED = Words(
    "받은 텐서를 제자리에서 바꾸었습니다. logits[...] = 나 masked_fill_ 대신 masked_fill을 쓰세요. 새 텐서를 만듭니다.",
    "The function changed its argument. Use masked_fill, which makes a new tensor, not masked_fill_ or logits[...] =.",
)
_ZEROS = Words(
    "-∞ 대신 0으로 바꾸었습니다. exp(0) = 1이므로 확률이 0이 되지 않고, 음수 로짓보다 오히려 커집니다.",
    "The logits are set to 0 instead of -∞. exp(0) = 1, so the probability is not 0, and is above that of negative "
    "logits.",
)
_ONE_FEWER = Words(
    "k - 1개만 남았습니다. k번째로 큰 로짓 자신은 남아야 합니다: <=가 아니라 <입니다.",
    "Only k - 1 remain. The k-th largest logit itself stays: use <, not <=.",
)
_ONE_MORE = Words(
    "k + 1개가 남았습니다. k번째로 큰 값의 번호는 k - 1입니다.",
    "k + 1 remain. The k-th largest has the index k - 1.",
)
_SMALLEST = Words(
    "가장 작은 k개가 남았습니다. sort의 기본은 오름차순입니다.",
    "The k smallest remain. sort is ascending unless told otherwise.",
)
_REMOVED = Words(
    "가장 큰 k개를 지우고 나머지를 남겼습니다. 마스크가 반대입니다.",
    "The k largest were removed, and the rest was kept. The mask is the wrong way round.",
)
_ONE_THRESHOLD = Words(
    "모든 행에 같은 기준을 썼습니다. k번째로 큰 로짓은 행마다 다르므로 기준의 모양은 (B, 1)입니다.",
    "All rows share one threshold. The k-th largest logit differs from row to row, so the threshold has the shape (B, "
    "1).",
)
_VALUES_ONLY = Words(
    "큰 로짓 k개만 돌려주어 모양이 (B, k)입니다. 어느 토큰의 로짓인지 알 수 없게 됩니다. 모양 (B, V)를 유지하세요.",
    "Only the k largest logits are returned, (B, k). It is then unknown which tokens they belong to. Keep the shape "
    "(B, V).",
)


# --- top_p ---


def top_p(code: Code) -> Steps:
    """The fewest likeliest tokens whose probabilities reach p."""
    function = code.function("keep_top_p")
    table = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()  # the example of the task, in another order
    compare(_unchanged(function, table, 0.55), sampling.keep_top_p(table, 0.55), *_wrong_top_p(table, 0.55))
    yield Words("과제의 예가 맞습니다.", "The example of the task is right.")
    logits = hidden(4, 11, seed=3, scale=1.5)
    for p in (0.6, 0.9):
        compare(_unchanged(function, logits, p), sampling.keep_top_p(logits, p), *_wrong_top_p(logits, p))
    yield Words("합이 p에 이르는 가장 적은 토큰이 남습니다.", "The fewest tokens that reach p remain.")
    tiny = require_tensor(function(logits.clone(), 0.001))
    require(bool(tiny.isfinite().any(-1).all()), _NONE_LEFT, mistake="none-left")
    compare(tiny, sampling.keep_top_p(logits, 0.001))
    compare(function(logits.clone(), 1.0), logits)
    yield Words("p가 아주 작아도 하나는 남습니다.", "One token remains, however small p is.")


def _wrong_top_p(logits: Tensor, p: float) -> Iterator[Mistake]:
    ordered, places = logits.sort(-1, descending=True)
    shares = ordered.softmax(-1)
    sums = shares.cumsum(-1)

    def kept(out: Tensor, values: Tensor = ordered) -> Tensor:
        return torch.empty_like(logits).scatter(-1, places, values.masked_fill(out, -INFINITY))

    right = sums - shares >= p
    yield Mistake("crossing-dropped", kept(sums > p), _CROSSING)
    yield Mistake("one-more", kept(sums - shares - shares.roll(1, -1) >= p), _ONE_TOO_MANY)
    yield Mistake("not-unsorted", ordered.masked_fill(right, -INFINITY), _NOT_UNSORTED)
    yield Mistake("mask-not-unsorted", logits.masked_fill(right, -INFINITY), _MASK_NOT_UNSORTED)
    yield Mistake("unsorted-twice", ordered.masked_fill(right, -INFINITY).gather(-1, places), _UNSORTED_TWICE)
    yield Mistake("unsorted-twice", logits.masked_fill(right.gather(-1, places), -INFINITY), _UNSORTED_TWICE)
    in_order = logits.softmax(-1)
    yield Mistake("not-sorted", logits.masked_fill(in_order.cumsum(-1) - in_order >= p, -INFINITY), _NOT_SORTED)
    small = logits.sort(-1)
    few = small.values.softmax(-1)
    out = few.cumsum(-1) - few >= p
    least = torch.empty_like(logits).scatter(-1, small.indices, small.values.masked_fill(out, -INFINITY))
    yield Mistake("least-likely", least, _LEAST_LIKELY)
    zeros = torch.empty_like(logits).scatter(-1, places, ordered.masked_fill(right, 0.0))
    yield Mistake("zeros", zeros, _ZEROS)
    yield Mistake("each-by-itself", logits.masked_fill(in_order < p, -INFINITY), _EACH)
    yield Mistake("no-softmax", kept(ordered.cumsum(-1) - ordered >= p), _SUM_OF_LOGITS)
    yield Mistake("probabilities-returned", kept(right, shares), _PROBABILITIES)


_CROSSING = Words(
    "p에 이르게 하는 토큰을 지웠습니다. 남은 합이 p보다 작고, p가 작으면 하나도 남지 않습니다. 자기보다 확률이 높은 "
    "토큰의 합이 p 이상인 토큰만 지우세요.",
    "The token with which the sum reaches p was dropped. What remains is less than p, and with a small p nothing "
    "remains. Drop a token only if the likelier ones have p or more without it.",
)
_ONE_TOO_MANY = Words(
    "하나 더 남았습니다. 합이 처음으로 p 이상이 되는 토큰까지만 남깁니다.",
    "One token too many remains. The last to stay is the one with which the sum reaches p for the first time.",
)
_NOT_UNSORTED = Words(
    "정렬한 순서로 돌려주었습니다. 그러면 0번 로짓이 0번 토큰의 것이 아닙니다. scatter로 원래 자리에 되돌리세요.",
    "The logits are returned in sorted order, so logit 0 no longer belongs to token 0. Put them back with scatter.",
)
_MASK_NOT_UNSORTED = Words(
    "정렬한 순서의 마스크를 정렬하지 않은 로짓에 적용했습니다. 마스크도 원래 순서로 되돌려야 합니다.",
    "A mask in sorted order is applied to logits that are not sorted. Put the mask back into the order of the tokens.",
)
_UNSORTED_TWICE = Words(
    "gather로 되돌렸습니다. gather(places)는 places의 순서대로 읽는 것이어서 한 번 더 섞습니다. 되돌리려면 places의 "
    "자리에 쓰는 scatter를 쓰세요.",
    "gather(places) reads from places, which shuffles once more. To undo the sorting, write to places: scatter.",
)
_NOT_SORTED = Words(
    "정렬하지 않고 더했습니다. 그러면 확률이 아니라 id가 작은 토큰이 남습니다.",
    "The sum runs over unsorted tokens. Then those with small ids remain, not the likeliest.",
)
_LEAST_LIKELY = Words(
    "확률이 낮은 토큰부터 더했습니다. sort의 기본은 오름차순이므로 descending=True를 주세요.",
    "The sum begins with the least likely tokens. sort is ascending; give it descending=True.",
)
_EACH = Words(
    "확률이 p보다 작은 토큰을 하나씩 지웠습니다. p는 토큰 하나가 아니라 남은 토큰을 모두 더한 확률입니다.",
    "Each token with a probability below p was removed. p is about the sum of the remaining tokens, not about one "
    "token.",
)
_SUM_OF_LOGITS = Words(
    "로짓을 더했습니다. p와 비교할 것은 확률의 합이므로 소프트맥스를 먼저 취하세요.",
    "The logits are added up. p is compared with a sum of probabilities, so take the softmax first.",
)
_PROBABILITIES = Words(
    "남은 토큰의 확률을 돌려주었습니다. 로짓을 돌려주어야 뒤의 소프트맥스가 합을 1로 맞춥니다.",
    "The probabilities of the remaining tokens are returned. Return their logits; the softmax after this makes their "
    "sum 1.",
)
_NONE_LEFT = Words(
    "p = 0.001이면 모든 토큰이 지워지고, 소프트맥스의 결과는 NaN입니다. 확률이 가장 높은 토큰은 항상 남기세요.",
    "With p = 0.001 every token is dropped, and the softmax gives NaN. Always keep the likeliest token.",
)


# --- generate ---


class _Counting(nn.Module):
    """A model that is sure of the next token, which depends on all tokens it sees and on their number."""

    def __init__(self, vocab: int, certainty: float = 80.0) -> None:
        super().__init__()
        self.vocab, self.certainty = vocab, certainty
        self.scale = nn.Parameter(torch.ones(()))
        self.seen: list[Tensor] = []
        self.modes: list[bool] = []
        self.graphs: list[bool] = []

    def forward(self, ids: Tensor) -> Tensor:
        self.seen.append(ids)
        self.modes.append(self.training)
        logits = nn.functional.one_hot(self.after(ids), self.vocab) * self.certainty * self.scale
        self.graphs.append(logits.requires_grad)
        return logits

    def after(self, ids: Tensor) -> Tensor:
        """The next token at each position: (B, T) -> (B, T)."""
        return (3 * ids.cumsum(1) + 5 * torch.arange(ids.shape[1]) + 1) % self.vocab


def generate(code: Code) -> Steps:
    """The loop, with a model whose next token is certain; then a draw, a mode and a graph."""
    function = code.function("generate")
    _earlier(code)
    model = _Counting(11).train()
    start = torch.tensor([[1, 2, 3], [4, 6, 5]])
    made = require_tensor(_explained_draw(lambda: function(model, start.clone(), 6, 4)))
    widest = max((ids.shape[1] for ids in model.seen), default=0)
    require(widest > 0, Words("모델을 부르지 않았습니다.", "The model was not called."), mistake="no-model")
    require(widest <= 4, _NOT_CROPPED, mistake="not-cropped", length=widest)
    right = _continued(model, start, 6, 4)
    compare(made, right, *_wrong_texts(model, start, right))
    yield Words("마지막 위치의 토큰을 이어 붙입니다.", "The token at the last position is appended.")
    require(not any(model.modes), _TRAIN_MODE, mistake="train-mode")
    require(not any(model.graphs), _GRAPH, mistake="graph")
    yield Words("평가 모드이고 기울기가 없습니다.", "The model is in eval mode, and there are no gradients.")
    even = _Counting(3, certainty=0.0)
    drawn = require_tensor(function(even, torch.zeros(2, 1, dtype=torch.int64), 200, 4))
    shares = torch.bincount(drawn[:, 1:].flatten(), minlength=3) / 400
    require(len(drawn[:, 1:].unique()) > 1, _NOT_DRAWN, mistake="argmax")
    require(not torch.equal(drawn[0], drawn[1]), _SAME_ROWS, mistake="same-rows")
    require(shares.min().item() > 0.2, _UNEVEN, mistake="uneven", shares=[round(s, 2) for s in shares.tolist()])
    yield Words("확률에 따라 뽑습니다.", "The tokens are drawn by their probabilities.")
    unsure = _Counting(11, certainty=0.5)
    cold = require_tensor(function(unsure, start.clone(), 6, 4, temperature=0))
    compare(cold, right, Mistake("temperature-ignored", lambda result: True, _TEMPERATURE_IGNORED))
    yield Words("온도를 씁니다.", "The temperature is used.")


def _earlier(code: Code) -> None:
    """Check the function that the file takes from an earlier exercise."""
    logits = hidden(2, 5)
    compare(
        code.function("probabilities")(logits.clone(), 0.5),
        (logits / 0.5).softmax(-1),
        Mistake("earlier-exercise", lambda result: True, _EARLIER),
    )


_EARLIER = Words(
    "앞 연습의 probabilities가 아직 맞지 않습니다. temperature 파일을 먼저 확인하세요.",
    "probabilities of the earlier exercise is not right yet. Check the file of temperature first.",
)


def _explained_draw(call: Callable[[], object]) -> object:
    def all_positions() -> object:
        return raises(_ALL_POSITIONS, call, mistake="all-positions", text="prob_dist must be 1 or 2 dim")

    return raises(
        Words(
            "torch.multinomial에 로짓을 넘겼습니다. 로짓은 음수일 수 있습니다. probabilities로 먼저 확률로 바꾸세요.",
            "torch.multinomial was given logits, which can be negative. Turn them into probabilities first.",
        ),
        all_positions,
        mistake="logits-drawn",
        text=("probability tensor contains either", "invalid multinomial distribution"),
    )


def _continued(
    model: _Counting,
    ids: Tensor,
    tokens: int,
    length: int,
    position: int = -1,
    crop: Callable[[Tensor, int], Tensor] = lambda ids, length: ids[:, -length:],
) -> Tensor:
    for _ in range(tokens):
        ids = torch.cat((ids, model.after(crop(ids, length))[:, position, None]), dim=1)
    return ids


def _wrong_texts(model: _Counting, start: Tensor, right: Tensor) -> Iterator[Mistake]:
    yield Mistake("first-position", _continued(model, start, 6, 4, position=0), _FIRST_POSITION)
    yield Mistake("first-tokens", _continued(model, start, 6, 4, crop=lambda ids, n: ids[:, :n]), _FIRST_TOKENS)
    yield Mistake("last-token-only", _continued(model, start, 6, 4, crop=lambda ids, n: ids[:, -1:]), _LAST_ONLY)
    repeated = torch.cat((start, model.after(start)[:, -1:].expand(-1, 6)), dim=1)
    yield Mistake("same-input", repeated, _SAME_INPUT)
    yield Mistake("prompt-lost", right[:, start.shape[1] :], _PROMPT_LOST)
    yield Mistake("prompt-lost", right[:, -4:], _PROMPT_LOST)
    yield Mistake("prompt-lost", right[:, -5:], _PROMPT_LOST)
    yield Mistake("not-appended", start, _NOT_APPENDED)
    yield Mistake("return-in-the-loop", lambda result: result.shape[-1] == start.shape[1] + 1, _RETURN)


_NOT_CROPPED = Words(
    "모델에 토큰 {length}개를 넣었습니다. context_length는 4입니다. 그보다 뒤의 위치에는 위치 임베딩이 없습니다. "
    "ids[:, -context_length:]를 넣으세요.",
    "The model was given {length} tokens, and context_length is 4. There are no position embeddings beyond that. Give "
    "it ids[:, -context_length:].",
)
_ALL_POSITIONS = Words(
    "모든 위치의 로짓 (B, T, V)에서 뽑으려 했습니다. 새 토큰은 마지막 위치가 예측합니다: logits[:, -1].",
    "This draws from the logits of all positions, (B, T, V). The last position predicts the new token: logits[:, -1].",
)
_FIRST_POSITION = Words(
    "첫 위치의 로짓을 썼습니다. 첫 위치는 둘째 토큰을 예측하고, 그 토큰은 이미 있습니다. 새 토큰은 마지막 위치가 "
    "예측합니다.",
    "The logits of the first position are used. It predicts the second token, which is there already. The last "
    "position predicts the new one.",
)
_FIRST_TOKENS = Words(
    "앞의 context_length개를 넣었습니다. 텍스트가 길어지면 모델이 새 토큰을 보지 못하고 같은 입력을 계속 받습니다. "
    "뒤에서 자르세요.",
    "The model is given the first context_length tokens. Once the text is longer, it never sees the new tokens. Cut "
    "from the end.",
)
_LAST_ONLY = Words(
    "마지막 토큰 하나만 넣었습니다. 그러면 모델은 앞의 문맥을 모르는 바이그램 모델이 됩니다.",
    "Only the last token is given to the model. It then knows nothing of the context, like a bigram model.",
)
_SAME_INPUT = Words(
    "모델이 매번 같은 입력을 받습니다. 새 토큰을 붙인 ids를 다음 반복에서 써야 합니다: ids = torch.cat(...).",
    "The model gets the same input each time. The next round needs the ids with the new token: ids = torch.cat(...).",
)
_PROMPT_LOST = Words(
    "결과에서 앞의 토큰이 없어졌습니다. 처음에 받은 토큰도 결과에 있어야 합니다. 자른 것은 모델에만 넣고, ids에는 "
    "모든 토큰을 두세요.",
    "The first tokens are missing in the result, which should begin with the given ones. Crop only what the model is "
    "given, and keep all tokens in ids.",
)
_RETURN = Words(
    "토큰을 하나만 생성했습니다. return이 반복문 안에 있지 않은지 들여쓰기를 확인하세요.",
    "Only one token was generated. Check the indentation: the return may be inside the loop.",
)
_NOT_APPENDED = Words(
    "새 토큰이 결과에 없습니다. torch.cat은 새 텐서를 돌려주므로 ids에 다시 넣어야 합니다.",
    "The new tokens are not in the result. torch.cat returns a new tensor: assign it to ids.",
)
_TRAIN_MODE = Words(
    "모델이 학습 모드입니다. 드롭아웃이 켜져 있어 쓸 때마다 모델의 일부가 무작위로 꺼집니다. model.eval()을 부르세요.",
    "The model is in training mode. Dropout is on, and switches off random parts of the model while it writes. Call "
    "model.eval().",
)
_GRAPH = Words(
    "기울기를 위한 계산 그래프를 만들고 있습니다. 쓰기만 할 때는 필요 없고 메모리와 시간이 듭니다. "
    "torch.no_grad()를 쓰세요.",
    "A graph for gradients is recorded. Writing does not need it, and it takes memory and time. Use torch.no_grad().",
)
_NOT_DRAWN = Words(
    "확률이 모두 같은데 200번 모두 같은 토큰이 나왔습니다. argmax를 쓴 것 같습니다. argmax로 쓰면 같은 구절이 "
    "되풀이되기 쉽습니다. torch.multinomial로 뽑으세요.",
    "All tokens are equally likely, and one token came 200 times: this looks like argmax. With argmax, a text easily "
    "repeats itself. Draw with torch.multinomial.",
)
_SAME_ROWS = Words(
    "모든 행에 같은 토큰이 붙었습니다. 행마다 따로 뽑으세요: multinomial(확률 (B, V), 1)은 (B, 1)입니다.",
    "All rows get the same tokens. Draw for each row: multinomial(probabilities (B, V), 1) is (B, 1).",
)
_UNEVEN = Words(
    "확률이 같은 토큰 셋의 비율이 {shares}입니다. 확률대로 뽑지 않았습니다.",
    "Three equally likely tokens have the shares {shares}. They are not drawn by their probabilities.",
)
_TEMPERATURE_IGNORED = Words(
    "온도 0에서 확률이 가장 높은 토큰이 나오지 않았습니다. temperature를 probabilities에 넘기세요.",
    "At temperature 0 the result is not always the likeliest token. Pass temperature to probabilities.",
)


# --- kv_cache ---


def kv_cache(code: Code) -> Steps:
    """Attention with a cache equals attention without one, and the production module."""
    width, length = 6, 9
    torch.manual_seed(5)
    production = MultiHeadAttention(width, width, 1, project=False)
    layer = code.module("CachedAttention", width, length)
    copy_parameters(
        production,
        layer,
        {"q_proj.weight": "query.weight", "k_proj.weight": "key.weight", "v_proj.weight": "value.weight"},
    )
    x = hidden(2, length, width, seed=4)
    placed = x + layer.position.weight.detach()
    with torch.no_grad():
        right = production(placed, causal=True)
        yield from _without_cache(layer, x, placed, right, production)
        yield from _with_cache(layer, x, placed, right, production)


def _without_cache(layer: nn.Module, x: Tensor, placed: Tensor, right: Tensor, production: nn.Module) -> Steps:
    cached = require_tensor(layer(x.clone(), None))
    compare(
        cached,
        right,
        Mistake("no-mask", production(placed), _NO_MASK),
        Mistake("no-positions", production(x, causal=True), _NO_POSITIONS),
        Mistake("no-scale", _attended(placed, production, scale=1.0), _NO_SCALE),
    )
    yield Words("캐시 없이 jumok의 인과 어텐션과 같습니다.", "Without a cache it equals the causal attention of jumok.")


def _attended(x: Tensor, production: Any, *, scale: float, mask: Tensor | None = None, past: int = 0) -> Tensor:
    """The output at x[:, past:], computed step by step."""
    q, k, v = production.q_proj(x[:, past:]), production.k_proj(x), production.v_proj(x)
    if mask is None:
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(past)
    return (q @ k.mT * scale).masked_fill(~mask, -INFINITY).softmax(-1) @ v


def _with_cache(layer: nn.Module, x: Tensor, placed: Tensor, right: Tensor, production: Any) -> Steps:
    first, scale = 4, x.shape[-1] ** -0.5
    cache: dict[str, Tensor] = {}
    compare(layer(x[:, :first].clone(), cache), right[:, :first])
    require(bool(cache), _NOT_STORED, mistake="not-stored")
    require({"k", "v"} <= set(cache), _NAMES, mistake="names", found=sorted(cache))
    following = raises(
        _CAT,
        lambda: layer(x[:, first : first + 1].clone(), cache),
        mistake="cat-dimension",
        text=("Sizes of tensors must match", "must match the size of tensor", "Expected size for first two dimensions"),
    )
    wrong = _wrong_next(x, placed, production, first, scale)
    compare(following, right[:, first : first + 1], *wrong)
    require(cache["k"].shape[1] == first + 1, _NOT_APPENDED_KEYS, mistake="not-appended", count=cache["k"].shape[1])
    yield Words("토큰 하나를 더 넣어도 결과가 같습니다.", "One more token gives the same result.")
    rest = x[:, first + 1 :]
    top_left = torch.ones(rest.shape[1], x.shape[1], dtype=torch.bool).tril()
    compare(
        layer(rest.clone(), cache),
        right[:, first + 1 :],
        Mistake("mask-top-left", _attended(placed, production, scale=scale, mask=top_left, past=first + 1), _TOP_LEFT),
        Mistake("no-mask-in-a-piece", production(placed)[:, first + 1 :], _NO_MASK_IN_A_PIECE),
    )
    yield Words("토큰 여러 개를 더 넣어도 결과가 같습니다.", "Several more tokens give the same result.")
    kept = LayerCache(x.shape[1], torch.empty(len(x), 1, 0, x.shape[2]))
    keys, values = kept.append(production.k_proj(placed)[:, None], production.v_proj(placed)[:, None])
    compare(
        cache["k"],
        keys[:, 0],
        Mistake("values-as-keys", values[:, 0], _SWAPPED),
        Mistake("inputs-stored", x, _INPUTS),
        Mistake("inputs-stored", placed, _INPUTS),
    )
    compare(cache["v"], values[:, 0])
    yield Words("캐시의 내용이 jumok의 캐시와 같습니다.", "The cache holds what the cache of jumok holds.")


def _wrong_next(x: Tensor, placed: Tensor, production: Any, first: int, scale: float) -> Iterator[Mistake]:
    """What mistakes give at the first token after a piece of `first` tokens."""
    new = placed[:, first : first + 1]
    restarted = x[:, first : first + 1] + (placed - x)[:, :1]
    so_far = torch.cat((placed[:, :first], restarted), dim=1)
    yield Mistake("square-mask", lambda result: result.shape[1] == first + 1, _SQUARE)
    yield Mistake("positions-restart", _attended(so_far, production, scale=scale, past=first), _RESTART)
    yield Mistake("not-appended", production.v_proj(new), _ALONE)
    yield Mistake("not-appended", production.v_proj(restarted), _ALONE)
    top_left = torch.ones(1, first + 1, dtype=torch.bool).tril()
    all_new = placed[:, : first + 1]
    yield Mistake("mask-top-left", _attended(all_new, production, scale=scale, mask=top_left, past=first), _TOP_LEFT)
    itself_left_out = torch.ones(1, first + 1, dtype=torch.bool).tril(first - 1)
    yield Mistake(
        "without-itself", _attended(all_new, production, scale=scale, mask=itself_left_out, past=first), _ITSELF
    )


_NO_MASK = Words(
    "마스크가 없어 미래 토큰을 참조합니다. 한 번에 넣은 토큰끼리도 자기 위치까지만 참조해야 합니다.",
    "There is no mask, so queries attend to future tokens. Tokens given at once also attend only up to themselves.",
)
_NO_POSITIONS = Words(
    "위치 임베딩을 더하지 않았습니다: x + self.position(torch.arange(...)).",
    "The position embeddings are missing: x + self.position(torch.arange(...)).",
)
_NO_SCALE = Words("점수를 √C로 나누지 않았습니다.", "The scores are not divided by √C.")
_NOT_STORED = Words(
    "첫 호출 뒤에 캐시가 비어 있습니다. 빈 딕셔너리는 거짓이므로 if cache:에 들어가지 않습니다. 저장할 때는 cache is "
    "not None을 확인하고, 받은 딕셔너리에 쓰세요(새로 만들지 마세요).",
    "The cache is empty after the first call. An empty dictionary is false, so `if cache:` skips it. Before storing, "
    "ask for `cache is not None`, and write into the given dictionary, not into a new one.",
)
_NAMES = Words(
    '캐시의 이름이 {found}입니다. "k"와 "v"로 저장하세요.', 'The cache has the entries {found}. Store "k" and "v".'
)
_NOT_APPENDED_KEYS = Words(
    "토큰이 5개인데 캐시에는 {count}개가 있습니다. 이어 붙인 k와 v를 캐시에 다시 저장하세요.",
    "There were 5 tokens, but the cache holds {count}. Store the concatenated k and v in the cache again.",
)
_CAT = Words(
    "k와 v를 위치가 아닌 차원에서 이어 붙였습니다. (B, S, C)에서 위치는 차원 1입니다: torch.cat((...), dim=1).",
    "k and v are not concatenated over the positions. In (B, S, C) these are dimension 1: torch.cat((...), dim=1).",
)
_SQUARE = Words(
    "새 토큰은 하나인데 출력이 모든 위치에 있습니다. 쿼리는 새 토큰뿐이므로 마스크의 모양은 (S, S)가 아니라 (T, "
    "S)입니다.",
    "There is one new token, but an output for every position. Only the new tokens are queries, so the mask has the "
    "shape (T, S), not (S, S).",
)
_RESTART = Words(
    "새 토큰의 위치가 다시 0부터 시작합니다. 모델은 새 토큰이 문장 맨 앞에 있다고 봅니다. torch.arange(past, past + "
    "T)를 쓰세요.",
    "The positions of new tokens begin at 0 again, so the model takes them for the start of the text. Use "
    "torch.arange(past, past + T).",
)
_ALONE = Words(
    "새 토큰이 자기 자신만 참조합니다. 캐시의 k와 v를 새 것 앞에 이어 붙이고 어텐션을 계산하세요.",
    "The new token attends only to itself. Put k and v of the cache before the new ones, then compute the attention.",
)
_TOP_LEFT = Words(
    "마스크가 왼쪽 위에 맞춰져 있습니다. 쿼리는 새 토큰뿐이고 첫 쿼리의 위치는 past입니다. 그런데 tril()이나 "
    "is_causal=True는 첫 쿼리에 키 하나만 보여 줍니다. tril(past)를 쓰세요.",
    "The mask is aligned to the top left. The queries are only the new tokens, and the first of them is at position "
    "past. tril() and is_causal=True show it one key only. Use tril(past).",
)
_ITSELF = Words(
    "새 토큰이 자기 자신을 참조하지 않습니다. 쿼리 i는 캐시의 past개와 새 토큰 i + 1개를 참조합니다.",
    "The new token does not attend to itself. Query i attends to the past tokens of the cache, and to i + 1 new ones.",
)
_NO_MASK_IN_A_PIECE = Words(
    "캐시가 있을 때 마스크를 쓰지 않았습니다. 쿼리가 하나이면 맞지만, 여러 개를 넣으면 미래 토큰을 참조합니다.",
    "With a cache there is no mask. That is right for one query, but several queries then attend to future tokens.",
)
_INPUTS = Words(
    "캐시에 키가 아니라 x가 있습니다. 결과는 맞지만 앞 토큰의 키와 값을 매번 다시 계산하게 됩니다. k와 v를 저장하세요.",
    "The cache holds x, not the keys. The result is right, but the keys and values of all earlier tokens are computed "
    "again each time. Store k and v.",
)
_SWAPPED = Words("캐시의 k에 값이 들어 있습니다.", "The entry k of the cache holds the values.")


# --- beam_search ---

START, END = 0, 4
Beams = list[tuple[float, list[int]]]


def _language(seed: int) -> Callable[[list[int]], Tensor]:
    """A language of 5 tokens in which a token depends on the two before it."""
    table = hidden(5, 5, 5, seed=seed, scale=1.6)
    table[..., START] -= 4
    return lambda ids: table[(ids[-2] if len(ids) > 1 else 0), ids[-1]].log_softmax(-1)


def _searched(after: Callable[[list[int]], Tensor], beam: int, most: int, rule: str = "") -> Beams:
    """Beam search, or with a rule a mistaken one."""
    beams: Beams = [(1.0 if rule == "product" else 0.0, [START])]
    for _ in range(most):
        candidates: Beams = []
        for total, ids in beams:
            if ids[-1] == END and rule != "continued":
                candidates += [] if rule == "dropped" else [(total, ids)]
                continue
            grown = [(_score(total, value, rule), [*ids, token]) for token, value in enumerate(after(ids).tolist())]
            candidates += sorted(grown, reverse=True)[:1] if rule == "alone" and len(beams) == beam else grown
        sign = 1 if rule == "worst" else -1
        candidates.sort(key=lambda candidate: sign * candidate[0] / (len(candidate[1]) - 1 if rule == "mean" else 1))
        beams = candidates[:beam]
        if rule == "early" and beams[0][1][-1] == END:
            break
    return beams


def _kept_apart(after: Callable[[list[int]], Tensor], beam: int, most: int) -> Beams:
    """Finished candidates are put aside, and compared at the end only."""
    beams: Beams = [(0.0, [START])]
    finished: Beams = []
    for _ in range(most):
        grown = [
            (total + value, [*ids, token]) for total, ids in beams for token, value in enumerate(after(ids).tolist())
        ]
        finished += [one for one in grown if one[1][-1] == END]
        beams = sorted((one for one in grown if one[1][-1] != END), key=lambda one: -one[0])[:beam]
    return sorted(finished + beams, key=lambda one: -one[0])[:beam]


def _score(total: float, value: float, rule: str) -> float:
    if rule == "product":
        return total * value
    if rule == "probabilities":
        return total + math.exp(value)
    return value if rule == "last" else total + value


def beam_search(code: Code) -> Steps:
    """Beam search in small languages, and against all sentences."""
    function = code.function("beam_search")
    for seed in (20, 21, 22, 23):
        after = _language(seed)
        _compare_beams(function(after, START, END, 3, 4), after, 3, 4)
    yield Words("합이 가장 큰 후보가 남습니다.", "The candidates with the largest sums remain.")
    after = _language(24)
    _compare_beams(function(after, START, END, 1, 4), after, 1, 4)
    yield Words("빔이 하나이면 그리디 디코딩과 같습니다.", "With one beam it equals greedy decoding.")
    _compare_beams(function(after, START, END, 500, 3), after, 500, 3)
    yield Words(
        "빔이 충분히 많으면 모든 문장 가운데 가장 좋은 것을 찾습니다.",
        "With enough beams it finds the best of all sentences.",
    )


_MISTAKEN: Sequence[tuple[str, str, Words]] = (
    (
        "product",
        "product",
        Words(
            "로그 확률을 곱했습니다. 확률은 곱하지만 로그 확률은 더합니다. 음수를 곱하면 부호가 번갈아 바뀝니다.",
            "The log-probabilities are multiplied. Probabilities are multiplied, but their logarithms are added. A "
            "product of negative numbers changes its sign each time.",
        ),
    ),
    (
        "probabilities-added",
        "probabilities",
        Words(
            "확률을 더했습니다. 문장의 확률은 토큰 확률의 곱이고, 로그를 취하면 합입니다. 로그 확률을 그대로 더하세요.",
            "Probabilities are added. The probability of a sentence is the product of those of its tokens, and its "
            "logarithm is a sum. Add the log-probabilities as they are.",
        ),
    ),
    (
        "last-token-only",
        "last",
        Words(
            "마지막 토큰의 로그 확률만 비교했습니다. 앞 토큰까지의 합에 더하세요.",
            "Only the log-probability of the last token is compared. Add it to the sum of the tokens before.",
        ),
    ),
    (
        "continued-after-the-end",
        "continued",
        Words(
            "end로 끝난 후보 뒤에 토큰을 붙였습니다. 끝난 문장은 그대로 두세요.",
            "A token was added to a candidate that had ended with end. A finished sentence stays as it is.",
        ),
    ),
    (
        "finished-dropped",
        "dropped",
        Words(
            "끝난 후보가 사라졌습니다. 끝난 후보도 candidates에 그대로 넣어 다른 후보와 비교하세요.",
            "Finished candidates are lost. Put them into the candidates as they are, and compare them with the others.",
        ),
    ),
    (
        "divided-by-length",
        "mean",
        Words(
            "합을 길이로 나누어 비교했습니다. 여기서는 합만 비교합니다. 길이로 나누면 긴 문장이 유리해집니다.",
            "The sums are compared after a division by the length. Compare the sums as they are here. A division by "
            "the length favours long sentences.",
        ),
    ),
    (
        "stopped-early",
        "early",
        Words(
            "가장 좋은 후보가 끝나자마자 멈췄습니다. 다른 후보는 아직 끝나지 않았습니다. 모든 후보가 끝나거나 most번 "
            "반복할 때까지 계속하세요.",
            "The search stops when the best candidate is finished, but others are not. Go on until all are finished, "
            "or for most rounds.",
        ),
    ),
    (
        "each-beam-alone",
        "alone",
        Words(
            "후보마다 자기 다음 토큰 가운데서만 골랐습니다. 그러면 처음의 나쁜 후보가 끝까지 남습니다. 모든 후보를 한 "
            "목록에 모아 정렬하세요.",
            "Each candidate is compared only with its own continuations, so a bad one stays to the end. Put the "
            "continuations of all candidates into one list, and sort that.",
        ),
    ),
)


def _compare_beams(given: object, after: Callable[[list[int]], Tensor], beam: int, most: int) -> None:
    """Compare with the right beams.

    Raises:
        Wrong: with the name of the mistake that gives the same beams.
    """
    right = _searched(after, beam, most)
    beams = _as_beams(given)
    if not _same_beams(beams, right):
        for name, rule, words in _MISTAKEN:
            if _same_beams(beams, _searched(after, beam, most, rule)):
                raise Wrong(words, mistake=name)
        require(len(beams) <= beam, _TOO_MANY, mistake="too-many", given=len(beams), beam=beam)
        require(not _same_beams(sorted(beams), sorted(right)), _ORDER, mistake="order")
        require(not _same_beams(beams, _searched(after, beam, most, "worst")), _WORST, mistake="worst-kept")
        require(not _same_beams(beams, _kept_apart(after, beam, most)), _APART, mistake="finished-kept-apart")
        require(
            not _same_beams([(one, [START, *ids]) for one, ids in beams], right), _NO_START, mistake="start-missing"
        )
        require(max(len(ids) for _, ids in beams) <= most + 1, _SHARED, mistake="shared-list", most=most)
        greedy = _searched(after, 1, most)
        require(not _same_beams(beams, greedy), _GREEDY, mistake="greedy", beam=beam)
    for (score, ids), (best, expected) in zip(beams, right, strict=False):
        require(ids == expected, _OTHER, given=ids, score=score, right=expected, best=best)
        require(abs(score - best) < 1e-4, _SCORE, ids=ids, given=score, right=best)
    require(len(beams) == len(right), _TOO_FEW, given=len(beams), right=len(right))


def _as_beams(given: object) -> Beams:
    if given is None:
        require_tensor(given)
    try:
        return [(float(score), [int(one) for one in ids]) for score, ids in given]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise Wrong(
            Words(
                "결과는 (로그 확률의 합, id의 목록) 쌍의 목록이어야 합니다.",
                "The result should be a list of pairs (sum of log-probabilities, list of ids).",
            ),
            mistake="not-pairs",
        ) from None


def _same_beams(a: Beams, b: Beams) -> bool:
    return [ids for _, ids in a] == [ids for _, ids in b] and all(
        abs(one - other) < 1e-4 for (one, _), (other, _) in zip(a, b, strict=True)
    )


_APART = Words(
    "끝난 후보를 따로 모아 마지막에만 비교했습니다. 이것도 쓰이는 방법이지만 결과가 다릅니다. 여기서는 끝난 후보도 "
    "매번 beam개 안에 들어야 남습니다.",
    "Finished candidates are put aside, and compared at the end only. This is also in use, but gives other results. "
    "Here, a finished candidate takes one of the places each time.",
)
_NO_START = Words(
    "ids에 start가 빠졌습니다. 첫 id로 남겨 두세요.", "start is missing in the ids. Keep it as the first id."
)
_SHARED = Words(
    "토큰이 {most}개보다 많은 후보가 있습니다. ids.append는 여러 후보가 함께 쓰는 목록을 바꿉니다. 후보마다 새 목록 "
    "[*ids, token]을 만드세요.",
    "A candidate has more than {most} tokens. ids.append changes a list that several candidates share. Make a new "
    "list for each: [*ids, token].",
)
_TOO_MANY = Words(
    "후보가 {given}개 남았습니다. 매번 {beam}개만 남기세요. 그러지 않으면 후보의 수가 토큰마다 V배가 됩니다.",
    "{given} candidates remain. Keep only {beam} each time, or their number grows V times with each token.",
)
_TOO_FEW = Words(
    "후보가 {given}개입니다. {right}개여야 합니다.", "There are {given} candidates; there should be {right}."
)
_WORST = Words(
    "합이 가장 작은 후보를 남겼습니다. 정렬의 기본은 오름차순입니다. reverse=True를 주세요.",
    "The candidates with the smallest sums are kept. Sorting is ascending; use reverse=True.",
)
_GREEDY = Words(
    "후보가 하나뿐이고 그리디 디코딩과 같습니다. 후보를 {beam}개 유지해야 처음에 덜 좋아 보이는 문장도 찾습니다.",
    "There is one candidate, that of greedy decoding. Keep {beam}: a sentence may begin with a less likely token.",
)
_ORDER = Words(
    "후보는 맞지만 순서가 다릅니다. 합이 큰 것이 먼저입니다.", "The candidates are right, but the best must be first."
)
_OTHER = Words(
    "{given} (합 {score:.3f})이 나왔습니다. {right} (합 {best:.3f})이어야 합니다.",
    "The result has {given} (sum {score:.3f}) where {right} (sum {best:.3f}) should be.",
)
_SCORE = Words(
    "{ids}의 합이 {given:.3f}입니다. {right:.3f}이어야 합니다.",
    "The sum of {ids} is {given:.3f}; it should be {right:.3f}.",
)
