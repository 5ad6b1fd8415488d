"""The readers that bench/fuzz.py tests, and valid files for each of them."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import jumok
from jumok import text as reader
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, to_dict
from jumok.config.huggingface import our_config, read_stock
from jumok.errors import JumokError
from jumok.inference.generate import generate
from jumok.models import build
from jumok.runs.folder import RunFolder
from jumok.runs.load import load, read_shape, unseen_characters
from jumok.tokenizers import Tokenizer, train_tokenizer

Read = Callable[[str, bytes], object]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is fuzzed.

    Fields:
        prepare: makes the valid files in a folder, and returns them by name; called once.
        open: returns the function that reads one input, given the name of the file and its content; called in each
            child, with the folder.
        cost: of one input, relative to a small JSON file: the target gets 1 / cost of the inputs.
    """

    name: str
    prepare: Callable[[Path], dict[str, bytes]]
    open: Callable[[Path], Read]
    cost: int = 1


class Unexpected(Exception):
    """The reader answered, and the answer is wrong; or the server answered with a status of 500 or more."""


# --- valid files ------------------------------------------------------------------------------------------------------

TEXT = "그날 밤 나는 달을 보았다. 별이 12개, 값은 3,400원!\n나는 다시 물었다. “누구요?”\n"
PROBE = "그날 밤 12시, [MASK] 값은 1,234원! é🎲\n\n\u200b끝"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[EOS]"]
TINY: dict[str, Any] = {
    "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16, "batch_size": 4, "steps": 4, "eval_every": 2,
    "sample_tokens": 4, "save_every": 1e-6, "precision": "float32", "compile": "off", "attention": "chunked",
}  # fmt: skip


def put(path: Path, content: bytes) -> Path:
    """Write a file under its name at once: an older one that is mapped into memory stays as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(".put")
    temporary.write_bytes(content)
    os.replace(temporary, path)
    return path


@contextmanager
def restored(path: Path, content: bytes) -> Iterator[Path]:
    """Give a file another content inside the block."""
    before = path.read_bytes()
    put(path, content)
    try:
        yield path
    finally:
        put(path, before)


def below(folder: Path, *suffixes: str) -> dict[str, bytes]:
    """Return the files below a folder by their paths: all, or those with these suffixes."""
    files = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix in (suffixes or (path.suffix,))
    ]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def texts(_folder: Path) -> dict[str, bytes]:
    """Texts in several encodings."""
    return {
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


def tables(_folder: Path) -> dict[str, bytes]:
    """Tables in every format."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [("그날 밤", "좋다", 1), ('"따옴표", 쉼표', "나쁘다", 2), ("줄\n바꿈", "", 3), ("", "좋다", 4)]
    found = {"plain.tsv": 'text\tlabel\n"좋아요\t1\n나빠요" 정말\t0\n'.encode()}
    for name, dialect in (("table.csv", "excel"), ("table.tsv", "excel-tab")):
        out = io.StringIO()
        csv.writer(out, dialect).writerows([("text", "label", "number"), *rows])
        found[name] = out.getvalue().encode()
    named = [dict(zip(("text", "label", "number"), row, strict=True)) for row in rows]
    found["table.jsonl"] = "".join(json.dumps(row) + "\n" for row in named).encode()
    found["table.json"] = json.dumps(named).encode()
    table = pa.table({"text": [row[0] for row in rows], "label": [row[1] for row in rows], "number": [1, 2, None, 4]})
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return found | {"table.parquet": sink.getvalue()}


