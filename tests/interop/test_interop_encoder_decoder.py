"""Import of BART and Marian from `transformers` and export, with the special ids of generation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers.processors import RobertaProcessing
from torch import Tensor, nn
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BartModel,
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
)

import jumok
from conftest import config_with_frame
from jumok.config import EncoderDecoderConfig
from jumok.errors import JumokError, RunError
from jumok.evaluation.seq2seq import encode_pair
from jumok.inference.answer import answer, with_special_tokens
from jumok.interop.huggingface import from_hf, to_hf
from jumok.interop.huggingface.encoder_decoder import reordered
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.tokenizers import train_tokenizer
from tokenizers import Tokenizer as HFTokenizer

pytestmark = pytest.mark.slow

V = 40
BOTH = pytest.mark.parametrize("kind", [BartForConditionalGeneration, MarianMTModel], ids=["bart", "marian"])
FAMILIES = pytest.mark.parametrize("family", ["classic", "original"])
SIZES = {
    "vocab_size": V, "max_position_embeddings": 24, "d_model": 16, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28,
    "pad_token_id": 3, "eos_token_id": 7, "decoder_start_token_id": 3, "forced_eos_token_id": 7, "bos_token_id": 5,
}  # fmt: skip


def stock_model(kind: type = BartForConditionalGeneration, **changes: Any) -> Any:
    """A small random float64 model of the stock class, also with a random output bias."""
    torch.manual_seed(0)
    model = kind((MarianConfig if kind is MarianMTModel else BartConfig)(**{**SIZES, **changes})).double().eval()
    for name, parameter in model.named_parameters():
        if kind is not MarianMTModel or "embed_positions" not in name:
            nn.init.normal_(parameter, std=0.4)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model


def tiny(family: str, **changes: Any) -> EncoderDecoder:
    """A small random float64 model of ours, with a tokenizer of ours."""
    tokenizer = train_tokenizer("나는 학교에 갔다. " * 3, special_tokens=["[PAD]", "[BOS]", "[EOS]", "[UNK]"])
    torch.manual_seed(0)
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1, "forced_eos_id": 2}
    sizes = {"vocab_size": tokenizer.vocab_size, "context_length": 24, "n_layer": 2, "n_head": 4, "n_embd": 16}
    model = EncoderDecoder(EncoderDecoderConfig(family=family, **{**sizes, **ids, **changes})).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Source ids, their mask, target ids; the second source is shorter."""
    generator = torch.Generator().manual_seed(11)
    source, target = torch.randint(V, (2, 10), generator=generator), torch.randint(V, (2, 6), generator=generator)
    return source, torch.arange(10) < torch.tensor([[10], [4]]), target


def assert_same(ours: EncoderDecoder, stock: Any) -> None:
    source, mask, target = batch()
    wanted = stock(source, attention_mask=mask.long(), decoder_input_ids=target).logits
    torch.testing.assert_close(ours(source, target, mask), wanted, rtol=0, atol=1e-9)


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stock"


# --- there and back ---------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("changes", [{}, {"scale_embedding": True, "activation_function": "swish"}], ids=["", "scaled"])
@torch.no_grad()
def test_what_transformers_saves_can_be_loaded(kind: type, changes: dict[str, Any], folder: Path, tmp_path: Path):
    """In one file and in several; our export of it is loaded there without a warning."""
    stock = stock_model(kind, **changes)
    for size in ("1GB", "5KB"):
        stock.save_pretrained(folder / size, max_shard_size=size)
        assert (folder / size / "model.safetensors.index.json").is_file() == (size == "5KB")
        model = jumok.load(folder / size, kind=EncoderDecoder)
        assert not model.training
        assert_same(model, stock)
    to_hf(model, tmp_path / "back")
    again, info = kind.from_pretrained(tmp_path / "back", dtype=torch.float64, output_loading_info=True)
    assert not any(info.values())  # no tensor is missing, unexpected or of another shape
    assert_same(model, again.eval())
    written = load_file(tmp_path / "back" / "model.safetensors")
    assert written.keys() == load_file(folder / "1GB" / "model.safetensors").keys()
    for name, tensor in written.items():
        unused = 2 if kind is BartForConditionalGeneration and "embed_positions" in name else 0
        assert torch.equal(tensor[unused:], stock.state_dict()[name][unused:])


@FAMILIES
@torch.no_grad()
def test_export_to_the_stock_classes(family: str, folder: Path):
    model = tiny(family)
    to_hf(model, folder)
    stock, info = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64, output_loading_info=True)
    assert type(stock) is (MarianMTModel if family == "original" else BartForConditionalGeneration)
    assert not any(info.values())
    assert_same(model, stock.eval())
    back = from_hf(folder)
    assert back.config == config_with_frame(model)
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in back.state_dict().items())


