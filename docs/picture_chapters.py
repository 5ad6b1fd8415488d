"""Draws the pictures of the chapters again: python docs/picture_chapters.py [NUMBER]...

Runs the code of the chapters, of all without a number, in both languages. The pictures go to docs/learn/pictures. The
exit code is 1 if a block prints something other than its page shows.
"""

import sys
from pathlib import Path

from jumok.course.pages.chapter import chapters, check
from jumok.course.words import LANGUAGES

PICTURES = Path(__file__).resolve().parent / "learn" / "pictures"

failures = 0
for language in LANGUAGES:
    for chapter in chapters(language):
        if not sys.argv[1:] or str(chapter.number) in sys.argv[1:]:
            for failure in check(chapter, PICTURES / language):
                print(failure)
                failures += 1
sys.exit(1 if failures else 0)
