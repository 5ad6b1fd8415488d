"""The special tokens around a text: jumok reads what `transformers` reads from the same folder, and from an export.

Random tiny models with tokenizers that put different ids around a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

import jumok
import llama
from jumok.config import Frame, GPTConfig, from_dict
from jumok.data.rows import load_rows
from jumok.errors import ConfigError, JumokError, TokenizerError, ViewError
from jumok.evaluation.language_model import evaluate_text
from jumok.inference.answer import answer, with_special_tokens
from jumok.inference.classify import predict
from jumok.inference.embed import embed
from jumok.inference.fill_mask import fill_mask
from jumok.interop.huggingface import to_hf
from jumok.interop.onnx import to_onnx
from jumok.interpret.heads import repetition
from jumok.interpret.text_loss import Passage
from jumok.models import Model
from jumok.models.special_ids import Framing, prompt_ids
from jumok.text import Table, from_rows
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.training.trainer import Trainer
from jumok.view.model_page import ModelPage
from jumok.view.trace import trace
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as HFTokenizer

pytestmark = pytest.mark.slow

SPECIAL = ["<pad>", "<s>", "</s>", "[CLS]", "[SEP]", "<mask>"]
PAD, BOS, EOS, CLS, SEP, MASK = range(6)
TEXTS = ["나는 학교에 갔다.", "값이 싸다!", "오늘", "The 3 books, 그리고 ㅋㅋ"]
LABELS = {"id2label": {0: "나쁨", 1: "좋음", 2: "보통"}, "label2id": {"나쁨": 0, "좋음": 1, "보통": 2}}


def template(before: str = "", after: str = "") -> processors.TemplateProcessing:
    single, names = f"{before} $A {after}".strip(), sorted({*before.split(), *after.split()})
    ids = [(name, SPECIAL.index(name)) for name in names]
    return processors.TemplateProcessing(single=single, pair=f"{single} $B:1 {after}".strip(), special_tokens=ids)


POSTS: dict[str, Any] = {
    "none": lambda: None,
    "<s>": lambda: template("<s>"),
    "</s>": lambda: template("", "</s>"),
    "roberta": lambda: processors.RobertaProcessing(("</s>", EOS), ("<s>", BOS)),
    "two": lambda: template("[CLS] <s>", "[SEP] </s>"),
    "sequence": lambda: processors.Sequence([processors.ByteLevel(trim_offsets=False), template("<s>")]),
}
AROUND = {
    "none": ([], []), "<s>": ([BOS], []), "</s>": ([], [EOS]),
    "roberta": ([BOS], [EOS]), "two": ([CLS, BOS], [SEP, EOS]), "sequence": ([BOS], []),
}  # fmt: skip


def pipeline(post: str) -> HFTokenizer:
    """A byte-level tokenizer with one merge."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = HFTokenizer(models.BPE({token: i for i, token in enumerate([*SPECIAL, *letters, "th"])}, [("t", "h")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    processor = POSTS[post]()
    if processor is not None:
        made.post_processor = processor
    return made


VOCABULARY = len(SPECIAL) + 257
GPT2 = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
LLAMA = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 64, "head_dim": 8,
}  # fmt: skip
BERT = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 70,
}  # fmt: skip
PAIR = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 64, "decoder_start_token_id": EOS,
    "forced_eos_token_id": None,
}  # fmt: skip
CLASSIFIERS: dict[str, Any] = {
    "gpt2": ("GPT2ForSequenceClassification", GPT2),
    "llama": ("LlamaForSequenceClassification", LLAMA),
    "bert": ("BertForSequenceClassification", BERT),
    "roberta": ("RobertaForSequenceClassification", BERT),
}
WRITERS: dict[str, Any] = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "llama": ("LlamaForCausalLM", LLAMA),
}
ENCODERS: dict[str, Any] = {
    "bert": ("BertForMaskedLM", BERT),
    "roberta": ("RobertaForMaskedLM", BERT | {"type_vocab_size": 1}),  # as of KLUE
}
PAIRS: dict[str, Any] = {
    "bart": ("BartForConditionalGeneration", PAIR),
    "marian": ("MarianMTModel", PAIR),
}


def stock(folder: Path, table: dict[str, Any], name: str, post: str, size: int = VOCABULARY) -> Any:
    """Write a random float64 model and its tokenizer as `transformers` does."""
    kind = getattr(transformers, table[name][0])
    ids = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
    torch.manual_seed(0)
    config = kind.config_class(vocab_size=size, **ids, **table[name][1], **(LABELS if table is CLASSIFIERS else {}))
    model = kind(config).double().eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.5)
    if "final_logits_bias" in dict(model.named_buffers()):
        model.final_logits_bias.zero_()
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=pipeline(post), pad_token="<pad>", bos_token="<s>", eos_token="</s>", mask_token="<mask>",
        cls_token="[CLS]", sep_token="[SEP]",
    ).save_pretrained(folder)  # fmt: skip
    return model


