"""Checks of the exercises on whole models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import GPTConfig
from jumok.course.practice.checking import (
    Code,
    Mistake,
    Steps,
    any_of,
    compare,
    hidden,
    raises,
    require,
    require_earlier,
    require_shape,
    require_tensor,
    same,
)
from jumok.course.practice.checks.block import ACTIVATIONS
from jumok.course.practice.checks.positions import require_device
from jumok.course.practice.course import Words
from jumok.course.practice.parameters import copy_parameters, fill
from jumok.models.gpt import GPT
from jumok.nn.blocks import ACTIVATION, MLP, Block

SIZES: dict[str, Any] = {"vocab_size": 11, "context_length": 7, "n_layer": 2, "n_head": 3, "n_embd": 12}
TRAINED = 30  # steps


WHY_GPT = {
    "does-not-learn": Words(
        "{steps}스텝을 학습했지만 손실이 {before:.2f}에서 {after:.2f}로 거의 줄지 않았습니다. 초기화한 값을 "
        "확인하세요.",
        "After {steps} steps of training the loss has gone from {before:.2f} to {after:.2f}, hardly lower. Check how "
        "the parameters are initialised.",
    ),
}


def gpt(code: Code) -> Steps:
    """A GPT with the result of the production one, that does not see the future, and learns."""
    own = code.module("GPT", *SIZES.values())
    tied = "head" in dict(own.named_children()) and own.head.weight is getattr(own.token_embedding, "weight", None)
    right = GPT(GPTConfig(family="classic", tie_embeddings=tied, **SIZES)).eval()
    fill(right)
    _require_layers(own)
    copy_parameters(right, own, {name: _own_name(own, name) for name, _ in right.named_parameters()})
    _choose_activation(own, right)
    own.eval()
    yield Words("필요한 층이 모두 있습니다.", "All layers are there.")
    ids = torch.tensor([[3, 0, 10, 5, 2], [1, 4, 4, 9, 7]])
    with torch.no_grad():
        _refuse_ids_as_positions(own, ids)
        _require_earlier_files(own, right)
        compare(own(ids), right(ids), *_gpt_mistakes(right, ids), tolerance=1e-4, letters="(B, T, V)")
        yield Words("로짓이 jumok의 GPT와 같습니다.", "The logits are equal to those of jumok's GPT.")
        full = torch.arange(21).reshape(3, 7) % 11
        compare(own(full), right(full), tolerance=1e-4)
        require_device(own, own.positions if isinstance(own.positions, nn.Embedding) else own.positions.table, ids)
        yield Words("컨텍스트 길이만큼 긴 입력도 맞습니다.", "Inputs as long as the context are right, too.")
    _require_dropout(code.module("GPT", *SIZES.values(), 0.5))
    yield Words("드롭아웃이 임베딩과 블록에 있습니다.", "Dropout stands after the embeddings and in the blocks.")
    before, after = _train(code.module("GPT", *SIZES.values()))
    require(
        after < before - 0.5,
        WHY_GPT["does-not-learn"],
        mistake="does-not-learn",
        steps=TRAINED,
        before=before,
        after=after,
    )
    yield Words(
        f"학습됩니다. {TRAINED}스텝 동안 손실이 {before:.2f}에서 {after:.2f}로 줄었습니다.",
        f"It learns: in {TRAINED} steps the loss fell from {before:.2f} to {after:.2f}.",
    )


def _own_name(own: nn.Module, name: str) -> str:
    """The reader's name of a parameter. The positions may be LearnedPositions, or an nn.Embedding as in GPT-2."""
    if name != "position_embedding.weight":
        return name
    return "positions.weight" if isinstance(getattr(own, "positions", None), nn.Embedding) else "positions.table.weight"


def _require_earlier_files(own: Any, right: GPT) -> None:
    x, table = hidden(2, 5, SIZES["n_embd"]), right.position_embedding
    assert table is not None
    made = own.blocks[0](x.clone())
    _set_causal(right, False)
    seeing = isinstance(made, Tensor) and same(made, right.blocks[0](x))  # has an explanation of its own
    _set_causal(right, True)
    if not seeing:
        require_earlier("block", made, right.blocks[0](x))
    require_earlier("layer_norm", own.norm(x), right.norm(x))
    if not isinstance(own.positions, nn.Embedding):
        require_earlier("learned_positions", own.positions(x.clone()), x + table.weight[:5])


