"""The model card of an exported folder: README.md in Korean and English, with the front matter that the Hub reads.

https://huggingface.co/docs/hub/model-cards describes the front matter; card.toml has the texts.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jumok.config import BERTConfig
from jumok.config.features import task_of
from jumok.models import Model

HANGUL = re.compile("[가-힣ᄀ-ᇿㄱ-ㆎ]")
HUB_TASKS = {
    "lm": "text-generation",
    "chat": "text-generation",
    "mlm": "fill-mask",
    "classify": "text-classification",
    "seq2seq": "text2text-generation",
    "embed": "feature-extraction",
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """The content of a model card besides the model itself. No text that the model was trained on is in it.

    Attributes:
        name: of the model.
        licence: of the model and its data, as the author gave it.
        run: config.json of the run folder; {} for a model that was not trained by jumok.
    """

    name: str
    licence: str | None = None
    run: Mapping[str, Any]


def model_card(model: Model, card: Card, stock_class: str) -> str:
    """Return the content of README.md.

    Args:
        model: with its tokenizer.
        card: what to say besides.
        stock_class: the class of `transformers` that the folder holds.
    """
    task = _task(model)
    front: dict[str, Any] = {"language": ["ko"]} if writes_hangul(model) else {}
    front |= {"library_name": "transformers", "pipeline_tag": HUB_TASKS[task], "tags": ["jumok"]}
    if card.licence is not None:
        named = re.fullmatch(r"[a-z0-9.+-]+", card.licence.lower().replace(" ", "-"))
        front |= {"license": named[0]} if named else {"license": "other", "license_name": card.licence}
    yaml = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in front.items())
    parts = [f"---\n{yaml}---\n", f"# {_plain(card.name)}\n", "\n".join(["```python", *_example(task), "```\n"])]
    texts = tomllib.loads(files("jumok.interop.huggingface").joinpath("card.toml").read_text(encoding="utf-8"))
    parts += [_part(model, card, stock_class, say) for say in texts.values()]
    return "\n".join(parts).encode("utf-8", "replace").decode()  # a name of a file need not be UTF-8


def writes_hangul(model: Model) -> bool:
    """Return whether a token of the model contains Hangul."""
    tokenizer = model.tokenizer
    return tokenizer is not None and any(HANGUL.search(tokenizer.decode([i])) for i in range(tokenizer.vocab_size))


def _task(model: Model) -> str:
    config = model.config
    if isinstance(config, BERTConfig) and config.head in ("none", "pooler"):
        return "embed"
    task = task_of(config)
    return "chat" if task == "lm" and model.tokenizer is not None and model.tokenizer.chat_templates else task


def _part(model: Model, card: Card, stock_class: str, say: Mapping[str, str]) -> str:
    """Return the card in the language of the texts `say`."""
    config = model.config
    sizes = {"count": f"{model.parameter_count():,}", "length": f"{config.context_length:,}"}
    licence = say["no_licence"] if card.licence is None else _plain(card.licence)
    lines = [
        f"## {say['title']}",
        say["intro"].format(does=say[_task(model)], **sizes, stock_class=stock_class),
        say["licence"].format(licence=licence),
    ]
    if labels := getattr(config, "labels", ()):
        lines.append(say["classes"].format(names=", ".join(map(_plain, labels))))
    sources = (card.run.get("data") or {}).get("sources") or ()  # without the folders of the author
    if names := [_plain(re.split(r"[/\\]", str(source))[-1]) for source in sources]:
        lines.append(say["data"].format(names=", ".join(names)))
    metrics = (card.run.get("metrics") or {}).items()
    if rows := [f"| {_plain(name)} | {value:.6g} |" for name, value in metrics if isinstance(value, int | float)]:
        lines.append("\n".join([f"| {say['figures']} |", "| --- | --- |", *rows]))
    return "\n\n".join([*lines, say["limits"], ""])


def _example(task: str) -> list[str]:
    if task == "seq2seq":
        return [
            "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
            "",
            'tokenizer = AutoTokenizer.from_pretrained("MODEL")',
            'model = AutoModelForSeq2SeqLM.from_pretrained("MODEL")',
            'ids = tokenizer("안녕하세요", return_tensors="pt").input_ids',
            "print(tokenizer.decode(model.generate(ids)[0], skip_special_tokens=True))",
        ]
    messages = '[{"role": "user", "content": "안녕하세요"}]'
    text = {"mlm": '"나는 [MASK]에 갔다."', "classify": '"재미있어요"', "chat": messages}.get(task, '"그날 밤"')
    ending = ", max_new_tokens=100" if task in ("lm", "chat") else ""
    return [
        "from transformers import pipeline",
        "",
        f'run = pipeline("{HUB_TASKS[task]}", model="MODEL")',
        f"print(run({text}{ending}))",
    ]


def _plain(text: object) -> str:
    """Return a text that Markdown and HTML show as it is, on one line."""
    line = " ".join(str(text).split())
    return re.sub(r"([\\`*{}\[\]#|<>&~$])|(?<!\w)_|_(?!\w)", lambda found: f"&#{ord(found[0])};", line)
