"""학습률 스케줄

학습률은 처음 warmup 스텝 동안 0에서 peak까지 직선으로 올라가고(웜업), 그 뒤 마지막 스텝 steps에서 0이 될 때까지
내려갑니다. schedule이 "linear"이면 직선으로, "cosine"이면 코사인 곡선 (1 + cos(π · done)) / 2를 따라 내려갑니다.
done은 웜업이 끝날 때 0이고 마지막 스텝에서 1입니다. warmup은 0일 수 있고 steps보다 작습니다.

- - -

A learning rate schedule

In the first warmup steps, the learning rate rises from 0 to peak in a straight line. After that it falls until it is 0
at the last step, steps. With the schedule "linear" it falls in a straight line, and with "cosine" along the curve (1 +
cos(π · done)) / 2, where done is 0 at the end of the warm-up and 1 at the last step. warmup can be 0, and is less than
steps.
"""

import math


def learning_rate(step: int, steps: int, warmup: int, peak: float, schedule: str = "linear") -> float:
    """0부터 steps까지의 스텝 step에서 쓰는 학습률을 반환합니다. schedule: "linear" 또는 "cosine".

    - - -

    Return the learning rate at a step from 0 to steps. schedule: "linear" or "cosine".
    """
    # <solution>
    if step < warmup:
        return peak * step / warmup
    done = (step - warmup) / (steps - warmup)
    if schedule == "cosine":
        return peak * (1 + math.cos(math.pi * done)) / 2
    return peak * (1 - done)
    # </solution>
