"""The architecture drawings: they fit their boxes, say what the code does, and the files in docs/ are what it draws."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import get_args

import pytest
import torch

from jumok.config import BERTConfig, BlockConfig, EncoderDecoderConfig, GPTConfig
from jumok.course.drawings import ARCHITECTURES, architecture, draw_architecture
from jumok.course.drawings.diagram import LABEL, NOTE, Box, Kind, said, text_width
from jumok.course.words import LANGUAGES, Language
from jumok.errors import ConfigError
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.nn import Block

DOCS = Path(__file__).resolve().parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
SIZES = {"vocab_size": 20, "context_length": 8, "n_layer": 1, "n_head": 2, "n_embd": 8}

each_drawing = pytest.mark.parametrize("name", ARCHITECTURES)
each_language = pytest.mark.parametrize("language", LANGUAGES)


@each_language
def test_the_files_of_the_documentation_are_what_is_drawn(language: Language, tmp_path: Path) -> None:
    """After a change: python docs/draw.py."""
    runpy.run_path(str(DOCS / "draw.py"))["draw"](tmp_path, language)
    committed = DOCS / "learn" / "pictures" / language
    pieces = {path.name for path in committed.glob("try-*.svg")}  # tests/view/test_chapter_pieces.py
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in committed.glob("*.svg")} - pieces
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (committed / path.name).read_bytes(), path.name


@each_language
@each_drawing
def test_a_drawing_is_svg_with_text_and_a_name(name: str, language: Language) -> None:
    root = ET.fromstring(architecture(name, language))
    assert root.tag == f"{SVG}svg"
    assert (root.get("role"), root.get("lang")) == ("img", language)
    named = {element.get("id"): element.text for element in root if element.get("id")}
    assert all(named[part] for part in root.attrib["aria-labelledby"].split())
    words = "".join(text.text or "" for text in root.iter(f"{SVG}text"))
    assert bool(re.search(r"[가-힣]", words)) == (language == "ko")
    assert "http" not in architecture(name, language).replace("http://www.w3.org/2000/svg", "")
    assert float(root.attrib["width"]) <= 480  # read on a phone of 360 pixels, letters of 13 have 10


@each_language
@each_drawing
def test_no_text_is_cut_off(name: str, language: Language) -> None:
    diagram = ARCHITECTURES[name]()
    wide = [said(box.label, language) for box in diagram.boxes if box.needs(language) > box.width]
    for (x, _), words, style, anchor in diagram.texts:
        text = said(words, language)
        width = text_width(text, LABEL if style == "t" else NOTE, mono=style == "s")
        left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        if left < 0 or left + width > diagram.width:
            wide.append(text)
    assert wide == []


@each_drawing
def test_boxes_do_not_overlap(name: str) -> None:
    boxes = ARCHITECTURES[name]().boxes

    def overlap(a: Box, b: Box) -> bool:
        beside = a.x + a.width <= b.x or b.x + b.width <= a.x
        return not (beside or a.y + a.height <= b.y or b.y + b.height <= a.y)

    assert [(a.label, b.label) for i, a in enumerate(boxes) for b in boxes[:i] if overlap(a, b)] == []


def test_a_part_is_highlighted(tmp_path: Path) -> None:
    draw_architecture("attention", tmp_path / "a.svg", "en", highlight=("mask",))
    root = ET.fromstring((tmp_path / "a.svg").read_text(encoding="utf-8"))
    assert [each.get("class") for each in root.iter() if "on" in (each.get("class") or "").split()] == ["b on"]
    assert " on" not in architecture("attention", "en").partition("</style>")[2].replace(" only", "")


@each_drawing
def test_every_part_can_be_highlighted(name: str) -> None:
    plain = architecture(name, "en")
    for part in ARCHITECTURES[name]().parts:
        assert architecture(name, "en", [part]) != plain


def test_notes_stand_beside_their_parts() -> None:
    root = ET.fromstring(architecture("map", "en", notes={"residual": "17", "gpt": "24", "mask": "No. 7"}))
    assert {"17", "24", "No. 7"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match=r"no drawing 'blok'.*encoder-decoder.*Did you mean 'block'"):
        architecture("blok")
    with pytest.raises(ConfigError, match=r"'attention' has no part 'masks'; it has dropout.*Did you mean 'mask'"):
        architecture("attention", highlight=["masks"])
    with pytest.raises(ConfigError, match="has no part 'tokenizer'"):
        architecture("block", notes={"tokenizer": "1"})


# --- the drawings and the code ---


def labels(name: str, *kinds: Kind) -> list[str]:
    return [said(box.label, "en") for box in ARCHITECTURES[name]().boxes if box.kind in (kinds or get_args(Kind))]


def test_the_block_has_every_dropout_and_every_parameter() -> None:
    """In the order in which the modules run."""
    config = BlockConfig(
        width=8, n_head=2, n_kv_head=2, head_dim=4, mlp_width=32, activation="gelu", dropout=0.1, attention_dropout=0.1
    )
    block = Block(config)
    applied: list[str] = []
    for module in block.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda module, *_: applied.append(type(module).__name__))
    block(torch.randn(1, 20, 8))  # on a CPU; longer sequences take the same way when weights are dropped
    modules = {
        "queries, keys, values": ["Linear"] * 3, "attention dropout": ["Dropout"], "output projection": ["Linear"],
        "LayerNorm": ["LayerNorm"], "dropout": ["Dropout"], "Linear: C → 4C": ["Linear"], "Linear: 4C → C": ["Linear"],
    }  # fmt: skip
    drawn = labels("block", "learned", "dropout")
    assert [module for label in drawn for module in modules[label]] == applied


def test_norms_stand_where_the_models_have_them() -> None:
    """Before a sub-layer in GPT, after the sum in BERT and in the encoder–decoder of 2017."""
    gpt, bert = GPT(GPTConfig(**SIZES, family="classic")), BERT(BERTConfig(**SIZES))
    original = EncoderDecoder(EncoderDecoderConfig(**SIZES, family="original"))
    assert gpt.blocks[0].pre_norm
    assert not bert.blocks[0].pre_norm
    assert not original.encoder[0].pre_norm
    inside = ["LayerNorm", "multi-head attention", "LayerNorm", "MLP"]
    assert labels("gpt")[4:9] == [*inside, "LayerNorm"]  # the last one is the norm after all blocks
    assert labels("bert")[4:10] == ["LayerNorm", "dropout", *inside[1:], "LayerNorm"]
    assert labels("encoder-decoder").count("LayerNorm") == 2 + 3
    assert bert.embedding_norm is not None