def _refuse_ids_as_positions(own: Any, ids: Tensor) -> None:
    """Raise `Wrong` if the positions get the ids of the tokens."""
    given: list[Tensor] = []
    hook = own.positions.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    try:
        own(ids)
    except (RuntimeError, IndexError):
        if not any(torch.equal(one, ids) for one in given):
            raise
    finally:
        hook.remove()
    require(not any(torch.equal(one, ids) for one in given), WHY_LAYERS["ids-as-positions"], mistake="ids-as-positions")


WHY_LAYERS = {
    "ids-as-positions": Words(
        "위치의 층에 토큰의 id를 주었습니다. LearnedPositions는 토큰의 벡터를 받아 위치를 더하고, nn.Embedding이라면 "
        "torch.arange(T)의 번호를 받아야 합니다. id를 주면 토큰의 위치가 아니라 종류를 한 번 더 나타냅니다.",
        "The layer of the positions gets the ids of the tokens. LearnedPositions takes the vectors of the tokens and "
        "adds the positions; an nn.Embedding takes the numbers torch.arange(T). With ids it says again which token "
        "it is, not where.",
    ),
    "number-of-blocks": Words(
        "n_layer가 {wanted}인데 블록이 {count}개입니다.",
        "n_layer is {wanted}, and the number of blocks is {count}.",
    ),
    "one-block": Words(
        "같은 블록 하나를 여러 번 넣었습니다. [Block(...)] * n_layer는 블록을 복사하지 않으므로 모든 층이 파라미터를 "
        "공유합니다. for문으로 블록을 하나씩 만드세요.",
        "One block is in the list several times. [Block(...)] * n_layer makes no copies, so all layers share their "
        "parameters. Create each block in a for loop.",
    ),
    "head-bias": Words(
        "출력층에 편향이 있습니다. GPT-2의 출력층에는 편향이 없습니다. bias=False를 주세요.",
        "The output layer has a bias. That of GPT-2 has none: pass bias=False.",
    ),
}


def _require_layers(own: nn.Module) -> None:
    blocks = getattr(own, "blocks", None)
    if isinstance(blocks, list | tuple | nn.ModuleList | nn.Sequential):
        require(
            len(blocks) == SIZES["n_layer"],
            WHY_LAYERS["number-of-blocks"],
            mistake="number-of-blocks",
            wanted=SIZES["n_layer"],
            count=len(blocks),
        )
        require(len({id(block) for block in blocks}) == len(blocks), WHY_LAYERS["one-block"], mistake="one-block")
    require(getattr(getattr(own, "head", None), "bias", None) is None, WHY_LAYERS["head-bias"], mistake="head-bias")


def _choose_activation(own: Any, right: GPT) -> None:
    """Give the production model the activation of the reader's MLP."""
    mlp, production = own.blocks[0].mlp, right.blocks[0].mlp
    assert isinstance(production, MLP)
    x = hidden(2, 3, SIZES["n_embd"])
    with torch.no_grad():
        result = mlp(x.clone())
        hidden_units, down = production.up_proj(x), production.down_proj
        fitting = (
            n for n in ACTIVATIONS if isinstance(result, Tensor) and same(result, down(ACTIVATION[n](hidden_units)))
        )
        chosen = ACTIVATION[next(fitting, ACTIVATIONS[0])]
    for module in right.modules():
        if isinstance(module, MLP):
            module.activation = chosen


