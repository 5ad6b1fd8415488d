"""jumok.text.conversations: conversations and preferences in every format, and what is said about the others."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from jumok.errors import TextError
from jumok.evaluation.chat import questions_in
from jumok.text import Table, material_of
from jumok.text.conversations import (
    COLUMNS,
    LONGEST,
    PREFERENCE_COLUMNS,
    checks_of,
    from_conversations,
    messages_of,
    read_conversations,
    read_preferences,
)


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def system(content: Any) -> dict[str, Any]:
    return {"role": "system", "content": content}


ASKED, ANSWERED = user("1 + 1은?"), assistant("2예요.")
PAIR = [ASKED, ANSWERED]
LONGER = [system("짧게 답해요."), *PAIR, user("고마워."), assistant("뭘요!")]


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read(folder: Path, content: str | bytes, name: str = "a.jsonl", encoding: str = "utf-8") -> Table:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return read_conversations(path)


def said(table: Table) -> list[list[Any]]:
    return [messages_of(cell) for cell in table.column("messages")]


def delimited(delimiter: str, *rows: tuple[str, ...]) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue()


# --- formats ----------------------------------------------------------------------------------------------------------

SHAREGPT = [{"from": "system", "value": "짧게 답해요."}, {"from": "human", "value": "1 + 1은?"}]
ONE = {"prompt": "1 + 1은?", "completion": "2예요."}
FORMATS = {
    "messages": ({"messages": PAIR}, PAIR),
    "messages and system": ({"messages": PAIR, "system": "짧게 답해요."}, [LONGER[0], *PAIR]),
    "more messages": ({"messages": LONGER}, LONGER),
    "parts": ({"messages": [user([{"type": "text", "text": one} for one in ("1 + ", "1은?")]), ANSWERED]}, PAIR),
    "messages as text": ({"messages": json.dumps(PAIR)}, PAIR),
    "other keys": ({"messages": [user("1 + 1은?", name="철수"), ANSWERED], "id": 3}, PAIR),
    "developer": ({"messages": [{"role": "developer", "content": "짧게 답해요."}, *PAIR]}, [LONGER[0], *PAIR]),
    "reasoning": ({"messages": [ASKED, assistant("2예요.", reasoning_content="하나 더 하면 둘")]},
                  [ASKED, assistant("2예요.", reasoning_content="하나 더 하면 둘")]),
    "no reasoning": ({"messages": [ASKED, assistant("2예요.", reasoning_content=None)]}, PAIR),
    "ShareGPT": ({"conversations": [*SHAREGPT, {"from": "gpt", "value": "2예요."}]}, [LONGER[0], *PAIR]),
    "ShareGPT, system": ({"system": "짧게 답해요.",
                          "conversations": [SHAREGPT[1], {"from": "model", "value": "2예요."}]},
                         [LONGER[0], *PAIR]),
    "prompt": (ONE, PAIR),
    "prompt as messages": ({"prompt": LONGER[:4], "completion": [LONGER[4]]}, LONGER),
    "prompt and reasoning": ({**ONE, "reasoning_content": "둘", "system": "짧게 답해요."},
                             [LONGER[0], ASKED, assistant("2예요.", reasoning_content="둘")]),
    "Alpaca": ({"instruction": "더하세요.", "input": "1, 1", "output": "2"},
               [user("더하세요.\n\n1, 1"), assistant("2")]),
    "KoAlpaca": ({"instruction": "1 + 1은?", "output": "2예요.", "url": "x"}, PAIR),
    "Alpaca, empty input": ({"instruction": "1 + 1은?", "input": "", "output": "2예요."}, PAIR),
    "question": ({"Question": "1 + 1은?", "ANSWER": "2예요."}, PAIR),
    "q": ({"Q": "1 + 1은?", "A": "2예요.", "label": 0}, PAIR),
    "Korean": ({unicodedata.normalize("NFD", "질문"): "1 + 1은?", "답변": "2예요."}, PAIR),
    "a number": ({"question": "1 + 1은?", "answer": 2.0}, [ASKED, assistant("2")]),
    "both": ({"messages": PAIR, "prompt": "x", "completion": "y"}, PAIR),
    "newlines": ({"messages": [user("가\r\n나\r다"), ANSWERED]}, [user("가\n나\n다"), ANSWERED]),
    "composed": ({"messages": [user(unicodedata.normalize("NFD", "1 + 1은?")), ANSWERED]}, PAIR),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_recognized(name: str, tmp_path: Path) -> None:
    row, wanted = FORMATS[name]
    for content in (lines(row), json.dumps([row])):
        table = read(tmp_path, content)
        assert table.columns == COLUMNS
        assert said(table) == [wanted]
    assert from_conversations([row]).rows == table.rows
    note, *unused = table.notes
    assert "recognized" in note
    assert note in table.describe()
    assert bool(unused) == (name in ("other keys", "KoAlpaca", "q", "both"))


@pytest.mark.parametrize("encoding", ["utf-8", "cp949", "utf-16"])
@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t"), ("a.csv", ";")])
def test_tables_of_cells_in_every_encoding(name: str, delimiter: str, encoding: str, tmp_path: Path) -> None:
    rows = (("번호", "질문", "답변"), ("1", "1 + 1은?", "2예요."), ("2", "이름이, 뭐야?", '"주목"이라고 해요.'))
    table = read(tmp_path, delimited(delimiter, *rows), name, encoding)
    assert said(table) == [PAIR, [user("이름이, 뭐야?"), assistant('"주목"이라고 해요.')]]
    assert table.sources[0].rows == 2


def test_a_table_of_cells_may_hold_json(tmp_path: Path) -> None:
    header = ("skill", "messages", "checks")
    row = ("sum", json.dumps(LONGER, ensure_ascii=False), json.dumps(["2.*", ""]))
    table = read(tmp_path, delimited(",", header, row, ("", row[1], "")), "a.csv")
    assert said(table) == [LONGER, LONGER]
    assert table.column("skill") == ["sum", ""]
    assert [checks_of(cell) for cell in table.column("checks")] == [["2.*", ""], []]


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"messages": LONGER, "checks": ["[0-9].*", "뭘요!"], "skill": None}, {"messages": PAIR, "checks": None}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    table = read_conversations(tmp_path / "a.parquet")
    assert said(table) == [LONGER, PAIR]
    assert [checks_of(cell) for cell in table.column("checks")] == [["[0-9].*", "뭘요!"], []]


def test_formats_may_be_mixed_in_several_files(tmp_path: Path) -> None:
    """A folder holds tables of any format; copies are read once, and files without a conversation are told."""
    (tmp_path / "a.jsonl").write_text(lines({"messages": PAIR}, {"prompt": "1 + 1은?", "completion": "2예요."}))
    (tmp_path / "b.csv").write_text("q,a\n1 + 1은?,2예요.\n,\n")
    (tmp_path / "c.csv").write_text("q,a\n1 + 1은?,2예요.\n,\n")
    (tmp_path / "d.csv").write_text("title,label\n가,나\n")
    table = read_conversations(tmp_path)
    assert said(table) == [PAIR] * 3
    assert [one.rows for one in table.sources] == [2, 1]
    assert table.notes == (
        "Rows were recognized by their columns: messages (1); prompt, completion (1); q, a (1).",
        f"Left out: 2 of 5 rows: an empty message (1, first in {tmp_path / 'b.csv'}, line 3); "
        f"no known format (1, first in {tmp_path / 'd.csv'}, line 2).",
    )
    with pytest.raises(TextError, match=r"d\.csv: no row can be used: no known format"):
        read_conversations([tmp_path / "a.jsonl", tmp_path / "d.csv"])


def test_skill_and_checks(tmp_path: Path) -> None:
    row = {"messages": LONGER, "skill": "sum", "checks": ["2.*", ""]}
    table = read(tmp_path, lines(row, {"question": "1 + 1은?", "answer": "2예요.", "checks": "[2]"}))
    assert table.column("skill") == ["sum", ""]
    assert [checks_of(cell) for cell in table.column("checks")] == [["2.*", ""], ["[2]"]]


def test_what_is_read_can_be_written_and_read_again(tmp_path: Path) -> None:
    table = read(tmp_path, lines(*(row for row, _ in FORMATS.values())))
    again = read(tmp_path, lines(*({"messages": messages} for messages in said(table))), "b.jsonl")
    assert again.rows == table.rows
    assert material_of(tmp_path / "b.jsonl", COLUMNS).sha256 == table.sha256
    assert from_conversations(said(table)).sha256 == table.sha256


# --- what the formats of others say -----------------------------------------------------------------------------------

HUMAN, GPT = {"from": "human", "value": "1 + 1은?"}, {"from": "gpt", "value": "2예요."}
THOUGHT = [ASKED, assistant("2예요.", reasoning_content="하나 더하면 둘")]
MARKED = [ASKED, assistant("3이요.", weight="0"), user("정말?"), ANSWERED]
ALPACA = {"instruction": "1 + 1은?", "output": "2예요."}
# A row of each format with all columns that it may have; the messages, or the reason for which it is left out; and the
# columns that are not used.
OTHERS: dict[str, tuple[dict[str, Any], list[dict[str, str]] | str, list[str]]] = {
    "OpenAI": ({"messages": PAIR, "tools": [], "parallel_tool_calls": False}, PAIR, ["parallel_tool_calls"]),
    "OpenAI, weight": (
        {"messages": [ASKED, assistant("3이요.", weight=0), user("정말?"), assistant("2예요.", weight=1)]}, MARKED, []),
    "OpenAI, all weights 0": ({"messages": [ASKED, assistant("2예요.", weight=0)]}, "no answer that is learned", []),
    "OpenAI, half a weight": ({"messages": [ASKED, assistant("2예요.", weight=0.5)]}, "a weight other than 0 and 1",
                              []),
    "OpenAI, tools": ({"messages": PAIR, "tools": [{"type": "function"}]}, "tools that the model may call", []),
    "OpenAI, functions": ({"messages": PAIR, "functions": '[{"name": "f"}]'}, "tools that the model may call", []),
    "OpenAI, a call": ({"messages": [ASKED, assistant(None, tool_calls=[{"id": "1"}]),
                                     {"role": "tool", "content": "2"}, ANSWERED]}, "messages of tools", []),
    "OpenAI, refusal": ({"messages": [user("1 + 1은?", name="철수"), assistant("2예요.", refusal=None)]},
                        PAIR, ["message.name"]),
    "ShareGPT": ({"id": "x", "conversations": [HUMAN, GPT]}, PAIR, ["id"]),
    "ShareGPT, a function": ({"conversations": [HUMAN, {"from": "function_call", "value": "{}"},
                                                {"from": "observation", "value": "2"}, GPT]}, "messages of tools", []),
    "lmsys": ({"conversation": PAIR, "model": "m", "turn": 1}, PAIR, ["model", "turn"]),
    "LLaMA-Factory, alpaca": (
        {**ALPACA, "input": "", "system": "짧게 답해요.", "history": [["안녕", "네."], ["뭐해?", "놀아요."]]},
        [LONGER[0], user("안녕"), assistant("네."), user("뭐해?"), assistant("놀아요."), *PAIR], []),
    "LLaMA-Factory, history as text": (
        {**ALPACA, "history": '[["안녕", "네."]]'}, [user("안녕"), assistant("네."), *PAIR], []),
    "LLaMA-Factory, no history": ({**ALPACA, "history": [], "images": [], "tools": "[]"}, PAIR, []),
    "LLaMA-Factory, another history": ({**ALPACA, "history": ["안녕"]},
                                       "a history that is not pairs of a question and an answer", []),
    "LLaMA-Factory, sharegpt": ({"conversations": [HUMAN, GPT], "system": "짧게 답해요.", "tools": ""},
                                [LONGER[0], *PAIR], []),
    "LLaMA-Factory, tools": ({"conversations": [HUMAN, GPT], "tools": '[{"name": "f"}]'},
                             "tools that the model may call", []),
    "LLaMA-Factory, pictures": ({"messages": PAIR, "images": ["a.png"]}, "pictures, sounds or videos", []),
    "LLaMA-Factory, sounds": ({"conversations": [HUMAN, GPT], "audios": ["a.wav"]}, "pictures, sounds or videos", []),
    "LLaMA-Factory, KTO": ({"messages": PAIR, "label": False}, "an answer that is marked as bad", []),
    "LLaMA-Factory, KTO, good": ({"messages": PAIR, "kto_tag": True}, PAIR, []),
    "a picture": ({"question": "1 + 1은?", "answer": "2예요.", "image": {"bytes": "x"}}, "pictures, sounds or videos",
                  []),
    "Ollama, a picture": ({"messages": [user("1 + 1은?", images=["x"]), ANSWERED]}, "pictures, sounds or videos", []),
    "KoAlpaca": ({**ALPACA, "url": "https://kin.naver.com"}, PAIR, ["url"]),
    "Dolly": ({"instruction": "1 + 1은?", "context": "수", "response": "2예요.", "category": "qa"},
              [user("1 + 1은?\n\n수"), ANSWERED], ["category"]),
    "OpenOrca": ({"id": 1, "system_prompt": "짧게 답해요.", "question": "1 + 1은?", "response": "2예요."},
                 [LONGER[0], *PAIR], ["id"]),
    "KorQuAD as a table": ({"question": "1 + 1은?", "context": "수", "answer": "2예요."},
                           [user("1 + 1은?\n\n수"), ANSWERED], []),
    "TRL": ({"prompt": [ASKED], "completion": [ANSWERED]}, PAIR, []),
    "TRL, KTO": ({"prompt": [ASKED], "completion": [ANSWERED], "label": False}, "an answer that is marked as bad", []),
    "axolotl": (
        {"messages": [ASKED, assistant("3이요.", training=False), user("정말?"), assistant("2예요.", train=True)]},
        MARKED, []),
    "axolotl, a detail": ({"messages": [ASKED, assistant("2예요.", train_detail=[{"begin_offset": 0}])]},
                          PAIR, ["message.train_detail"]),
    "Qwen3": ({"messages": [ASKED, assistant("<think>\n하나 더하면 둘\n</think>\n\n2예요.")]}, THOUGHT, []),
    "Qwen3, no thinking": ({"messages": [ASKED, assistant("<think>\n\n</think>\n\n2예요.")]}, PAIR, []),
    "a thought without end": ({"messages": [ASKED, assistant("<think>2예요.")]}, "reasoning that does not end", []),
    "R1, as text": ({**ALPACA, "output": "<think>하나 더하면 둘</think>2예요."}, THOUGHT, []),
    "R1": ({"messages": [ASKED, assistant("2예요.", reasoning_content="하나 더하면 둘")]}, THOUGHT, []),
    "the same thought twice": ({"messages": [ASKED, assistant("<think>\n하나 더하면 둘\n</think>\n2예요.",
                                                              reasoning_content="하나 더하면 둘")]}, THOUGHT, []),
    "two thoughts": ({"messages": [ASKED, assistant("<think>아</think>2예요.", reasoning_content="하나 더하면 둘")]},
                     "two texts of reasoning for one answer", []),
    "HF, thinking": ({"messages": [{**ASKED, "thinking": None}, assistant("2예요.", thinking="하나 더하면 둘")],
                      "reasoning_language": "Korean", "analysis": "하나 더하면 둘", "final": "2예요."},
                     THOUGHT, ["analysis", "final", "reasoning_language"]),
    "vLLM, reasoning": ({"messages": [ASKED, assistant("2예요.", reasoning="하나 더하면 둘")]}, THOUGHT, []),
    "medical-o1": ({"Question": "1 + 1은?", "Complex_CoT": "하나 더하면 둘", "Response": "2예요."}, THOUGHT, []),
    "a table with reasoning": (
        {"question": "1 + 1은?", "answer": "2예요.", "reasoning": "하나 더하면 둘", "thinking": None}, THOUGHT, []),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_row_says_is_read_or_counted(name: str, tmp_path: Path) -> None:
    """Weights, histories, system prompts, pictures, tools and reasoning were dropped without a word."""
    row, expected, unused = OTHERS[name]
    table = read(tmp_path, lines(row, {"messages": LONGER}))
    if isinstance(expected, str):
        assert said(table) == [LONGER]
        assert f"Left out: 1 of 2 rows: {expected} (1, first in" in table.notes[1]
    else:
        assert said(table) == [expected, LONGER]
        assert not any("Left out" in note for note in table.notes)
        told = [note for note in table.notes if "not used" in note]
        assert told == ([f"Columns that are not used: {', '.join(map(repr, unused))}."] if unused else [])


def test_an_answer_that_is_only_read_is_no_question(tmp_path: Path) -> None:
    [row] = read(tmp_path, lines({"messages": MARKED, "checks": ["3.*", "2.*"]})).rows
    found = [*questions_in(messages_of(row[0]), row[1], checks_of(row[2]))]
    assert [(one.asked, one.check) for one in found] == [("정말?", "2.*")]


# --- rows that cannot be used -----------------------------------------------------------------------------------------

NESTED = "[" * 100_000
UNFIT = {
    "no messages": [[], "[]"],
    "messages that are not a list of objects": ["안녕", "{", NESTED, 5, None, [PAIR], ["가", "나"], True],
    "messages of tools": [
        [*PAIR, {"role": "tool", "content": "3"}],
        [ASKED, assistant(None, tool_calls=[{"id": "1"}]), *PAIR],
        [{"from": "human", "value": "가"}, {"from": "function_call", "value": "나"}],
    ],
    "roles other than system, user and assistant": [
        [{"content": "가"}, ANSWERED],
        [{"role": "User", "content": "가"}, ANSWERED],
        [{"role": "의사", "content": "가"}, ANSWERED],
        [{"role": 1, "content": "가"}, ANSWERED],
        [{"role": ["user"], "content": "가"}, ANSWERED],
    ],
    "content that is not text": [
        [user({"text": "가"}), ANSWERED],
        [user([{"type": "image_url", "image_url": "x"}]), ANSWERED],
        [user([["가"]]), ANSWERED],
        [user(float("inf")), ANSWERED],
        [ASKED, assistant("나", reasoning_content=["가"])],
    ],
    "half of a surrogate pair": [[user("가\ud800"), ANSWERED], [ASKED, assistant("나", reasoning_content="\udcff")]],
    "an empty message": [
        [user(""), ANSWERED],
        [user(" \n\u3000"), ANSWERED],
        [user(None), ANSWERED],
        [ASKED, {"role": "assistant"}],
        [ASKED, assistant("", reasoning_content="생각만")],
        [user([]), ANSWERED],
        [system(""), *PAIR],
    ],
    "a system message after the first message": [[*PAIR, system("가"), *PAIR], [system("가"), system("나"), *PAIR]],
    "the first message is not the user's": [[ANSWERED, *PAIR], [system("가"), ANSWERED], [system("가")]],
    "two messages of the same role in a row": [[ASKED, *PAIR], [*PAIR, ANSWERED], [*PAIR, *PAIR, ASKED, ASKED]],
    "the last message is not the assistant's": [[ASKED], LONGER[:4], [system("가"), ASKED]],
    "reasoning_content of a message that is not the assistant's": [[user("가", reasoning_content="나"), ANSWERED]],
    "longer than 1,000,000 characters": [[user("가" * LONGEST), ANSWERED], PAIR * 500_000, PAIR * 16_000],
}


@pytest.mark.parametrize("reason", UNFIT)
def test_what_cannot_be_used_is_left_out_and_counted(reason: str) -> None:
    rows = [{"messages": messages} for messages in UNFIT[reason]]
    table = from_conversations([PAIR, *rows, {"question": "1 + 1은?", "answer": "2예요."}], name="대화")
    assert said(table) == [PAIR] * 2
    left_out = table.notes[1]
    assert left_out == f"Left out: {len(rows)} of {len(rows) + 2} rows: {reason} ({len(rows)}, first in 대화, row 2)."


@pytest.mark.parametrize(
    "row",
    [
        {"messages": PAIR, "checks": ["a", "b"]},
        {"messages": PAIR, "checks": [1]},
        {"messages": PAIR, "checks": {"a": 1}},
        {"messages": LONGER, "checks": "a"},
        {"messages": LONGER, "checks": ["a"]},
    ],
)
def test_checks_that_do_not_fit_are_left_out(row: dict[str, Any]) -> None:
    with pytest.raises(TextError, match="checks that are not one pattern for each answer"):
        from_conversations([row])


def test_reasons_are_listed_by_their_number(tmp_path: Path) -> None:
    rows = [{"messages": one} for one in (PAIR, [ASKED], [ASKED, ASKED], [ASKED], PAIR, [user(""), ANSWERED])]
    table = read(tmp_path, lines(*rows, {"text": "가"}))
    path = tmp_path / "a.jsonl"
    assert table.notes[1] == (
        f"Left out: 5 of 7 rows: the last message is not the assistant's (2, first in {path}, line 2); "
        f"two messages of the same role in a row (1, first in {path}, line 3); "
        f"an empty message (1, first in {path}, line 6); no known format (1, first in {path}, line 7)."
    )
    assert table.describe().endswith("\n".join(table.notes))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", "[]", "no rows"),
        ("a.csv", "question,answer\n", "no rows"),
        ("a.csv", "question,answer,answer\n1,2,3\n", "occurs 2 times"),
        ("a.csv", "title,label\n가,나\n", "rows with 'title', 'label'; the columns may be messages; conv"),
        ("a.jsonl", '{"data": [{"messages": []}]}', "the rows may be in 'data'"),
        ("a.jsonl", lines({"messages": [ASKED]}), "no row can be used: the last message"),
        ("a.jsonl", '{"messages": [', "not JSON"),
        ("a.jsonl", '["가"]', "a JSON str"),
        ("a.txt", "가\n나\n", "is not a table, judging by its suffix"),
        ("a.csv", "question,answer\n가,나,다\n", "3 fields where the header has 2"),
    ],
)  # fmt: skip
def test_inputs_without_conversations_are_refused(name: str, content: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=words):
        read(tmp_path, content, name)
    for nothing in ([], [tmp_path / "none.jsonl"]):
        with pytest.raises(TextError):
            read_conversations(nothing)


def test_rows_in_memory_are_refused_where_none_is_left() -> None:
    for rows in ([], [{}], [5], ["가"], [[ASKED]]):
        with pytest.raises(TextError):
            from_conversations(rows)


@pytest.mark.parametrize(
    ("row", "preferences", "advice"),
    [
        ({"messages": PAIR}, True, "are conversations, which task=chat learns"),
        ({"question": "1 + 1은?", "answer": "2예요."}, True, "are conversations, which task=chat learns"),
        ({"question": "1은?", "chosen": "2.", "rejected": "3."}, False, "are preferences, which task=preference"),
        ({"conversations": [HUMAN], "chosen": GPT, "rejected": GPT}, False, "are preferences, which task=preference"),
    ],
)  # fmt: skip
def test_rows_of_another_task_are_told_which(
    row: dict[str, Any], preferences: bool, advice: str, tmp_path: Path
) -> None:
    """The rows were said to be in `messages`, of which a file was to be made."""
    path = tmp_path / "a.jsonl"
    path.write_text(lines(row))
    with pytest.raises(TextError, match=advice) as refused:
        (read_preferences if preferences else read_conversations)(path)
    assert "may be in" not in str(refused.value)


# --- preferences ------------------------------------------------------------------------------------------------------

WORSE = assistant("3이요.")
PREFERENCES = {
    "texts": ({"prompt": "1 + 1은?", "chosen": "2예요.", "rejected": "3이요."}, [ASKED]),
    "a question": ({"question": "1 + 1은?", "chosen": "2예요.", "rejected": "3이요."}, [ASKED]),
    "Alpaca": ({"instruction": "1 + 1은?", "input": "", "chosen": "2예요.", "rejected": "3이요."}, [ASKED]),
    "messages": ({"messages": [ASKED], "chosen": [ANSWERED], "rejected": [WORSE]}, [ASKED]),
    "ours": ({"messages": json.dumps([ASKED]), "chosen": ANSWERED, "rejected": WORSE}, [ASKED]),
    "a prompt of messages": ({"prompt": LONGER[:4], "chosen": [ANSWERED], "rejected": [WORSE]}, LONGER[:4]),
    "whole": ({"chosen": PAIR, "rejected": [ASKED, WORSE]}, [ASKED]),
    "whole, with a prompt": ({"prompt": "1 + 1은?", "chosen": PAIR, "rejected": [ASKED, WORSE]}, [ASKED]),
    "system": ({"system": "짧게 답해요.", "chosen": PAIR, "rejected": [ASKED, WORSE]}, [LONGER[0], ASKED]),
    "LLaMA-Factory": ({"conversations": [{"from": "human", "value": "1 + 1은?"}],
                       "chosen": {"from": "gpt", "value": "2예요."}, "rejected": {"from": "gpt", "value": "3이요."}},
                      [ASKED]),
    "LLaMA-Factory, turns": ({"instruction": "1 + 1은?", "input": "", "history": [["안녕", "네."]],
                              "system": "짧게 답해요.", "chosen": "2예요.", "rejected": "3이요."},
                             [LONGER[0], user("안녕"), assistant("네."), ASKED]),
    "OpenOrca": ({"system_prompt": "짧게 답해요.", "question": "1 + 1은?", "chosen": "2예요.", "rejected": "3이요."},
                 [LONGER[0], ASKED]),
    "HH": ({"chosen": "\n\nHuman: 안녕\n\nAssistant: 네.\n\nHuman: 1 + 1은?\n\nAssistant: 2예요.",
            "rejected": "\n\nHuman: 안녕\n\nAssistant: 네.\n\nHuman: 1 + 1은?\n\nAssistant: 3이요."},
           [user("안녕"), assistant("네."), ASKED]),
    "system twice": ({"system": "x", "chosen": [LONGER[0], *PAIR], "rejected": [LONGER[0], ASKED, WORSE]},
                     [LONGER[0], ASKED]),
}  # fmt: skip


@pytest.mark.parametrize("name", PREFERENCES)
def test_preferences_in_every_format(name: str, tmp_path: Path) -> None:
    row, prompt = PREFERENCES[name]
    path = tmp_path / "a.jsonl"
    path.write_text(lines(row))
    table = read_preferences(path)
    assert table.columns == PREFERENCE_COLUMNS
    assert [messages_of(cell) for cell in table.rows[0]] == [prompt, [ANSWERED], [WORSE]]
    assert material_of(path, PREFERENCE_COLUMNS).rows == table.rows
    path.write_text(lines(dict(zip(table.columns, table.rows[0], strict=True))))
    assert read_preferences(path).rows == table.rows


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "가", "chosen": "나", "rejected": "나"}, "are the same"),
        ({"prompt": "가", "chosen": "나", "rejected": ""}, "an empty message"),
        ({"prompt": "", "chosen": "나", "rejected": "다"}, "no prompt"),
        ({"prompt": None, "chosen": "나", "rejected": "다"}, "no prompt"),
        ({"chosen": "나", "rejected": "다"}, "no prompt"),
        ({"chosen": PAIR, "rejected": [user("다른"), WORSE]}, "last message alone"),
        ({"chosen": PAIR, "rejected": "다"}, "last message alone"),
        ({"prompt": [*PAIR], "chosen": "나", "rejected": "다"}, "two messages of the same role"),
        ({"prompt": PAIR, "chosen": [ASKED], "rejected": [user("다른")]}, "does not end with a message of the user"),
        ({"prompt": [system("가")], "chosen": "나", "rejected": "다"}, "first message is not the user's"),
        ({"prompt": "가", "chosen": [], "rejected": "다"}, "no messages"),
        ({"prompt": "가", "chosen": "나\ud800", "rejected": "다"}, "surrogate"),
        ({"prompt": "가", "answer": "나"}, "no conversations are recognized.* may be prompt, chosen, rejected"),
    ],
)
def test_preferences_that_are_none_are_refused(row: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(TextError, match=reason):
        read_preferences(path)
