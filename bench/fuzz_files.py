"""Small valid files for bench/fuzz.py: texts in several encodings, tables, models, runs of a few steps, exports."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

import jumok
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.models import build
from jumok.tokenizers import train_tokenizer

TEXT = "그날 밤 나는 달을 보았다. 별이 12개, 값은 3,400원!\n나는 다시 물었다. “누구요?”\n"
TINY: dict[str, Any] = {
    "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16, "batch_size": 4, "steps": 4, "eval_every": 2,
    "sample_tokens": 4, "save_every": 1e-6, "precision": "float32", "compile": "off", "attention": "chunked",
}  # fmt: skip

TEXTS: dict[str, bytes] = {
    "utf8.txt": TEXT.encode(),
    "bom.txt": b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode(),
    "nfd.txt": "가나다".encode() + "\u1100\u1161\u11a8 각 e\u0301".encode(),
    "cp949.txt": (TEXT.replace("“", "").replace("”", "") * 3).encode("cp949"),
    "utf16.txt": TEXT.encode("utf-16"),
    "utf32.txt": TEXT.encode("utf-32-le"),
    "latin.txt": ("Élève, où êtes-vous passé ? " * 9).encode("latin-1"),
    "japanese.txt": ("吾輩は猫である。名前はまだ無い。" * 5).encode("shift_jis"),
    "lines.jsonl": json.dumps({"text": TEXT, "n": 1}, ensure_ascii=False).encode() + b"\n" + b'{"text": "b"}\n',
    "empty.txt": b"",
}

_ROWS = [("그날 밤", "좋다", 1), ('"따옴표", 쉼표', "나쁘다", 2), ("줄\n바꿈", "", 3), ("", "좋다", 4)]


def _tables() -> dict[str, bytes]:
    import csv

    found = {}
    for name, dialect in (("table.csv", "excel"), ("table.tsv", "excel-tab")):
        out = io.StringIO()
        csv.writer(out, dialect).writerows([("text", "label", "number"), *_ROWS])
        found[name] = out.getvalue().encode()
    found["plain.tsv"] = 'text\tlabel\n"좋아요\t1\n나빠요" 정말\t0\n'.encode()
    found["korean.csv"] = "text,label\n그날 밤,좋다\n".encode("cp949")
    rows = [dict(zip(("text", "label", "number"), row, strict=True)) for row in _ROWS]
    found["table.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    try:
        import pyarrow as pa
        from pyarrow import ipc, parquet
    except ImportError:
        return found
    table = pa.table({"text": [row[0] for row in _ROWS], "label": [row[1] for row in _ROWS], "number": [1, 2, None, 4]})
    for name in ("table.parquet", "plain.parquet"):
        sink = io.BytesIO()
        parquet.write_table(table, sink, compression="snappy" if name == "table.parquet" else "none")
        found[name] = sink.getvalue()
    for name, writer in (("table.arrow", ipc.new_file), ("stream.arrow", ipc.new_stream)):
        sink = io.BytesIO()
        with writer(sink, table.schema) as opened:
            opened.write_table(table)
        found[name] = sink.getvalue()
    return found


TABLES = _tables()

_SIZES: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 8, "intermediate_size": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
    "tie_word_embeddings": True, "hidden_act": "silu", "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_GPT2 = {"vocab_size": 100, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_inner": None,
         "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
         "layer_norm_epsilon": 1e-5, "eos_token_id": 2}  # fmt: skip
_BERT = {**_SIZES, "hidden_act": "gelu", "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0,
         "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "id2label": {"0": "좋다", "1": "나쁘다"},
         "label2id": {"좋다": 0, "나쁘다": 1}, "position_embedding_type": "absolute", "embedding_size": 16}  # fmt: skip
_PAIR = {"vocab_size": 100, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64,
         "activation_function": "gelu", "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
         "scale_embedding": False, "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0}  # fmt: skip
_ROPE = {
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0,
             "mscale_all_dim": 1.0},
    "longrope": {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
                 "original_max_position_embeddings": 16},
}  # fmt: skip


def _configs() -> dict[str, bytes]:
    from jumok.config.huggingface._reading import READERS

    found: dict[str, Any] = {}
    for name in READERS:
        values = next(
            (kind for start, kind in (("GPT2", _GPT2), ("Bart", _PAIR), ("Marian", _PAIR)) if name.startswith(start)),
            None,
        )
        if values is None:
            decoder = any(name.startswith(start) for start in ("Llama", "Qwen", "Mistral", "GPTNeoX"))
            values = _SIZES if decoder else _BERT
        if name.endswith("SequenceClassification"):
            values = {**values, "id2label": _BERT["id2label"], "label2id": _BERT["label2id"], "pad_token_id": 0}
        if name.startswith(("GPTNeoX", "Marian")):
            values = {**values, "hidden_act": "gelu", "activation_function": "swish"}
        found[name] = {"architectures": [name], **values}
    for kind, rope in _ROPE.items():
        found[kind] = {"architectures": ["LlamaForCausalLM"], **_SIZES, "rope_scaling": rope}
    window = {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"]}
    found["window"] = {"architectures": ["Qwen3ForCausalLM"], **_SIZES, **window}
    return {f"{name}.json": json.dumps(values).encode() for name, values in found.items()}


CONFIGS = _configs()


# --- files ------------------------------------------------------------------------------------------------------------


def put(path: Path, content: bytes) -> Path:
    """Write a file under its name at once: an older one that is mapped into memory stays as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(".put")
    temporary.write_bytes(content)
    os.replace(temporary, path)
    return path


