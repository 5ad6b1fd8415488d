"""Write the definitions of the chapters' modules into their pages: `python docs/sources.py`.

`jumok.course.pages.sources` describes the fences. A test fails where a page differs from the module.
"""

from pathlib import Path

from jumok.course.pages.sources import with_sources

for page in sorted((Path(__file__).parent / "learn").glob("*/*.md")):
    before = page.read_text(encoding="utf-8")
    after = with_sources(before)
    if after != before:
        page.write_text(after, encoding="utf-8")
        print(f"docs/learn/{page.parent.name}/{page.name}")