WHY_LOGITS = {
    "sees-the-future": Words(
        "모델이 미래 토큰을 봅니다. 블록의 어텐션에 인과 마스크가 없습니다. 맞힐 토큰이 보이므로 학습 손실은 놀랄 "
        "만큼 낮아지지만, 생성할 때는 미래 토큰이 없습니다. 블록 파일에서 causal=True를 확인하세요.",
        "The model sees future tokens: the attention in the block has no causal mask. It sees the token it should "
        "predict, so the training loss becomes surprisingly low, but in generation there is no future. Check "
        "causal=True in your block.",
    ),
    "softmax": Words(
        "결과에 소프트맥스를 적용했습니다. F.cross_entropy가 소프트맥스를 다시 계산하므로 학습이 매우 느려집니다. "
        "로짓을 그대로 돌려주세요.",
        "The result has gone through a softmax. F.cross_entropy computes it again, and training becomes very slow. "
        "Return the logits.",
    ),
    "no-final-norm": Words(
        "출력층 앞의 LayerNorm이 빠졌습니다. pre-norm 블록의 결과는 층마다 더해져 커진 값이므로, 정규화하지 않으면 "
        "로짓의 크기가 층의 수에 따라 달라집니다.",
        "The LayerNorm before the output layer is missing. The result of pre-norm blocks is a sum that grows with "
        "the layers: without a norm, the size of the logits depends on their number.",
    ),
    "no-positions": Words(
        "토큰의 벡터와 위치의 벡터 중 하나가 빠졌습니다. 위치가 없으면 모델이 앞 토큰들의 순서를 구별하기 "
        "어렵습니다. self.positions(self.token_embedding(ids))를 쓰세요.",
        "The vectors of the tokens or of the positions are missing. Without positions the model can hardly tell the "
        "order of the earlier tokens. Use self.positions(self.token_embedding(ids)).",
    ),
    "tokens-twice": Words(
        "토큰의 벡터를 두 번 더했습니다. LearnedPositions는 위치를 더한 결과를 돌려주므로 토큰의 벡터에 다시 더하지 "
        "않습니다.",
        "The vectors of the tokens are added twice. LearnedPositions returns them with the positions added: do not "
        "add again.",
    ),
    "norm-elsewhere": Words(
        "LayerNorm을 다른 곳에도 적용했습니다. self.norm은 마지막 블록과 출력층 사이에 한 번만 있습니다. 어텐션과 "
        "MLP의 입력은 블록 안에서 정규화합니다.",
        "LayerNorm is applied in other places, too. self.norm stands once, between the last block and the output "
        "layer. The inputs of attention and MLP are normalised inside the block.",
    ),
    "added-again": Words(
        "블록의 결과에 x를 다시 더했습니다. 잔차 연결은 블록 안에 있으므로 x = block(x)로 충분합니다.",
        "x is added to the result of the block. The residual connections are inside the block: x = block(x) is enough.",
    ),
    "blocks-skipped": Words(
        "모든 블록을 차례로 적용하지 않았습니다. 반복문에서 x = block(x)처럼 결과를 다시 x에 넣는지, return이 반복문 "
        "안에 있지는 않은지 확인하세요.",
        "Not all blocks are applied in order. Check that the loop assigns its result, x = block(x), and that the "
        "return does not stand inside the loop.",
    ),
    "argmax": Words(
        "로짓 대신 로짓이 가장 큰 토큰의 id를 돌려주었습니다. argmax에는 기울기가 없어 학습할 수 없습니다. 토큰을 "
        "고르는 것은 샘플링의 일입니다.",
        "The id with the largest logit is returned, not the logits. argmax has no gradient, so nothing can be "
        "trained. Choosing a token is a matter of sampling.",
    ),
    "last-position": Words(
        "마지막 위치의 로짓만 돌려주었습니다. 생성에는 충분하지만, 학습할 때는 모든 위치가 다음 토큰을 예측합니다. "
        "(B, T, V)를 돌려주세요.",
        "Only the logits of the last position are returned. That is enough for generation, but in training every "
        "position predicts its next token: return (B, T, V).",
    ),
}


def _gpt_mistakes(right: GPT, ids: Tensor) -> list[Mistake]:
    assert right.position_embedding is not None
    positions = right.position_embedding.weight
    tokens = right.token_embedding(ids)
    logits = right(ids)

    def run(x: Tensor, blocks: list[nn.Module] | None = None, *, norm: bool = True) -> Tensor:
        for part in right.blocks if blocks is None else blocks:
            x = part(x)
        return right.head(right.norm(x) if norm else x)

    def seeing() -> Tensor:
        _set_causal(right, False)
        result = right(ids)
        _set_causal(right, True)
        return result

    placed = tokens + positions[: ids.shape[1]]
    first, second = right.blocks
    return [
        Mistake("sees-the-future", seeing(), WHY_LOGITS["sees-the-future"]),
        Mistake(
            "softmax",
            any_of(logits.softmax(-1), logits.log_softmax(-1), logits.softmax(-2), logits.softmax(1)),
            WHY_LOGITS["softmax"],
        ),
        Mistake("no-final-norm", run(placed, norm=False), WHY_LOGITS["no-final-norm"]),
        Mistake(
            "no-positions",
            any_of(run(tokens), run(positions[: ids.shape[1]].expand_as(tokens))),
            WHY_LOGITS["no-positions"],
        ),
        Mistake("tokens-twice", run(placed + tokens), WHY_LOGITS["tokens-twice"]),
        Mistake(
            "norm-elsewhere",
            any_of(run(right.norm(placed)), run(right.norm(second(right.norm(first(placed)))), [])),
            WHY_LOGITS["norm-elsewhere"],
        ),
        Mistake("added-again", run((y := placed + first(placed)) + second(y), []), WHY_LOGITS["added-again"]),
        Mistake(
            "blocks-skipped",
            any_of(run(placed, []), run(placed, [first]), run(placed, [second]), run(placed, [second, first])),
            WHY_LOGITS["blocks-skipped"],
        ),
        Mistake("argmax", logits.argmax(-1), WHY_LOGITS["argmax"]),
        Mistake("last-position", any_of(logits[:, -1], logits[:, -1:]), WHY_LOGITS["last-position"]),
    ]


