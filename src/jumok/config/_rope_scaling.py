"""How rotary frequencies change for contexts longer than those of pretraining."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Literal

from jumok.config._fields import setting, validate
from jumok.config._model import LARGEST_SIZE
from jumok.errors import ConfigError

RopeKind = Literal["linear", "dynamic", "yarn", "longrope", "llama3"]

LARGEST_FACTOR = 1e6
LEAST = 1e-6  # of positive numbers
NEEDED = {  # by kind
    "yarn": ("original_context",),
    "longrope": ("original_context", "short_factor", "long_factor"),
    "llama3": ("original_context", "low_freq_factor", "high_freq_factor"),
}


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are changed for contexts longer than those of pretraining.

    The kinds are those of `transformers`. "dynamic" (NTK) changes nothing up to the context length of the model, so
    here it never does. "yarn": https://arxiv.org/abs/2309.00071. "longrope": https://arxiv.org/abs/2402.13753; as in
    `transformers`, a text that grows beyond original_context keeps the keys that are in the cache. "llama3":
    https://arxiv.org/abs/2407.21783.

    llama3 multiplies wavelengths above original_context / low_freq_factor by `factor`, and keeps those below
    original_context / high_freq_factor. attention_factor is the factor of cosines and sines; None: 0.1 ln(factor) + 1
    for yarn, and sqrt(1 + ln(factor) / ln(original_context)) for longrope. longrope divides each frequency by
    short_factor in texts up to original_context, and by long_factor in longer ones.

    Raises:
        ConfigError: a value is missing or out of range.
    """

    kind: RopeKind
    factor: float = setting(MISSING, "ratio of the context lengths", 1, LARGEST_FACTOR)
    original_context: int | None = setting(None, "context length of pretraining", 2, LARGEST_SIZE)
    low_freq_factor: float | None = setting(None, "see above (llama3)", LEAST, LARGEST_SIZE)
    high_freq_factor: float | None = setting(None, "see above (llama3)", LEAST, LARGEST_SIZE)
    beta_fast: float = setting(32.0, "rotations from which on frequencies are kept (yarn)", LEAST, LARGEST_SIZE)
    beta_slow: float = setting(1.0, "rotations up to which frequencies are divided (yarn)", LEAST, LARGEST_SIZE)
    attention_factor: float | None = setting(None, "see above (yarn, longrope)", LEAST, LARGEST_SIZE)
    truncate: bool = setting(True, "whether the limits of the mixture are rounded to whole dimensions (yarn)")
    short_factor: tuple[float, ...] | None = setting(None, "see above (longrope)", LEAST, LARGEST_FACTOR)
    long_factor: tuple[float, ...] | None = setting(None, "see above (longrope)", LEAST, LARGEST_FACTOR)

    def __post_init__(self) -> None:
        validate(self, "rope_scaling.")
        for name in NEEDED.get(self.kind, ()):
            if getattr(self, name) is None:
                raise ConfigError("rope_scaling of kind {kind} has no {name}.", kind=self.kind, name=name)
        low_freq, high_freq = self.low_freq_factor, self.high_freq_factor
        if low_freq is not None and high_freq is not None and low_freq >= high_freq:
            raise ConfigError(
                "rope_scaling has low_freq_factor={low} and high_freq_factor={high}; the first must be less.",
                low=low_freq,
                high=high_freq,
            )
