"""Checks of the exercises on several heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import (
    Checks,
    Code,
    Mistake,
    Steps,
    Wrong,
    compare,
    hidden,
    require_one_device,
    result_of,
)
from jumok.course.practice.checks.attention import run_module
from jumok.course.practice.checks.attention_mistakes import attention_mistakes
from jumok.course.practice.checks.attention_modules import (
    check_dropout,
    require_no_bias,
    require_parameters,
    run_with_heads,
)
from jumok.course.practice.course import Words
from jumok.course.practice.parameters import copy_parameters, require_gradients
from jumok.nn import MultiHeadAttention, attention_weights, causal_mask


def module_list_heads(code: Code) -> Steps:
    """Heads in an nn.ModuleList, concatenated."""
    for width, n_head, d, length, t in ((6, 3, 4, 9, 5), (10, 2, 3, 7, 7)):
        ours = code.module("ParallelHeads", width, n_head, d, length)
        names = [f"{h}.{name}_proj.weight" for h in range(n_head) for name in "qkv"]
        _require_heads(ours, n_head)
        require_parameters(ours, [f"heads.{name}" for name in names])
        singles = nn.ModuleList([MultiHeadAttention(width, d, 1, project=False) for _ in range(n_head)])
        copy_parameters(singles, ours, {name: f"heads.{name}" for name in names})
        x = hidden(2, t, width, scale=2)
        parts = [single(x, causal=True) for single in singles]
        given = run_module(ours, x, whole=t == length)
        compare(given, torch.cat(parts, dim=-1), *_joining_mistakes(parts))
        require_gradients(given, ours)
    yield Words(
        "헤드마다 파라미터가 따로 있고, 출력이 차례로 이어져 있습니다.",
        "Each head has its own parameters, and the outputs are concatenated in order.",
    )
    check_dropout(
        lambda rate: code.module("ParallelHeads", 6, 3, 4, 9, rate),
        lambda module, x: [head.v_proj(x) for head in module.heads],
        6,
    )
    yield Words("dropout이 헤드에 전달됩니다.", "The rate of dropout reaches the heads.")


def _require_heads(ours: nn.Module, n_head: int) -> None:
    """Check that self.heads is an nn.ModuleList of different heads."""
    heads = getattr(ours, "heads", None)
    if isinstance(heads, list | tuple):
        raise Wrong(
            Words(
                "self.heads가 파이썬 {kind}입니다. 모듈은 그 안의 헤드를 찾지 못하므로 parameters()에 헤드의 "
                "파라미터가 없고, 옵티마이저가 학습하지 않으며, 저장되지도 않습니다. nn.ModuleList([...])로 감싸세요.",
                "self.heads is a Python {kind}. The module does not find the heads in it: parameters() lacks theirs, "
                "the optimizer does not train them, and they are not saved. Wrap it: nn.ModuleList([...]).",
            ),
            mistake="python-list",
            kind=type(heads).__name__,
        )
    if isinstance(heads, nn.Sequential):
        raise Wrong(
            Words(
                "nn.Sequential은 층을 차례로 이어서 앞 층의 출력을 다음 층에 넣습니다. 헤드는 모두 같은 입력 x를 "
                "받으므로 nn.ModuleList에 담으세요.",
                "nn.Sequential runs layers one after the other and passes the output of each to the next. All heads "
                "get the same input x: use an nn.ModuleList.",
            ),
            mistake="sequential",
        )
    if not isinstance(heads, nn.ModuleList) or len(heads) != n_head:
        raise Wrong(
            Words(
                "self.heads는 헤드 {count}개가 들어 있는 nn.ModuleList여야 합니다.",
                "self.heads should be an nn.ModuleList of {count} heads.",
            ),
            mistake="no-module-list",
            count=n_head,
        )
    if len({id(head) for head in heads}) < n_head:
        raise Wrong(
            Words(
                "같은 헤드 하나가 {count}번 들어 있습니다. [Head(...)] * n은 객체를 복사하지 않으므로 모든 헤드가 "
                "같은 "
                "것을 계산합니다. [Head(...) for _ in range(n)]으로 하나씩 만드세요.",
                "One head is in the list {count} times: [Head(...)] * n does not copy the object, and all heads "
                "compute the same. Make them one by one: [Head(...) for _ in range(n)].",
            ),
            mistake="same-head",
            count=n_head,
        )


def _joining_mistakes(parts: list[Tensor]) -> list[Mistake]:
    together = torch.stack(parts)
    added = Words(
        "헤드의 출력을 이어 붙이지 않고 더하거나 평균했습니다. 그러면 어느 헤드에서 온 정보인지 구별할 수 없습니다. "
        "torch.cat(..., dim=-1)로 이어 붙이세요.",
        "The outputs of the heads are added or averaged, not concatenated. What came from which head can then no "
        "longer be told apart. Concatenate them with torch.cat(..., dim=-1).",
    )
    stacked = Words(
        "torch.stack은 새 차원을 만듭니다. 있는 차원에서 이어 붙이는 것은 torch.cat입니다.",
        "torch.stack makes a new dimension. torch.cat joins along an existing one.",
    )
    return [
        Mistake("heads-added", together.sum(0), added),
        Mistake("heads-added", together.mean(0), added),
        *(Mistake("heads-stacked", together.movedim(0, dim), stacked) for dim in range(4)),
        *(
            Mistake(
                "joined-along-wrong-dim",
                torch.cat(parts, dim=dim),
                Words(
                    "헤드를 차원 {dim}({letter})에서 이어 붙였습니다. 토큰마다 헤드의 출력을 나란히 놓으려면 마지막 "
                    "차원에서 이어 붙여야 합니다: dim=-1.",
                    "The heads are joined along dimension {dim} ({letter}). To put the outputs of the heads side by "
                    "side for each token, join them along the last dimension: dim=-1.",
                ),
                {"dim": dim, "letter": letter},
            )
            for dim, letter in enumerate("BT")
        ),
        Mistake(
            "numbers-alternate",
            torch.stack(parts, dim=-1).flatten(-2),
            Words(
                "헤드의 수가 번갈아 놓여 있습니다. 0번 헤드의 열이 모두 나온 다음 1번 헤드의 열이 나와야 합니다.",
                "The numbers of the heads alternate. All columns of head 0 come first, then those of head 1.",
            ),
        ),
    ]


def _split_heads(code: Code) -> Steps:
    """Check view and transpose."""
    function = code.function("split_heads")
    for batch, t, n_head, d in ((2, 5, 3, 4), (3, 2, 4, 5)):
        x = hidden(batch, t, n_head * d)
        right = x.unflatten(-1, (n_head, d)).transpose(1, 2)
        compare(result_of(function, x, n_head), right, *_split_mistakes(x, n_head))
    yield Words("헤드로 나누었습니다.", "The heads are split.")


def _merge_heads(code: Code) -> Steps:
    """Check the way back."""
    function = code.function("merge_heads")
    for batch, t, n_head, d in ((2, 5, 3, 4), (3, 2, 4, 5)):
        heads = hidden(batch, n_head, t, d)
        compare(result_of(function, heads), _merged(heads), *_merge_mistakes(heads))
    yield Words("헤드를 다시 합쳤습니다.", "The heads are merged again.")


def _attend(code: Code) -> Steps:
    """Check the product with a dimension of heads."""
    function = code.function("attend")
    for batch, t, n_head, d in ((2, 5, 3, 4), (3, 4, 2, 7)):
        q, k, v = (hidden(batch, t, n_head * d, seed=seed, scale=2) for seed in (1, 2, 3))
        split = [x.unflatten(-1, (n_head, d)).transpose(1, 2) for x in (q, k, v)]  # (B, H, T, D)
        heads = attention_weights(split[0], split[1], causal=True) @ split[2]  # (B, H, T, D)
        compare(
            run_with_heads(lambda: result_of(function, q, k, v, n_head)),  # noqa: B023
            _merged(heads),
            *attention_mistakes(
                split[0], split[1], split[2], causal_mask(t, t), widths={"C": n_head * d, "H": n_head, "T": t},
                finish=_merged,
            ),
            *_merge_mistakes(heads),
            *view_mistakes([q, k, v], n_head, nn.Identity(), causal=True),
            Mistake(
                "not-split",
                attention_weights(q[:, None], k[:, None], causal=True)[:, 0] @ v,
                Words(
                    "헤드 하나로 계산했습니다. 먼저 q, k, v를 split_heads로 나누세요. 그러면 헤드마다 가중치가 따로 "
                    "있습니다.",
                    "This is one head. Split q, k and v with split_heads first, so that each head has weights of its "
                    "own.",
                ),
            ),
        )  # fmt: skip
    yield Words("4차원 행렬곱 하나로 모든 헤드를 계산했습니다.", "One product of 4-D tensors computes all heads.")


split_heads: Checks = {"split_heads": _split_heads, "merge_heads": _merge_heads, "attend": _attend}


VIEWED = Words(
    "view만으로 (B, H, T, D)를 만들었습니다. view는 수의 순서를 바꾸지 않으므로 한 헤드에 서로 다른 토큰의 수가 "
    "섞입니다. view로 (B, T, H, D)를 만든 다음 transpose(1, 2)를 하세요.",
    "The shape (B, H, T, D) comes from view alone. view does not change the order of the numbers, so a head gets "
    "numbers of different tokens in one row. Make (B, T, H, D) with view, then transpose(1, 2).",
)


def view_mistakes(flat: list[Tensor], n_head: int, project: nn.Module | None, *, causal: bool) -> Iterator[Mistake]:
    """Heads made with view alone, for some of queries, keys and values.

    Args:
        flat: queries, keys and values, (B, T, H*D) each.
        project: from the merged heads to the output.
    """
    assert project is not None
    right = [x.unflatten(-1, (n_head, -1)).transpose(1, 2) for x in flat]  # (B, H, T, D) each
    viewed = [x.reshape(y.shape) for x, y in zip(flat, right, strict=True)]
    for chosen in product((0, 1), repeat=3):
        if any(chosen):
            q, k, v = (pair[choice] for pair, choice in zip(zip(right, viewed, strict=True), chosen, strict=True))
            heads = attention_weights(q, k, causal=causal) @ v
            yield Mistake("view-without-transpose", project(_merged(heads)), VIEWED)
            yield Mistake("view-without-transpose", project(heads.reshape(flat[0].shape)), VIEWED)


def _split_mistakes(x: Tensor, n_head: int) -> list[Mistake]:
    batch, t, width = x.shape
    d = width // n_head
    return [
        Mistake(
            "view-without-transpose",
            x.view(batch, n_head, t, d),
            VIEWED,
        ),
        Mistake(
            "not-transposed",
            x.view(batch, t, n_head, d),
            Words(
                "모양이 아직 (B, T, H, D)입니다. @는 마지막 두 차원을 곱하므로 H를 T 앞으로 옮겨야 합니다: "
                "transpose(1, 2).",
                "The shape is still (B, T, H, D). @ multiplies the last two dimensions, so H must come before T: "
                "transpose(1, 2).",
            ),
        ),
        Mistake(
            "width-and-heads",
            x.view(batch, t, d, n_head).permute(0, 3, 1, 2),
            Words(
                "열이 헤드에 번갈아 들어갔습니다. 헤드 0은 처음 D개의 열입니다. view의 순서는 (B, T, H, D)입니다.",
                "The columns alternate between the heads. Head 0 is the first D columns: the order in view is (B, T, "
                "H, D).",
            ),
        ),
    ]


def _merge_mistakes(heads: Tensor) -> list[Mistake]:
    """heads: (B, H, T, D)."""
    batch, n_head, t, d = heads.shape
    return [
        Mistake(
            "merged-without-transpose",
            heads.reshape(batch, t, n_head * d),
            Words(
                "T와 H를 다시 맞바꾸지 않고 합쳤습니다. 모양은 맞지만 한 토큰의 행에 다른 토큰의 수가 들어갑니다. "
                "먼저 "
                "transpose(1, 2)로 (B, T, H, D)를 만드세요.",
                "T and H are not exchanged back before merging. The shape is right, but the row of a token holds "
                "numbers of other tokens. Make (B, T, H, D) with transpose(1, 2) first.",
            ),
        ),
        Mistake(
            "width-and-heads",
            heads.permute(0, 2, 3, 1).reshape(batch, t, n_head * d),
            Words(
                "헤드의 수가 번갈아 놓여 있습니다. 합치기 전의 모양은 (B, T, H, D)여야 합니다.",
                "The numbers of the heads alternate. Before merging, the shape must be (B, T, H, D).",
            ),
        ),
        Mistake(
            "not-merged",
            heads,
            Words(
                "아직 헤드로 나뉘어 있습니다. merge_heads로 (B, T, H·D)를 만드세요.",
                "The heads are still apart. Make (B, T, H·D) with merge_heads.",
            ),
        ),
        Mistake(
            "sizes-exchanged",
            heads.transpose(1, 2).reshape(batch, n_head, t * d),
            Words(
                "T와 H의 크기가 바뀌었습니다. heads.shape의 순서는 (B, H, T, D)입니다.",
                "The sizes T and H are exchanged. heads.shape is in the order (B, H, T, D).",
            ),
        ),
        Mistake(
            "heads-added",
            heads.sum(1),
            Words(
                "헤드를 더했습니다. 합치는 것은 나란히 놓는 것이므로 폭이 H·D가 됩니다.",
                "The heads are added. To merge them is to put them side by side: the width becomes H·D.",
            ),
        ),
    ]


def output_projection(code: Code) -> Steps:
    """Multi-head attention with the names of the production module."""
    names = [*(f"{name}_proj.weight" for name in "qkvo"), "o_proj.bias"]
    for d_in, width, n_head, t in ((12, 12, 3, 9), (8, 12, 3, 5), (6, 10, 2, 7)):
        ours = code.module("MultiHeadAttention", d_in, width, n_head)
        require_no_bias(ours)
        require_parameters(ours, names)
        theirs = MultiHeadAttention(d_in, width, n_head)
        copy_parameters(theirs, ours, {name: name for name in names})
        x = hidden(2, t, d_in, scale=3)
        flat = [p(x) for p in (theirs.q_proj, theirs.k_proj, theirs.v_proj)]
        q, k, v = (
            p(x).unflatten(-1, (n_head, -1)).transpose(1, 2) for p in (theirs.q_proj, theirs.k_proj, theirs.v_proj)
        )
        heads = attention_weights(q, k, causal=True) @ v  # (B, H, T, D)
        given = run_with_heads(lambda: run_module(ours, x, whole=True))  # noqa: B023
        compare(
            given,
            theirs(x, causal=True),
            *projection_mistakes(heads, theirs),
            *view_mistakes(flat, n_head, theirs.o_proj, causal=True),
            *attention_mistakes(
                q, k, v, causal_mask(t, t), widths={"d_out": width, "n_head": n_head, "T": t},
                finish=projected(theirs),
            ),
        )  # fmt: skip
        require_gradients(given, ours)
    compare(
        ours(x, causal=False),
        theirs(x),
        Mistake(
            "always-masked",
            theirs(x, causal=True),
            Words(
                "causal=False일 때도 마스크를 씁니다. BERT 같은 인코더는 마스크 없이 모든 토큰을 참조합니다. if "
                "causal: 안에서만 마스크를 적용하세요.",
                "The mask is applied for causal=False, too. An encoder such as BERT attends to all tokens. Apply the "
                "mask only if causal.",
            ),
        ),
    )
    biased = code.module("MultiHeadAttention", 6, 10, 2, True)
    theirs = MultiHeadAttention(6, 10, 2, qkv_bias=True)
    copy_parameters(theirs, biased, {name: name for name, _ in theirs.named_parameters()})
    compare(biased(x), theirs(x, causal=True))
    yield Words(
        "jumok.nn.MultiHeadAttention과 결과가 같습니다.", "The result equals that of jumok.nn.MultiHeadAttention."
    )
    check_dropout(
        lambda rate: code.module("MultiHeadAttention", 12, 12, 3, False, rate),
        lambda module, x: list(module.v_proj(x).chunk(3, dim=-1)),
        12,
        after="o_proj",
    )
    yield Words("드롭아웃은 학습할 때만 가중치에 적용됩니다.", "Dropout applies to the weights, and only in training.")
    require_one_device(ours, x)
    yield Words("마스크가 x와 같은 장치에 있습니다.", "The mask is on the device of x.")


def projected(theirs: MultiHeadAttention) -> Callable[[Tensor], Tensor]:
    """The function from the heads, (B, H, T, D), to the output of a module, (B, T, d_out)."""
    project = theirs.o_proj
    assert project is not None
    return lambda heads: project(_merged(heads))


def _merged(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(-2)  # (B, T, H*D)


def projection_mistakes(heads: Tensor, theirs: MultiHeadAttention) -> list[Mistake]:
    """Mistakes between the heads, (B, H, T, D), and the output."""
    project = theirs.o_proj
    assert project is not None
    merged = _merged(heads)
    return [
        Mistake(
            "not-projected",
            merged,
            Words(
                "o_proj를 적용하지 않았습니다. 합친 헤드를 그대로 돌려주면 헤드의 결과가 서로 섞이지 않고, o_proj는 "
                "학습되지 않습니다.",
                "o_proj is not applied. The merged heads do not mix, and o_proj is never trained.",
            ),
        ),
        Mistake(
            "merged-without-transpose",
            project(heads.reshape(merged.shape)),
            Words(
                "헤드를 합칠 때 T와 H를 맞바꾸지 않았습니다. 한 토큰의 행에 다른 토큰의 수가 들어갑니다. "
                "merge_heads를 "
                "쓰세요.",
                "The heads are merged without exchanging T and H: the row of a token holds numbers of other tokens. "
                "Use merge_heads.",
            ),
        ),
        Mistake(
            "projected-twice",
            project(project(merged)),
            Words("o_proj를 두 번 적용했습니다.", "o_proj is applied twice."),
        ),
    ]
