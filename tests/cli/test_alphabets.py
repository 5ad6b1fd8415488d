"""Texts that are not modern Korean, from the file to the page: Middle Korean of 1459, Japanese, source code."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from conftest import TINY, Jumok
from jumok.text.hangul import nfc
from jumok.tokenizers import train_tokenizer
from jumok.training.tasks.language_modelling import opening

FLAGS = [f"--{key.replace('_', '-')}={value}" for key, value in TINY.items()] + ["--device=cpu"]

# The preface of Hunminjeongeum eonhae (1459): jamo that Unicode has no syllables for, tone marks, Chinese characters.
PREFACE = """나랏〮말〯ᄊᆞ미〮 中듀ᇰ國귁〮에〮달아〮 文문字ᄍᆞᆼ〮와〮로〮서르ᄉᆞᄆᆞᆺ디〮아니〮ᄒᆞᆯᄊᆡ〮
이〮런젼ᄎᆞ〮로〮어린〮百ᄇᆡᆨ〮姓셔ᇰ〮이〮니르고〮져〮호ᇙ〮배〮이셔〮도〮
ᄆᆞᄎᆞᆷ〮내〯제ᄠᅳ〮들〮시러〮펴디〮몯〯ᄒᆞᇙ노〮미〮하니〮라〮
내〮이〮ᄅᆞᆯ〮為윙〮ᄒᆞ〮야〮어〯엿비〮너겨〮
새〮로〮스〮믈〮여듧〮字ᄍᆞᆼ〮ᄅᆞᆯ〮ᄆᆡᇰᄀᆞ〮노니〮
사〯ᄅᆞᆷ마〯다〮ᄒᆡ〯ᅇᅧ〮수〯ᄫᅵ〮니겨〮날〮로〮ᄡᅮ〮메〮便뼌安ᅙᅡᆫ킈〮ᄒᆞ고〮져〮ᄒᆞᇙᄯᆞᄅᆞ미〮니라〮
"""
CAT = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗い所で泣いていた事。\n"
TEXTS = {
    "old": PREFACE * 3,
    "japanese": CAT * 8,
    "code": "def area(width: int, height: int) -> int:\n\treturn width * height  # m²\n\n\n" * 12,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_from_the_file_to_the_page(jumok: Jumok, tmp_path: Path, name: str) -> None:
    text = TEXTS[name]
    (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    end = jumok("train", f"{name}.txt", "--out", "run", *FLAGS)
    assert end.code == 0, end.err
    prompt = text.split("\n")[0][:12]
    end = jumok("generate", "run", prompt, "--tokens", 20, "--seed", 1)
    assert end.code == 0, end.err
    assert end.out.startswith(nfc(prompt))
    assert unicodedata.is_normalized("NFC", end.out)
    end = jumok("view", "run", prompt, "--out", "view.html")
    assert end.code == 0, end.err
    end = jumok("evaluate", "run", f"{name}.txt", "--json")
    assert end.json["chars"] == len(nfc(text))


def test_an_example_where_no_blanks_are_written() -> None:
    """After a training on Japanese, `jumok generate RUN ...` was the advice, with the three points: the first two words
    were two paragraphs, too long for a command."""
    lines = f"見出し\n{CAT}"
    tokenizer = train_tokenizer([lines, PREFACE], kind="char")
    assert opening(tokenizer.encode(lines), tokenizer, words=2) == "吾輩は猫である。名前"
    old = "ᄆᆞᄎᆞᆷ〮내〯제ᄠᅳ〮들〮시러〮펴디〮몯〯ᄒᆞᇙ노〮미〮하니〮라〮ᄆᆞᄎᆞᆷ〮내〯제ᄠᅳ〮들〮시러〮"
    assert opening(tokenizer.encode(f"a\n{old}"), tokenizer, words=2) == "ᄆᆞᄎᆞᆷ〮내〯제", "cut before ᄠᅳ, not in it"
    assert opening(tokenizer.encode("a\n나랏〮말〯ᄊᆞ미〮 中듀ᇰ國귁〮에〮 c"), tokenizer, words=2) == "나랏〮말〯ᄊᆞ미〮 中듀ᇰ國귁〮에〮"
