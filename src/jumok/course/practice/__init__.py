"""Exercises: files with a hole to fill in, checks that say why, hints, and the reader's progress.

`catalogue.py` lists the exercises. `exercises/SLUG.py` holds the task and the solution, with the hole marked. `hints/`
holds three hints for each, `checks/` the checks. `sandbox.py` runs a reader's file in a process of its own, and
`folder.py` keeps the reader's files and progress. An exercise may build on earlier ones with `mine`.
"""

from jumok.course.practice.earlier import mine

__all__ = ["mine"]
