"""Explanations of the errors that readers' code raises most often, and the line where an error was raised."""

from __future__ import annotations

import traceback
from pathlib import Path

from jumok.course.practice.checking import NO_SUPER_INIT, NOT_BOOLEAN, OTHER_DEVICE
from jumok.course.practice.course import Words

PRODUCT = Words(
    "행렬곱 a @ b에서는 a의 마지막 차원과 b의 뒤에서 두 번째 차원의 크기가 같아야 합니다. 두 텐서의 shape를 출력해 "
    "보고, 필요하면 transpose(-2, -1)로 마지막 두 차원을 맞바꾸세요. nn.Linear라면 입력의 마지막 차원이 층의 첫 "
    "인자와 같아야 합니다.",
    "In a product a @ b the last dimension of a and the second last of b must have the same size. Print both shapes. "
    "transpose(-2, -1) exchanges the last two dimensions. For an nn.Linear, the last dimension of the input must "
    "equal the first argument of the layer.",
)

# Part of "TypeOfTheError: its message" -> the name of the mistake, and an explanation.
KNOWN: dict[str, tuple[str, Words]] = {
    "view size is not compatible": (
        "not-contiguous",
        Words(
            "transpose는 메모리의 순서를 바꾸지 않으므로 그 뒤에 view를 바로 쓸 수 없습니다. view 앞에 contiguous()를 "
            "쓰거나 reshape를 쓰세요.",
            "transpose does not move anything in memory, so view cannot follow it directly. Call contiguous() before "
            "view, or use reshape.",
        ),
    ),
    "before Module.__init__() call": ("no-super-init", NO_SUPER_INIT),
    "is invalid for input of size": (
        "view-size",
        Words(
            "view나 reshape의 새 모양에 들어가는 수의 개수가 원래와 다릅니다. 새 모양의 모든 차원은 그 텐서 자신의 "
            "것이어야 합니다. x.shape를 출력해 보세요.",
            "The new shape of view or reshape holds another count of numbers. Each dimension of the new shape must "
            "come from that tensor itself. Print x.shape.",
        ),
    ),
    "shapes cannot be multiplied": ("product-shapes", PRODUCT),
    "Expected size for first two dimensions of batch2": ("product-shapes", PRODUCT),
    "only supports boolean masks": ("not-boolean", NOT_BOOLEAN),
    "only implemented on integer and Boolean-type tensors": ("not-boolean", NOT_BOOLEAN),
    "softmax() missing 1 required positional arguments": (
        "no-dim",
        Words(
            "softmax에는 어느 차원의 합이 1이 되어야 하는지 알려 주어야 합니다. 키의 차원은 마지막이므로 dim=-1입니다.",
            "softmax must be told along which dimension the weights sum to one. The keys are the last: dim=-1.",
        ),
    ),
    "must match the size of tensor b": (
        "broadcast-shapes",
        Words(
            "두 텐서의 모양이 맞지 않습니다. 모양은 오른쪽 끝부터 맞추며, 크기가 같거나 한쪽이 1이어야 합니다. "
            "@에서는 마지막 두 차원 앞의 차원이 그렇습니다. 두 텐서의 shape를 출력해 보세요.",
            "The shapes of the two tensors do not fit. They are aligned at the right end, and the sizes must be "
            "equal, or one of them 1. For @ this holds for the dimensions before the last two. Print both shapes.",
        ),
    ),
    "modified by an inplace operation": (
        "in-place",
        Words(
            "그래디언트를 구할 때 필요한 값을 += 같은 제자리 연산이 덮어썼습니다. x = x + y처럼 새 텐서를 만드세요.",
            "An in-place operation such as += overwrote a value that the gradient needs. Make a new tensor: x = x + y.",
        ),
    ),
    "a leaf Variable that requires grad is being used in an in-place": (
        "in-place",
        Words(
            "학습하는 파라미터를 제자리에서 바꾸었습니다. 파라미터를 고칠 때는 torch.no_grad() 안에서 하세요.",
            "A parameter was changed in place. Change parameters only inside torch.no_grad().",
        ),
    ),
    "sqrt(): argument 'input'": (
        "root-of-a-number",
        Words(
            "torch.sqrt는 텐서의 제곱근을 구합니다. 파이썬 수의 제곱근은 math.sqrt(...)나 (...) ** 0.5입니다.",
            "torch.sqrt takes a tensor. The square root of a Python number is math.sqrt(...) or (...) ** 0.5.",
        ),
    ),
    "but got float": (
        "float-size",
        Words(
            "모양이나 번호에는 정수가 필요합니다. 파이썬에서 /의 결과는 6 / 2처럼 나누어떨어져도 실수(3.0)입니다. "
            "정수 나눗셈은 //입니다.",
            "Shapes and indices are integers. In Python / gives a float, even where nothing remains: 6 / 2 is 3.0. "
            "Integer division is //.",
        ),
    ),
    "must be Tensor, not": (
        "not-a-tensor",
        Words(
            "텐서가 있어야 할 곳에 다른 것이 있습니다. nn.ReLU 같은 클래스는 nn.ReLU()로 먼저 만든 다음 텐서에 "
            "적용합니다.",
            "Something else stands where a tensor belongs. A class such as nn.ReLU is created first, nn.ReLU(), and "
            "then applied to a tensor.",
        ),
    ),
    "argument #1 'indices'": (
        "not-indices",
        Words(
            "nn.Embedding에 실수를 주었습니다. nn.Embedding은 정수 번호를 받아 그 번호의 행을 찾습니다.",
            "nn.Embedding was given floats. It takes whole numbers and returns the rows with these numbers.",
        ),
    ),
    "'NoneType' object": (
        "none-used",
        Words(
            "None을 텐서처럼 썼습니다. 앞의 함수에 return이 없거나, None일 수 있는 인자입니다.",
            "None is used as if it were a tensor. Either a function before it has no return, or it is an argument "
            "that can be None.",
        ),
    ),
    "object is not subscriptable": (
        "not-subscriptable",
        Words(
            "대괄호로 인덱싱할 수 없는 것입니다. nn.Embedding 같은 층은 함수처럼 괄호로 부릅니다: self.table(ids)",
            "This cannot be indexed with square brackets. A layer such as nn.Embedding is called like a function: "
            "self.table(ids)",
        ),
    ),
    "Expected floating point type for target": (
        "loss-inputs",
        Words(
            "F.cross_entropy의 입력이 맞지 않습니다. 첫째는 로짓 (N, V), 둘째는 정답 id (N,)입니다. argmax나 "
            "원-핫으로 바꾸지 않습니다.",
            "The inputs of F.cross_entropy do not fit. The first is the logits (N, V), the second the target ids "
            "(N,), without argmax or one-hot vectors.",
        ),
    ),
    "'Tensor' object is not callable": (
        "tensor-called",
        Words(
            "텐서는 함수가 아닙니다. 행을 찾을 때는 대괄호를 쓰세요: table[ids]",
            "A tensor is not a function. To look up rows, use square brackets: table[ids]",
        ),
    ),
    "out of bounds for dimension": (
        "index",
        Words(
            "텐서에 없는 번호로 인덱싱했습니다. x[i]의 i는 첫 차원의 번호입니다. 모양을 출력하여 어느 차원을 "
            "인덱싱하는지 확인하세요.",
            "The tensor does not have this index. In x[i], i is an index of the first dimension. Print the shape to "
            "see which dimension is indexed.",
        ),
    ),
    "index out of range in self": (
        "index",
        Words(
            "nn.Embedding에 없는 번호를 찾았습니다. 번호는 0부터 행의 수 - 1까지입니다. 임베딩의 크기와 번호를 "
            "확인하세요.",
            "nn.Embedding was asked for a row that it does not have. Rows are numbered from 0 to their number minus "
            "1. Check the size of the embedding and the numbers.",
        ),
    ),
    "Module [ModuleList] is missing": (
        "list-called",
        Words(
            "nn.ModuleList는 모듈의 목록일 뿐이어서 함수처럼 부를 수 없습니다. for 문으로 모듈을 하나씩 적용하세요.",
            "An nn.ModuleList is only a list and cannot be called. Apply its modules one by one in a for loop.",
        ),
    ),
    'is missing the required "forward"': (
        "no-forward",
        Words(
            "클래스에 forward가 없습니다. 이름이 forward인지, 클래스 안으로 들여쓰기가 되어 있는지 확인하세요.",
            "The class has no forward. Check its name, and that it is indented inside the class.",
        ),
    ),
    "NameError: name": (
        "not-defined",
        Words(
            "정의하지 않은 이름을 썼습니다. 철자를 확인하고, 다른 모듈의 것이면 import하세요. __init__의 인자는 "
            "forward에서 보이지 않으므로 self에 저장합니다.",
            "A name is used that is not defined. Check its spelling; import it if it belongs to another module. "
            "forward does not see the arguments of __init__: store them in self.",
        ),
    ),
    "object has no attribute": (
        "no-attribute",
        Words(
            "객체에 없는 이름을 썼습니다. 철자를 확인하세요. self의 것이면 __init__에서 만들어야 합니다.",
            "An object does not have that name. Check its spelling. What belongs to self must be made in __init__.",
        ),
    ),
    "required positional argument": (
        "argument-missing",
        Words(
            "함수나 클래스에 넘긴 인자가 모자랍니다. 아래 오류에 빠진 인자의 이름이 있습니다. 정의와 인자의 순서를 "
            "비교하세요.",
            "The call has too few arguments: the one named below is missing. Compare the call with the definition, "
            "also the order.",
        ),
    ),
    "unexpected keyword argument": (
        "argument-unknown",
        Words(
            "그런 이름의 인자가 없습니다. 함수나 클래스의 정의에서 인자의 이름을 확인하세요.",
            "There is no argument of that name. Look up the names in the definition of the function or class.",
        ),
    ),
    "values to unpack": (
        "unpacked",
        Words(
            "등호 왼쪽의 이름 수와 오른쪽의 값 수가 다릅니다. B, T, C = x.shape는 차원이 3개인 텐서에만 쓸 수 "
            "있습니다. x.shape를 출력해 보세요.",
            "The number of names on the left is not the number of values on the right. B, T, C = x.shape needs a "
            "tensor of three dimensions. Print x.shape.",
        ),
    ),
    "to be on the same device": ("device", OTHER_DEVICE),
    "is not on the expected device": ("device", OTHER_DEVICE),
    "torch.return_types.": (
        "values-and-indices",
        Words(
            "max, sort, topk에 dim을 주면 값과 위치를 함께 돌려줍니다. 값은 .values이고 위치는 .indices입니다.",
            "With dim, max, sort and topk return both values and places. The values are in .values, the places in "
            ".indices.",
        ),
    ),
    "bitwise_xor": (
        "caret",
        Words("파이썬에서 거듭제곱은 ^가 아니라 **입니다.", "In Python a power is written **, not ^."),
    ),
    "Tensors must have same number of dimensions": (
        "dimensions",
        Words(
            "차원의 수가 다른 텐서를 이어 붙였습니다. squeeze()나 번호 하나로 고르기([:, 0])는 차원을 없앱니다. [:, "
            ":1]은 차원을 남깁니다.",
            "Tensors with different numbers of dimensions cannot be concatenated. squeeze() and an index ([:, 0]) "
            "remove a dimension; [:, :1] keeps it.",
        ),
    ),
    "Sizes of tensors must match except in dimension": (
        "cat-dimension",
        Words(
            "torch.cat은 이어 붙이는 차원 말고는 크기가 모두 같아야 합니다. dim을 확인하세요. 쓰지 않으면 dim=0입니다.",
            "torch.cat needs equal sizes in all dimensions but the one that is concatenated. Check dim; without it, "
            "it is 0.",
        ),
    ),
    "does not require grad and does not have a grad_fn": (
        "no-grad",
        Words(
            "기울기를 구할 수 없는 손실에 backward를 불렀습니다. 손실을 torch.no_grad() 안에서 계산했거나 item(), "
            "detach()로 계산 그래프에서 떼어 냈습니다.",
            "backward was called on a loss without a computation graph. The loss was computed inside torch.no_grad(), "
            "or item() or detach() cut it off from the graph.",
        ),
    ),
    "can't allocate memory": (
        "memory",
        Words(
            "메모리를 너무 많이 씁니다. 텐서의 크기를 확인하세요.",
            "The code needs too much memory. Check the sizes of the tensors.",
        ),
    ),
}


def explained(error: BaseException) -> tuple[Words, str | None]:
    """What an error of the reader's code means, and the name of the mistake if it is a known one."""
    text = f"{type(error).__name__}: {error}".strip()
    for part, (mistake, words) in KNOWN.items():
        if part in text:
            return Words(f"{words.ko}\n{text}", f"{words.en}\n{text}"), mistake
    if isinstance(error, MemoryError):
        return KNOWN["can't allocate memory"][1], "memory"
    if isinstance(error, SyntaxError):
        where = f"{Path(error.filename or '').name}:{error.lineno}"
        return Words(
            f"파이썬이 읽을 수 없는 줄입니다({where}): {error.msg}",
            f"Python cannot read this line ({where}): {error.msg}",
        ), "syntax"
    if isinstance(error, SystemExit):
        return Words("코드가 스스로 끝났습니다: exit()를 지우세요.", "The code ended itself: remove exit()."), "exit"
    return Words(f"실행 중에 오류가 났습니다: {text}", f"The code raised an error: {text}"), None


def line_of(error: BaseException | None, path: Path) -> int | None:
    """The innermost line of the reader's file in the traceback of an error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__) if error else []
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)
