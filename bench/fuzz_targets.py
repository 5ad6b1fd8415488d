"""The readers of files that bench/fuzz.py calls, and a few valid files for each; for the server see fuzz_server.py."""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from email.message import Message
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.request import BaseHandler

import torch

from fuzz import Read, Target, Unexpected
from fuzz_files import CONFIGS, TABLES, TEXT, TEXTS, TINY, exported, models, put, restored, trained
from fuzz_server import SERVER_TARGETS
from jumok import text as reader
from jumok.config import to_dict
from jumok.config.huggingface import our_config, read_stock
from jumok.corpora import catalogue
from jumok.errors import JumokError
from jumok.runs.folder import RunFolder
from jumok.runs.load import load, read_shape, unseen_characters
from jumok.runs.logs import Logs
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.view.training_pictures import draw_loss

PROBE = "그날 밤 12시, [MASK] 값은 1,234원! é🎲\n\n\u200b끝"
LONGEST_NAME = 200


def choice(content: bytes, options: list[Any]) -> Any:
    """One of some options, which follows from the input."""
    return options[zlib.crc32(content) % len(options)]


# --- text and tables --------------------------------------------------------------------------------------------------


def open_text(folder: Path) -> Read:
    encodings = [None, None, None, None, "utf-8", "cp949", "utf-16", "utf-16-le", "utf-32", "johab", "shift_jis",
                 "utf-7",
                 "latin-1", "iso2022_kr", "rot13", "hex", "idna", "punycode", "unicode_escape", "no-such"]  # fmt: skip

    def read(name: str, content: bytes) -> str:
        path = put(folder / name, content)
        with reader.read(path, encoding=choice(content, encodings)) as text:
            whole = text.read()
            if sum(map(len, text.chunks())) != len(whole) or text.describe() == "":
                raise Unexpected("the chunks of the text differ from the text")
            whole.encode()
        return whole

    return read


def open_table(folder: Path) -> Read:
    def read(name: str, content: bytes) -> object:
        path = put(folder / name, content)
        try:
            with reader.read(path, column="text") as text:
                text.read().encode()
        except JumokError:
            pass
        table = reader.read_table(path, choice(content, [["text", "label"], ["text"], ["number", "text"], ["none"]]))
        json.dumps(table.rows, ensure_ascii=False).encode()
        table.describe().encode(errors="backslashreplace")
        return len(table)

    return read


def prepare_datasets(folder: Path) -> dict[str, bytes]:
    put(folder / "data" / "data.arrow", TABLES["table.arrow"])
    put(folder / "data" / "dataset_info.json", b"{}")
    state = {"_data_files": [{"filename": "data.arrow"}], "_fingerprint": "a", "_split": "train"}
    return {"data/state.json": json.dumps(state).encode()}


def open_datasets(folder: Path) -> Read:
    def read(name: str, content: bytes) -> object:
        put(folder / name, content)
        return len(reader.read_table(folder / "data", ["text"]))

    return read


# --- tokenizers -------------------------------------------------------------------------------------------------------


def prepare_tokenizer(folder: Path) -> dict[str, bytes]:
    kinds = {kind: train_tokenizer(TEXT * 3, kind=kind, **({"vocab_size": 300} if kind == "bpe" else {}),
             special_tokens=["[PAD]", "[MASK]", "[EOS]"]) for kind in ("char", "jamo", "bpe")}  # fmt: skip
    found = {f"{kind}.json": each.to_json().encode() for kind, each in kinds.items()}
    vocab = {
        piece: at for at, piece in enumerate(["[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]", *"가나다라마그날밤abc"])
    }
    framed = {"type": "BertProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 2]}
    common = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": framed}
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
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                      "vocab": [[piece, -float(at)] for piece, at in vocab.items()]},
        },
        "words": {
            "normalizer": None, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"\s+|\p{L}+"}, "behavior":
                           "Isolated", "invert": False},
            "decoder": None, "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
        },
    }  # fmt: skip
    return found | {f"{name}.json": json.dumps({**common, **each}).encode() for name, each in pieces.items()}


