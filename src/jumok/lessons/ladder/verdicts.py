"""What a rung's figure means: the measured difference in words, and a reason for it, chosen by its sign.

Nothing here knows in advance which rungs help. There is a reason for either case, and none for a difference that is too
small to mean anything.
"""

from __future__ import annotations

from jumok.lessons.chapters import Language
from jumok.lessons.ladder.record import LadderRecord
from jumok.lessons.ladder.rungs import RUNGS, LadderRung
from jumok.lessons.ladder.words import say, words

CLEAR = 0.01  # nats per character; a judgement: less than this may be chance
ENOUGH_STEPS = 100  # a judgement: after fewer the figures tell of the first weights, not of what a part is worth
LESS_TEXT = 0.8  # of the text of the rung before: below this share it is worth a sentence


def verdict(record: LadderRecord, rung: LadderRung, language: Language) -> str:
    """What a finished rung's figure means, in a few sentences; "" without a figure, or one of the rung before."""
    number = RUNGS.index(rung)
    result = record.result(rung)
    if result is None:
        return ""
    if number == 0:
        return " ".join([say("bigram", language), *_too_few(result.steps, language)])
    before = record.result(RUNGS[number - 1])
    if before is None:
        return ""
    gain = before.nats_per_char - result.nats_per_char
    sentences = [say("better" if gain > 0 else "worse", language, size=abs(gain))]
    if too_few := _too_few(min(result.steps, before.steps), language):
        return " ".join([*sentences, *too_few])
    if abs(gain) < CLEAR:
        sentences.append(say("unclear", language))
    else:
        sentences.append(words()[language]["reasons"][rung.slug]["helps" if gain > 0 else "hurts"])
    share = result.tokens / before.tokens
    if share < LESS_TEXT:
        sentences.append(say("less_text", language, share=share))
    return " ".join([*sentences, *_behind_the_bigram(record, rung, language)])


def _too_few(steps: int, language: Language) -> list[str]:
    """What to say where a rung, or the one before, made too few steps to be compared."""
    return [say("few_steps", language, steps=steps, enough=ENOUGH_STEPS)] if steps < ENOUGH_STEPS else []


def _behind_the_bigram(record: LadderRecord, rung: LadderRung, language: Language) -> list[str]:
    """What keeps a rung that can choose above the bigram: it replaces what came in, or it saw less text."""
    bigram, result = record.result(RUNGS[0]), record.result(rung)
    _, settings = record.config.settings(rung)
    if bigram is None or result is None or settings.get("mixing") in {"none", "average"}:
        return []
    size, share = result.nats_per_char - bigram.nats_per_char, result.tokens / bigram.tokens
    if size <= CLEAR:
        return []
    if settings.get("residual") is False:
        return [say("behind", language, size=size)]
    return [say("behind_in_time", language, size=size, share=share)] if share < LESS_TEXT else []
