"""빔 탐색

확률이 가장 높은 토큰을 매번 고르는 그리디 디코딩은 전체 확률이 가장 높은 문장을 놓칠 수 있습니다. 빔 탐색은 후보(빔)를
beam개 유지합니다. 매번 끝나지 않은 후보마다 모든 다음 토큰을 이어 붙이고, 모든 후보 가운데 로그 확률의 합이 큰
beam개를 남깁니다. end로 끝난 후보는 더 잇지 않고 그대로 다른 후보와 비교합니다. 길이로 나누지 않습니다. most번
반복하거나 모든 후보가 끝나면 멈춥니다.

- - -

Beam search

Greedy decoding always takes the likeliest token, and can miss the likeliest sentence. Beam search keeps several
candidates (beams). Each time, every unfinished candidate is continued with each possible token. Of all candidates
together, those with the largest sums of log-probabilities are kept, beam of them. A candidate that ended with end is
not continued. It stays as it is, and is compared with the others. Do not divide by the length. Stop after most rounds,
or when all candidates are finished.
"""

from collections.abc import Callable

from torch import Tensor


def beam_search(
    next_log_probabilities: Callable[[list[int]], Tensor], start: int, end: int, beam: int, most: int
) -> list[tuple[float, list[int]]]:
    """빔을 (로그 확률의 합, id 목록)으로, 합이 큰 것부터 반환합니다.

    인자:
        next_log_probabilities: 지금까지의 id -> 다음 토큰마다의 로그 확률, (V,).
        start: 모든 빔의 첫 id. 그 자체의 확률은 없습니다. end와 같지 않습니다.
        end: 빔을 끝내는 id. id 목록에 들어갑니다.
        beam: 유지하는 빔의 수.
        most: start 뒤에 오는 토큰의 최대 수.

    - - -

    Return the beams as (sum of log-probabilities, ids), the best first.

    Args:
        next_log_probabilities: ids so far -> the log-probability of each next token, (V,).
        start: the first id of each beam; it has no probability of its own. It is not equal to end.
        end: the id that ends a beam. It is part of the ids.
        beam: how many beams are kept.
        most: the most tokens after start.
    """
    # <solution>
    beams = [(0.0, [start])]
    for _ in range(most):
        candidates = []
        for total, ids in beams:
            if ids[-1] == end:
                candidates.append((total, ids))
                continue
            for token, value in enumerate(next_log_probabilities(ids).tolist()):
                candidates.append((total + value, [*ids, token]))
        beams = sorted(candidates, key=lambda candidate: candidate[0], reverse=True)[:beam]
    return beams
    # </solution>
