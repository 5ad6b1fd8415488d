"""The model card of an exported folder: README.md in Korean and English, with the front matter that the Hub reads.

https://huggingface.co/docs/hub/model-cards describes the front matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig
from jumok.models import Model

PICTURE = "loss.png"
HANGUL = re.compile("[가-힣ᄀ-ᇿㄱ-ㆎ]")
BYTES = 256  # tokens of single bytes
KOREAN = 0.1  # share of the tokens with Hangul from which the model counts as one of Korean

TASKS = {  # name on the Hub, class that loads it, and what it does in Korean and English
    "lm": ("text-generation", "AutoModelForCausalLM", "글을 이어 씁니다", "continues a text"),
    "mlm": ("fill-mask", "AutoModelForMaskedLM", "가려진 토큰을 채웁니다", "fills in masked tokens"),
    "classify": (
        "text-classification", "AutoModelForSequenceClassification", "글을 분류합니다", "classifies a text",
    ),
    "seq2seq": ("text2text-generation", "AutoModelForSeq2SeqLM", "글에 답합니다", "answers a text"),
    "embed": ("feature-extraction", "AutoModel", "글을 벡터로 나타냅니다", "turns a text into vectors"),
}  # fmt: skip
FIGURES = {  # of the best validation, shares from 0 to 1: name in Korean and in English
    "nats_per_char": ("글자당 nats", "nats per character"),
    "bits_per_char": ("글자당 비트", "bits per character"),
    "bits_per_byte": ("바이트당 비트", "bits per byte"),
    "perplexity": ("토큰당 퍼플렉시티", "perplexity per token"),
    "nats_per_hidden_token": ("가려진 토큰당 nats", "nats per masked token"),
    "pseudo_perplexity": ("유사 퍼플렉시티", "pseudo-perplexity"),
    "accuracy": ("정확도", "accuracy"),
    "f1_macro": ("매크로 F1", "macro F1"),
    "token_accuracy": ("토큰 정확도", "token accuracy"),
    "exact_match": ("정확히 맞은 비율", "exact matches"),
    "chrf": ("chrF (0–100)", "chrF (0–100)"),
    "bleu": ("BLEU (0–100)", "BLEU (0–100)"),
    "baseline_nats_per_char": (
        "기준선(글자 바이그램): 글자당 nats",
        "baseline (bigrams of characters): nats per character",
    ),
    "baseline_accuracy": ("기준선의 정확도", "accuracy of the baseline"),
    "baseline_exact_match": ("기준선의 정확히 맞은 비율", "exact matches of the baseline"),
    "floor": ("하한: 글자당 nats", "lower bound: nats per character"),
}
SETTINGS = {  # of the training: name in Korean and in English
    "minutes": ("학습 시간(분)", "minutes"),
    "batch_size": ("배치 크기", "batch size"),
    "optimizer": ("옵티마이저", "optimizer"),
    "learning_rate": ("학습률", "learning rate"),
    "precision": ("정밀도", "precision"),
    "seed": ("시드", "seed"),
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a model card says besides the model itself. Nothing of it is a text that the model was trained on.

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


def model_card(model: Model, card: Card, stock_class: str) -> str:
    """Return the content of README.md.

    Args:
        model: with its tokenizer.
        card: what to either.
        stock_class: the class of `transformers` that the folder holds.
    """
    task = _task(model.config)
    front: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": TASKS[task][0], "tags": ["jumok"]}
    if is_korean(model):
        front = {"language": ["ko"], **front}
    if card.licence is not None:
        named = re.fullmatch(r"[a-z0-9.+-]+", card.licence.lower().replace(" ", "-"))
        front["license"] = named[0] if named else "other"
        if not named:
            front["license_name"] = card.licence
    yaml = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in front.items())
    parts = [f"---\n{yaml}---\n", f"# {_plain(card.name)}\n", *(_part(model, card, stock_class, i) for i in (0, 1))]
    return "\n".join(parts).encode("utf-8", "replace").decode()  # a name of a file need not be UTF-8


def is_korean(model: Model) -> bool:
    """Return whether at least a tenth of the tokens, without those of bytes, contain Hangul."""
    if model.tokenizer is None:
        return False
    size = model.tokenizer.vocab_size
    found = sum(HANGUL.search(model.tokenizer.decode([i])) is not None for i in range(size))
    return found >= max(1, KOREAN * (size - BYTES))


def _task(config: ModelConfig) -> str:
    if isinstance(config, EncoderDecoderConfig):
        return "seq2seq"
    if isinstance(config, BERTConfig):
        return {"mlm": "mlm", "classify": "classify"}.get(config.head, "embed")
    assert isinstance(config, GPTConfig)
    return "classify" if config.labels else "lm"


def _part(model: Model, card: Card, stock_class: str, english: int) -> str:
    """The card in one language: 0 Korean, 1 English."""

    def either(korean: str, other: str) -> str:
        return other if english else korean

    config, task = model.config, _task(model.config)
    does = TASKS[task][2 + english]
    count, length = f"{model.parameter_count():,}", f"{config.context_length:,}"
    lines = [
        either("## 한국어", "## English"),
        "",
        either(
            f"이 모델은 {does}. 파라미터는 {count}개, 컨텍스트 길이는 {length}토큰이고, `transformers`의 "
            f"`{stock_class}` 클래스로 읽습니다. 파이썬 패키지 jumok으로 내보냈습니다.",
            f"This model {does}. It has {count} parameters and a context of {length} tokens, and loads as "
            f"`{stock_class}` of `transformers`. It was exported by the Python package jumok.",
        ),
        "",
        "```python",
        *_example(task),
        "```",
        "",
    ]
    licence = either("밝히지 않음", "not stated") if card.licence is None else _plain(card.licence)
    lines += [either(f"라이선스: {licence}", f"Licence: {licence}"), ""]
    if getattr(config, "labels", ()):
        names = ", ".join(map(_plain, config.labels))  # type: ignore[union-attr]
        lines += [either(f"클래스: {names}", f"Classes: {names}"), ""]
    lines += _data(card.run, either) + _figures(card, either) + _training(card.run, english, either)
    lines += [either("### 한계", "### Limits"), "", *(f"- {limit}" for limit in _limits(task, length, either)), ""]
    return "\n".join(lines)


def _example(task: str) -> list[str]:
    name = "MODEL"
    if task == "seq2seq":
        return [
            "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
            "",
            f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
            f'model = AutoModelForSeq2SeqLM.from_pretrained("{name}")',
            'ids = tokenizer("안녕하세요", return_tensors="pt").input_ids',
            "print(tokenizer.decode(model.generate(ids)[0], skip_special_tokens=True))",
        ]
    text = {"mlm": "나는 [MASK]에 갔다.", "classify": "재미있어요"}.get(task, "그날 밤")
    ending = ", max_new_tokens=100" if task == "lm" else ""
    return [
        "from transformers import pipeline",
        "",
        f'run = pipeline("{TASKS[task][0]}", model="{name}")',
        f'print(run("{text}"{ending}))',
    ]


def _data(run: Mapping[str, Any], either: Any) -> list[str]:
    data = run.get("data") or {}
    names = [re.split(r"[/\\]", str(name))[-1] for name in data.get("sources") or ()]  # never a folder of the author
    lines = []
    if names:
        lines.append(either("- 파일: ", "- files: ") + ", ".join(f"`{_plain(name)}`" for name in names))
    for key, korean, other in (
        ("chars", "문자", "characters"),
        ("rows", "행", "rows"),
        ("train_tokens", "학습 토큰", "training tokens"),
        ("val_tokens", "검증 토큰", "validation tokens"),
    ):
        if isinstance(data.get(key), int):
            lines.append(either(f"- {korean}: {data[key]:,}", f"- {other}: {data[key]:,}"))
    return [either("### 학습 데이터", "### Training data"), "", *lines, ""] if lines else []


def _figures(card: Card, either: Any) -> list[str]:
    metrics = card.run.get("metrics") or {}
    rows = [
        f"| {either(*names)} | {metrics[key]:.4g} |"
        for key, names in FIGURES.items()
        if isinstance(metrics.get(key), int | float)
    ]
    lines = []
    if rows:
        lines += [either("| 검증 데이터에서 | 값 |", "| on held-out data | value |"), "| --- | --- |", *rows, ""]
    if card.picture is not None:
        lines += [f"![{either('학습 곡선', 'Learning curves')}]({PICTURE})", ""]
    return [either("### 성능", "### Figures"), "", *lines] if lines else []


def _training(run: Mapping[str, Any], english: int, either: Any) -> list[str]:
    train, machine = run.get("train") or {}, run.get("machine") or {}
    lines = []
    step = (run.get("metrics") or {}).get("step")
    if isinstance(step, int):
        lines.append(either(f"- 가장 좋은 파라미터의 단계: {step:,}", f"- step of the best parameters: {step:,}"))
    lines += [f"- {names[english]}: {train[key]}" for key, names in SETTINGS.items() if train.get(key) is not None]
    if machine.get("processor"):
        lines.append(either("- 컴퓨터: ", "- machine: ") + f"{_plain(machine['processor'])}, {machine.get('device')}")
    versions = ", ".join(f"{name} {number}" for name, number in (machine.get("versions") or {}).items())
    if versions:
        lines.append(either("- 버전: ", "- versions: ") + _plain(versions))
    return [either("### 학습 방법", "### Training"), "", *lines, ""] if lines else []


def _limits(task: str, length: str, either: Any) -> list[str]:
    limits = {
        "lm": (
            "생성된 글은 사실과 다를 수 있고, 학습 데이터의 문장을 그대로 되풀이할 수 있습니다.",
            "Generated text can be wrong, and can repeat sentences of the training data.",
        ),
        "seq2seq": ("답은 틀릴 수 있습니다.", "Answers can be wrong."),
        "classify": ("확률은 보정되지 않았습니다.", "The probabilities are not calibrated."),
    }
    found = [limits[task]] if task in limits else []
    found.append(
        (
            "학습 데이터와 다른 글에서는 성능이 떨어집니다. 편향은 측정하지 않았습니다.",
            "Figures are worse on texts unlike the training data. Bias was not measured.",
        )
    )
    found.append((f"한 번에 {length}토큰까지 봅니다.", f"The model sees at most {length} tokens at once."))
    return [either(*limit) for limit in found]


def _plain(text: object) -> str:
    """Return a text that Markdown and HTML show as it is, on one line."""
    line = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]#|<>&~$])", lambda found: f"&#{ord(found[0])};", line)