def _set_causal(model: GPT, causal: bool) -> None:
    for block in model.blocks:
        assert isinstance(block, Block)
        block.causal = causal


@torch.no_grad()
def _require_dropout(own: Any) -> None:
    own.train()
    fill(own)
    x = hidden(2, 5, SIZES["n_embd"])
    require(
        not same(require_tensor(own.blocks[0](x.clone())), require_tensor(own.blocks[0](x.clone()))),
        Words(
            "블록에 드롭아웃이 전달되지 않았습니다. Block(n_embd, n_head, dropout)으로 만드세요.",
            "The blocks do not get the dropout rate. Create them as Block(n_embd, n_head, dropout).",
        ),
        mistake="no-block-dropout",
    )
    for block in own.blocks:  # now they return their input
        for silent in (block.attention.o_proj, block.mlp.down_proj):
            for parameter in silent.parameters():
                parameter.zero_()
    ids = torch.tensor([[3, 0, 10, 5, 2]])
    require(
        not same(own(ids), own(ids)),
        Words(
            "임베딩 뒤에 드롭아웃이 없습니다. 위치를 더한 다음 첫 블록에 넣기 전에 self.drop을 적용하세요.",
            "There is no dropout after the embeddings. Apply self.drop to the sum of tokens and positions, before "
            "the first block.",
        ),
        mistake="no-embedding-dropout",
    )


