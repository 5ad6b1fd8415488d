"""`POST /v1/embeddings`: texts as vectors of length 1, the means of a model's last hidden states."""

from __future__ import annotations

import base64

import numpy as np
from torch.nn import functional as F

from jumok.inference.embed import embed_ids
from jumok.models.checks import require_tokenizer
from jumok.serve.completions import require_known
from jumok.serve.replies import to_json
from jumok.serve.schemas import EmbeddingBody
from jumok.serve.served_models import Served
from jumok.serve.settings import ServeSettings
from jumok.serve.text_responses import require_short


def embeddings(served: Served, body: EmbeddingBody, settings: ServeSettings) -> str:
    """The JSON of a response. For a worker thread.

    Clients take the product of two vectors for their cosine, so the vectors have length 1, as those of OpenAI.

    Raises:
        APIError: a text is too long for the server, or has unknown ids. JumokError: as `jumok.inference.embed.embed`.
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
    vectors = F.normalize(embed_ids(served.model, texts), dim=1).numpy().astype("<f4")  # (N, C)
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
