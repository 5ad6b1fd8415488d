"""A text as a model of each kind predicts it, and the loss.

Losses are in nats per token, over the tokens that a model of this kind predicts:

- GPT: each token of the text but the first one, from those before it; the first one, too, if the model reads a text
  after special tokens
- BERT: each token of the text, masked together with every MASKED_EVERY-th other one, from the rest
- encoder–decoder: each token of the target and its [EOS], from the source and the target before it

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from jumok.errors import ConfigError, TextError, ViewError
from jumok.inference.answer import answer, with_special_tokens
from jumok.inference.fill_mask import mask_token
from jumok.inference.requests import require_answering
from jumok.messages import tr
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.checks import require_finite, require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode
from jumok.models.special_ids import Framing, prompt_ids

MASKED_EVERY = 7  # of a BERT's text every seventh token is masked at once, about as many as in its training


class Passage:
    """A text whose tokens a model predicts, and its loss.

    Args:
        model: a GPT, a BERT with head="mlm", or an encoder–decoder; in eval mode while it runs.
        ids: (T,), the text; for a BERT between its special tokens; for an encoder–decoder the target without the id
            that the decoder begins with.
        source: (S,), of an encoder–decoder.

    Raises:
        ViewError: the model predicts no tokens. TextError: the text leaves no token to predict.
    """

    def __init__(self, model: Model, ids: Sequence[int], source: Sequence[int] | None = None) -> None:
        require_language_head(model)
        self.model = model
        device = model.token_embedding.weight.device
        self._text = text = torch.tensor(list(ids), dtype=torch.int64, device=device)  # (T,)
        if isinstance(model, BERT):
            self.inputs, self._places = masked_in_turn(model, text)  # (R, T): one row for each set of masked tokens
            self.targets = torch.cat([text[places] for places in self._places] or [text[:0]])  # (N,)
        elif isinstance(model, EncoderDecoder):
            require_answering(model)
            start = torch.tensor([model.config.decoder_start_id], device=device)
            self.inputs = torch.cat((start, text[:-1]))[None]  # (1, T)
            self._source = torch.tensor(list(source or ()), dtype=torch.int64, device=device)  # (S,)
            self.targets = text  # (N,)
        else:
            self.inputs = text[None, :-1]  # (1, T-1)
            self.targets = text[1:]  # (N,)
        if not len(self.targets):
            raise TextError("a text of {count} tokens leaves none to predict; give a longer one.", count=len(text))

    @classmethod
    def of(cls, model: Model, text: str, target: str | None = None) -> Passage:
        """Return the passage of a text.

        Args:
            text: for a GPT the last tokens that fit into the context are taken, for a BERT the first ones.
            target: of an encoder–decoder; None: its own answer.

        Raises:
            TextError: the text is empty, or the source or the target too long.
            ConfigError: a target for a model that has none.
            As `Passage` does.
        """
        require_language_head(model)
        tokenizer = require_tokenizer(model)
        if not text:
            raise TextError("the text is empty; give one to look at.")
        if not isinstance(model, EncoderDecoder):
            if target is not None:
                raise ConfigError(
                    "a target is for an encoder–decoder, and this model is of the kind {kind}.",
                    kind=type(model).__name__,
                )
            if isinstance(model, BERT):
                framing = Framing.of(model.config, tokenizer)
                return cls(model, framing.frame(tokenizer.encode(text)).ids.tolist())
            return cls(model, prompt_ids(model.config, tokenizer, text)[-model.config.context_length :])
        require_answering(model)
        most = model.config.context_length
        source = with_special_tokens(tokenizer, text, model.config).tolist()
        if target is None:
            written = list(answer(model, [text])[0][0].ids)
        else:
            written = with_special_tokens(tokenizer, target, model.config).tolist()
        for name, found in ((tr("text"), source), (tr("target"), written)):
            if len(found) > most:
                raise TextError(
                    "the {name} has {count:,} tokens, and this model reads at most {most:,}; shorten it.",
                    name=name,
                    count=len(found),
                    most=most,
                )
        return cls(model, written, source)

    def nats(self) -> float:
        """Return the loss in nats per token; inside `jumok.interpret.ablation.ablate`, without those heads."""
        with eval_mode(self.model), torch.inference_mode():
            return float(self.losses(1)[0])

    def next_probabilities(self) -> Tensor | None:
        """Return the probability of each token after the text, or after the target: (V,); None for a BERT."""
        model = self.model
        if isinstance(model, BERT):
            return None
        with eval_mode(model), torch.inference_mode():
            logits = (model(self._text[None]) if isinstance(model, GPT) else self._logits(1))[0, -1]  # (V,)
            require_finite(logits)
            return logits[: require_tokenizer(model).vocab_size].float().softmax(dim=-1).cpu()

    def losses(self, copies: int) -> Tensor:
        """Return the loss of each of some copies of the text in one batch, in nats per token: (copies,), float64."""
        logits = self._logits(copies)  # (copies, N, V)
        require_finite(logits)
        losses = F.cross_entropy(logits.flatten(0, 1).float(), self.targets.repeat(copies), reduction="none")
        return losses.view(copies, -1).cpu().double().mean(dim=1)

    def _logits(self, copies: int) -> Tensor:
        """Of each predicted token: (copies, N, V)."""
        model, ids = self.model, self.inputs.repeat(copies, 1)  # (copies*R, T)
        if isinstance(model, BERT):
            hidden = model(ids).unflatten(0, (copies, -1))  # (copies, R, T, C)
            found = [hidden[:, row, places] for row, places in enumerate(self._places)]
            return model.mlm_logits(torch.cat(found, dim=1))
        if isinstance(model, EncoderDecoder):
            return model(self._source.repeat(copies, 1), ids)
        return model(ids)


def masked_in_turn(model: BERT, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Copies of a text with every seventh token masked, so that each but the special ones is masked in one copy.

    Args:
        ids: (T,).

    Returns:
        The copies, (R, T), and for each of them the places that are masked in it.
    """
    tokenizer = require_tokenizer(model)
    special = torch.tensor(list(tokenizer.special_tokens.values()), dtype=torch.int64, device=ids.device)
    counted = (~torch.isin(ids, special)).nonzero()[:, 0]
    masked = [counted[first::MASKED_EVERY] for first in range(min(MASKED_EVERY, len(counted)))]
    texts = ids.repeat(len(masked), 1)
    for row, places in enumerate(masked):
        texts[row, places] = tokenizer.special_tokens[mask_token(tokenizer)]
    return texts, masked


def require_language_head(model: Model) -> None:
    """Raise ViewError unless the model predicts tokens."""
    if isinstance(model, BERT) and model.config.head != "mlm":
        found = tr('a BERT with head="{head}"', head=model.config.head)
    elif isinstance(model, GPT | BERT) and model.config.labels:
        found = tr("a classifier")
    else:
        return
    raise ViewError(
        "this model is {found}: it predicts no tokens, so there is no change of loss to measure. "
        "Its attention can be viewed without probes.",
        found=found,
    )
