"""Exams with other numbers for each student: questions to compute by hand, and a key.

`questions.py` draws the questions; `sheets.py` composes the sheets and writes the files.
"""
