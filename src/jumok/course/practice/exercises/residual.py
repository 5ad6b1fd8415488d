"""잔차 연결

층을 차례로 적용하되, 층의 결과로 x를 바꾸지 말고 x에 더하세요. 층마다 x가 x + f(x)가 되고, 다음 층은 이 새로운 x를
받습니다. 층이 아무리 많아도 기울기가 1배로 전달되는 경로가 남습니다.

x += f(x)는 x = x + f(x)와 다릅니다. +=는 새 텐서를 만들지 않고 받은 텐서의 값을 바꿉니다. 함수를 호출한 쪽의 x도
바뀝니다. f가 역전파에 쓰려고 x를 저장했다면(예: nn.Linear, nn.LayerNorm) autograd가 오류를 냅니다. 7장의 LayerNorm처럼
x를 저장하지 않으면 오류가 나지 않아 알아채기 어렵습니다.

- - -

Residual connections

Apply layers one after another. Do not replace x by the result of a layer: add the result to x. Each layer turns x
into x + f(x), and the next layer gets this new x. However many layers there are, one path passes the gradient on
unchanged.

x += f(x) is not the same as x = x + f(x). With += no new tensor is made: the values of the tensor that the function
was given change, and so does the x of the caller. If f saved x for the backward pass (as nn.Linear and nn.LayerNorm
do), autograd raises an error. If f did not, like the LayerNorm of chapter 7, there is no error, and the mistake is hard
to notice.
"""

from collections.abc import Callable, Iterable

from torch import Tensor


def apply_residual(x: Tensor, layers: Iterable[Callable[[Tensor], Tensor]]) -> Tensor:
    """층을 차례로 잔차 연결과 함께 적용하고 결과를 반환합니다. x와 각 층의 결과: (B, T, C).

    - - -

    Apply each layer with a residual connection and return the result. x, and that of each layer: (B, T, C).
    """
    # <solution>
    for layer in layers:
        x = x + layer(x)
    return x
    # </solution>
