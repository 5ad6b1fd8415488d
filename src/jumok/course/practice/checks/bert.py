"""Checks of the exercise on the masking of BERT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from jumok.course.practice.checking import Code, Steps, require, require_shape, require_tensors
from jumok.course.practice.course import Words
from jumok.models.losses import IGNORED

PAD, CLS, SEP, MASK, VOCAB = 0, 1, 2, 3, 2000
SPECIAL = [PAD, CLS, SEP, MASK]


def bert_masking(code: Code) -> Steps:
    """Which tokens are chosen, what stands in their places, and what the labels are, by shares over many tokens."""
    function = code.function("mask_tokens")
    ids = _texts()
    inputs, labels = _call(function, ids)
    ordinary = ~torch.isin(ids, torch.tensor(SPECIAL))
    _require_labels(ids, inputs, labels, ordinary)
    yield Words("labels가 맞습니다.", "The labels are right.")
    chosen = labels != IGNORED
    share = (chosen.sum() / ordinary.sum()).item()
    require(0.13 < share < 0.17, _RATE, mistake="rate", share=100 * share)
    yield Words("토큰의 약 15%를 고릅니다.", "About 15% of the tokens are chosen.")
    if not 0.1 < 100 * (inputs[chosen] == MASK).float().mean() < 99.9:
        few = ids[:16]
        calls = [_call(function, few) for _ in range(30)]
        fates = {round((made[written != IGNORED] == MASK).float().mean().item(), 1) for made, written in calls}
        require(len(fates) == 1, _ONE_DRAW, mistake="one-draw")
    _require_shares(ids, inputs, chosen)
    yield Words("고른 토큰의 80%, 10%, 10%가 맞습니다.", "The shares 80%, 10% and 10% are right.")
    again, _ = _call(function, ids)
    require(not torch.equal(again, inputs), _SAME, mistake="same-each-time")
    rows = {tuple(row.tolist()) for row in chosen}
    require(len(rows) > len(chosen) // 2, _SAME_ROWS, mistake="same-in-all-rows")
    yield Words("부를 때마다, 행마다 다른 토큰을 고릅니다.", "Each call and each row chooses other tokens.")


def _texts() -> Tensor:
    """256 texts of 128 ids: [CLS], ordinary tokens, [SEP], padding."""
    random = torch.Generator().manual_seed(7)
    ids = torch.randint(len(SPECIAL), VOCAB, (256, 128), generator=random)
    ids[:, 0] = CLS
    ends = torch.randint(60, 128, (256, 1), generator=random)
    places = torch.arange(128)
    return ids.masked_fill(places == ends, SEP).masked_fill(places > ends, PAD)


def _call(function: Callable[..., Any], ids: Tensor) -> tuple[Tensor, Tensor]:
    given = ids.clone()
    inputs, labels = require_tensors(function(given, list(SPECIAL), MASK, VOCAB), 2)
    require(torch.equal(given, ids), _IN_PLACE, mistake="in-place")
    for tensor in (inputs, labels):
        require_shape(tensor, tuple(ids.shape), "(B, T)")
    require(not inputs.is_floating_point() and not labels.is_floating_point(), _FLOATS, mistake="float-ids")
    return inputs, labels


def _require_labels(ids: Tensor, inputs: Tensor, labels: Tensor, ordinary: Tensor) -> None:
    """Check which places have a label, and which."""
    chosen = labels != IGNORED
    require(not bool((inputs == IGNORED).any()), _SWAPPED, mistake="swapped")
    inverted = bool((inputs != ids).any()) and torch.equal(labels == IGNORED, inputs != ids)
    require(not inverted, _INVERTED, mistake="labels-inverted")
    require(not torch.equal(labels, ids), _ALL_LABELS, mistake="labels-everywhere")
    require(bool(chosen.any()), _NO_LABELS, mistake="no-labels")
    rest = labels[~ordinary].unique().tolist()  # nothing is chosen there, so all of these labels are alike
    require(len(rest) > 1 or rest == [IGNORED], _OTHER_IGNORED, mistake="ignored-value", value=rest[0])
    require(not bool((chosen & (ids == PAD)).any()), _PADDING, mistake="padding-chosen")
    require(not bool((chosen & ~ordinary).any()), _SPECIAL_CHOSEN, mistake="special-chosen")
    changed = inputs != ids
    require(not bool((changed & ~ordinary).any()), _SPECIAL_CHOSEN, mistake="special-chosen")
    require(not bool((labels[chosen] == MASK).any()), _LABELS_OF_INPUTS, mistake="labels-of-inputs")
    require(torch.equal(labels[chosen], ids[chosen]), _WRONG_LABELS, mistake="wrong-labels")
    require(not bool((changed & ~chosen).any()), _CHANGED_OUTSIDE, mistake="changed-without-label")


def _require_shares(ids: Tensor, inputs: Tensor, chosen: Tensor) -> None:
    """Check what stands in the chosen places."""
    here, before = inputs[chosen], ids[chosen]
    masked = here == MASK
    kept = here == before
    random = ~masked & ~kept
    shares = [100 * one.float().mean().item() for one in (masked, random, kept)]
    values: dict[str, object] = dict(zip(("masked", "random", "kept"), shares, strict=True))
    require(shares[0] < 99.9, _ALWAYS_MASK, mistake="always-mask")
    require(shares[2] > 0.1, _NEVER_KEPT, mistake="never-kept", **values)
    require(shares[1] > 0.1, _NEVER_RANDOM, mistake="never-random", **values)
    near_two, all_the_rest = 1 < shares[1] < 4 and shares[2] > 15, 16 < shares[1] < 20 and shares[2] < 4
    require(not (near_two or all_the_rest), _SECOND_DRAW, mistake="share-of-the-rest", **values)
    near = abs(shares[0] - 80) < 4 and abs(shares[1] - 10) < 3 and abs(shares[2] - 10) < 3
    require(near, _SHARES, mistake="shares", **values)
    others = here[random]
    require(len(others.unique()) > 50, _ONE_RANDOM, mistake="one-random-token")
    require(bool(((others >= 0) & (others < VOCAB)).all()), _OUTSIDE, mistake="outside-the-vocabulary")


_IN_PLACE = Words(
    "받은 ids를 바꾸었습니다. inputs = ids는 복사가 아니라 같은 텐서의 다른 이름입니다. ids.clone()이나 masked_fill을 "
    "쓰세요.",
    "The given ids were changed. inputs = ids makes no copy, only another name. Use ids.clone() or masked_fill.",
)
_FLOATS = Words("id가 실수입니다. 정수여야 합니다.", "The ids are floats; they should be integers.")
_SWAPPED = Words(
    "inputs에 -100이 있습니다. 돌려주는 순서는 inputs, labels입니다.",
    "The inputs contain -100. Return inputs first, then labels.",
)
_INVERTED = Words(
    "라벨의 위치가 반대입니다. 바꾼 위치에 -100이 있고 나머지에 원래 토큰이 있습니다. 모델은 가린 토큰을 예측해야 "
    "합니다.",
    "The labels are the wrong way round: -100 where a token was replaced, and the original token elsewhere. The model "
    "should predict the tokens that were replaced.",
)
_ONE_DRAW = Words(
    "고른 토큰이 모두 같은 처리를 받습니다. 무작위 수를 배치에 하나만 뽑았습니다. 토큰마다 뽑으세요: "
    "torch.rand(ids.shape).",
    "All chosen tokens are treated alike: one random number is drawn for the whole batch. Draw one for each token: "
    "torch.rand(ids.shape).",
)
_ALL_LABELS = Words(
    "모든 위치에 라벨이 있습니다. 그러면 손실의 대부분은 입력에 그대로 보이는 토큰이므로 모델이 베끼기만 해도 손실이 "
    "작습니다. 고르지 않은 위치는 -100이어야 합니다.",
    "Every place has a label. Most of the loss is then about tokens that the input shows, so copying gives a small "
    "loss. The places that are not chosen need -100.",
)
_NO_LABELS = Words(
    "라벨이 하나도 없습니다. 모든 위치가 -100이면 손실이 NaN입니다.",
    "There is no label. If all places are -100, the loss is NaN.",
)
_PADDING = Words(
    "패딩에 라벨이 있습니다. 패딩은 텍스트가 아니므로 예측할 것이 없습니다. special_ids에 있는 토큰을 제외하세요.",
    "Padding has labels. It is not text, so there is nothing to predict. Leave out the tokens in special_ids.",
)
_SPECIAL_CHOSEN = Words(
    "[CLS]나 [SEP] 같은 특수 토큰을 골랐습니다. 이들의 자리는 정해져 있어 배울 것이 없고, 모델은 문장의 경계를 "
    "잃습니다.",
    "Special tokens such as [CLS] or [SEP] were chosen. Their places are fixed, so there is nothing to learn, and the "
    "model no longer sees where sentences end.",
)
_LABELS_OF_INPUTS = Words(
    "라벨이 [MASK]입니다. 바꾼 뒤의 inputs가 아니라 원래 ids를 라벨로 쓰세요. 그러지 않으면 모델은 [MASK]를 "
    "예측합니다.",
    "The labels are [MASK]. Take the labels from the original ids, not from the inputs; otherwise the model predicts "
    "[MASK].",
)
_OTHER_IGNORED = Words(
    "고르지 않은 위치의 라벨이 {value}입니다. 그러면 모델은 그 위치에서 {value}번 토큰을 예측하도록 학습합니다. "
    "F.cross_entropy가 제외하는 값은 -100입니다.",
    "The label of places that are not chosen is {value}, so the model learns to predict token {value} there. "
    "F.cross_entropy leaves out -100.",
)
_WRONG_LABELS = Words(
    "라벨이 원래 토큰이 아닙니다. 고른 위치의 라벨은 ids의 값 그대로입니다.",
    "The labels are not the original tokens. At the chosen places the labels are those of ids.",
)
_CHANGED_OUTSIDE = Words(
    "라벨이 없는 위치의 토큰을 바꾸었습니다. 80%, 10%, 10%는 고른 토큰 가운데의 비율입니다. 조건에 chosen &를 "
    "넣으세요.",
    "Tokens without a label were changed. 80%, 10% and 10% are shares of the chosen tokens. Add chosen & to the "
    "conditions.",
)
_RATE = Words(
    "특수 토큰이 아닌 토큰의 {share:.1f}%를 골랐습니다. 15%여야 합니다. 적으면 배울 것이 적고, 많으면 참고할 문맥이 "
    "적습니다.",
    "{share:.1f}% of the ordinary tokens are chosen; it should be 15%. With fewer there is less to learn; with more "
    "there is less context.",
)
_ALWAYS_MASK = Words(
    "고른 토큰이 모두 [MASK]가 됩니다. 실제로 쓸 때는 입력에 [MASK]가 없습니다. 10%는 무작위 토큰으로, 10%는 그대로 "
    "두어야 모델이 보통 토큰의 위치에서도 좋은 벡터를 만듭니다.",
    "All chosen tokens become [MASK]. In use there is no [MASK] in the input. With 10% random tokens and 10% "
    "unchanged ones, the model also learns good vectors at ordinary tokens.",
)
_NEVER_KEPT = Words(
    "그대로 둔 토큰이 없습니다([MASK] {masked:.0f}%, 무작위 {random:.0f}%). 고른 토큰의 10%는 바꾸지 않지만 라벨은 "
    "있습니다.",
    "No chosen token is unchanged ([MASK] {masked:.0f}%, random {random:.0f}%). 10% of the chosen tokens stay as they "
    "are, with a label.",
)
_NEVER_RANDOM = Words(
    "무작위 토큰이 된 것이 없습니다([MASK] {masked:.0f}%, 그대로 {kept:.0f}%). 10%는 무작위 토큰으로 바꿉니다. 그래야 "
    "모델이 [MASK]가 아닌 토큰도 문맥과 비교해 예측합니다.",
    "No chosen token became a random one ([MASK] {masked:.0f}%, unchanged {kept:.0f}%). 10% become random, so that "
    "the model also compares tokens other than [MASK] with their context.",
)
_SECOND_DRAW = Words(
    "[MASK] {masked:.0f}%, 무작위 {random:.0f}%, 그대로 {kept:.0f}%입니다. 10%를 [MASK]가 아닌 나머지 20%에서 다시 "
    "뽑았습니다. 나머지의 절반(0.5)이 전체의 10%입니다. 무작위 수 하나를 0.8과 0.9로 나누면 쉽습니다.",
    "[MASK] {masked:.0f}%, random {random:.0f}%, unchanged {kept:.0f}%. The second share is drawn from the 20% that "
    "remain after [MASK]. Half of the rest (0.5) is 10% of all. It is easier to divide one random number at 0.8 and "
    "0.9.",
)
_SHARES = Words(
    "고른 토큰 가운데 [MASK]가 {masked:.0f}%, 무작위가 {random:.0f}%, 그대로가 {kept:.0f}%입니다. 80%, 10%, 10%여야 "
    "합니다.",
    "Of the chosen tokens {masked:.0f}% are [MASK], {random:.0f}% random and {kept:.0f}% unchanged; it should be 80%, "
    "10% and 10%.",
)
_ONE_RANDOM = Words(
    "무작위 토큰이 거의 모두 같습니다. 위치마다 따로 뽑으세요: torch.randint(vocab_size, ids.shape).",
    "The random tokens are nearly all the same. Draw one for each place: torch.randint(vocab_size, ids.shape).",
)
_OUTSIDE = Words(
    "무작위 토큰이 어휘 밖에 있습니다. 0 이상 vocab_size 미만이어야 합니다.",
    "A random token is outside the vocabulary. It must be at least 0 and less than vocab_size.",
)
_SAME = Words(
    "부를 때마다 같은 토큰을 고릅니다. 함수 안에서 시드를 정하지 마세요. 에폭마다 다른 토큰을 가려야 텍스트의 모든 "
    "토큰을 배웁니다.",
    "Each call chooses the same tokens. Set no seed inside the function. With other tokens in each epoch, the model "
    "learns about all tokens of the text.",
)
_SAME_ROWS = Words(
    "모든 행에서 같은 위치를 고릅니다. 무작위 수의 모양은 ids와 같은 (B, T)여야 합니다.",
    "All rows have the same places chosen. The random numbers need the shape of ids, (B, T).",
)
