"""Tokenizers that a folder has in an older form than tokenizer.json, converted with `transformers`.

`transformers` chooses a class by the names in the folder. If they are wrong or missing, the ids are wrong as well, and
nothing says so. So the result is compared with the file: with the pieces of SentencePiece, or, for vocab.json and
merges.txt, with the text itself, which byte-level BPE keeps.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.config import ModelConfig
from jumok.errors import TokenizerError
from tokenizers import Tokenizer as HFTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
BYTE_LEVEL = ("vocab.json", "merges.txt")
PAIR = ("source.spm", "target.spm")  # of Marian
# Single spaces only: classes differ in others even where they are right.
SAMPLES = ("나는 학교에 갔다.", "띄어 쓰기, 3.14% (ㅋㅋ)", "The quick brown fox 鬼 😀", "값이 싸다")


def slow_files(folder: Path) -> tuple[str, ...]:
    """Return the files of a tokenizer in an older form; () if there are none."""
    for names in (*((name,) for name in SENTENCEPIECE), PAIR, BYTE_LEVEL):
        if all((folder / name).is_file() for name in names):
            return names
    return ()


def convert(folder: Path, files: tuple[str, ...], config: ModelConfig) -> HFTokenizer:
    """Convert the tokenizer of a folder to a pipeline of `tokenizers`. Code in the folder is not run.

    Args:
        files: as `slow_files` returns them.
        config: of the model. Special tokens that `transformers` adds, and the model has no ids for, are left out.

    Raises:
        TokenizerError: a package is missing; or the tokenizer cannot be converted, or splits texts in another way.
    """
    found = " + ".join(files)
    if files == PAIR:
        raise TokenizerError(
            "{folder} has a tokenizer for each language, {found}, and tokenizer.json can only express one. Remove them "
            "to load the model without a tokenizer.",
            folder=folder,
            found=found,
        )
    reference: Callable[[str], object] = (
        _byte_level_reference if files == BYTE_LEVEL else _pieces(folder / files[0], folder)
    )
    name, pipeline = _converted(folder, found)
    for sample in SAMPLES:
        ids = pipeline.encode(sample, add_special_tokens=False).ids
        text, pieces = pipeline.decode(ids, skip_special_tokens=False), [pipeline.id_to_token(i) for i in ids]
        if reference(sample) != (text.strip() if files == BYTE_LEVEL else pieces):
            raise TokenizerError(
                "{folder}: transformers reads {found} with {name}, which splits the text {sample!r} in another way "
                "than the file; correct tokenizer_class in tokenizer_config.json, or save the tokenizer as "
                "tokenizer.json.",
                folder=folder,
                found=found,
                name=name,
                sample=sample,
            )
    content = json.loads(pipeline.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < config.vocab_size]
    return HFTokenizer.from_str(json.dumps(content))


def _converted(folder: Path, found: str) -> tuple[str, HFTokenizer]:
    """Return the class that transformers chooses, and its pipeline."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise _missing(folder, found, error) from None
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return type(tokenizer).__name__, HFTokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    except Exception as error:  # of many types, by class and version
        raise TokenizerError(
            "{folder}: transformers cannot convert {found} ({reason}); save the tokenizer as tokenizer.json.",
            folder=folder,
            found=found,
            reason=" ".join(str(error).split())[:200],
        ) from None


def _pieces(path: Path, folder: Path) -> Callable[[str], list[str]]:
    """Return the function that splits a text as the file of SentencePiece does, with <unk> for unknown pieces."""
    try:
        import_module("google.protobuf")  # with which transformers reads the file
        sentencepiece: Any = import_module("sentencepiece")
    except ImportError as error:
        raise _missing(folder, path.name, error) from None
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
    except (OSError, RuntimeError) as error:
        raise TokenizerError("{path} is damaged ({error}); restore it from a copy.", path=path, error=error) from None
    return lambda text: [processor.id_to_piece(i) for i in processor.encode(text)]


def _byte_level_reference(text: str) -> str:
    return text.strip()  # some of these tokenizers put a space before the text


def _missing(folder: Path, found: str, error: ImportError) -> TokenizerError:
    return TokenizerError(
        "{folder} has its tokenizer as {found}, and converting it needs packages that are not installed ({names}). "
        "Install them with: pip install 'jumok[hf]' sentencepiece protobuf",
        folder=folder,
        found=found,
        names=error.name,
    )