@torch.no_grad()
def test_the_paper_of_2017_is_a_marian_model(folder: Path):
    """Marian has all sines of a position before all cosines; the paper alternates them. The models are equivalent."""
    model = tiny("original")
    to_hf(model, folder)
    written = load_file(folder / "model.safetensors")
    embedding = model.token_embedding.weight
    assert torch.equal(written["model.shared.weight"][:, 0], embedding[:, 0])
    assert torch.equal(written["model.shared.weight"][:, 1], embedding[:, 2])
    assert torch.equal(written["model.shared.weight"][:, 8], embedding[:, 1])
    assert not any("embed_positions" in name for name in written)


@torch.no_grad()
def test_the_order_of_coordinates_is_arbitrary():
    """Any order gives the same model if the positions are permuted as well."""
    model = tiny("classic")
    source, mask, target = batch()
    before = model(source, target, mask)
    model.load_state_dict(reordered(model.state_dict(), torch.randperm(16)))
    torch.testing.assert_close(model(source, target, mask), before, rtol=0, atol=1e-10)


@torch.no_grad()
def test_checkpoints_without_an_output_layer_can_be_loaded(folder: Path):
    """KoBART is published as a BartModel, in a pickle that has the embedding three times."""
    model = stock_model(BartModel)
    model.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    assert {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"} < model.state_dict().keys()
    ours = jumok.load(folder)
    source, mask, target = batch()
    out = model(source, attention_mask=mask.long(), decoder_input_ids=target).last_hidden_state
    hidden = ours.hidden(target, ours.encode(source, mask), mask)
    torch.testing.assert_close(hidden, out, rtol=0, atol=1e-9)
    torch.testing.assert_close(ours.logits(hidden), out @ model.shared.weight.T, rtol=0, atol=1e-9)


@torch.no_grad()
def test_older_marian_files_bring_their_positions_and_copies(folder: Path):
    """Files of 2020 contain the sinusoids, the embedding under four names, and settings of several models."""
    stock = stock_model(MarianMTModel)
    stock.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(stock.state_dict(), folder / "pytorch_model.bin")
    assert {"lm_head.weight", "model.encoder.embed_positions.weight"} < stock.state_dict().keys()
    flags = {"static_position_embeddings": True, "normalize_embedding": False, "normalize_before": False}
    change_config(folder, lambda config: (config.pop("decoder_vocab_size"), config.update(flags)))
    assert_same(from_hf(folder), stock)


@BOTH
def test_the_special_ids_of_generation_are_kept(kind: type, folder: Path, tmp_path: Path):
    """Those in config.json, and those only in generation_config.json."""
    stock = stock_model(kind)
    stock.save_pretrained(folder)
    GenerationConfig(**{**stock.generation_config.to_dict(), "forced_bos_token_id": 9}).save_pretrained(folder)
    model = from_hf(folder)
    c = model.config
    assert (c.pad_id, c.bos_id, c.eos_id) == (3, 5, 7)
    assert (c.decoder_start_id, c.forced_bos_id, c.forced_eos_id) == (3, 9, 7)
    to_hf(model, tmp_path / "back")
    back = kind.from_pretrained(tmp_path / "back")
    for name in ("pad", "bos", "eos", "decoder_start", "forced_eos"):
        assert getattr(back.generation_config, f"{name}_token_id") == SIZES[f"{name}_token_id"]
    assert back.generation_config.forced_bos_token_id == 9
    assert from_hf(tmp_path / "back").config == c


@FAMILIES
@torch.no_grad()
def test_greedy_text_is_that_of_transformers(family: str, folder: Path):
    """One token at a time with a cache: the same ids as `generate` of transformers gives for the export."""
    model = tiny(family, forced_eos_id=None)
    to_hf(model, folder)
    stock = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64)
    source, mask, _ = batch()
    wanted = stock.generate(source[:1], attention_mask=mask[:1].long(), max_new_tokens=12, num_beams=1, do_sample=False)
    encoded, cache, written = model.encode(source[:1], mask[:1]), model.new_cache(), [model.config.decoder_start_id]
    while len(written) < wanted.shape[1]:
        logits = model.decode(torch.tensor([written[-1:]]), encoded, mask[:1], cache)
        written.append(int(logits[0, -1].argmax()))
    assert written == wanted[0].tolist()


