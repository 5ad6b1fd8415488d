"""What every picture shares: a canvas without a window, fonts with Hangul, colours, and a file written atomically.

The colours can be told apart with any kind of colour vision: for lines the palette of Okabe and Ito
(https://jfly.uni-koeln.de/color/), with another marker for each line and dashes from the eighth line on.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.errors import ConfigError
from jumok.files import atomic_path, on_disk
from jumok.messages import speaking

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Families with Hangul and the files they come in, the most even-looking first.
HANGUL_FONTS = {
    "NanumGothic": ("NanumGothic.ttf", "NanumGothicBold.ttf"),
    "Noto Sans CJK KR": ("NotoSansCJKkr-Regular.otf", "NotoSansCJK-Regular.ttc"),
    "Noto Sans KR": ("NotoSansKR-Regular.ttf", "NotoSansKR-Regular.otf", "NotoSansKR[wght].ttf"),
    "Pretendard": ("Pretendard-Regular.ttf", "Pretendard-Regular.otf"),
    "NanumBarunGothic": ("NanumBarunGothic.ttf",),
    "Malgun Gothic": ("malgun.ttf", "malgunbd.ttf"),
    "Apple SD Gothic Neo": ("AppleSDGothicNeo.ttc",),
    "AppleGothic": ("AppleGothic.ttf",),
    "UnDotum": ("UnDotum.ttf",),
    "Baekmuk Dotum": ("dotum.ttf",),
}
FORMATS: dict[
    str, dict[str, str | None]
] = {  # of a picture, by suffix, and what stands in its file: no time, and who made it
    ".png": {"Software": "jumok"},
    ".svg": {"Creator": "jumok", "Date": None},
    ".pdf": {"Creator": "jumok", "CreationDate": None},
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # and that of the ink
MARKERS = "os^Dv*PX<>"
INK, MASKED = "#222222", "#dadada"  # of letters; of cells of attention that a mask hides
FALLBACK = "DejaVu Sans"  # comes with matplotlib, and has the signs of mathematics

_MISSING = re.compile(r"Glyph (\d+) .*missing from")


@contextmanager
def canvas(path: Path | str, width: float, height: float, *, dpi: float, tight: bool = False) -> Iterator[Figure]:
    """Yield an empty figure to draw on; it is written to `path` when the block ends well.

    Args:
        path: where the picture goes, as PNG, SVG or PDF by its suffix; an older one there is replaced.
        width, height: in inches. dpi: pixels per inch. tight: cut off what is empty around the drawing.

    Letters of an SVG or a PDF are drawn or brought along, so that they show where no such font is installed. The same
    drawing gives the same bytes, on one machine. Raises `ConfigError` for another suffix, and if the folder of `path`
    is not there. Warns, with the remedy, if no installed font has a character of the drawing: it shows as an empty box.
    Words are in the language of the user, but in English without a font with Hangul.
    """
    from matplotlib import rc_context, rcdefaults, rcParams  # slow to import, and not needed to use a model
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = require_drawable(path)
    metadata = FORMATS[path.suffix.lower()]
    with rc_context(), nullcontext() if hangul_font() else speaking("en", terminal=False):
        rcdefaults()  # whatever the settings of this person are, the picture is the same
        rcParams.update({"font.family": _families(), "axes.unicode_minus": False, "svg.hashsalt": "jumok"})
        figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        settings: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.1} if tight else {}
        with atomic_path(path) as temporary, _missing_glyphs_named():
            figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=dpi, metadata=metadata, **settings)


def require_drawable(path: Path | str) -> Path:
    """Return the path, which a picture may be written to.

    Raises:
        ConfigError: the suffix is not one of FORMATS, or its folder is not there.
    """
    path = on_disk(path)
    if path.suffix.lower() not in FORMATS:
        raise ConfigError("cannot draw {path}: a picture ends in {suffixes}.", path=path, suffixes=", ".join(FORMATS))
    if not path.parent.is_dir():
        raise ConfigError(
            "cannot write {path}: there is no folder {parent}. Make it first.", path=path, parent=path.parent
        )
    return path


def line_look(index: int, ink: str = INK) -> dict[str, Any]:
    """Colour, marker and dashes of the line with this number from 0; no two of the first 70 are the same.

    ink: the colour of letters, which is also that of every seventh line.
    """
    colours = (*COLOURS, ink)
    return {
        "color": colours[index % len(colours)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": ("-", (0, (4, 1.5)), (0, (1, 1)))[index // len(colours) % 3],
    }


def hangul_font() -> str | None:
    """Return the family that draws Hangul in pictures: the first of HANGUL_FONTS that is installed, or None."""
    from matplotlib import font_manager

    known = {font.name for font in font_manager.fontManager.ttflist}
    return next((family for family in HANGUL_FONTS if family in known), None) or _newly_installed()


def _families() -> list[str]:
    """Return the first installed family with Hangul, then the fallback."""
    found = hangul_font()
    return [found, FALLBACK] if found else [FALLBACK]


def _newly_installed() -> str | None:
    """Return a family that was installed after matplotlib made its list of fonts, which it never makes again."""
    from matplotlib import font_manager

    files = {Path(file).name: file for file in font_manager.findSystemFonts()}
    for names in HANGUL_FONTS.values():
        there = [files[name] for name in names if name in files]
        for file in there:
            font_manager.fontManager.addfont(file)
        if there:
            return font_manager.FontProperties(fname=there[0]).get_name()
    return None


@contextmanager
def _missing_glyphs_named() -> Iterator[None]:
    """One warning with the remedy in place of one for each character that no font has."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=_MISSING.pattern)
        yield
    missing = {chr(int(match[1])) for warning in caught if (match := _MISSING.search(str(warning.message)))}
    for warning in caught:
        if not _MISSING.search(str(warning.message)):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if missing:
        warnings.warn(
            f"no installed font can draw {''.join(sorted(missing)[:20])!r}; the picture shows boxes there. Install a "
            "font with Hangul: fonts-nanum (Debian, Ubuntu), google-noto-sans-cjk-fonts (Fedora) or "
            "'Noto Sans KR' (anywhere).",
            stacklevel=2,
        )
