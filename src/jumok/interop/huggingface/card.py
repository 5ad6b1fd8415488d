"""The model card of an exported folder: README.md in Korean and English, with the front matter that the Hub reads.

https://huggingface.co/docs/hub/model-cards describes the front matter; card.toml has the texts.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jumok.config import BERTConfig, ModelConfig
from jumok.config.features import task_of
from jumok.models import Model

PICTURE = "loss.png"
LANGUAGES = ("ko", "en")
HANGUL = re.compile("[가-힣ᄀ-ᇿㄱ-ㆎ]")
BYTES = 256  # tokens of single bytes
KOREAN = 0.1  # share of the tokens with Hangul from which the model counts as one of Korean
HUB_TASKS = {
    "lm": "text-generation",
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
        picture: the curves as a PNG file; None: there is none.
    """

    name: str
    licence: str | None = None
    run: Mapping[str, Any]
    picture: bytes | None = None


@cache
def _texts() -> dict[str, dict[str, dict[str, str]]]:
    return tomllib.loads(files("jumok.interop.huggingface").joinpath("card.toml").read_text(encoding="utf-8"))


def model_card(model: Model, card: Card, stock_class: str) -> str:
    """Return the content of README.md.

    Args:
        model: with its tokenizer.
        card: what to say besides.
        stock_class: the class of `transformers` that the folder holds.
    """
    front: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": HUB_TASKS[_task(model.config)]}
    front["tags"] = ["jumok"]
    if is_korean(model):
        front = {"language": ["ko"], **front}
    if card.licence is not None:
        named = re.fullmatch(r"[a-z0-9.+-]+", card.licence.lower().replace(" ", "-"))
        front["license"] = named[0] if named else "other"
        if not named:
            front["license_name"] = card.licence
    yaml = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in front.items())
    parts = [f"---\n{yaml}---\n", f"# {_plain(card.name)}\n"]
    parts += [_part(model, card, stock_class, language) for language in LANGUAGES]
    return "\n".join(parts).encode("utf-8", "replace").decode()  # a name of a file need not be UTF-8


def is_korean(model: Model) -> bool:
    """Return whether at least a tenth of the tokens, without those of bytes, contain Hangul."""
    if model.tokenizer is None:
        return False
    size = model.tokenizer.vocab_size
    found = sum(HANGUL.search(model.tokenizer.decode([i])) is not None for i in range(size))
    return found >= max(1, KOREAN * (size - BYTES))


def _task(config: ModelConfig) -> str:
    encoder = isinstance(config, BERTConfig) and config.head in ("none", "pooler")
    return "embed" if encoder else task_of(config)


def _part(model: Model, card: Card, stock_class: str, language: str) -> str:
    """Return the card in one language."""
    texts = {group: {key: both[language] for key, both in table.items()} for group, table in _texts().items()}
    say, limits = texts["say"], texts["limits"]
    config, task = model.config, _task(model.config)
    length = f"{config.context_length:,}"
    intro = {"does": texts["tasks"][task], "count": f"{model.parameter_count():,}", "length": length}
    lines = [f"## {say['title']}", "", say["intro"].format(**intro, stock_class=stock_class), ""]
    lines += ["```python", *_example(task), "```", ""]
    licence = say["no_licence"] if card.licence is None else _plain(card.licence)
    lines += [say["licence"].format(licence=licence), ""]
    if getattr(config, "labels", ()):
        lines += [say["classes"].format(names=", ".join(map(_plain, config.labels))), ""]  # type: ignore[union-attr]
    for title, known in (("data", _data(card.run)), ("training", _training(card.run))):
        found = [f"- {name}: {known[key]}" for key, name in texts[title].items() if key in known]
        lines += [f"### {say[title]}", "", *found, ""] if found else []
        lines += _figures(card, texts) if title == "data" else []
    lines += [f"### {say['limits']}", ""]
    lines += [f"- {limits[key].format(length=length)}" for key in (task, "all", "length") if key in limits]
    return "\n".join([*lines, ""])


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
    text = {"mlm": "나는 [MASK]에 갔다.", "classify": "재미있어요"}.get(task, "그날 밤")
    ending = ", max_new_tokens=100" if task == "lm" else ""
    return [
        "from transformers import pipeline",
        "",
        f'run = pipeline("{HUB_TASKS[task]}", model="MODEL")',
        f'print(run("{text}"{ending}))',
    ]


def _data(run: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of the data: names without the folders of the author, and numbers."""
    data = run.get("data") or {}
    names = [re.split(r"[/\\]", str(name))[-1] for name in data.get("sources") or ()]
    found = {"sources": ", ".join(f"`{_plain(name)}`" for name in names)} if names else {}
    return found | {key: f"{value:,}" for key, value in data.items() if isinstance(value, int)}


def _training(run: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of the training and of its machine."""
    machine, step = run.get("machine") or {}, (run.get("metrics") or {}).get("step")
    found = {key: str(value) for key, value in (run.get("train") or {}).items() if value is not None}
    if isinstance(step, int):
        found["step"] = f"{step:,}"
    if machine.get("processor"):
        found["machine"] = f"{_plain(machine['processor'])}, {machine.get('device')}"
    versions = ", ".join(f"{name} {number}" for name, number in (machine.get("versions") or {}).items())
    return found | ({"versions": _plain(versions)} if versions else {})


def _figures(card: Card, texts: Mapping[str, Mapping[str, str]]) -> list[str]:
    metrics, say = card.run.get("metrics") or {}, texts["say"]
    rows = [
        f"| {name} | {metrics[key]:.4g} |"
        for key, name in texts["figures"].items()
        if isinstance(metrics.get(key), int | float)
    ]
    lines = [say["held_out"], "| --- | --- |", *rows, ""] if rows else []
    if card.picture is not None:
        lines += [f"![{say['curves']}]({PICTURE})", ""]
    return [f"### {say['figures']}", "", *lines] if lines else []


def _plain(text: object) -> str:
    """Return a text that Markdown and HTML show as it is, on one line."""
    line = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]#|<>&~$])", lambda found: f"&#{ord(found[0])};", line)