@torch.no_grad()
def test_a_published_bart_reads_what_it_was_trained_on(folder: Path, tmp_path: Path):
    """Its tokenizer also adds <s> before a text; jumok did not, and gave other answers."""
    special = ["<s>", "<pad>", "[EOS]", "<unk>"]
    pipeline = HFTokenizer.from_str(train_tokenizer("나는 학교에 갔다. " * 3, special_tokens=special).to_json())
    pipeline.post_processor = RobertaProcessing(("[EOS]", 2), ("<s>", 0))
    ids = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "bos_token_id": 0}
    stock = stock_model(**{**ids, "forced_eos_token_id": 2, "vocab_size": pipeline.get_vocab_size()})
    stock.save_pretrained(folder)
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "[EOS]"}
    PreTrainedTokenizerFast(tokenizer_object=pipeline, **names).save_pretrained(folder)
    their_tokenizer, model = AutoTokenizer.from_pretrained(folder), from_hf(folder)
    for text in ("나는 학교에", "갔다", ""):
        read = their_tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        assert read["input_ids"][0].tolist()[:: len(read["input_ids"][0]) - 1] == [0, 2]
        assert with_special_tokens(model.tokenizer, text, model.config).tolist() == read["input_ids"][0].tolist()
        written = stock.generate(**read, max_new_tokens=12, num_beams=1, do_sample=False)
        theirs = their_tokenizer.decode(written[0], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert answer(model, [text], max_tokens=12)[0][0].text == theirs
    pair = encode_pair(model.tokenizer, model.config, ("나는 " * 20, "갔다"))
    assert (pair.source[[0, -1]].tolist(), len(pair.source), pair.is_cut) == ([0, 2], 24, True)
    assert pair.target.tolist() == their_tokenizer("갔다")["input_ids"]
    to_hf(model, tmp_path / "back")
    assert AutoTokenizer.from_pretrained(tmp_path / "back")("갔다")["input_ids"] == pair.target.tolist()


@FAMILIES
def test_the_tokenizer_is_exported_too(family: str, folder: Path):
    model = tiny(family)
    to_hf(model, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    text = tokenizer(["나는 학교에", "갔다"], padding=True, return_tensors="pt")
    assert set(text) == {"input_ids", "attention_mask"}  # the stock model knows no token types
    assert text["input_ids"][0].tolist() == [*model.tokenizer.encode("나는 학교에").tolist(), 2]  # [EOS] ends a source
    AutoModelForSeq2SeqLM.from_pretrained(folder).generate(**text, max_new_tokens=2)
    assert from_hf(folder).tokenizer.fingerprint == model.tokenizer.fingerprint


# --- what cannot be -----------------------------------------------------------------------------------------------


def test_a_bart_may_have_no_first_id(folder: Path):
    to_hf(tiny("classic", decoder_start_id=None), folder)
    assert BartConfig.from_pretrained(folder).decoder_start_token_id is None


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("bart", {"activation_function": "gelu_new"}, "uses features that jumok does not support: activation_function"),
        ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings false"),
        ("bart", {"normalize_before": True}, "normalize_before"),
        ("bart", {"add_final_layer_norm": True}, "add_final_layer_norm"),
        ("bart", {"normalize_embedding": False}, "normalize_embedding false"),
        ("bart", {"static_position_embeddings": True}, "static_position_embeddings"),
        ("bart", {"architectures": ["BartForSequenceClassification"]}, "BartForSequenceClassification; jumok reads"),
        ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings false"),
        ("marian", {"decoder_vocab_size": 41}, "decoder_vocab_size 41"),
        ("marian", {"normalize_embedding": True}, "normalize_embedding"),
        ("marian", {"static_position_embeddings": False}, "static_position_embeddings false"),
        ("marian", {"architectures": ["T5ForConditionalGeneration"]}, "T5ForConditionalGeneration; jumok reads .*Bart"),
    ],
)
def test_unsupported_architectures_are_named(kind: str, change: dict[str, Any], message: str, folder: Path):
    stock_model(MarianMTModel if kind == "marian" else BartForConditionalGeneration).save_pretrained(folder)
    change_config(folder, lambda config: config.update(change))
    for read in (from_hf, jumok.load):
        with pytest.raises(JumokError, match=message):
            read(folder)


@BOTH
def test_all_tensors_that_do_not_fit_are_listed(kind: type, folder: Path):
    stock_model(kind).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.encoder.layers.0.fc1.weight"]
    tensors["model.decoder.layers.0.fc1.bias"] = torch.zeros(3)
    tensors["model.decoder.layers.9.fc1.bias"] = torch.zeros(16)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(RunError) as caught:
        from_hf(folder)
    for fault in (
        "model.encoder.layers.0.fc1.weight is missing",
        "model.decoder.layers.0.fc1.bias is (3,), not (28,)",
        "model.decoder.layers.9.fc1.bias is unknown",
    ):
        assert fault in str(caught.value)


@pytest.mark.parametrize("size", ["d_model", "decoder_layers", "vocab_size"])
def test_a_missing_size_is_named(size: str, folder: Path):
    stock_model().save_pretrained(folder)
    change_config(folder, lambda config: config.pop(size))
    with pytest.raises(RunError, match=f"has no '{size}'"):
        from_hf(folder)
