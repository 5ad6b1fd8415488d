"""The log-probabilities of the tokens of a given text, as if the model had written it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jumok.inference.requests import Drawn
from jumok.inference.slots import window_start
from jumok.models.checks import require_finite, require_tokenizer
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode


@torch.inference_mode()
def score(model: GPT, ids: Sequence[int], top: int = 0) -> list[Drawn]:
    """Return each id of a text with its log-probability after those before it, and the `top` likeliest ids there.

    The model sees the same window of the text as when it writes (`window_start`). The first id has no
    log-probability. Ids that only the model has, not its tokenizer, have none either.

    Args:
        ids: (T,), less than the tokenizer's vocab_size.

    Returns:
        T of them.

    Raises:
        JumokError: the logits are not finite.
    """
    known, context = require_tokenizer(model).vocab_size, model.config.context_length
    whole = torch.tensor(list(ids), device=model.token_embedding.weight.device)  # (T,)
    found = [Drawn(id=one) for one in ids[:1]]
    with eval_mode(model):
        while len(found) < len(ids):
            first = len(found)  # the id to predict, from those before it
            start = window_start(first, context)
            end = first  # the last id that is predicted from a window that begins there
            while end + 1 < len(ids) and window_start(end + 1, context) == start:
                end += 1
            logits = model.head(model.hidden(whole[None, start:end])[0, first - 1 - start :])[:, :known]  # (N, V)
            require_finite(logits)
            log_probabilities = logits.float().log_softmax(dim=-1)  # (N, V)
            best = log_probabilities.topk(min(top, known), dim=-1)  # (N, top)
            own = log_probabilities.gather(1, whole[first : end + 1, None])[:, 0]  # (N,)
            found += [
                Drawn(id=one, log_probability=value, top=tuple(zip(likeliest, values, strict=True)))
                for one, value, likeliest, values in zip(
                    ids[first : end + 1], own.tolist(), best.indices.tolist(), best.values.tolist(), strict=True
                )
            ]
    return found