@contextmanager
def restored(path: Path, content: bytes) -> Iterator[Path]:
    """A file with another content inside the block."""
    before = path.read_bytes()
    put(path, content)
    try:
        yield path
    finally:
        put(path, before)


# --- models -----------------------------------------------------------------------------------------------------------


def random_model(config: Any, special: Sequence[str], *, kind: str = "char", text: str = TEXT, **given: Any) -> Any:
    """A tiny model with random parameters, and a tokenizer of this text."""
    size = {"vocab_size": 300} if kind == "bpe" else {}
    tokenizer = train_tokenizer(text, kind=kind, special_tokens=special, **size)
    torch.manual_seed(1)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 32, "vocab_size": tokenizer.vocab_size}
    for role, name in given.pop("ids", {}).items():
        given[role] = tokenizer.special_tokens[name]
    model = build(config(**{**sizes, **given})).eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


def some_models() -> dict[str, Any]:
    """One of each kind, by its task."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[EOS]"]
    return {
        "lm": random_model(GPTConfig, []),
        "classic": random_model(GPTConfig, [], family="classic"),
        "mlm": random_model(BERTConfig, special, ids={"pad_id": "[PAD]"}),
        "classify": random_model(
            BERTConfig, special, head="classify", labels=("좋다", "나쁘다"), ids={"pad_id": "[PAD]"}
        ),
        "seq2seq": random_model(
            EncoderDecoderConfig, special, ids={"pad_id": "[PAD]", "decoder_start_id": "[CLS]", "eos_id": "[EOS]"}
        ),
    }


def models(folder: Path, only: str | None = None) -> None:
    """Run folders of models, without a training; their config.json also has what a training writes."""
    for name, model in some_models().items():
        if only in (None, name):
            jumok.save(model, folder / name)
            path = folder / name / "config.json"
            recorded = json.loads(path.read_text(encoding="utf-8"))
            data = {"characters": "그날밤", "sources": ["a.txt"], "floor": None, "sha256": "ab", "val_sha256": None}
            recorded |= {"train": {"task": "lm", "steps": 4, "planned_tokens": 64}, "data": data,
                         "finished": {"step": 4, "reason": "done"}, "metrics": {"step": 4, "loss": 2.0}}  # fmt: skip
            path.write_text(json.dumps(recorded, ensure_ascii=False), encoding="utf-8")


def trained(folder: Path) -> None:
    """Runs of a few steps with their states."""
    rows = "text\tlabel\n" + "".join(
        f"{word} 밤\t{at % 2}\n" for at, word in enumerate("그날밤나는달을보았다별이값은" * 3)
    )
    table = folder.with_name(folder.name + "-rows.tsv")
    table.write_text(rows, encoding="utf-8")
    jumok.train(TEXT * 20, folder / "lm", quiet=True, device="cpu", **TINY)
    for task in ("seq2seq", "classify"):
        jumok.train(table, folder / task, columns=["text", "label"], task=task, quiet=True, device="cpu", **TINY)
    table.unlink()


def exported(folder: Path) -> None:
    """Folders as `transformers` has them, one with its tensors as a pickle, one with several files."""
    from jumok.interop.huggingface import to_hf

    for name, model in some_models().items():
        to_hf(model, folder / name, **({"largest": 4_000} if name == "mlm" else {}))
    pickled = folder / "classic"
    from safetensors.torch import load_file

    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    words = folder / "classify"
    pieces = sorted(
        json.loads((words / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"].items(),
        key=lambda one: one[1],
    )
    (words / "vocab.txt").write_text("\n".join(name for name, _ in pieces), encoding="utf-8")
    (words / "tokenizer.json").unlink()
    (words / "tokenizer_config.json").unlink()
    (words / "special_tokens_map.json").write_text('{"unk_token": "[UNK]", "mask_token": {"content": "[MASK]"}}')
