"""The rules of a generation_config.json, and the ids that begin and end texts, as in `generate` of `transformers`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import jumok
from jumok.config import EncoderDecoderConfig, GenerationRules, GPTConfig
from jumok.errors import ConfigError, JumokError
from jumok.inference.answer import answer, answer_ids
from jumok.inference.answer_search import Search
from jumok.inference.generate import generate, stream
from jumok.interop.huggingface import from_hf, to_hf
from jumok.models import build
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.runs.load import load, save
from jumok.view.trace import trace
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'jumok[hf]'")

V, PAD, EOS, BOS = 40, 3, 7, 5
SOURCES = [[9, 12, 30, 7], [11, 7], [20, 21, 22, 23, 24, 7]]
RULES: dict[str, dict[str, Any]] = {
    "no rules": {},
    "OPUS": {"bad_words_ids": [[PAD]]},
    "words": {"bad_words_ids": [[EOS], [11], [30, 31], [12, 1], [12, 13, 14]]},
    "suppressed": {"suppress_tokens": [9, 10, 11, 12], "begin_suppress_tokens": [20, EOS, 15, 25]},
    "long": {"min_length": 6},
    "longer": {"min_new_tokens": 9},
    "forced": {"forced_bos_token_id": 33, "forced_eos_token_id": EOS, "begin_suppress_tokens": [17, 18, 19]},
}


def with_tokenizer(folder: Path) -> None:
    """Write a tokenizer of V ids into a folder."""
    names = {f"t{i:02}": i for i in range(V)}
    words = HFTokenizer(models.WordLevel(names, unk_token="t00"))
    words.pre_tokenizer, words.decoder = pre_tokenizers.Whitespace(), decoders.Fuse()
    words.add_special_tokens([f"t{i:02}" for i in (PAD, EOS, BOS)])
    words.save(str(folder / "tokenizer.json"))


def saved_pair(folder: Path, kind: str, **generation: Any) -> Any:
    """A random Bart or Marian in a folder, with rules in its generation_config.json; the row of <pad> is zero."""
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=V, max_position_embeddings=24, d_model=16, encoder_layers=1, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=20, decoder_ffn_dim=20,
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD, bos_token_id=BOS, forced_eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModelForSeq2SeqLM.from_config(config).double().eval()
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            nn.init.normal_(parameter, std=0.15 if "shared" in name else 1.0 if parameter.dim() == 2 else 0.3)
    with torch.no_grad():
        model.model.shared.weight[PAD] = 0
        model.final_logits_bias.normal_(std=0.3).sub_(5.0)  # so that the zero of <pad> is the largest logit
        model.final_logits_bias[0, PAD] = 0
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD, bos_token_id=BOS, **generation
    )
    model.save_pretrained(folder)
    with_tokenizer(folder)
    return model


def saved_gpt(folder: Path, **generation: Any) -> Any:
    """A random GPT-2 in a folder, which writes its padding if it may."""
    config = transformers.GPT2Config(
        vocab_size=V, n_embd=16, n_layer=1, n_head=2, n_positions=32, pad_token_id=PAD, eos_token_id=EOS,
        bos_token_id=BOS,
    )  # fmt: skip
    torch.manual_seed(18)  # it writes different ids, and ends
    model = transformers.AutoModelForCausalLM.from_config(config).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=PAD, eos_token_id=[EOS, 8], bos_token_id=BOS, **generation
    )
    model.save_pretrained(folder)
    with_tokenizer(folder)
    return model


def stock_answer(model: Any, source: list[int], beam: int) -> tuple[list[int], float]:
    """What `generate` of transformers answers, up to the end, and its score where a beam search has one."""
    padding = {"bad_words_ids": [*(model.generation_config.bad_words_ids or []), [PAD]]}  # here it never is generated
    how = {"max_new_tokens": 24, "num_beams": beam, "no_repeat_ngram_size": 2, "return_dict_in_generate": True}
    found = model.generate(torch.tensor([source]), output_scores=True, **padding, **how)
    ids = found.sequences[0, 1:].tolist()
    return ids[: ids.index(EOS) + 1] if EOS in ids else ids, float(found.sequences_scores[0]) if beam > 1 else 0.0


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("beam", [1, 3])
def test_answers_keep_the_rules_of_the_folder(rules: str, beam: int, tmp_path: Path) -> None:
    """A Marian of OPUS has a row of zeros for <pad>, which its bad_words_ids forbid."""
    stock = saved_pair(tmp_path / "stock", "Marian", **RULES[rules])
    model = from_hf(tmp_path / "stock")
    assert isinstance(model, EncoderDecoder)
    sources = [torch.tensor(source).numpy() for source in SOURCES]
    for source, (one, *_) in zip(
        SOURCES, answer_ids(model, sources, Search(beam=beam, no_repeat_ngram=2)), strict=True
    ):
        wanted, score = stock_answer(stock, source, beam)
        if beam == 1:
            assert list(one.ids) == wanted
        else:  # other ids are nearly as likely, and transformers adds in float32
            assert one.score == pytest.approx(score, abs=5e-3)
        assert PAD not in one.ids


@pytest.mark.parametrize("rules", [name for name in RULES if name != "forced"])
def test_a_gpt_keeps_the_rules_of_the_folder(rules: str, tmp_path: Path) -> None:
    stock = saved_gpt(tmp_path / "stock", **RULES[rules])
    model = load(tmp_path / "stock", kind=GPT)
    for prompt in ("t09 t12", "t30 t31 t12"):
        ids = model.tokenizer.encode(prompt).tolist() if model.tokenizer else []
        padding = {"bad_words_ids": [*(stock.generation_config.bad_words_ids or []), [PAD]]}
        wanted = stock.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False, **padding)[0].tolist()
        [found] = generate(model, prompt, tokens=12, temperature=0)
        assert list(found.ids) == wanted[len(ids) :]
        drawn = generate(model, prompt, tokens=12, temperature=1.5, samples=20, seed=1)
        assert not any({PAD, *(stock.generation_config.suppress_tokens or ())} & {*one.ids} for one in drawn)


@pytest.mark.parametrize("kind", ["Bart", "GPT2"])
def test_rules_survive_the_way_through_jumok(kind: str, tmp_path: Path) -> None:
    given = {"bad_words_ids": [[PAD], [30, 31]], "suppress_tokens": [9], "min_length": 4}
    if kind == "GPT2":
        saved_gpt(tmp_path / "stock", **given)
    else:
        saved_pair(tmp_path / "stock", kind, **given)
    model = from_hf(tmp_path / "stock")
    assert model.config.generation == GenerationRules(bad_words_ids=((30, 31),), suppress_tokens=(9,), min_length=4)
    save(model, tmp_path / "run")
    again = load(tmp_path / "run")
    assert again.config == model.config
    to_hf(again, tmp_path / "back")
    found = json.loads((tmp_path / "back/generation_config.json").read_text(encoding="utf-8"))
    assert {name: found.get(name) for name in given} == given
    assert from_hf(tmp_path / "back").config.generation == model.config.generation


def rewritten(folder: Path, name: str, **values: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")


def test_an_older_folder_has_its_rules_in_config_json(tmp_path: Path) -> None:
    """Folders of before 2022 have no generation_config.json; with one, config.json says nothing about generation."""
    saved_pair(tmp_path, "Marian")
    rewritten(tmp_path, "config.json", bad_words_ids=[[11]], forced_eos_token_id=EOS, min_length=3)
    config = from_hf(tmp_path).config
    assert (config.generation, config.forced_eos_id) == (None, None)
    (tmp_path / "generation_config.json").unlink()
    config = from_hf(tmp_path).config
    assert config.generation == GenerationRules(bad_words_ids=((11,),), min_length=3)
    assert config.forced_eos_id == EOS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sequence_bias", [[[9], 3.0]]),
        ("exponential_decay_length_penalty", [3, 1.1]),
        ("guidance_scale", 2.0),
        ("stop_strings", ["."]),
        ("eos_token_id", [7, 9]),
        ("forced_eos_token_id", [7, 9]),
    ],
)
def test_rules_that_jumok_does_not_have_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    """They were left out in silence, and the answers were others than those of `transformers`."""
    saved_pair(tmp_path, "Bart")
    rewritten(tmp_path, "generation_config.json", **{name: value})
    with pytest.raises(JumokError, match=name):
        from_hf(tmp_path)


@pytest.mark.parametrize("rules", [{"suppress_tokens": [-1]}, {"bad_words_ids": [[]]}, {"min_length": "a"}])
def test_damaged_rules_are_refused(rules: dict[str, Any], tmp_path: Path) -> None:
    saved_pair(tmp_path, "Bart")
    rewritten(tmp_path, "generation_config.json", **rules)
    with pytest.raises(ConfigError, match=next(iter(rules))):
        from_hf(tmp_path)


def test_a_forced_id_that_is_never_generated_is_refused(tmp_path: Path) -> None:
    saved_pair(tmp_path, "Bart")
    rewritten(tmp_path, "generation_config.json", suppress_tokens=[33], forced_bos_token_id=33)
    with pytest.raises(ConfigError, match="33"):
        from_hf(tmp_path)


def test_exports_make_transformers_warn_at_no_call(tmp_path: Path) -> None:
    """A max_length in generation_config.json made `generate(max_new_tokens=...)` warn each time."""
    tokenizer = jumok.train_tokenizer("나는 학교에 갔다. " * 3, "char", special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    sizes: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "n_layer": 1, "n_head": 2, "n_embd": 16}
    ids: dict[str, Any] = {"pad_id": 0, "eos_id": 2, "decoder_start_id": 1}
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("transformers").addHandler(handler)
    try:
        for config in (
            GPTConfig(**sizes, context_length=32),
            EncoderDecoderConfig(**sizes, context_length=32, **ids),
        ):
            model = build(config)
            model.tokenizer = tokenizer
            to_hf(model, tmp_path / "hf")
            pair = isinstance(config, EncoderDecoderConfig)
            kind = transformers.AutoModelForSeq2SeqLM if pair else transformers.AutoModelForCausalLM
            stock = kind.from_pretrained(tmp_path / "hf")
            read = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")("나는", return_tensors="pt")
            said.clear()
            for settings in ({}, {"max_new_tokens": 5}, {"do_sample": False}, {"num_beams": 2, "max_new_tokens": 5}):
                out = stock.generate(**read, **settings)
                assert out.shape[1] <= 33
            assert said == []
    finally:
        logging.getLogger("transformers").removeHandler(handler)


def test_an_answer_is_as_long_as_the_model_in_transformers(tmp_path: Path) -> None:
    """An export without a length would end at the 20 ids that `generate` writes by default."""
    saved_pair(tmp_path / "stock", "Bart", min_length=25)
    model = from_hf(tmp_path / "stock")
    to_hf(model, tmp_path / "back")
    stock = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back")
    assert stock.generate(torch.tensor(SOURCES[:1])).shape == (1, 25)
    assert isinstance(model, EncoderDecoder)
    assert len(answer(model, ["t09"])[0][0].ids) == 24


@pytest.mark.parametrize("name", ["forced_bos_token_id", "forced_eos_token_id"])
def test_forced_ids_of_a_decoder_are_refused(name: str, tmp_path: Path) -> None:
    """Those of an encoder–decoder are kept; those of a GPT were left out in silence."""
    saved_gpt(tmp_path, **{name: 9})
    with pytest.raises(JumokError, match=name):
        from_hf(tmp_path)


# --- the ids that begin and end the texts of a GPT --------------------------------------------------------------------

BEGIN, END, TURN = "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"
SPECIAL = {BEGIN: 256, END: 257, TURN: 258}


def pipeline() -> HFTokenizer:
    """A tokenizer with bytes as tokens, which puts BEGIN before each text, as that of Llama 3."""
    letters = pre_tokenizers.ByteLevel.alphabet()
    words = HFTokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(sorted(letters))}, merges=[]))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    words.add_special_tokens(list(SPECIAL))
    words.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, 256)])
    return words


def saved_llama(folder: Path, architecture: str = "Llama", **ids: Any) -> Path:
    """A random model of `transformers` with a tokenizer; the likeliest id after anything is END."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24}
    if architecture == "GPT2":
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
    config = getattr(transformers, f"{architecture}Config")(vocab_size=264, **{"bos_token_id": 256, **ids}, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=pipeline(), bos_token=BEGIN, eos_token=END).save_pretrained(
        folder
    )
    return folder