@lru_cache(2)
def stock_tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@lru_cache(2)
def stock_classifier(folder: Path) -> Any:
    return AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64).eval()


def stock_ids(folder: Path, text: str) -> list[int]:
    found = stock_tokenizer(folder)(text)["input_ids"]
    assert isinstance(found, list)
    return found


def framed(model: Model, text: str) -> list[int]:
    assert model.tokenizer is not None
    found: list[int] = Framing.of(model.config, model.tokenizer).frame(model.tokenizer.encode(text)).ids.tolist()
    return found


@torch.no_grad()
def shares_of(folder: Path, text: str) -> list[float]:
    """The probabilities that `transformers` computes with a folder, as its pipeline for classification does."""
    inputs = stock_tokenizer(folder)(text, return_tensors="pt")
    found: list[float] = stock_classifier(folder)(**inputs).logits[0].softmax(0).tolist()
    return found


def imported(path: Path) -> Iterator[tuple[Path, Any]]:
    """The model of the folder "in", and as it is after `jumok convert --to jumok`; with a folder of its export."""
    model = jumok.load(path / "in")
    to_hf(model, path / "out")
    yield path / "out", model
    jumok.save(model, path / "run")
    run = jumok.load(path / "run")
    to_hf(run, path / "out of run")
    yield path / "out of run", run


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "post"),
    [("gpt2", "none"), ("gpt2", "two"), ("llama", "<s>"), ("bert", "sequence"), ("roberta", "roberta")],
)
def test_an_imported_classifier(name: str, post: str, tmp_path: Path) -> None:
    stock(tmp_path / "in", CLASSIFIERS, name, post)
    for out, model in imported(tmp_path):
        for text, found in zip(TEXTS, predict(model, TEXTS), strict=True):
            ids = stock_ids(tmp_path / "in", text)
            assert framed(model, text) == ids == stock_ids(out, text)
            traced = trace(model, text).sequences[0]["tokens"]
            assert [token["id"] for token in traced] == ids
            for folder in (tmp_path / "in", out):
                wanted = shares_of(folder, text)
                np.testing.assert_allclose(list(found.probabilities.values()), wanted, atol=1e-5)


@pytest.mark.parametrize(("name", "post"), [("llama", "none"), ("llama", "<s>"), ("gpt2", "</s>"), ("gpt2", "two")])
@torch.no_grad()
def test_an_imported_language_model(name: str, post: str, tmp_path: Path) -> None:
    """A prompt is a text that has not ended, so it has only the ids before it."""
    theirs = stock(tmp_path / "in", WRITERS, name, post)
    before, after = AROUND[post]
    for out, model in imported(tmp_path):
        for text in TEXTS:
            ids = stock_ids(tmp_path / "in", text)
            assert stock_ids(out, text) == ids
            ids = ids[: len(ids) - len(after)]
            assert prompt_ids(model.config, model.tokenizer, text) == ids
            assert [token["id"] for token in trace(model, text).sequences[0]["tokens"]] == ids
            told = theirs(torch.tensor([ids]), output_hidden_states=True)
            mean = told.hidden_states[-1][0, len(before) :].mean(0)
            np.testing.assert_allclose(embed(model, [text])[0], mean.float(), atol=1e-5, rtol=1e-5)
            losses = F.cross_entropy(told.logits[0, :-1], torch.tensor(ids[1:]), reduction="none")
            assert Passage.of(model, text).nats() == pytest.approx(float(losses.mean()), abs=1e-5)
            if before:
                found = evaluate_text(model, text)
                assert found.tokens == len(ids) - len(before)
                wanted = float(losses[len(before) - 1 :].mean())
                assert found.loss_per_token == pytest.approx(wanted, abs=1e-5)
            written = jumok.generate(model, text, tokens=4, temperature=0)[0].ids
            greedy = theirs.generate(torch.tensor([ids]), max_new_tokens=4, do_sample=False)[0, len(ids) :]
            assert list(written) == greedy.tolist()[: len(written)]


def test_a_repeated_sequence_begins_as_a_text_does(tmp_path: Path) -> None:
    """The probe for induction heads reads random tokens, which had no <s> before them."""
    stock(tmp_path / "in", WRITERS, "llama", "<s>")
    model, seen = jumok.load(tmp_path / "in", kind=jumok.GPT), []
    model.token_embedding.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    repetition(model)
    assert seen[0].shape[1] % 2 == 1  # twice the random tokens, behind one <s>
    assert (seen[0][:, 0] == BOS).all()