def use(tokenizer: Tokenizer) -> object:
    """What callers do with a tokenizer that was read."""
    repr(tokenizer)
    ids = tokenizer.encode(PROBE)
    some = [0, tokenizer.vocab_size - 1, *ids.tolist()]
    text = tokenizer.decode(some)
    tokenizer.pieces(some)
    tokenizer.bytes_of(some)
    stream = tokenizer.stream()
    for one in some:
        stream.push(one)
    for ids in tokenizer.encode_chunks([PROBE, TEXT]):
        len(ids)
    return text


def open_tokenizer(folder: Path) -> Read:
    return lambda name, content: use(Tokenizer.load(put(folder / name, content)))


# --- run folders ------------------------------------------------------------------------------------------------------


def prepare_runs(folder: Path) -> dict[str, bytes]:
    models(folder)
    return {f"{one.name}/config.json": (one / "config.json").read_bytes() for one in sorted(folder.iterdir())}


def prepare_parameters(folder: Path) -> dict[str, bytes]:
    models(folder)
    return {
        f"{one.name}/model.safetensors": (one / "model.safetensors").read_bytes() for one in sorted(folder.iterdir())
    }


def open_runs(folder: Path) -> Read:
    from jumok.training.run_record import RunRecord
    from jumok.training.tasks import task_of_run

    def read(name: str, content: bytes) -> object:
        with restored(folder / name, content) as path:
            run = path.parent
            refused = 0
            for call in (lambda: task_of_run(run), lambda: read_shape(run), lambda: unseen_characters(run, [PROBE]),
                         lambda: RunRecord.of(RunFolder.open(run)), lambda: RunFolder(run).require_free()):  # fmt: skip
                try:
                    call()
                except JumokError:
                    refused += 1
            return to_dict(load(run).config)

    return read


def open_loaded(folder: Path) -> Read:
    """Reads a run or a folder of transformers, then computes with what was read."""
    from jumok.inference.generate import generate

    def read(name: str, content: bytes) -> object:
        with restored(folder / name, content) as path, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = load(path.parent)
            if zlib.crc32(content) % 8 == 0 and model.tokenizer is not None and hasattr(model.config, "family"):
                with suppress(JumokError):
                    generate(model, "그날", tokens=3)
            return type(model)

    return read


def prepare_logs(folder: Path) -> dict[str, bytes]:
    step = {"event": "step", "step": 1, "loss": 2.0, "rate": 1.0, "grad_norm": 0.5, "skipped": False, "progress": 0.1,
            "seconds": 1.0, "remaining": 9.0, "tokens_per_second": 99.0}  # fmt: skip
    evaluated = {"event": "eval", "step": 2, "figures": {"loss": 2.0, "loss_per_token": 2.1}, "headline": "2 nats",
                 "best": True, "seconds": 1.5}  # fmt: skip
    events = [step, {**step, "step": 2, "loss": float("nan")}, evaluated,
              {"event": "sample", "step": 2, "text": "\u2028"},
              {"event": "stage", "step": 2, "number": 2, "best_step": 1, "steps": 4, "minutes": None},
              {"event": "finish", "step": 4, "reason": "done", "figures": {"loss": 1.0}, "seconds": 2.0}]  # fmt: skip
    models(folder, only="lm")
    draw_loss(events, folder / "warm.png")  # matplotlib runs code while it is imported
    return {"lm/metrics.jsonl": "".join(json.dumps(one) + "\n" for one in events).encode()}