def settings(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(("architecture", "ends"), [("Llama", [257, 258]), ("GPT2", 257), ("GPT2", None)])
def test_a_round_trip_keeps_special_ids(architecture: str, ends: Any, tmp_path: Path) -> None:
    """They were null after a way through jumok, so `generate` of transformers never stopped."""
    stock = saved_llama(tmp_path / "stock", architecture, eos_token_id=ends)
    model = from_hf(stock)
    assert model.config.bos_id == 256
    assert model.config.eos_ids == (() if ends is None else tuple([ends] if isinstance(ends, int) else ends))
    save(model, tmp_path / "run")
    to_hf(load(tmp_path / "run"), tmp_path / "back")
    for name in ("config.json", "generation_config.json"):
        found = settings(tmp_path / "back", name)
        assert (found["bos_token_id"], found["eos_token_id"]) == (256, ends)
    named = settings(tmp_path / "back", "tokenizer_config.json")
    assert (named.get("bos_token"), named.get("eos_token")) == (BEGIN, END)  # those of the tokenizer
    wanted, again = (transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("stock", "back"))
    assert {name: tensor.tolist() for name, tensor in again.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in wanted.state_dict().items()
    }
    words = [transformers.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("stock", "back")]
    assert words[0]("봄 밤").input_ids == words[1]("봄 밤").input_ids
    assert words[1]("봄").input_ids[0] == 256


def test_ids_of_the_generation_config_come_first(tmp_path: Path) -> None:
    """A model for chat has one end in config.json, and all of its ends in generation_config.json."""
    stock = saved_llama(tmp_path / "stock", eos_token_id=257)
    beside = settings(stock, "generation_config.json")
    (stock / "generation_config.json").write_text(json.dumps(beside | {"eos_token_id": [257, 258]}), encoding="utf-8")
    assert from_hf(stock).config.eos_ids == (257, 258)


def test_ids_outside_the_vocabulary_are_left_out(tmp_path: Path) -> None:
    """50256 is in the config.json of each GPT-2, whatever its vocabulary."""
    stock = saved_llama(tmp_path / "stock", "GPT2", bos_token_id=50256, eos_token_id=[50256, 257])
    config = from_hf(stock).config
    assert (config.bos_id, config.eos_ids) == (None, (257,))


def test_generation_begins_and_ends_as_that_of_transformers(tmp_path: Path) -> None:
    """`generate` wrote on after the model's end, and left out the id with which its texts begin."""
    stock = saved_llama(tmp_path / "stock", eos_token_id=[257, 258])
    model = load(stock, kind=GPT)
    reference = transformers.AutoModelForCausalLM.from_pretrained(stock)
    words = transformers.AutoTokenizer.from_pretrained(stock)
    hidden = reference.model(**words("봄", return_tensors="pt")).last_hidden_state
    with torch.no_grad():  # the likeliest id after the third one is an end
        written = reference.generate(**words("봄", return_tensors="pt"), max_new_tokens=8, do_sample=False)[0]
        assert hidden.shape[1] == 4  # BEGIN and three bytes
        stop = written[6].item()
        for one in (model.head, reference.lm_head):
            one.weight[258] = one.weight[stop] * 1.01
    wanted = reference.generate(**words("봄", return_tensors="pt"), max_new_tokens=20, do_sample=False)[0, 4:].tolist()
    assert wanted[-1] == 258
    assert len(wanted) < 20
    [found] = generate(model, "봄", tokens=20, temperature=0)
    assert (list(found.ids), found.finish) == (wanted, "stop")
    assert TURN not in found.text
    assert "".join(stream(model, "봄", tokens=20, temperature=0)) == found.text
    assert trace(model, "봄").sequences[0]["tokens"][0]["id"] == 256
    [empty] = generate(model, "", tokens=1, temperature=0)
    assert empty.ids[0] == reference.generate(torch.tensor([[256]]), max_new_tokens=1, do_sample=False)[0, -1].item()


@pytest.mark.parametrize("prompt", [5, None, b"a", ["a", 5]])
def test_a_prompt_is_text(prompt: Any) -> None:
    """`jumok.generate(model, 5)` ended with a TypeError that named no argument."""
    tokenizer = jumok.train_tokenizer("나는 학교에 갔다.\n", "char")
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=16, context_length=16))
    model.tokenizer = tokenizer
    with pytest.raises(ConfigError, match="prompt="):
        generate(model, prompt)