def stock_configs(_folder: Path) -> dict[str, bytes]:
    """A config.json of `transformers` for each class that is read, and for each kind of rotary positions."""
    from jumok.config.huggingface._classes import CLASSES

    labels: dict[str, Any] = {"id2label": {"0": "좋다", "1": "나쁘다"}, "label2id": {"좋다": 0, "나쁘다": 1}}
    decoder: dict[str, Any] = {
        "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8,
        "num_key_value_heads": 1, "intermediate_size": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
        "rope_theta": 1e4, "tie_word_embeddings": True, "hidden_act": "silu", "attention_bias": False,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    encoder = {**decoder, **labels, "hidden_act": "gelu", "type_vocab_size": 2, "layer_norm_eps": 1e-12,
               "pad_token_id": 0, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
               "position_embedding_type": "absolute", "embedding_size": 16}  # fmt: skip
    gpt2 = {"vocab_size": 100, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_inner": None,
            "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
            "layer_norm_epsilon": 1e-5, "eos_token_id": 2}  # fmt: skip
    pair = {"vocab_size": 100, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
            "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64,
            "activation_function": "gelu", "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
            "scale_embedding": False, "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0}  # fmt: skip
    of_class = {"GPT2": gpt2, "Bart": pair, "Marian": {**pair, "activation_function": "swish"}, "Llama": decoder,
                "Qwen": decoder, "Mistral": decoder, "GPTNeoX": {**decoder, "hidden_act": "gelu"}}  # fmt: skip
    found: dict[str, Any] = {}
    for name in CLASSES:
        values = next((values for start, values in of_class.items() if name.startswith(start)), encoder)
        more = {**labels, "pad_token_id": 0} if name.endswith("SequenceClassification") else {}
        found[name] = {"architectures": [name], **values, **more}
    original = {"original_max_position_embeddings": 16}
    for rope in (
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **original},
        {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0, **original},
    ):
        found[rope["rope_type"]] = {"architectures": ["LlamaForCausalLM"], **decoder, "rope_scaling": rope}
    window = {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"]}
    found["window"] = {"architectures": ["Qwen3ForCausalLM"], **decoder, **window}
    return {f"{name}.json": json.dumps(values).encode() for name, values in found.items()}


def tokenizers(_folder: Path) -> dict[str, bytes]:
    """A tokenizer.json of each kind that jumok trains, and of others."""
    special = ["[PAD]", "[MASK]", "[EOS]"]
    found = {
        f"{kind}.json": train_tokenizer(TEXT * 3, kind=kind, vocab_size=size, special_tokens=special).to_json().encode()
        for kind, size in (("char", None), ("jamo", None), ("bpe", 300))
    }
    vocab = {piece: at for at, piece in enumerate([*SPECIAL, *"가나다라마그날밤abc"])}
    framed = {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}
    common = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": framed}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    pieces: dict[str, Any] = {
        "wordpiece": {
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                           "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": vocab},
        },
        "unigram": {
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace",
                           "pattern": {"Regex": " {2,}"}, "content": " "}]},
            "pre_tokenizer": metaspace, "decoder": metaspace,
            "model": {"type": "Unigram", "unk_id": 1, "byte_fallback": False,
                      "vocab": [[piece, -float(at)] for piece, at in vocab.items()]},
        },
        "words": {
            "normalizer": None, "decoder": None, "pre_tokenizer": {"type": "Split", "behavior": "Isolated",
                           "pattern": {"Regex": r"\s+|\p{L}+"}, "invert": False},
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
        },
    }  # fmt: skip
    return found | {f"{name}.json": json.dumps({**common, **each}).encode() for name, each in pieces.items()}


def some_models() -> dict[str, Any]:
    """Return a tiny model of each kind by its task, with random parameters and a tokenizer of a text."""

    def model(config: Any, special: Sequence[str] = (), ids: dict[str, str] | None = None, **given: Any) -> Any:
        tokenizer = train_tokenizer(TEXT, kind="char", special_tokens=special)
        torch.manual_seed(1)
        given |= {role: tokenizer.special_tokens[name] for role, name in (ids or {}).items()}
        sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 32, "vocab_size": tokenizer.vocab_size}
        made = build(config(**sizes, **given)).eval()
        for parameter in made.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.4)
        made.tokenizer = tokenizer
        return made

    pad = {"pad_id": "[PAD]"}
    ends = {**pad, "decoder_start_id": "[CLS]", "eos_id": "[EOS]"}
    return {
        "lm": model(GPTConfig),
        "classic": model(GPTConfig, family="classic"),
        "mlm": model(BERTConfig, SPECIAL, pad),
        "classify": model(BERTConfig, SPECIAL, pad, head="classify", labels=("좋다", "나쁘다")),
        "seq2seq": model(EncoderDecoderConfig, SPECIAL, ends),
    }