def open_logs(folder: Path) -> Read:
    from jumok.serve.desk.curves import Curve, Tail
    from jumok.serve.desk.folders import RunFolders
    from jumok.serve.streaming import to_json

    def read(name: str, content: bytes) -> object:
        path = put(folder / name, content)
        logs = Logs(path.parent)
        logs.has_damaged_metrics()
        events = logs.metrics()
        curve = Curve(Tail(path))
        curve.update()
        to_json({"points": curve.train(), "last": curve.last, "samples": curve.samples})
        folders = RunFolders([], folder)
        to_json(folders.details("lm", path.parent))
        if zlib.crc32(content) % 300 == 0:
            with suppress(Exception):  # its caller reports that a picture cannot be drawn, and goes on
                draw_loss(events, folder / "loss.png")
        logs.truncate(path.name, len(content) // 2)
        return len(events)

    return read


# --- states -----------------------------------------------------------------------------------------------------------


def prepare_states(folder: Path) -> dict[str, bytes]:
    """Every file that a resumed run reads. A changed file of a state gets its new checksum, except in the manifest."""
    trained(folder)
    found = {}
    for run in sorted(folder.iterdir()):
        for path in sorted(run.rglob("*")):
            if path.suffix in (".json", ".npy", ".safetensors", ".jsonl") and path.is_file():
                found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def open_states(folder: Path) -> Read:
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
                    trainer = Trainer.resume(run, device="cpu")
                trainer.close()
                return trainer.notices
            finally:
                if whole is not None:
                    put(manifest, whole)

    return read


def prepare_ladder(folder: Path) -> dict[str, bytes]:
    point = {"tokens": 64, "seconds": 0.5, "nats_per_char": 3.0}
    result = {"slug": "01-bigram", "parameters": 100, "steps": 2, "tokens": 128, "seconds": 1.0,
              "tokens_per_second": 99.0,
              "nats_per_char": 2.9, "curve": [point, point], "before": "가", "after": "나"}  # fmt: skip
    ladder = {"format": 1, "config": {}, "text": {"sources": ["a.txt"], "sha256": "ab" * 32, "chars": 99},
              "asked": ["a.txt"], "encoding": None, "column": None, "precision": "float32", "train_tokens": 90,
              "vocab_size": 40, "floor": 0.5, "before": {"01-bigram": "가"}, "results": [result]}  # fmt: skip
    return {"ladder/ladder.json": json.dumps(ladder).encode()}


def open_ladder(folder: Path) -> Read:
    from jumok.course.ladder.results import LadderRecord
    from jumok.serve.desk import ladders
    from jumok.serve.desk.folders import RunFolders
    from jumok.serve.streaming import to_json

    def read(name: str, content: bytes) -> object:
        path = put(folder / name, content)
        to_json(ladders.race(RunFolders([], folder), "ladder"))
        record = LadderRecord.read(path.parent)
        return record.command, record.text.name, record.finished

    return read


# --- settings ---------------------------------------------------------------------------------------------------------


def prepare_toml(_folder: Path) -> dict[str, bytes]:
    lines = ['task = "lm"', "n_layer = 2", "n-head = 2", "n_embd = 32", "context_length = 64", "batch_size = 4",
             "steps = 10",
             "minutes = 1.5", "learning_rate = 1e-3", 'tokenizer = "char"', 'family = "classic"', "val = 0.1",
             "seed = 7",
             'size = "nano"', 'precision = "float32"', "dropout = 0.1", 'compile = "off"', "# end"]  # fmt: skip
    return {"run.toml": "\n".join(lines).encode(), "small.toml": "\n".join(lines[:7]).encode()}


def open_toml(folder: Path) -> Read:
    from jumok.cli.train import train
    from jumok.cli.train_options import read_toml
    from jumok.cli.train_request import TrainRequest
    from jumok.training.settings import configurations

    options = {one.name for one in train.params if one.name}

    def read(name: str, content: bytes) -> object:
        settings = read_toml(put(folder / name, content), options)
        request = TrainRequest((), settings, init=None, device="cpu", began=0.0)
        return configurations(request.settings, size=request.size)

    return read


def open_stock(folder: Path) -> Read:
    def read(name: str, content: bytes) -> object:
        path = put(folder / "config.json", content)
        return our_config(read_stock(path), str(folder))

    return read


# --- folders of transformers ------------------------------------------------------------------------------------------


def prepare_exported(folder: Path) -> dict[str, bytes]:
    exported(folder)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".md"
    }


# --- what jumok writes, read back -------------------------------------------------------------------------------------


def prepare_words(folder: Path) -> dict[str, bytes]:
    models(folder)
    words = {"text": "그날 밤 나는", "name": "novel", "note": "한 줄", "licence": "MIT", "labels": ["좋다", "나쁘다"],
             "pieces": ["[X]", "<end>"]}  # fmt: skip
    return {"words.json": json.dumps(words, ensure_ascii=False).encode()}


