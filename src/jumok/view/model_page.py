"""A page that holds a whole model: its parameters in 8 or 16 bits, its tokenizer, and the program that runs it.

The page needs no network and no installation. `assets/model/reader.js` reads what is written here: a JSON header that
describes the model and names the place of each parameter in a sequence of bytes, and these bytes, compressed (raw
deflate) and in base64. Nothing else of a run folder enters the page: no text that the model was trained on, no samples,
no figures, no paths. What is the model's own can still tell something about its texts: the vocabulary of the tokenizer
and the names of the labels.

A matrix is rounded to 8 bits with a factor for each of its rows: q = round(w / scale), scale = max|row| / 127. Vectors,
such as biases and the weights of norms, stay float32. With `exact`, matrices are float16, or float32 where a number is
too large for it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.config import GPTConfig, to_dict
from jumok.config.features import PAGE, kind_of, require, task_of
from jumok.errors import ViewError
from jumok.inference.sampling import Sampling
from jumok.messages import tr
from jumok.models import Model, build_blank
from jumok.models.checks import require_finite, require_tokenizer
from jumok.models.special_ids import frame_of, start_ids
from jumok.tokenizers import Tokenizer
from jumok.view.bundle import script
from jumok.view.page import HTMLFile, embedded, filled, one_line
from jumok.view.page_code import MODEL
from jumok.view.page_tokenizer import require_readable
from jumok.view.trace import model_facts

FORMAT, VERSION = "jumok-model-page", 1
LARGEST_PAGE = 100e6  # bytes; more is slow to open, and phones have too little memory for it
LARGE_PAGE = 30e6  # bytes; too much for many mail programs and messengers
BASE64 = 4 / 3  # characters for each byte
LARGEST_INTEGER = 127
LARGEST_HALF = 65504.0
ALIGNMENT = 16  # bytes

WORKER = "view/assets/model/worker.js"
HTML = "page/page.html"


class ModelPage(HTMLFile):
    """A page with a model in it. The same model gives the same file.

    Args:
        model: with its tokenizer, as `jumok.load` returns it.
        name: of the model, that of its run folder for example.
        exact: keep matrices in 16 bits instead of 8.
        prompt: the text that the page begins with; None: an empty one.
        title, note, licence: of the page, what its author says about it, and the licence of the texts that the model
            was trained on. They are shown as text.
        language: "ko" or "en"; None: that of the browser.

    Raises:
        TokenizerError: the model has no tokenizer.
        JumokError: the model cannot be in a page: pages do not compute it (`jumok.config.features`), it is too large,
            its parameters are not finite, or its tokenizer is one that pages do not read (`jumok.view.page_tokenizer`).
    """

    def __init__(
        self,
        model: Model,
        name: str,
        *,
        exact: bool = False,
        prompt: str | None = None,
        title: str | None = None,
        note: str | None = None,
        licence: str | None = None,
        language: str | None = None,
    ) -> None:
        super().__init__(title or name)
        tokenizer = require_tokenizer(model)
        require_readable(tokenizer)
        _require_possible(model, exact)
        texts = {"title": title or name, "note": note or "", "licence": licence or ""}
        entries, self._parameters = packed_parameters(model, exact=exact)
        self.header: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "language": language,
            "prompt": prompt,
            "about": {"name": one_line(name), **texts, **describe(model), "bits": 16 if exact else 8},
            "config": {"type": kind_of(model.config), **to_dict(model.config), **_ids_around(model, tokenizer)},
            "tokenizer": json.loads(tokenizer.to_json()),
            **entries,
        }

    @cached_property
    def html(self) -> str:
        """The whole file."""
        code, header = script(MODEL.entry), embedded(self.header)
        parts = {
            "model": header,
            "checksum": str(zlib.crc32(header.encode())),
            "parameters": self._parameters,
            "worker": script(WORKER),
            "script": code,
        }
        return filled(HTML, self.title, MODEL.styles, code, parts, worker=True)


def _ids_around(model: Model, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the ids around each text, and those that an empty text begins with.

    Raises:
        ViewError: a language model reads ids before each text, which a page would show as a part of the text.
    """
    frame = frame_of(model.config, tokenizer)
    if not isinstance(model.config, GPTConfig) or model.config.labels:
        return {"frame": to_dict(frame), "start": []}
    if frame.before:
        raise ViewError(
            "this model reads {tokens} before each text, and a page begins with the first character of a text. Use "
            "`jumok generate` or `jumok convert --to hf`.",
            tokens=" ".join(tokenizer.pieces(frame.before)),
        )
    return {"frame": to_dict(frame), "start": start_ids(model.config, tokenizer)}


