"""답의 마스크

지도 미세 조정의 정답을 만드세요. 정답은 다음 토큰이며, 어시스턴트가 쓰는 토큰만 정답입니다. 어시스턴트가 쓰는 토큰은
assistant 토큰 다음부터 end 토큰까지입니다. assistant 토큰 자신은 프로그램이 붙이므로 쓰지 않습니다. 나머지 위치에는
-100을 씁니다. F.cross_entropy는 -100인 위치를 손실에서 제외합니다. 사용자의 말도 end로 끝납니다.

- - -

The mask of the answers

Make the targets of supervised fine-tuning. A target is the next token, but only where the assistant writes it. The
assistant writes the tokens after the token assistant, up to the token end, which it writes, too. It does not write
the token assistant itself: the program appends it. All other places get -100. F.cross_entropy leaves out the places
with -100. What the user says ends with end, too.
"""

import torch
from torch import Tensor


def answer_targets(ids: Tensor, assistant: int, end: int) -> Tensor:
    """위치마다 다음 토큰의 id나 -100을 반환합니다. 모양은 (T - 1,)입니다.

    인자:
        ids: 대화의 id, (T,).
        assistant: 어시스턴트의 말이 시작됨을 나타내는 토큰의 id.
        end: 말이 끝났음을 나타내는 토큰의 id.

    - - -

    Return the id after each position, or -100: (T - 1,).

    Args:
        ids: of a conversation, (T,).
        assistant: the id of the token behind which the assistant writes.
        end: the id of the token that ends a turn.
    """
    # <solution>
    targets = torch.full((len(ids) - 1,), -100)
    writes = False
    for place in range(len(ids) - 1):
        if ids[place] == assistant:
            writes = True
        elif ids[place] == end:
            writes = False
        if writes:
            targets[place] = ids[place + 1]
    return targets
    # </solution>