def models(folder: Path) -> None:
    """Write run folders without a training; config.json has what a training writes, too."""
    for name, model in some_models().items():
        jumok.save(model, folder / name)
        path = folder / name / "config.json"
        data = {"characters": "그날밤", "sources": ["a.txt"], "floor": None, "sha256": "ab", "val_sha256": None}
        recorded = json.loads(path.read_text(encoding="utf-8")) | {
            "train": {"task": "lm", "steps": 4, "planned_tokens": 64}, "data": data,
            "finished": {"step": 4, "reason": "done"}, "metrics": {"step": 4, "loss": 2.0},
        }  # fmt: skip
        path.write_text(json.dumps(recorded, ensure_ascii=False), encoding="utf-8")


def run_configs(folder: Path) -> dict[str, bytes]:
    """The config.json of each run folder."""
    models(folder)
    return below(folder, ".json")


def run_parameters(folder: Path) -> dict[str, bytes]:
    """The parameters of each run folder."""
    models(folder)
    return below(folder, ".safetensors")


def run_states(folder: Path) -> dict[str, bytes]:
    """Every file that a resumed run reads, of runs of a few steps."""
    words = "그날밤나는달을보았다별이값은" * 3
    rows = "text\tlabel\n" + "".join(f"{word} 밤\t{at % 2}\n" for at, word in enumerate(words))
    table = put(folder.with_name(f"{folder.name}-rows.tsv"), rows.encode())
    jumok.train(TEXT * 20, folder / "lm", quiet=True, device="cpu", **TINY)
    for task in ("seq2seq", "classify"):
        jumok.train(table, folder / task, columns=["text", "label"], task=task, quiet=True, device="cpu", **TINY)
    table.unlink()
    return below(folder, ".json", ".npy", ".safetensors", ".jsonl")


