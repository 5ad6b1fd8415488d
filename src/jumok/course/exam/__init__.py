"""Exams with other numbers for each student: questions to compute by hand, and a key.

`drawn.py` defines a drawn question; `attention_kinds.py`, `model_kinds.py` and `writing_kinds.py` draw them;
`kinds.py` lists all kinds with their chapters; `sheets.py` composes the sheets and writes the files.
"""