@pytest.mark.parametrize(("name", "post"), [("bert", "none"), ("bert", "two"), ("roberta", "roberta")])
@torch.no_grad()
def test_an_imported_encoder(name: str, post: str, tmp_path: Path) -> None:
    stock(tmp_path / "in", ENCODERS, name, post)
    before, after = AROUND[post]
    for out, model in imported(tmp_path):
        base = AutoModel.from_pretrained(tmp_path / "in", dtype=torch.float64).eval()
        for text in TEXTS:
            ids = stock_ids(tmp_path / "in", text)
            assert framed(model, text) == ids == stock_ids(out, text)
            assert ("token_type_ids" in stock_tokenizer(out)(text)) == (name == "bert")
            hidden = base(torch.tensor([ids])).last_hidden_state[0, len(before) : len(ids) - len(after)]
            np.testing.assert_allclose(embed(model, [text])[0], hidden.mean(0).float(), atol=1e-5, rtol=1e-5)
        head = AutoModelForMaskedLM.from_pretrained(out, dtype=torch.float64).eval()
        ids = stock_ids(out, "값<mask>다")
        logits = head(torch.tensor([ids])).logits[0, ids.index(MASK)]
        best = fill_mask(model, "값<mask>다", top=1).masks[0].candidates[0]
        assert best.probability == pytest.approx(float(logits.softmax(0)[best.id]), abs=1e-5)


@pytest.mark.parametrize(("name", "post"), [("bart", "none"), ("bart", "roberta"), ("marian", "</s>")])
@torch.no_grad()
def test_an_imported_encoder_decoder(name: str, post: str, tmp_path: Path) -> None:
    """A source got [EOS] where the tokenizer of the model puts nothing around a text."""
    stock(tmp_path / "in", PAIRS, name, post)
    for out, model in imported(tmp_path):
        for text in TEXTS:
            ids = stock_ids(tmp_path / "in", text)
            assert with_special_tokens(model.tokenizer, text, model.config).tolist() == ids
            assert stock_ids(out, text) == ids
            assert [token["id"] for token in trace(model, text).sequences[0]["tokens"]] == ids
            found = answer(model, [text], max_tokens=5)[0][0].ids
            for folder in (tmp_path / "in", out):
                theirs = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64).eval()
                greedy = theirs.generate(
                    torch.tensor([ids]), max_new_tokens=5, do_sample=False, num_beams=1, forced_eos_token_id=None
                )
                assert greedy[0, 1 : 1 + len(found)].tolist() == list(found)


@pytest.mark.parametrize("named", ["BertTokenizerFast", None, "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_class_that_frames_texts_itself(name: str, named: str | None, tmp_path: Path) -> None:
    """Some classes of `transformers` put [CLS] and [SEP] around a text whose tokenizer.json has no post-processor."""
    folder = tmp_path / "in"
    stock(folder, CLASSIFIERS, name, "none")
    if name == "bert":
        words = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"])}
        own = HFTokenizer(models.WordPiece(words, unk_token="[UNK]"))
        own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        own.add_special_tokens(list(words)[:5])
        (folder / "tokenizer.json").write_text(own.to_str(), encoding="utf-8")
    elif named is not None:
        named = named.replace("Bert", "Roberta")
    settings = {} if named is None else {"tokenizer_class": named}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    text = "ab"
    ids = stock_ids(folder, text)
    model = jumok.load(folder)
    if name == "roberta" and named != "PreTrainedTokenizerFast":  # the class splits and numbers them as its own
        assert (framed(model, text)[0], framed(model, text)[-1]) == (BOS, EOS)
    else:
        assert framed(model, text) == ids


# --- what is trained --------------------------------------------------------------------------------------------------


def table() -> Table:
    rows = list(zip(TEXTS[:3] * 8, ["나쁨", "좋음", "보통"] * 8, strict=True))
    return from_rows(["text", "label"], rows)


def trained(out: Path, task: str, source: Any, *, init: Path | None = None, **given: Any) -> Any:
    """A run of two steps, as `load` reads it."""
    settings = {"steps": 2, "batch_size": 2, "val": 0.2, "eval_every": 2, "precision": "float32", "compile": "off"}
    shape = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 64} if init is None else {}
    pooling = {"pooling": "last"} if task == "classify" else {}
    chosen = {"task": task, **settings, **shape, **pooling}
    with Trainer.start(out, source, init=init, **chosen, **given) as trainer:
        list(trainer.run())
    return jumok.load(out)


def frame_in(folder: Path) -> Any:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))["model"]["frame"]


