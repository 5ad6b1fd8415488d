"""The endpoints that run a model once: embeddings, classes, masks, tokens; and pages that show a model.

Each function returns the JSON or HTML of a response, for a worker thread. It raises JumokError or APIError.
"""

from __future__ import annotations

import base64
import copy
from itertools import chain

import numpy as np

from jumok.inference.classify import predict_whole
from jumok.inference.embed import embed_ids
from jumok.messages import users_language
from jumok.models.checks import require_tokenizer
from jumok.serve.completions import require_known
from jumok.serve.errors import APIError
from jumok.serve.replies import to_json
from jumok.serve.schemas import (
    ClassifyBody,
    EmbeddingBody,
    FillMaskBody,
    ModelBody,
    PageBody,
    TokenizeBody,
)
from jumok.serve.served_models import ServedModel
from jumok.serve.settings import ServeSettings
from jumok.serve.text_responses import require_short, token_name

MOST_MASKS = 100  # each is a pass of the model


def embed(served: ServedModel, body: EmbeddingBody, settings: ServeSettings) -> str:
    """Return the vector of each text, the mean of the model's last hidden states.

    Clients take the product of two vectors for their cosine, so the vectors have length 1, as those of OpenAI.
    """
    tokenizer = require_tokenizer(served.model)
    texts = []
    for given in body.input:
        require_short("input", len(given), settings)
        if isinstance(given, str):
            texts.append(tokenizer.encode(given))
        else:
            require_known(given, tokenizer, "input")
            texts.append(np.array(given, np.int64))
    means = embed_ids(served.model, texts)  # (N, C)
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    vectors = (means / lengths.clip(1e-12)).astype("<f4")
    found = [
        base64.b64encode(vector.tobytes()).decode() if body.encoding_format == "base64" else vector.tolist()
        for vector in vectors
    ]
    tokens = sum(map(len, texts))
    return to_json(
        {
            "object": "list",
            "data": [{"object": "embedding", "index": i, "embedding": one} for i, one in enumerate(found)],
            "model": served.name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


def classify(served: ServedModel, body: ClassifyBody, settings: ServeSettings) -> str:
    """Return the class of each text. label: null where the model's numbers for a text are not finite."""
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


def fill(served: ServedModel, body: FillMaskBody, settings: ServeSettings) -> str:
    """Return the text with its masks filled, and the candidates for each; `position` counts characters of the input."""
    require_short("input", len(body.input), settings)
    if served.task != "mlm":
        raise APIError(
            f"the model {served.name!r} has the task {served.task}; one with the task mlm fills in masks.",
            param="model",
        )
    from jumok.inference.fill_mask import fill_mask, mask_token, require_masked_model

    model = require_masked_model(served.in_pytorch())
    masks = body.input.count(mask_token(require_tokenizer(model)))
    if masks > MOST_MASKS:
        raise APIError(f"input has {masks:,} masks; this server fills at most {MOST_MASKS}.", param="input")
    filled = fill_mask(model, body.input, body.top)
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


def tokenize(served: ServedModel, body: TokenizeBody, settings: ServeSettings) -> str:
    """Return the ids of a text, and each as text; see `token_name`. That of a model that writes is read as a prompt."""
    require_short("input", len(body.input), settings)
    tokenizer = require_tokenizer(served.model)
    encode = tokenizer.encode_prompt if served.task == "lm" else tokenizer.encode
    ids = encode(body.input).tolist()
    names = [token_name(tokenizer, one) for one in ids]
    return to_json({"model": served.name, "ids": ids, "tokens": names, "count": len(ids)})


def view_page(served: ServedModel, body: PageBody, settings: ServeSettings) -> str:
    """Return the page of the viewer for a text, as `jumok view` writes it."""
    require_short("text", len(body.text), settings)
    require_short("target", len(body.target or ""), settings)
    if body.target is not None and served.task != "seq2seq":  # the error of `trace` quotes it
        raise APIError("target is for an encoder–decoder; this model has none.", param="target")
    from jumok.view.page import page_of
    from jumok.view.trace import trace

    model = served.in_pytorch()
    # Hooks are set on modules of its own with the same parameters: a service may run those of the model now.
    shared = chain(model.parameters(), model.buffers(), [model.tokenizer])
    own = copy.deepcopy(model, {id(one): one for one in shared})
    found = trace(own, body.text, target=body.target, name=served.name)
    return page_of(found, language=users_language()).html


def share_page(served: ServedModel, body: ModelBody, settings: ServeSettings) -> str:
    """Return a page that holds the model, as `jumok share` writes it."""
    from jumok.view.model_page import ModelPage

    return ModelPage(served.in_pytorch(), served.name, language=users_language()).html