def exported(folder: Path) -> dict[str, bytes]:
    """Folders of `transformers`: one with its tensors as a pickle, one with several files, one with a vocab.txt."""
    from jumok.interop.huggingface import to_hf

    for name, model in some_models().items():
        to_hf(model, folder / name)
    whole = folder / "mlm" / "model.safetensors"
    tensors = load_file(whole)
    places = {name: f"model-{len(name) % 2}.safetensors" for name in tensors}
    for place in set(places.values()):
        save_file({name: tensors[name] for name in places if places[name] == place}, whole.with_name(place))
    whole.with_name(f"{whole.name}.index.json").write_text(json.dumps({"weight_map": places}))
    whole.unlink()
    pickled, words = folder / "classic", folder / "classify"
    torch.save(some_models()["classic"].state_dict(), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    vocab = json.loads((words / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    (words / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.__getitem__)), encoding="utf-8")
    (words / "tokenizer.json").unlink()
    (words / "tokenizer_config.json").unlink()
    (words / "special_tokens_map.json").write_text('{"unk_token": "[UNK]", "mask_token": {"content": "[MASK]"}}')
    return {name: content for name, content in below(folder).items() if not name.endswith(".md")}


def settings(_folder: Path) -> dict[str, bytes]:
    """A file for `train --config`."""
    lines = ['task = "lm"', "n_layer = 2", "n-head = 2", "n_embd = 32", "context_length = 64", "batch_size = 4",
             "steps = 10", "learning_rate = 1e-3", 'tokenizer = "char"', 'family = "classic"',
             "val = 0.1", "seed = 7", 'size = "nano"', 'precision = "float32"', "dropout = 0.1", "# end"]  # fmt: skip
    return {"run.toml": "\n".join(lines).encode()}


WRITING = {"n": 1, "stream": False, "stop": ["끝"], "presence_penalty": 0.1, "frequency_penalty": 0.1, "seed": 1,
           "temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1,
           "max_tokens": 4}  # fmt: skip
MESSAGE = {"role": "user", "content": [{"type": "text", "text": "그날"}]}
BODIES: dict[str, dict[str, Any]] = {
    "completions": {"model": "lm", "prompt": ["그날", [1, 2]], "echo": True, "logprobs": 2, **WRITING},
    "chat/completions": {"model": "seq2seq", "messages": [MESSAGE], "logprobs": True, "top_logprobs": 2, **WRITING},
    "embeddings": {"model": "lm", "input": ["그날", "밤"], "encoding_format": "float"},
    "classify": {"model": "classify", "input": ["그날 밤"]},
    "fill-mask": {"model": "mlm", "input": "그날 [MASK]", "top": 3},
    "tokenize": {"model": "lm", "input": "그날 밤"},
}


def requests(folder: Path) -> dict[str, bytes]:
    """The bodies of requests to the server, by their paths."""
    models(folder / "runs")
    return {f"{path.replace('/', '+')}.json": json.dumps(body).encode() for path, body in BODIES.items()}


# --- readers ----------------------------------------------------------------------------------------------------------


def choice(content: bytes, options: Sequence[Any]) -> Any:
    """Return one of some options, which follows from the input."""
    return options[zlib.crc32(content) % len(options)]


def open_text(folder: Path) -> Read:
    """Read a text, with an encoding that is detected or named."""
    encodings = [None] * 6 + ["utf-8", "cp949", "utf-16", "utf-16-le", "utf-32", "johab", "shift_jis", "utf-7",
                 "latin-1", "iso2022_kr", "rot13", "hex", "idna", "punycode", "unicode_escape", "no-such"]  # fmt: skip

    def read(name: str, content: bytes) -> str:
        with reader.read(put(folder / name, content), encoding=choice(content, encodings)) as text:
            whole = text.read()
            if sum(map(len, text.chunks())) != len(whole) or text.describe() == "":
                raise Unexpected("the chunks of the text differ from the text")
            whole.encode()
        return whole

    return read


def open_table(folder: Path) -> Read:
    """Read a table, and one of its columns as a text."""
    columns = [["text", "label"], ["text"], ["number", "text"], ["none"]]

    def read(name: str, content: bytes) -> object:
        path = put(folder / name, content)
        with suppress(JumokError), reader.read(path, column="text") as text:
            text.read().encode()
        table = reader.read_table(path, choice(content, columns))
        json.dumps(table.rows, ensure_ascii=False).encode()
        table.describe().encode(errors="backslashreplace")
        return len(table)

    return read


def open_tokenizer(folder: Path) -> Read:
    """Read a tokenizer, and use it as its callers do."""

    def read(name: str, content: bytes) -> object:
        tokenizer = Tokenizer.load(put(folder / name, content))
        repr(tokenizer)
        some = [0, tokenizer.vocab_size - 1, *tokenizer.encode(PROBE).tolist()]
        text = tokenizer.decode(some)
        tokenizer.pieces(some)
        tokenizer.bytes_of(some)
        stream = tokenizer.stream()
        for one in some:
            stream.push(one)
        for ids in tokenizer.encode_chunks([PROBE, TEXT]):
            len(ids)
        return text

    return read


def open_run(folder: Path) -> Read:
    """Read the config.json of a run in every way that commands do."""
    from jumok.training.run_record import RunRecord
    from jumok.training.tasks import task_of_run

    def read(name: str, content: bytes) -> object:
        with restored(folder / name, content) as path:
            run = path.parent
            for call in (lambda: task_of_run(run), lambda: read_shape(run), lambda: unseen_characters(run, [PROBE]),
                         lambda: RunRecord.of(RunFolder.open(run)), lambda: RunFolder(run).require_free()):  # fmt: skip
                with suppress(JumokError):
                    call()
            return to_dict(load(run).config)

    return read


def open_model(folder: Path) -> Read:
    """Load a run or a folder of `transformers`, then compute with it."""

    def read(name: str, content: bytes) -> object:
        with restored(folder / name, content) as path, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = load(path.parent)
            if zlib.crc32(content) % 8 == 0 and model.tokenizer is not None and hasattr(model.config, "family"):
                with suppress(JumokError):
                    generate(model, "그날", tokens=3)
            return type(model)

    return read


def open_state(folder: Path) -> Read:
    """Resume a run. A changed file of a state usually gets its new checksum, or the manifest would refuse it."""
    from jumok.training.trainer import Trainer

    def read(name: str, content: bytes) -> object:
        with restored(folder / name, content) as path:
            manifest = path.with_name("manifest.json")
            whole = manifest.read_bytes() if manifest.is_file() and manifest != path else None
            if whole is not None and zlib.crc32(content) % 3:
                sums = {**json.loads(whole), path.name: hashlib.sha256(content).hexdigest()}
                put(manifest, json.dumps(sums).encode())
            try:
                run = folder / Path(name).parts[0]
                RunFolder(run).checkpoints.newest()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    Trainer.resume(run, device="cpu").close()
                return run
            finally:
                if whole is not None:
                    put(manifest, whole)

    return read


def open_settings(folder: Path) -> Read:
    """Read a file for `train --config`, and make the configurations."""
    from jumok.cli.train import train
    from jumok.cli.train_options import read_toml
    from jumok.cli.train_request import TrainRequest
    from jumok.config import GPTConfig, LMConfig, named_settings

    options = {one.name for one in train.params if one.name}

    def read(name: str, content: bytes) -> object:
        settings = read_toml(put(folder / name, content), options)
        request = TrainRequest((), settings, init=None, device="cpu", began=0.0)
        return named_settings(request.settings, request.size, GPTConfig, LMConfig)

    return read


def open_stock_config(folder: Path) -> Read:
    """Read a config.json of `transformers`."""
    return lambda _name, content: our_config(read_stock(put(folder / "config.json", content)), str(folder))


class Refusal(JumokError):
    """The server refused a request."""


def open_requests(folder: Path) -> Read:
    """Send requests to the application of `jumok serve`, without a network."""
    from jumok.serve.app import create_app
    from jumok.serve.middleware import limited
    from jumok.serve.run_folders import RunFolders
    from jumok.serve.served_models import ServedModels
    from jumok.serve.settings import ServeSettings

    options = ServeSettings(slots=4, timeout=8.0, max_tokens=64)
    served = [folder / "runs" / name for name in ("lm", "mlm", "classify", "seq2seq")]
    app: Any = limited(create_app(ServedModels(RunFolders(served), options), options), options)
    loop = asyncio.new_event_loop()

    def read(name: str, content: bytes) -> int:
        path = f"/v1/{name.removesuffix('.json').replace('+', '/')}"
        status, parts = 0, []
        waiting = [{"type": "http.request", "body": content, "more_body": False}]
        headers = {"host": "127.0.0.1:8000", "content-type": "application/json", "content-length": str(len(content))}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "state": {},
            "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
            "client": ("127.0.0.1", 9), "server": ("127.0.0.1", 8000),
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            if not waiting:
                await asyncio.Event().wait()  # the client stays until it has the answer
            return waiting.pop()

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        loop.run_until_complete(app(scope, receive, send))
        if status >= 500 or status == 0:
            raise Unexpected(f"{path}: status {status}: {b''.join(parts)[:300]!r}")
        b"".join(parts).decode()
        if status >= 400:
            raise Refusal("{status}", status=status)
        return status

    return read


TARGETS: tuple[Target, ...] = (
    Target(name="text", prepare=texts, open=open_text),
    Target(name="table", prepare=tables, open=open_table, cost=2),
    Target(name="tokenizer", prepare=tokenizers, open=open_tokenizer, cost=6),
    Target(name="config", prepare=run_configs, open=open_run, cost=12),
    Target(name="parameters", prepare=run_parameters, open=open_model, cost=8),
    Target(name="stock-config", prepare=stock_configs, open=open_stock_config),
    Target(name="transformers", prepare=exported, open=open_model, cost=10),
    Target(name="state", prepare=run_states, open=open_state, cost=60),
    Target(name="settings", prepare=settings, open=open_settings, cost=2),
    Target(name="requests", prepare=requests, open=open_requests, cost=25),
)
