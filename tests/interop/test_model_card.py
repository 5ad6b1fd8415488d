"""What an exported folder holds besides parameters: the model card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.inference.sampling import Sampling
from jumok.interop.huggingface import to_hf
from jumok.interop.huggingface.card import Card, writes_hangul
from jumok.models import build
from jumok.tokenizers import train_tokenizer

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'jumok[hf]'")

pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n우리는 집에 갔다.\n" * 3
SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 24}
HOSTILE = "[a](x) <script>alert(1)</script>\n---\nlicense: mit | `b`"


def model_of(kind: str, **settings: Any) -> Any:
    special = {"bert": ["[PAD]", "[CLS]", "[SEP]", "[MASK]"], "pairs": ["[PAD]", "[BOS]", "[EOS]"]}
    words = train_tokenizer(TEXT, special_tokens=special.get(kind, []))
    sizes = {**SIZES, "vocab_size": words.vocab_size, **settings}
    torch.manual_seed(1)
    if kind == "bert":
        model: Any = build(BERTConfig(pad_id=0, **sizes))
    elif kind == "pairs":
        model = build(EncoderDecoderConfig(pad_id=0, bos_id=1, eos_id=2, decoder_start_id=1, **sizes))
    else:
        model = build(GPTConfig(**sizes))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = words
    return model.eval()


def front_matter(readme: str) -> dict[str, Any]:
    """Each value is JSON, which YAML includes."""
    _, front, _ = readme.split("---\n", 2)
    return {name: json.loads(value) for name, value in (line.split(": ", 1) for line in front.splitlines())}


RUN: dict[str, Any] = {
    "data": {"sources": ["C:\\Users\\me\\비밀\\novel.txt", "/srv/me/b.txt"], "characters": "가나다라"},
    "metrics": {"step": 80, "nats_per_char": 2.345678},
}


def test_the_card_tells_what_the_run_knows_in_two_languages(tmp_path: Path) -> None:
    model = model_of("gpt")
    to_hf(model, tmp_path / "out", card=Card(name="소설", licence="CC BY-SA 4.0", run=RUN))
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert front_matter(readme) == {
        "language": ["ko"], "library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["jumok"],
        "license": "cc-by-sa-4.0",
    }  # fmt: skip
    for words in ("# 소설", "학습 데이터: novel.txt, b.txt", "Training data: novel.txt", "| nats_per_char | 2.34568 |"):
        assert words in readme
    for secret in ("비밀", "Users", "/srv", "가나다라"):
        assert secret not in readme
    to_hf(model, tmp_path / "out")  # an export is replaced, with everything in it
    assert not (tmp_path / "out" / "README.md").exists()


def test_the_card_of_a_model_that_answers_shows_a_conversation(tmp_path: Path) -> None:
    """Its example continued a text, which a model that has learned conversations does not do well."""
    model = model_of("gpt")
    model.tokenizer.read_chat_templates("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    to_hf(model, tmp_path / "out", card=Card(name="대화", run=RUN))
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert front_matter(readme)["pipeline_tag"] == "text-generation"
    assert "이 모델은 대화에서 답합니다." in readme
    assert "This model answers in a conversation." in readme
    example = readme.split("```python\n")[1].split("```")[0].replace('"MODEL"', repr(str(tmp_path / "out")))
    written: list[Any] = []
    exec(example.replace("max_new_tokens=100", "max_new_tokens=2"), {"print": written.append})
    messages = written[0][0]["generated_text"]
    assert [message["role"] for message in messages] == ["user", "assistant"]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    model = model_of("gpt", labels=("부정", HOSTILE))
    to_hf(model, tmp_path / "out", card=Card(name=HOSTILE, licence=HOSTILE, run={"data": {"sources": [HOSTILE]}}))
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert front_matter(readme)["license"] == "other"
    assert front_matter(readme)["license_name"] == HOSTILE
    assert front_matter(readme)["pipeline_tag"] == "text-classification"
    body = readme.split("---\n", 2)[2]
    assert "<script" not in body
    assert "](x)" not in body
    assert "alert" in body


def test_a_model_of_another_language_is_not_said_to_be_korean() -> None:
    model = model_of("gpt")
    assert writes_hangul(model)
    model.tokenizer = train_tokenizer("the quick brown fox jumps over the lazy dog. " * 5)
    assert not writes_hangul(model)


@pytest.mark.parametrize("kind", ["gpt", "classic", "bert", "classifier", "pairs"])
def test_the_pipeline_of_its_kind_works(kind: str, tmp_path: Path) -> None:
    """transformers 5 has no pipeline "text2text-generation" any more; there `generate` is called."""
    settings: dict[str, dict[str, Any]] = {
        "classic": {"family": "classic"}, "classifier": {"labels": ("no", "yes"), "pad_id": 0},
    }  # fmt: skip
    model = model_of({"bert": "bert", "pairs": "pairs"}.get(kind, "gpt"), **settings.get(kind, {}))
    to_hf(model, tmp_path / "out", card=Card(name=kind, run={}))
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    task = front_matter(readme)["pipeline_tag"]
    if kind == "pairs":
        stock = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
        assert task == "text2text-generation"
        written = stock.generate(tokenizer("나는", return_tensors="pt").input_ids)
        assert written.shape[1] <= 1 + 24
        return
    assert f'pipeline("{task}"' in readme
    run = transformers.pipeline(task, model=str(tmp_path / "out"))
    if kind == "bert":
        found = run("나는 [MASK]교에")
        assert found[0]["score"] >= found[1]["score"] > 0
    elif kind == "classifier":
        assert run("나는")[0]["label"] in ("no", "yes")
    else:
        text = run("나는", max_new_tokens=8)[0]["generated_text"]
        assert text.startswith("나는")
        settings_of = run.model.generation_config
        assert settings_of.do_sample
        assert settings_of.temperature == Sampling().temperature
        assert settings_of.max_new_tokens == 12
        assert settings_of.top_k == 0
