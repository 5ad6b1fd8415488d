"""Checks of the exercises on tokenizers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from jumok.course.practice.checking import Checks, Code, Steps, Wrong, raises, require
from jumok.course.practice.course import Words
from jumok.tokenizers import train_tokenizer

# --- character_tokenizer ---

TRAINING = "나는 어제 새 책을 읽었다.\n오늘은 그 책을 다시 읽는다.\n"
TEXTS = ("나는 새 책을 읽는다.", "고양이가 ABC를 썼다!", "웃음 😀 한자 漢字", "끝\t\x00", "")


def character_tokenizer(code: Code) -> Steps:
    """Known characters, unknown ones, broken text and broken bytes."""
    make = code.function("CharacterTokenizer")
    mine: Any = make(TRAINING)
    theirs = train_tokenizer(TRAINING, "char", min_count=1)
    ids = _ids(mine.encode("나는 새 책을 읽는다."))
    right = theirs.encode("나는 새 책을 읽는다.").tolist()
    require(min(ids, default=256) >= 256, _OFFSET, mistake="no-offset", id=min(ids, default=0))
    require(len(ids) == 12, _COUNT, given=len(ids), right=12)
    require(ids == right, _UNSORTED, mistake="not-sorted", given=ids[:4], right=right[:4])
    yield Words(
        "학습 텍스트에 있는 글자의 id가 jumok과 같습니다.", "Known characters have the ids that jumok gives them."
    )
    ids = _ids(raises(_KEY_ERROR, lambda: mine.encode("고양이"), mistake="key-error", text=("KeyError", "ValueError")))
    require(ids != [], _DROPPED, mistake="dropped")
    bytes_ = list("고양이".encode())
    require(len(ids) > 3 or len(set(ids)) > 1, _ONE_ID, mistake="one-unknown-id")
    require(len(ids) > 3, _LOW_BYTES, mistake="not-utf8")
    require(ids == bytes_, _OTHER_BYTES, given=ids[:4], right=bytes_[:4])
    yield Words("처음 보는 글자는 UTF-8 바이트가 됩니다.", "New characters become UTF-8 bytes.")
    yield from _decoding(mine)
    lone = raises(_SURROGATE, lambda: mine.encode("가\ud83d나"), mistake="surrogate", text="UnicodeEncodeError")
    lone = _ids(lone)
    require(lone.count(ord("?")) == 1, _NO_QUESTION, mistake="surrogate-lost")
    yield Words("깨진 서로게이트가 있어도 실패하지 않습니다.", "A lone surrogate raises no error.")
    half = list("😀".encode())[:2]
    written = raises(_HALF, lambda: mine.decode([*half, 256]), mistake="half-a-character", text="UnicodeDecodeError")
    require(
        isinstance(written, str) and written.startswith("\ufffd"), _NO_MARK, mistake="half-lost", given=repr(written)
    )
    yield Words("바이트가 모자라도 decode가 실패하지 않습니다.", "decode does not fail where bytes are missing.")


def _decoding(mine: Any) -> Steps:
    known = raises(
        _BYTES_OF_IDS,
        lambda: mine.decode(_ids(mine.encode("나는 책을"))),
        mistake="bytes-of-ids",
        text="bytes must be in range(0, 256)",
    )
    if known is None:
        raise Wrong(_NO_TEXT, mistake="no-return")
    require(known == "나는 책을", _TEXT, given=repr(known), right=repr("나는 책을"))
    for text in TEXTS:
        given = raises(
            _BYTE_BY_BYTE,
            partial(_there_and_back, mine, text),
            mistake="byte-by-byte",
            text="UnicodeDecodeError",
        )
        as_latin = "".join(c if c in TRAINING else c.encode().decode("latin-1") for c in text)
        if given != text:
            require(given != as_latin, _LATIN, mistake="byte-as-character", given=repr(given), right=repr(text))
            lost = text.startswith(given) and len(given) > 0
            require(not lost, _LEFT_OVER, mistake="bytes-left-over", given=repr(given), right=repr(text))
            require("\ufffd" not in given, _BYTE_BY_BYTE, mistake="byte-by-byte")
        require(given == text, _TEXT, given=repr(given), right=repr(text))
    yield Words("decode(encode(text))가 text와 같습니다.", "decode(encode(text)) equals text.")


def _there_and_back(mine: Any, text: str) -> Any:
    return mine.decode(mine.encode(text))


def _ids(given: object) -> list[int]:
    if given is None:
        raise Wrong(_NO_IDS, mistake="no-return")
    if not (isinstance(given, list) and all(type(one) is int for one in given)):
        raise Wrong(_NOT_IDS, mistake="not-ids", kind=type(given).__name__)
    return given


_NO_IDS = Words("encode가 None을 돌려줍니다. return이 빠졌습니다.", "encode returns None: the `return` is missing.")
_NO_TEXT = Words("decode가 None을 돌려줍니다. return이 빠졌습니다.", "decode returns None: the `return` is missing.")
_BYTES_OF_IDS = Words(
    "모든 id를 바이트로 바꾸려 했습니다. 256 이상인 id는 글자이므로 self.characters[id - 256]에서 찾으세요.",
    "All ids were taken for bytes. An id of 256 and more is a character: characters[id - 256].",
)
_NOT_IDS = Words(
    "encode의 결과가 {kind}입니다. 정수의 목록(list)이어야 하고, 그 안에 다른 목록이나 글자가 있으면 안 됩니다.",
    "encode returns a {kind}; it should be a list of integers, without lists or characters inside.",
)
_OFFSET = Words(
    "학습 텍스트에 있는 글자의 id가 {id}입니다. 0–255는 바이트의 id이므로 글자는 256부터 시작해야 합니다. 그러지 "
    "않으면 decode가 둘을 구별하지 못합니다.",
    "A character of the training text has the id {id}. The ids 0–255 are bytes, so characters begin at 256. Otherwise "
    "decode cannot tell one from the other.",
)
_COUNT = Words(
    "글자가 {right}개인데 id가 {given}개입니다. 학습 텍스트에 있는 글자는 공백까지 하나에 id 하나입니다.",
    "There are {right} characters, but {given} ids. Each character of the training text, also a space, has one id.",
)
_UNSORTED = Words(
    "id가 {right}…이어야 하는데 {given}…입니다. 글자를 코드 포인트 순서로 정렬하세요. set의 순서는 파이썬을 실행할 "
    "때마다 달라서, 저장한 모델을 다시 열면 id가 맞지 않습니다.",
    "The ids are {given}… and should be {right}…. Sort the characters by code point. The order of a set changes from "
    "one run of Python to the next, so the ids of a saved model would no longer fit.",
)
_KEY_ERROR = Words(
    "학습 텍스트에 없던 글자에서 오류가 납니다. 사용자가 무엇을 입력할지 알 수 없습니다. id가 없으면 UTF-8 바이트를 "
    "쓰세요.",
    "A character that is not in the training text raises an error. Users type anything. Where there is no id, use the "
    "UTF-8 bytes.",
)
_DROPPED = Words(
    "처음 보는 글자가 사라졌습니다. decode로 되살릴 수 없고, 모델은 그 자리에 글자가 있었다는 것도 모릅니다.",
    "New characters are lost. decode cannot bring them back, and the model does not even know that something was "
    "there.",
)
_ONE_ID = Words(
    "처음 보는 글자가 모두 같은 id가 됩니다. 그러면 ‘고’와 ‘양’을 구별할 수 없고 decode로 되살릴 수 없습니다. UTF-8 "
    "바이트를 쓰세요.",
    "All new characters get the same id, so they cannot be told apart, and decode cannot bring them back. Use their "
    "UTF-8 bytes.",
)
_LOW_BYTES = Words(
    "처음 보는 글자 하나가 id 하나가 되었습니다. 한글 한 글자는 UTF-8로 3바이트이므로 id 3개입니다: "
    'character.encode("utf-8").',
    "A new character became one id. A Korean syllable has three bytes in UTF-8, so it has three ids: "
    'character.encode("utf-8").',
)
_OTHER_BYTES = Words(
    "처음 보는 글자의 id가 {given}…입니다. UTF-8 바이트 {right}…이어야 합니다.",
    "A new character has the ids {given}…; they should be its UTF-8 bytes, {right}….",
)
_BYTE_BY_BYTE = Words(
    "바이트를 하나씩 텍스트로 바꾸었습니다. 한글 한 글자는 3바이트이므로 하나만으로는 글자가 아닙니다. 바이트를 "
    "bytearray에 모아 한꺼번에 decode하세요.",
    "The bytes are decoded one at a time. A Korean syllable has three bytes, and one alone is no character. Collect "
    "the bytes in a bytearray, and decode them together.",
)
_LATIN = Words(
    "{right} 대신 {given} 값이 나왔습니다. chr는 바이트를 코드 포인트로 읽습니다. 바이트를 모아 UTF-8로 decode하세요.",
    "{right} became {given}. chr takes a byte for a code point. Collect the bytes, and decode them as UTF-8.",
)
_LEFT_OVER = Words(
    "{right} 대신 {given} 값이 나왔습니다. 텍스트가 바이트로 끝날 때 모아 둔 바이트가 남습니다. 반복문이 끝난 "
    "뒤에도 한 번 더 decode하세요.",
    "{right} became {given}. Where the text ends with bytes, the collected bytes are left over. Decode them once more "
    "after the loop.",
)
_TEXT = Words(
    "decode(encode(text))가 {given}입니다. {right}이어야 합니다.",
    "decode(encode(text)) is {given}; it should be {right}.",
)
_SURROGATE = Words(
    "서로게이트 반쪽에서 UnicodeEncodeError가 납니다. 깨진 파일을 surrogateescape로 읽으면 이런 글자가 생깁니다. "
    'encode("utf-8", errors="replace")는 그 자리에 ?를 씁니다.',
    "A lone surrogate raises UnicodeEncodeError. Such characters come from broken files. "
    'encode("utf-8", errors="replace") writes ? instead.',
)
_NO_QUESTION = Words(
    '서로게이트 반쪽은 b"?" 하나가 되어야 합니다. 그래야 무엇인가 있었다는 것을 알 수 있습니다.',
    'A lone surrogate should become one b"?", so that it is visible that something was there.',
)
_HALF = Words(
    "바이트가 모자라면 UnicodeDecodeError가 납니다. 모델은 글자의 일부만 쓰고 끝낼 수 있습니다. "
    'errors="replace"를 주세요.',
    'Incomplete bytes raise UnicodeDecodeError. A model may stop in the middle of a character. Use errors="replace".',
)
_NO_MARK = Words(
    '모자란 바이트가 {given}이 되었습니다. U+FFFD(�)로 시작해야 합니다. errors="replace"를 주세요.',
    'The incomplete bytes became {given}, which should begin with U+FFFD (�). Use errors="replace".',
)


# --- bpe_merges ---

WORDS = {"low": 7, "lower": 5, "newest": 6, "widest": 4, "new": 2, "slow": 3}
TIED = {"ab": 3, "cd": 3, "ba": 1}
Merges = list[tuple[str, str]]


def _apply_merges(code: Code) -> Steps:
    """Check merges that are applied to a word."""
    apply_merges = code.function("apply_merges")
    _compare_pieces(apply_merges, "banana", [("a", "n")], ["b", "an", "an", "a"])
    yield Words("병합 하나가 맞습니다.", "One merge is right.")
    _compare_pieces(apply_merges, "aaa", [("a", "a")], ["aa", "a"])
    _compare_pieces(apply_merges, "aaaaa", [("a", "a"), ("aa", "aa")], ["aaaa", "a"])
    yield Words("겹치는 쌍에서도 조각을 한 번만 씁니다.", "Each piece is used once where pairs overlap.")
    _compare_pieces(apply_merges, "xab", [("x", "a"), ("a", "b")], ["xa", "b"])
    _compare_pieces(apply_merges, "abc", [("b", "c"), ("a", "b")], ["a", "bc"])
    _compare_pieces(apply_merges, "책을책을", [("책", "을"), ("책을", "책을")], ["책을책을"])
    yield Words("병합을 배운 순서대로 적용합니다.", "The merges are applied in the order in which they were learned.")


def _learn_merges(code: Code) -> Steps:
    """Check merges that are learned from words."""
    learn_merges = code.function("learn_merges")
    _compare_merges(learn_merges(dict(WORDS), 1), WORDS, 1)
    _compare_merges(learn_merges(dict(WORDS), 8), WORDS, 8)
    yield Words("가장 잦은 쌍을 매번 새로 셉니다.", "The most frequent pair is counted anew each time.")
    _compare_merges(learn_merges(dict(TIED), 2), TIED, 2)
    yield Words("빈도가 같으면 작은 쌍을 고릅니다.", "On a tie it chooses the smaller pair.")
    everything = raises(_NO_PAIR, lambda: learn_merges({"abc": 2}, 9), mistake="no-pair-left", text=_EMPTY)
    require(everything is not None, _NOTHING, mistake="no-return")
    _compare_merges(everything, {"abc": 2}, 9)
    yield Words("남은 쌍이 없으면 끝냅니다.", "It stops when no pair is left.")


_EMPTY = ("is an empty sequence", "iterable argument is empty", "IndexError")


def _as_jumok(code: Code) -> Steps:
    """Compare with the bpe tokenizer of jumok, on words whose pairs have no ties."""
    apply_merges, learn_merges = code.function("apply_merges"), code.function("learn_merges")
    text = "\n".join(word for word, count in WORDS.items() for _ in range(count))
    merges = [tuple(pair) for pair in learn_merges(dict(WORDS), 3)]
    theirs = train_tokenizer(text, "bpe", vocab_size=256 + len(merges))
    for word in (*WORDS, "lowest"):
        right = theirs.pieces(theirs.encode(word))
        require(apply_merges(word, merges) == right, _PIECES, word=word, given=apply_merges(word, merges), right=right)
    yield Words("jumok의 BPE 토크나이저와 같습니다.", "It equals the BPE tokenizer of jumok.")


bpe_merges: Checks = {"apply_merges": _apply_merges, "learn_merges": _learn_merges, "": _as_jumok}


def _compare_pieces(function: Callable[..., Any], word: str, merges: Merges, right: list[str]) -> None:
    """Compare the pieces of a word.

    Raises:
        Wrong: with the name of the mistake that gives the same pieces.
    """
    given = raises(_OUT_OF_RANGE, lambda: function(word, list(merges)), mistake="out-of-range", text="IndexError")
    require(given is not None, _NOTHING, mistake="no-return")
    require(isinstance(given, list | tuple), _NOT_PIECES, mistake="not-pieces", kind=type(given).__name__)
    given = list(given)
    if given == right:
        return
    values: dict[str, Any] = {"word": word, "given": given, "right": right}
    require(given != list(word), _NOT_MERGED, mistake="not-merged", **values)
    require(len("".join(given)) <= len(word), _OVERLAP, mistake="overlapping", **values)
    require(len("".join(given)) >= len(word), _LAST_LOST, mistake="last-piece-lost", **values)
    require(given != _first_only(word, merges), _FIRST_ONLY, mistake="first-place-only", **values)
    require(given != _replaced(word, merges), _REPLACED, mistake="across-pieces", **values)
    require(given != _any_order(word, merges), _ANY_ORDER, mistake="order-ignored", **values)
    raise Wrong(_PIECES, **values)


def _applied(word: str, merges: Merges) -> list[str]:
    pieces = list(word)
    for pair in merges:
        place = 0
        while place < len(pieces) - 1:
            if (pieces[place], pieces[place + 1]) == pair:
                pieces[place : place + 2] = ["".join(pair)]
            place += 1
    return pieces


def _first_only(word: str, merges: Merges) -> list[str]:
    """Each merge is applied at its first place only."""
    pieces = list(word)
    for pair in merges:
        place = next((i for i, two in enumerate(pairwise(pieces)) if two == pair), None)
        if place is not None:
            pieces[place : place + 2] = ["".join(pair)]
    return pieces


def _replaced(word: str, merges: Merges) -> list[str]:
    """The pieces are joined with spaces, and str.replace merges them."""
    text = " ".join(word)
    for left, right in merges:
        text = text.replace(f"{left} {right}", left + right)
    return text.split(" ")


def _any_order(word: str, merges: Merges) -> list[str]:
    """From the left, any pair that has been learned is merged."""
    pieces = list(word)
    place = 0
    while place < len(pieces) - 1:
        if (pieces[place], pieces[place + 1]) in merges:
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
            place = 0
        else:
            place += 1
    return pieces


def _compare_merges(given: object, words: dict[str, int], n: int) -> None:
    """Compare learned merges.

    Raises:
        Wrong: with the name of the mistake that gives the same merges.
    """
    require(given is not None, _NOTHING, mistake="no-return")
    right = _learned(words, n)
    merges = [tuple(pair) if isinstance(pair, list | tuple) else pair for pair in given]  # type: ignore[attr-defined]
    if merges == right:
        return
    pairs = all(isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(p, str) for p in pair) for pair in merges)
    require(pairs, _NOT_PAIRS, mistake="not-pairs")
    require(merges != _learned(words, n, rule="unweighted"), _UNWEIGHTED, mistake="words-once")
    require(merges != _learned(words, n, rule="rare"), _RARE, mistake="rarest")
    place = next(
        (i for i, (a, b) in enumerate(zip(merges, right, strict=False)) if a != b), min(len(merges), len(right))
    )
    for rule in ("first", "larger"):
        if merges == _learned(words, n, rule=rule):
            raise Wrong(_TIE, mistake="tie", given=merges[place], right=right[place])
    require(merges != _not_recounted(words, n), _NOT_RECOUNTED, mistake="not-recounted")
    require(len(merges) == 1 or len(set(merges)) > 1, _SAME_AGAIN, mistake="same-again")
    require(place < min(len(merges), len(right)), _NUMBER, given=len(merges), right=len(right))
    raise Wrong(_MERGE, place=place, given=merges[place], right=right[place])


def _counts(words: dict[str, int], merges: Merges) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for word, count in words.items():
        for pair in pairwise(_applied(word, merges)):
            counts[pair] += count
    return counts


def _learned(words: dict[str, int], n: int, rule: str = "") -> Merges:
    """The merges, or with a rule those of a mistake."""
    if rule == "unweighted":
        words = dict.fromkeys(words, 1)
    merges: Merges = []
    for _ in range(n):
        counts = _counts(words, merges)
        if not counts:
            break
        if rule == "first":
            merges.append(max(counts, key=lambda pair: counts[pair]))
        elif rule == "larger":
            merges.append(max(counts, key=lambda pair: (counts[pair], pair)))
        else:
            sign = 1 if rule == "rare" else -1
            merges.append(min(counts, key=lambda pair: (sign * counts[pair], pair)))
    return merges


def _not_recounted(words: dict[str, int], n: int) -> Merges:
    counts = _counts(words, [])
    return sorted(counts, key=lambda pair: (-counts[pair], pair))[:n]


_NOTHING = Words(
    "함수가 None을 돌려줍니다. return이 빠졌습니다.", "The function returns None: the `return` is missing."
)
_OUT_OF_RANGE = Words(
    "마지막 조각 다음을 읽었습니다. 조각이 n개이면 이웃한 쌍은 n - 1개입니다. 병합하면 조각의 수도 줄어듭니다.",
    "The code reads beyond the last piece. n pieces have n - 1 adjacent pairs, and each merge leaves fewer pieces.",
)
_NOT_PIECES = Words(
    "apply_merges의 결과가 {kind}입니다. 조각(문자열)의 목록이어야 합니다.",
    "apply_merges returns a {kind}; it should be a list of pieces (strings).",
)
_NOT_MERGED = Words(
    "{word}에서 아무것도 병합되지 않았습니다. {right}이어야 합니다. 합친 조각의 목록을 다음 병합과 return에 쓰세요.",
    "Nothing was merged in {word}; the pieces should be {right}. Use the list of merged pieces for the next merge and "
    "for the return.",
)
_LAST_LOST = Words(
    "{word}의 조각이 {given}입니다. 글자가 없어졌습니다. 쌍이 아닌 조각과 마지막 조각도 결과에 넣어야 합니다.",
    "The pieces of {word} are {given}: characters are lost. Pieces that are not in the pair, and the last one, belong "
    "to the result, too.",
)
_OVERLAP = Words(
    "{word}의 조각이 {given}입니다. 글자가 늘었습니다. 병합한 뒤에는 두 칸을 건너뛰어야 같은 조각을 두 번 쓰지 "
    "않습니다.",
    "The pieces of {word} are {given}: there are more characters than before. After a merge skip two places, so that "
    "no piece is used twice.",
)
_FIRST_ONLY = Words(
    "{word}에서 쌍이 처음 나오는 곳만 병합했습니다: {given}. 병합 하나는 단어 안의 모든 곳에 적용합니다.",
    "In {word} only the first occurrence of the pair was merged: {given}. A merge applies to all places in the word.",
)
_REPLACED = Words(
    "{word}의 조각이 {given}입니다. 문자열에 replace를 쓰면 조각의 경계를 넘어 병합합니다. 조각 xa의 a는 조각 a가 "
    "아닙니다. 조각의 목록에서 비교하세요.",
    "The pieces of {word} are {given}. replace on a string merges across the edges of pieces: the a in the piece xa "
    "is not the piece a. Compare pieces in the list.",
)
_ANY_ORDER = Words(
    "{word}의 조각이 {given}입니다. {right}이어야 합니다. 먼저 배운 병합을 단어 전체에 먼저 적용하세요. 바깥 반복문이 "
    "병합입니다.",
    "The pieces of {word} are {given}; they should be {right}. Apply the merge that was learned first to the whole "
    "word first: the outer loop runs over the merges.",
)
_PIECES = Words(
    "{word}의 조각이 {given}입니다. {right}이어야 합니다.", "The pieces of {word} are {given}; they should be {right}."
)
_NOT_PAIRS = Words(
    "병합은 문자열 두 개의 튜플 (왼쪽 조각, 오른쪽 조각)이어야 하고 빈도는 들어가지 않습니다. 합친 문자열만 있으면 "
    "어디서 나뉘는지 알 수 없습니다.",
    "A merge should be a tuple of two strings, (left piece, right piece), without a count. The joined string alone "
    "does not say where it divides.",
)
_UNWEIGHTED = Words(
    "단어를 한 번씩만 세었습니다. 텍스트에 7번 나오는 단어의 쌍은 7번 나온 것입니다: counts[pair] += count.",
    "Each word is counted once. The pairs of a word that occurs 7 times in the text occur 7 times: counts[pair] += "
    "count.",
)
_RARE = Words("가장 드문 쌍을 골랐습니다.", "The rarest pair was chosen, not the most frequent one.")
_TIE = Words(
    "빈도가 같을 때 고른 쌍은 {given}이고, 작은 쌍은 {right}입니다. 규칙이 없으면 같은 텍스트에서 다른 토크나이저가 "
    "나올 수 있습니다. min(counts, key=lambda pair: (-counts[pair], pair))을 쓰세요.",
    "Of pairs with the same count, {given} was chosen, and {right} is the smaller one. Without a rule, the same text "
    "could give different tokenizers. Use min(counts, key=lambda pair: (-counts[pair], pair)).",
)
_NOT_RECOUNTED = Words(
    "쌍을 처음에 한 번만 세었습니다. 병합한 뒤에는 새 조각과의 쌍이 생기고 없어지는 쌍도 있으므로 매번 다시 세어야 "
    "합니다.",
    "The pairs are counted only once, at the start. Each merge makes new pairs and removes others, so count again "
    "each time.",
)
_SAME_AGAIN = Words(
    "같은 쌍을 계속 배웁니다. 다음 쌍을 세기 전에 지금까지의 병합을 단어에 적용하세요.",
    "The same pair is learned again and again. Apply the merges so far to the words before counting.",
)
_NUMBER = Words("병합이 {given}개입니다. {right}개여야 합니다.", "There are {given} merges; there should be {right}.")
_MERGE = Words(
    "병합 {place}번이 {given}입니다. {right}이어야 합니다.", "Merge number {place} is {given}; it should be {right}."
)
_NO_PAIR = Words(
    "단어가 모두 한 조각이 되면 쌍이 없어서 max나 min이 오류를 냅니다. counts가 비었으면 반복을 끝내세요.",
    "When every word is one piece, there are no pairs, and max or min raises an error. Stop if counts is empty.",
)