@pytest.mark.parametrize(("name", "post"), [("llama", "none"), ("gpt2", "<s>"), ("gpt2", "two")])
def test_a_classifier_that_begins_with_a_language_model(name: str, post: str, tmp_path: Path) -> None:
    """Trained with [SEP] behind each text and exported with <s> before it, it scored 1.00 here and 0.84 there."""
    stock(tmp_path / "in", WRITERS, name, post)
    model = trained(tmp_path / "run", "classify", table(), init=tmp_path / "in")
    before, after = AROUND[post] if any(AROUND[post]) else ([], [SEP])
    assert frame_in(tmp_path / "run") == {"before": before, "after": after}
    to_hf(model, tmp_path / "out")
    for text, found in zip(TEXTS, predict(model, TEXTS), strict=True):
        assert framed(model, text) == stock_ids(tmp_path / "out", text)
        np.testing.assert_allclose(list(found.probabilities.values()), shares_of(tmp_path / "out", text), atol=1e-5)
    rows = load_rows(tmp_path / "run" / "state" / "train.npy", 19)
    assert {tuple(rows[i].tolist()) for i in range(19)} <= {tuple(framed(model, text)) for text in TEXTS}


def test_a_classifier_that_begins_with_a_classifier(tmp_path: Path) -> None:
    stock(tmp_path / "in", CLASSIFIERS, "llama", "roberta")
    model = trained(tmp_path / "run", "classify", table(), init=tmp_path / "in")
    before, after = AROUND["roberta"]
    assert frame_in(tmp_path / "run") == {"before": before, "after": after}
    writer = trained(tmp_path / "writer", "lm", "".join(TEXTS) * 20, init=tmp_path / "run")
    assert frame_in(tmp_path / "writer") == {"before": before, "after": []}  # a long text has no end inside
    to_hf(writer, tmp_path / "out")
    assert (
        stock_ids(tmp_path / "out", "나는")
        == prompt_ids(writer.config, writer.tokenizer, "나는")
        == [*before, *model.tokenizer.encode("나는").tolist()]
    )


@pytest.mark.parametrize(
    ("task", "post"), [("mlm", "none"), ("mlm", "roberta"), ("seq2seq", "none"), ("seq2seq", "</s>")]
)
def test_another_task_that_begins_with_an_imported_model(task: str, post: str, tmp_path: Path) -> None:
    stock(tmp_path / "in", *((ENCODERS, "bert") if task == "mlm" else (PAIRS, "bart")), post)
    pairs = from_rows(["source", "target"], [(text, text[::-1]) for text in TEXTS] * 6)
    model = trained(tmp_path / "run", task, "".join(TEXTS) * 20 if task == "mlm" else pairs, init=tmp_path / "in")
    before, after = AROUND[post]
    assert frame_in(tmp_path / "run") == {"before": before, "after": after}
    to_hf(model, tmp_path / "out")
    read = (
        framed(model, "나는") if task == "mlm" else with_special_tokens(model.tokenizer, "나는", model.config).tolist()
    )
    assert read == stock_ids(tmp_path / "out", "나는")


def test_a_foreign_tokenizer_for_a_new_model(tmp_path: Path) -> None:
    """A language model was trained without <s>, and then each prompt began with it."""
    tokenizer = Tokenizer(pipeline("<s>"))
    writer = trained(tmp_path / "lm", "lm", "".join(TEXTS) * 20, tokenizer=tokenizer)
    assert frame_in(tmp_path / "lm") == {"before": [], "after": []}
    assert prompt_ids(writer.config, writer.tokenizer, "나") == tokenizer.encode("나").tolist()
    to_hf(writer, tmp_path / "out")
    assert stock_ids(tmp_path / "out", "나") == tokenizer.encode("나").tolist()
    classifier = trained(tmp_path / "classify", "classify", table(), tokenizer=tokenizer)
    assert frame_in(tmp_path / "classify") == {"before": [BOS], "after": []}
    assert framed(classifier, "나") == [BOS, *tokenizer.encode("나").tolist()]


def test_a_run_without_the_field_reads_texts_as_it_was_trained(tmp_path: Path) -> None:
    """Earlier versions ignored the ids of a foreign tokenizer when they trained a GPT to classify."""
    stock(tmp_path / "in", WRITERS, "llama", "<s>")
    trained(tmp_path / "run", "classify", table(), init=tmp_path / "in")
    path = tmp_path / "run" / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["model"]["frame"]
    path.write_text(json.dumps(content), encoding="utf-8")
    model = jumok.load(tmp_path / "run")
    ids = [*model.tokenizer.encode("나는").tolist(), SEP]
    assert framed(model, "나는") == ids
    to_hf(model, tmp_path / "out")
    assert stock_ids(tmp_path / "out", "나는") == ids


