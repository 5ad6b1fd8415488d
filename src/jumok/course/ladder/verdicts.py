"""Explanations of the figures of the rungs: the measured difference in words, and a reason chosen by its sign.

The code does not assume which rungs help. There is a reason for each sign. A difference that is too small to be
meaningful gets none.
"""

from __future__ import annotations

from jumok.course.ladder.results import LadderRecord
from jumok.course.ladder.rungs import RUNGS, LadderRung, say
from jumok.course.words import Language

CLEAR = 0.01  # nats per character; a smaller difference may be chance (an estimate)
ENOUGH_STEPS = 100  # after fewer, the figures depend mostly on the initialisation (an estimate)
LESS_TEXT = 0.95  # share of the text of the rung before; a smaller share is mentioned


def verdict(record: LadderRecord, rung: LadderRung, language: Language) -> str:
    """Return an explanation of the figure of a finished rung; "" if that figure or the one before it is missing."""
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
        sentences.append(rung.reason(gain).said(language))
    share = result.tokens / before.tokens
    if share < LESS_TEXT:
        sentences.append(say("less_text", language, share=share))
    if (step := record.passes_bigram(rung)) is not None:
        sentences.append(say("passes", language, step=step))
    return " ".join([*sentences, *_behind_the_bigram(record, rung, language)])


def _too_few(steps: int, language: Language) -> list[str]:
    """Return a sentence if there are too few steps for a comparison, else nothing."""
    return [say("few_steps", language, steps=steps, enough=ENOUGH_STEPS)] if steps < ENOUGH_STEPS else []


def _behind_the_bigram(record: LadderRecord, rung: LadderRung, language: Language) -> list[str]:
    """Why a rung with attention is worse than the bigram: its blocks replace their input, or it saw less text."""
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