def given_words(content: bytes) -> dict[str, Any] | None:
    """Strings of a mutated document: text, name, note, licence, labels and special tokens."""
    try:
        words = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(words, dict) or not all(
        isinstance(words.get(key), str) for key in ("text", "name", "note", "licence")
    ):
        return None
    if not all(isinstance(words.get(key), list) for key in ("labels", "pieces")):
        return None
    return words


def open_pages(folder: Path) -> Read:
    """The pages of hostile texts and names: what stands in the file is what was put there, and nothing else."""
    from html.parser import HTMLParser

    from jumok.view.model_page import ModelPage
    from jumok.view.page import page_of_text

    opened = {name: load(folder / name) for name in ("lm", "classify", "seq2seq")}

    class Elements(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.scripts: dict[str, str] = {}
            self.count, self._at = 0, ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.count += 1
            self._at = dict(attrs).get("id") or tag if tag == "script" else ""

        def handle_data(self, data: str) -> None:
            if self._at:
                self.scripts[self._at] = self.scripts.get(self._at, "") + data

        def handle_endtag(self, tag: str) -> None:
            self._at = ""

    expected: dict[str, int] = {}

    def checked(kind: str, html: str, values: Any) -> None:
        found = Elements()
        found.feed(html.encode().decode())
        if expected.setdefault(kind, found.count) != found.count:
            raise Unexpected(f"{found.count} elements in a page instead of {expected[kind]}")
        if values not in [
            json.loads(text) for name, text in found.scripts.items() if name in ("jumok-trace", "jumok-model")
        ]:
            raise Unexpected("the JSON in a page is not what was put there")

    def read(_name: str, content: bytes) -> object:
        if (words := given_words(content)) is None:
            return None
        kind = choice(content, ["lm", "classify", "seq2seq"])
        how: dict[str, Any] = {"probe": False, "block": None, "layer": None, "head": None, "language": None}
        page = page_of_text(opened[kind], words["text"][:500], name=words["name"], **how)
        checked("trace", page.html, json.loads(json.dumps(page.trace)))
        model = ModelPage(
            opened[kind], words["name"], prompt=words["text"][:500], note=words["note"], licence=words["licence"]
        )
        checked("model", model.html, json.loads(json.dumps(model.header)))
        return len(page.html)

    return read


def open_gguf(folder: Path) -> Read:
    """A GGUF file with hostile names and special tokens is read by the package gguf, with the tokens of the model."""
    from gguf import GGUFReader

    from fuzz_files import random_model
    from jumok.config import GPTConfig
    from jumok.interop.gguf import to_gguf

    def read(_name: str, content: bytes) -> object:
        if (words := given_words(content)) is None:
            return None
        special = [piece for piece in words["pieces"] if isinstance(piece, str)]
        kind = choice(content, ["char", "bpe"])
        model = random_model(GPTConfig, special, kind=kind, n_embd=32, text=words["text"][:300] + TEXT)
        path = folder / "model.gguf"
        to_gguf(model, path, name=words["name"], licence=words["licence"])
        found = GGUFReader(path)
        tokens = found.get_field("tokenizer.ggml.tokens")
        if tokens is None or len(tokens.data) != model.config.vocab_size:
            raise Unexpected("the file has another number of tokens than the model")
        contents = [bytes(tokens.parts[at]).decode() for at in tokens.data]
        if len(set(contents)) != len(contents):
            raise Unexpected("two tokens of the file are equal")
        return len(found.tensors)

    return read


# --- downloads --------------------------------------------------------------------------------------------------------

ROWS = "".join(
    json.dumps({"doc_id": f"n_{at}", "text": f"{at}째 줄"}, ensure_ascii=False) + "\n" for at in (2, 1)
).encode()
ANSWERED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ROWS), ROWS)
RESUMED = b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 9-%d/%d\r\nContent-Length: %d\r\n\r\n%s" % (
    len(ROWS) - 1, len(ROWS), len(ROWS) - 9, ROWS[9:])  # fmt: skip
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(ROWS), ROWS)