# --- other exports ----------------------------------------------------------------------------------------------------


def test_the_tokenizer_beside_an_onnx_file(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    stock(tmp_path / "in", CLASSIFIERS, "bert", "two")
    to_onnx(jumok.load(tmp_path / "in"), tmp_path / "m.onnx")
    own = HFTokenizer.from_file(str(tmp_path / "m.tokenizer.json"))
    for text in TEXTS:
        assert own.encode(text).ids == stock_ids(tmp_path / "in", text)


@pytest.mark.parametrize(
    ("kind", "post"), [("other", "none"), ("other", "</s>"), ("other", "two"), ("bpe", "<s>"), ("char", "sequence")]
)
def test_a_gguf_file(kind: str, post: str, tmp_path: Path) -> None:
    """A tokenizer of jumok's own kinds lost <s>, and of two ids before a text none was left."""
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    from jumok.interop.gguf import to_gguf

    tokenizer = Tokenizer(pipeline(post))
    if kind != "other":
        own = train_tokenizer(
            "".join(TEXTS) * 9, kind, special_tokens=["[PAD]", "<s>", "<e>", "[CLS]", "[SEP]", "[MASK]"]
        )
        content = json.loads(own.to_json()) | {"post_processor": json.loads(tokenizer.to_json())["post_processor"]}
        tokenizer = Tokenizer.from_json(json.dumps(content))
    assert tokenizer.kind == kind
    stock(tmp_path / "in", WRITERS, "llama", post, tokenizer.vocab_size)
    (tmp_path / "in" / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    model, (before, _) = jumok.load(tmp_path / "in"), AROUND[post]
    if len(before) > 1:
        with pytest.raises(JumokError, match="at most one token before a text, and this model reads 2"):
            to_gguf(model, tmp_path / "m.gguf")
        return
    to_gguf(model, tmp_path / "m.gguf")
    said = {name: field.contents() for name, field in gguf.GGUFReader(tmp_path / "m.gguf").fields.items()}
    assert said["tokenizer.ggml.add_bos_token"] == bool(before)
    assert said["tokenizer.ggml.add_eos_token"] is False  # llama.cpp continues texts
    assert said.get("tokenizer.ggml.bos_token_id") == (before[0] if before else None)
    if llama.INSTALLED and post == "<s>":
        with llama.started(tmp_path / "m.gguf", slots=1, context=64, threads=1, exact=True) as other:
            found = other.post("/tokenize", content="나는 학교", add_special=True, parse_special=False)["tokens"]
            assert list(found) == prompt_ids(model.config, model.tokenizer, "나는 학교")
            written = other.post("/completion", prompt="나는", return_tokens=True, **llama.sampling(8, 0.0))["tokens"]
            assert written == list(jumok.generate(model, "나는", tokens=8, temperature=0)[0].ids)[: len(written)]


def test_a_page_says_why_it_cannot_hold_a_model(tmp_path: Path) -> None:
    stock(tmp_path / "in", WRITERS, "gpt2", "<s>")
    with pytest.raises(ViewError, match="this model reads <s> before each text"):
        ModelPage(jumok.load(tmp_path / "in"), "tiny")


# --- what cannot be expressed -----------------------------------------------------------------------------------------


UNUSUAL = {
    "the text twice": processors.TemplateProcessing(single="$A <s> $A", special_tokens=[("<s>", BOS)]),
    "no text": processors.TemplateProcessing(single="<s>", special_tokens=[("<s>", BOS)]),
    "two of them": processors.Sequence([template("<s>"), template("", "</s>")]),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_a_post_processor_that_does_more_is_refused(name: str) -> None:
    """Of two templates `tokenizers` applies that for a pair to the result of the first."""
    made = pipeline("none")
    made.post_processor = UNUSUAL[name]
    with pytest.raises(TokenizerError, match="does more than add tokens before and after a text"):
        Tokenizer(made)


WRONG = [{"before": [999]}, {"after": [-1]}, {"before": "1"}, {"befor": [1]}, [1], {"after": [None]}]


@pytest.mark.parametrize("frame", WRONG)
def test_a_damaged_frame_is_refused(frame: Any) -> None:
    with pytest.raises(ConfigError):
        from_dict(GPTConfig, {"vocab_size": 10, "frame": frame})
    assert from_dict(GPTConfig, {"vocab_size": 10, "frame": {"before": [1]}}).frame == Frame(before=(1,))