def describe(model: Model) -> dict[str, Any]:
    """Return what a page says about its model, as in the type About of `assets/page/engine_types.d.ts`."""
    facts, labels, tokenizer = model_facts(model), list(getattr(model.config, "labels", ())), require_tokenizer(model)
    greedy = facts["kind"] == "encoder-decoder"
    return {
        **facts,
        "kind": "classifier" if labels else facts["kind"],
        "labels": labels,
        "tokenizer": tokenizer.kind,
        "prompt_tokens": tokenizer.kind == "other" or bool(tokenizer.chat_templates),
        "task": task_of(model.config),
        "chat": chat_of(model),
        "sampling": {"temperature": 0.0 if greedy else Sampling().temperature, "top_k": 0, "top_p": 1.0},
    }


def chat_of(model: Model) -> dict[str, int] | None:
    """Return the special tokens of the chat template of a model that a page can talk with; None: there is none.

    A page has no Jinja, so the template must be that of jumok.
    """
    template = require_tokenizer(model).chat
    writes = isinstance(model.config, GPTConfig) and not model.config.labels
    return template.tokens if template and template.is_own and writes else None


def _require_possible(model: Model, exact: bool) -> None:
    """Raise JumokError for a model that cannot be in a page."""
    require(model.config, PAGE)
    numbers = sum({id(one): one.numel() for one in model.state_dict(keep_vars=True).values()}.values())
    size = numbers * BASE64
    if (2 if exact else 1) * size > LARGEST_PAGE:
        other = tr(" In 8 bits it would have {megabytes:,.0f} MB.", megabytes=size / 1e6) if exact else ""
        raise ViewError(
            "a page of this model would have about {megabytes:,.0f} MB, and the most that browsers open well is "
            "{most:,.0f} MB.{other} Share the run folder, and open it with `jumok serve`.",
            megabytes=(2 if exact else 1) * size / 1e6,
            most=LARGEST_PAGE / 1e6,
            other=other if size <= LARGEST_PAGE else "",
        )
    for parameter in model.parameters():
        require_finite(parameter)


# --- parameters -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A parameter as a page holds it.

    numbers: int8, float16 or float32, of the shape of the parameter. scales: (rows,), float32, of an int8 matrix.
    """

    name: str
    numbers: NDArray[Any]
    scales: NDArray[np.float32] | None = None

    def values(self) -> Tensor:
        """Return what the page computes with, float32."""
        floats = torch.from_numpy(self.numbers.astype(np.float32))
        return floats if self.scales is None else floats * torch.from_numpy(self.scales)[:, None]


def stored_parameters(model: Model, *, exact: bool) -> Iterator[Stored]:
    """Return the parameters of a model as a page holds them; a shared matrix once."""
    seen = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        values = tensor.detach().cpu().float().numpy()
        if values.ndim < 2:
            yield Stored(name, values)
        elif exact:
            fits = bool(np.abs(values).max(initial=0) <= LARGEST_HALF)
            yield Stored(name, values.astype(np.float16) if fits else values)
        else:
            largest = np.abs(values).max(axis=1)  # (rows,)
            scales = np.maximum(largest / LARGEST_INTEGER, np.finfo(np.float32).tiny)  # a row can be all zeros
            yield Stored(name, np.round(values / scales[:, None]).astype(np.int8), scales)


def rounded(model: Model, *, exact: bool = False) -> Model:
    """Return a copy of a model with the parameters that a page of it has, in float32 and in eval mode.

    It computes what the page computes, so it tells what is lost by rounding.
    """
    found = build_blank(model.config).float()
    values = {one.name: one.values() for one in stored_parameters(model, exact=exact)}
    found.load_state_dict(values, strict=False)  # a shared matrix has two names, one of which is missing
    found.tokenizer = model.tokenizer
    return found.eval()


def packed_parameters(model: Model, *, exact: bool) -> tuple[dict[str, Any], str]:
    """Return the entries of the header that describe the parameters, and the text of the parameters."""
    raw = bytearray()
    entries: list[dict[str, Any]] = []
    for one in stored_parameters(model, exact=exact):
        entry: dict[str, Any] = {"name": one.name, "shape": list(one.numbers.shape), "type": one.numbers.dtype.name}
        entry["offset"] = _append(raw, one.numbers)
        if one.scales is not None:
            entry["scale_offset"] = _append(raw, one.scales)
        entries.append(entry)
    packer = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)  # nothing repeats
    text = base64.b64encode(packer.compress(raw) + packer.flush()).decode()
    sums = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest(), "crc32": zlib.crc32(raw)}
    return {"parameters": entries, **sums}, text


def _append(raw: bytearray, numbers: NDArray[Any]) -> int:
    """Append numbers in little-endian order; where they begin."""
    raw += bytes(-len(raw) % ALIGNMENT)
    start = len(raw)
    raw += numbers.astype(numbers.dtype.newbyteorder("<"), copy=False).tobytes()
    return start