class _Socket:
    """A connection on which these bytes arrive."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, *_: object, **__: object) -> io.BytesIO:
        return io.BytesIO(self._content)


class _Answers(BaseHandler):
    """Answers every request of urllib with the bytes of the input."""

    content = b""
    handler_order = 100  # before that of urllib

    def http_open(self, request: Any) -> Any:
        response = HTTPResponse(_Socket(self.content), method="GET")  # type: ignore[arg-type]
        response.begin()
        response.msg = response.reason  # as urllib does
        response.url = request.full_url  # type: ignore[attr-defined]
        return response


def open_downloads(folder: Path) -> Read:
    """A cached file, a part of one, and what a server answers."""
    from urllib.request import OpenerDirector, build_opener

    remote = catalogue.RemoteFile(
        url="https://e.invalid/data/rows.jsonl", bytes=len(ROWS), sha256=hashlib.sha256(ROWS).hexdigest()
    )
    corpus = catalogue.Corpus(
        name="novels", title="T", licence="CC0", homepage="https://e.invalid/", format="jsonl", files=(remote,)
    )
    catalogue.entries = lambda: {"novels": corpus}  # type: ignore[assignment]
    answers = _Answers()
    opener: OpenerDirector = build_opener(answers)
    catalogue.urllib.request.build_opener = lambda *_: opener  # type: ignore[attr-defined]
    place = folder / "novels" / "files" / remote.path
    wanted = "\n".join(json.loads(line)["text"] for line in reversed(ROWS.decode().splitlines())) + "\n"

    def read(name: str, content: bytes) -> object:
        answers.content = content if name.startswith("http") else ANSWERED
        part = place.with_name(place.name + ".part")
        for path in (place, part, folder / "novels" / "novels.txt"):
            path.unlink(missing_ok=True)
        if not name.startswith("http"):
            put({"file": place, "part": part, "made": folder / "novels" / "novels.txt"}[name], content)
        elif name == "http-resumed":
            put(part, ROWS[:9])
        found = catalogue.get("novels", cache_dir=folder, base_url="http://127.0.0.1:9", wait=lambda _: None)
        if found.read_text(encoding="utf-8") != wanted:
            raise Unexpected("a damaged corpus was returned")
        return found

    return read


def prepare_downloads(_folder: Path) -> dict[str, bytes]:
    os.environ["no_proxy"] = "127.0.0.1"
    assert Message  # imported before the hook watches
    return {
        "file": ROWS,
        "part": ROWS[:20],
        "made": b"x",
        "http": ANSWERED,
        "http-resumed": RESUMED,
        "http-chunked": CHUNKED,
    }


def given(files: dict[str, bytes]) -> Callable[[Path], dict[str, bytes]]:
    """A function that returns these files."""
    return lambda _: files


torch.set_num_threads(1)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
assert TINY

TARGETS: tuple[Target, ...] = (
    Target(name="text", prepare=given(TEXTS), open=open_text),
    Target(name="table", prepare=given(TABLES), open=open_table, cost=2),
    Target(name="datasets", prepare=prepare_datasets, open=open_datasets, cost=2),
    Target(name="tokenizer", prepare=prepare_tokenizer, open=open_tokenizer, cost=6),
    Target(name="config", prepare=prepare_runs, open=open_runs, cost=12),
    Target(name="parameters", prepare=prepare_parameters, open=open_loaded, cost=8),
    Target(name="stock-config", prepare=given(CONFIGS), open=open_stock),
    Target(name="transformers", prepare=prepare_exported, open=open_loaded, cost=10),
    Target(name="metrics", prepare=prepare_logs, open=open_logs, cost=3),
    Target(name="state", prepare=prepare_states, open=open_states, cost=60),
    Target(name="ladder", prepare=prepare_ladder, open=open_ladder, cost=2),
    Target(name="toml", prepare=prepare_toml, open=open_toml, cost=2),
    Target(name="pages", prepare=prepare_words, open=open_pages, cost=60),
    Target(name="gguf", prepare=prepare_words, open=open_gguf, cost=60),
    Target(name="downloads", prepare=prepare_downloads, open=open_downloads, cost=3),
    *SERVER_TARGETS,
)