def _train(own: Any) -> tuple[float, float]:
    """The loss before and after some steps on a text that repeats itself."""
    text = torch.arange(64) * 3 % SIZES["vocab_size"]
    rows = torch.stack([text[start : start + 8] for start in range(0, 32, 4)])
    optimizer = torch.optim.AdamW(own.parameters(), lr=1e-2)
    losses = []
    for _ in range(TRAINED + 1):
        loss = F.cross_entropy(own(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses[0], losses[-1]


WHY_BIGRAM = {
    "softmax": Words(
        "결과에 소프트맥스를 적용했습니다. F.cross_entropy가 소프트맥스를 계산하므로 로짓을 그대로 돌려주세요.",
        "The result has gone through a softmax. F.cross_entropy computes it: return the logits.",
    ),
    "columns": Words(
        "표의 열을 찾았습니다. 현재 토큰이 행이고, 다음 토큰이 열입니다.",
        "Columns of the table are looked up. The row is the current token, the columns are the next one.",
    ),
    "not-flattened": Words(
        "F.cross_entropy는 어휘의 차원이 두 번째에 있기를 기대하는데, 로짓은 (B, T, V)입니다. 로짓을 (B*T, V)로, "
        "정답을 (B*T,)로 펼치세요.",
        "F.cross_entropy expects the vocabulary in the second dimension, and the logits are (B, T, V). Flatten them "
        "to (B*T, V), and the targets to (B*T,).",
    ),
    "no-gradient": Words(
        "손실에서 표로 기울기가 전달되지 않습니다. .item(), detach, torch.no_grad()를 지우세요.",
        "No gradient goes from the loss to the table. Remove .item(), detach and torch.no_grad().",
    ),
}


def bigram(code: Code) -> Steps:
    """A table of logits, and the cross-entropy of its predictions."""
    vocabulary = 7
    own = code.module("Bigram", vocabulary)
    table = nn.Embedding(vocabulary, vocabulary)
    fill(table, scale=1.5)
    copy_parameters(nn.ModuleDict({"table": table}), own, {"table.weight": "table.weight"})
    yield Words("표의 크기는 V x V입니다.", "The table is V x V.")
    text = torch.tensor([[3, 0, 6, 5, 2, 4], [1, 4, 4, 0, 6, 1], [5, 2, 3, 3, 1, 0]])
    ids, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    rows = table.weight.detach()
    with torch.no_grad():
        logits = rows[ids]
        compare(
            own(ids),
            logits,
            Mistake("softmax", any_of(logits.softmax(-1), logits.log_softmax(-1)), WHY_BIGRAM["softmax"]),
            Mistake("columns", rows.T[ids], WHY_BIGRAM["columns"]),
        )
    yield Words("로짓이 맞습니다.", "The logits are right.")
    given = raises(
        WHY_BIGRAM["not-flattened"],
        lambda: own.loss(ids, targets),
        mistake="not-flattened",
        text="Expected target size",
    )
    require_tensor(given)
    _require_loss(given, logits, ids, targets)
    require(given.requires_grad, WHY_BIGRAM["no-gradient"], mistake="no-gradient")
    yield Words("손실이 맞습니다.", "The loss is right.")


WHY_LOSS = {
    "own-token": Words(
        "현재 토큰 자신을 정답으로 썼습니다. 그러면 모델은 입력을 베끼는 것만 배웁니다. targets와 비교하세요.",
        "The current token itself is the target, so the model only learns to copy its input. Compare with targets.",
    ),
    "shifted-twice": Words(
        "정답을 한 번 더 옮겼습니다. targets는 이미 한 칸 뒤의 토큰이므로, 다시 옮기면 두 칸 뒤를 예측합니다.",
        "The targets are shifted again. They are already the next tokens; shifted twice, the model predicts the "
        "token after the next.",
    ),
    "softmax-twice": Words(
        "F.cross_entropy에 확률을 주었습니다. F.cross_entropy가 소프트맥스를 한 번 더 계산하므로, 정답의 확률이 "
        "1이어도 손실이 0이 되지 않습니다. 로짓을 주세요.",
        "F.cross_entropy gets probabilities. It computes another softmax, so the loss cannot become zero even if the "
        "target has probability 1. Give it the logits.",
    ),
    "reshaped": Words(
        "view나 reshape로 (B, T, V)를 (B, V, T)로 만들면 값이 섞입니다. 두 차원을 바꾸는 것은 transpose(1, 2)입니다. "
        "또는 배치와 위치를 펼치세요.",
        "Making (B, V, T) from (B, T, V) by view or reshape mixes up the values. transpose(1, 2) exchanges two "
        "dimensions; or flatten batch and positions.",
    ),
    "no-log-softmax": Words(
        "로그 확률이 아닌 값을 골라 손실로 썼습니다. F.nll_loss는 log_softmax를 거친 값을 받습니다. "
        "F.cross_entropy는 로짓을 받아 log_softmax까지 계산합니다.",
        "The values that are averaged are no log-probabilities. F.nll_loss takes the result of log_softmax; "
        "F.cross_entropy takes logits and computes log_softmax itself.",
    ),
    "sum": Words(
        "손실의 합을 구했습니다. 토큰의 수로 나눈 평균이어야 배치의 크기와 길이가 달라도 비교할 수 있습니다.",
        "The losses are summed. Take the mean over all tokens: it can be compared between batches of any size and "
        "length.",
    ),
    "last-only": Words(
        "마지막 위치의 손실만 구했습니다. 모든 위치가 다음 토큰을 예측하므로 모든 위치에서 배울 수 있습니다.",
        "Only the last position has a loss. Every position predicts its next token, and all can be learned from.",
    ),
    "sign": Words(
        "부호가 반대입니다. 손실은 정답의 로그 확률에 음수를 취한 값이므로 0보다 큽니다.",
        "The sign is wrong. The loss is minus the log-probability of the target, and greater than 0.",
    ),
}


def _require_loss(given: Tensor, logits: Tensor, ids: Tensor, targets: Tensor) -> None:
    def loss(scores: Tensor, wanted: Tensor, reduction: str = "mean") -> Tensor:
        return F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), reduction=reduction)

    right = loss(logits, targets)
    compare(
        given,
        right,
        Mistake("own-token", loss(logits, ids), WHY_LOSS["own-token"]),
        Mistake(
            "shifted-twice",
            any_of(loss(logits[:, :-1], targets[:, 1:]), loss(logits[:, 1:], targets[:, :-1])),
            WHY_LOSS["shifted-twice"],
        ),
        Mistake(
            "softmax-twice",
            any_of(loss(logits.softmax(-1), targets), loss(logits.softmax(1), targets)),
            WHY_LOSS["softmax-twice"],
        ),
        Mistake(
            "reshaped",
            any_of(*(F.cross_entropy(logits.reshape(shape), targets) for shape in ((3, 7, 5),))),
            WHY_LOSS["reshaped"],
        ),
        Mistake(
            "no-log-softmax",
            any_of(*(F.nll_loss(y.flatten(0, 1), targets.flatten()) for y in (logits, logits.softmax(-1)))),
            WHY_LOSS["no-log-softmax"],
        ),
        Mistake("sum", any_of(loss(logits, targets, "sum"), loss(logits, targets, "sum") / len(ids)), WHY_LOSS["sum"]),
        Mistake("last-only", F.cross_entropy(logits[:, -1], targets[:, -1]), WHY_LOSS["last-only"]),
        Mistake("sign", -right, WHY_LOSS["sign"]),
    )
    require_shape(given, ())
