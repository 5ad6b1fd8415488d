"""The endpoints of jumok's own: classify, fill-mask, tokenize and attention.

Each function returns the JSON of a response, for a worker thread. It raises JumokError or APIError for a client.
"""

from __future__ import annotations

from jumok.inference.classify import predict_whole
from jumok.inference.fill_mask import fill_mask, mask_token, require_masked_model
from jumok.models import Model
from jumok.models.checks import require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.serve.errors import APIError
from jumok.serve.models import Served
from jumok.serve.schemas import AttentionBody, ClassifyBody, FillMaskBody, TokenizeBody
from jumok.serve.settings import ServeSettings
from jumok.serve.streaming import to_json
from jumok.serve.writing import TokenNames, require_short
from jumok.view import schema
from jumok.view.trace import trace

MOST_MASKS = 100  # each is a pass of the model


def classify(served: Served, body: ClassifyBody, settings: ServeSettings) -> str:
    """The class of each text. label: null where the model's numbers for a text are not finite."""
    for text in body.input:
        require_short("input", len(text), settings)
    found = []
    for index, prediction in enumerate(predict_whole(served.model, body.input)):
        if prediction is None:
            raise APIError(f"input[{index}] is empty, and an empty text has no class.", param="input")
        found.append(
            {
                "index": index,
                "label": prediction.label,
                "probabilities": prediction.probabilities,
                "cut": prediction.cut,
            }
        )
    return to_json({"object": "list", "model": served.name, "data": found})


def fill(served: Served, body: FillMaskBody, settings: ServeSettings) -> str:
    """The text with its masks filled, and the candidates for each; `position` counts characters of the input."""
    require_short("input", len(body.input), settings)
    require_few_masks(served.model, body.input, "input")
    filled = fill_mask(served.model, body.input, body.top)
    return to_json(
        {
            "model": served.name,
            "text": filled.text,
            "masks": [
                {"position": mask.position, "candidates": [one._asdict() for one in mask.candidates]}
                for mask in filled.masks
            ],
        }
    )


def require_few_masks(model: Model, text: str, param: str) -> None:
    """Raise APIError for a text with too many masks.

    Args:
        param: the name of the text in the request.

    Raises:
        ConfigError: the model fills no masks.
    """
    masks = text.count(mask_token(require_tokenizer(require_masked_model(model))))
    if masks > MOST_MASKS:
        raise APIError(f"{param} has {masks:,} masks; this server fills at most {MOST_MASKS}.", param=param)


def tokenize(served: Served, body: TokenizeBody, settings: ServeSettings) -> str:
    """The ids of a text, and each as text; see `TokenNames`."""
    require_short("input", len(body.input), settings)
    tokenizer = require_tokenizer(served.model)
    ids, names = tokenizer.encode(body.input).tolist(), TokenNames(tokenizer)
    return to_json({"model": served.name, "ids": ids, "tokens": [names.name(one) for one in ids], "count": len(ids)})


def attention(served: Served, body: AttentionBody, settings: ServeSettings) -> str:
    """A trace, as `jumok view` writes it into a page."""
    require_short("input", len(body.input), settings)
    require_short("target", len(body.target or ""), settings)
    if body.target is not None and not isinstance(served.model, EncoderDecoder):  # the error of `trace` quotes it
        raise APIError("target is for an encoder–decoder; this model has none.", param="target")
    with served.reading.alone() as model:  # a service may run the modules of `served.model` now
        found = trace(
            model,
            body.input,
            target=body.target,
            layers=body.layers,
            heads=body.heads,
            top=body.top,
            name=served.name,
        )
    return to_json(schema.to_json(found))
