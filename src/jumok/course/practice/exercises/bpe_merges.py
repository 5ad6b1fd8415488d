"""BPE 병합

BPE는 글자에서 시작해 가장 자주 이웃하는 두 조각을 한 조각으로 합치는 일을 반복합니다. 함수 두 개를 작성하세요.

apply_merges는 한 단어에 병합을 배운 순서대로 적용합니다. 병합마다 왼쪽부터 읽으며 이웃한 두 조각이 그 쌍이면 합칩니다.
한 조각은 한 번만 쓰이므로 aaa에 (a, a)를 적용하면 aa와 a가 됩니다.

learn_merges는 병합 n개를 배웁니다. 매번 모든 단어를 지금까지의 병합으로 나누고, 이웃한 쌍을 단어의 빈도만큼 세어 가장
잦은 쌍을 고릅니다. 빈도가 같으면 파이썬의 튜플 비교로 작은 쌍을 고릅니다. 남은 쌍이 없으면 일찍 끝냅니다.

- - -

BPE merges

BPE begins with characters, and repeatedly merges the two adjacent pieces that occur most often. Write two functions.

apply_merges applies the merges to a word in the order in which they were learned. For each merge, read from the left,
and merge two adjacent pieces if they are the pair. Each piece is used once: (a, a) turns aaa into aa and a.

learn_merges learns n merges. Each time, divide all words by the merges so far, count the adjacent pairs, each as often
as its word occurs, and choose the most frequent pair. On a tie, choose the smaller pair, as Python compares tuples.
Stop early if no pair is left.
"""

from collections import Counter
from itertools import pairwise


def apply_merges(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """단어의 조각을 반환합니다.

    - - -

    Return the pieces of a word.
    """
    # <solution>
    pieces = list(word)
    for left, right in merges:
        merged = []
        place = 0
        while place < len(pieces):
            if pieces[place : place + 2] == [left, right]:
                merged.append(left + right)
                place += 2
            else:
                merged.append(pieces[place])
                place += 1
        pieces = merged
    return pieces
    # </solution>


def learn_merges(words: dict[str, int], n: int) -> list[tuple[str, str]]:
    """병합을 최대 n개, 배운 순서대로 반환합니다. words: 단어 -> 빈도.

    - - -

    Return at most n merges, in the order in which they are learned. words: word -> how often it occurs.
    """
    # <solution>
    merges = []
    for _ in range(n):
        counts = Counter()
        for word, count in words.items():
            pieces = apply_merges(word, merges)
            for pair in pairwise(pieces):
                counts[pair] += count
        if not counts:
            break
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
    return merges
    # </solution>
