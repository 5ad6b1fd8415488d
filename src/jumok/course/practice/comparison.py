"""Train the production GPT with a part of the reader's in it, and then without, on the same text for the same steps.

Minutes are for both together, with all that goes before and after. The reader's model has half of them. The other one
makes as many steps in what is left, or fewer if it is slower. Both are validated after the same steps, and the last
step that both have reached decides.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from jumok import GPT, Trainer
from jumok.config import GPTConfig, ModelConfig, TrainConfig
from jumok.course.practice.readers_parts import Part, build_with
from jumok.errors import JumokError, LessonError
from jumok.models import Model, build
from jumok.models.modes import eval_mode
from jumok.runs.events import Event, Finish, Step
from jumok.text import Text
from jumok.tokenizers import Tokenizer

CONTEXT = 128
LAYERS, WIDTH = 4, 128
QKV_BIASES = LAYERS * 3 * WIDTH  # of queries, keys and values; the exercises ask for heads without them
EVALUATIONS = 20  # points of a curve, and one after the first step
EVAL_TOKENS = 4096  # that each of them reads
NEVER = 1_000_000_000  # steps between the validations of the trainer
SAMPLE = 120  # tokens
TOO_GOOD = 0.2  # nats per character below the production model
WORSE = 0.2  # nats per character above it
LEAST = 10 * CONTEXT  # characters: the held-out tenth is one context


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One of the two models, trained.

    nats_per_char: of the held-out text, after the last step that both models have reached. curve: steps, and nats per
    character after each. parameters: that are trained.
    bigram: nats per character of a table of pairs on the same text; None where it cannot be counted.
    """

    parameters: int
    steps: int
    seconds: float
    nats_per_char: float
    bigram: float | None
    curve: tuple[list[int], list[float]]
    sample: str
    sees_future: bool


class Comparison:
    """Two runs in temporary folders: the model with the reader's part, then jumok's for as many steps.

    Args:
        part: from `read_part`. text: its last tenth is held out. minutes: of both runs together. steps: of each run,
            instead. began: `time.monotonic()` at which the minutes begin; None: with `run`.

    Attributes:
        yours, jumok: the results, after `run`; None if the run was interrupted before.

    Raises:
        LessonError: the text is too short.
    """

    def __init__(
        self,
        part: Part,
        text: Text,
        *,
        minutes: float | None = 1.0,
        steps: int | None = None,
        seed: int = 0,
        device: str = "auto",
        prompt: str = "\n",
        began: float | None = None,
    ) -> None:
        if text.chars < LEAST:
            raise LessonError(
                "the text has {count:,} characters; this model needs at least {least:,}.", count=text.chars, least=LEAST
            )
        self.part, self.text, self.minutes, self.steps = part, text, minutes, steps
        self.seed, self.device, self.prompt, self.began = seed, device, prompt, began
        self.yours: Trained | None = None
        self.jumok: Trained | None = None
        self._trainer: Trainer | None = None
        self._stop = False
        self._ending = 0.0  # seconds of the first run after its last step
        self._end = math.inf  # `time.monotonic()` at which the second run takes no further step

    def run(self) -> Iterator[tuple[str, Event]]:
        """Train both; yields ("yours" or "jumok", event).

        Raises:
            LessonError: the reader's code raised an error.
        """
        began = time.monotonic() if self.began is None else self.began
        half = None
        if self.minutes is not None:
            left = began + 60 * self.minutes - time.monotonic()
            half = max(0.5 * left, 1.0) / 60
        yours = yield from self._train("yours", half, self.steps)
        if yours is None or self._stop:
            self.yours = yours
            return
        if self.minutes is not None:
            self._end = began + 60 * self.minutes - self._ending
        jumok = yield from self._train("jumok", None, yours.steps, at=frozenset(yours.curve[0]))
        if jumok is not None:
            yours = dataclasses.replace(yours, nats_per_char=dict(zip(*yours.curve, strict=True))[jumok.curve[0][-1]])
        self.yours, self.jumok = yours, jumok

    def request_stop(self) -> None:
        """End after the step that is under way. Safe in a signal handler."""
        self._stop = True
        if self._trainer is not None:
            self._trainer.request_stop()

    @property
    def compared_step(self) -> int:
        """The last step that both models have reached and were validated after; 0 before both are trained."""
        return 0 if self.jumok is None else self.jumok.curve[0][-1]

    @property
    def too_good(self) -> bool:
        """Whether the reader's model is clearly better than jumok's: it may see what it should predict."""
        return self.gap < -TOO_GOOD

    @property
    def worse(self) -> bool:
        """Whether the reader's model learned clearly less in as many steps."""
        return self.gap > WORSE

    @property
    def gap(self) -> float:
        """Nats per character of the reader's model above those of jumok's; 0 before both are trained."""
        if self.yours is None or self.jumok is None:
            return 0.0
        return self.yours.nats_per_char - self.jumok.nats_per_char

    def _train(
        self, which: str, minutes: float | None, steps: int | None, at: Collection[int] | None = None
    ) -> Generator[tuple[str, Event], None, Trained | None]:
        """Train one of the two. at: the steps to validate after; None: evenly spread ones, the first and the last."""
        with ExitStack() as held:
            folder = Path(held.enter_context(TemporaryDirectory(prefix="jumok-use-"))) / "run"
            make_model = partial(build_with, self.part) if which == "yours" else build
            trainer = self._start(folder, minutes, steps, make_model)
            held.enter_context(trainer)
            self._trainer = trainer
            if self._stop:  # asked before there was a trainer
                return None
            curve: tuple[list[int], list[float]] = ([], [])
            before = last_step_at = 0.0
            for event in trainer.run():
                if isinstance(event, Step):
                    point = int(event.progress * EVALUATIONS) > int(before * EVALUATIONS) or event.step == 1
                    before, last_step_at = event.progress, time.monotonic()
                    if point if at is None else event.step in at:
                        _add_point(curve, event.step, trainer)
                    if at is not None and time.monotonic() > self._end:
                        trainer.request_stop()
                yield which, event
            if self._stop or not curve[0]:
                return None
            assert isinstance(event, Finish)
            model = trainer.model
            assert isinstance(model, GPT)
            assert model.tokenizer is not None
            trained = Trained(
                parameters=sum(each.numel() for each in model.parameters() if each.requires_grad),
                steps=event.step,
                seconds=trainer.seconds,
                nats_per_char=curve[1][-1],
                bigram=next((baseline.value for baseline in trainer.task.baselines), None),
                curve=curve,
                sample=write(model, model.tokenizer, self.prompt, SAMPLE, self.seed),
                sees_future=sees_future(model),
            )
            self._ending = time.monotonic() - last_step_at
            return trained

    def _start(
        self, folder: Path, minutes: float | None, steps: int | None, make_model: Callable[[ModelConfig], Model]
    ) -> Trainer:
        training = TrainConfig(
            steps=steps, minutes=minutes, seed=self.seed, batch_size=16, learning_rate=1e-3, optimizer="adamw",
            compile="off", precision="float32", sample_tokens=0, eval_tokens=EVAL_TOKENS, eval_every=NEVER, keep="last",
        )  # fmt: skip
        model = GPTConfig(family="classic", dropout=0.0, n_layer=LAYERS, n_head=4, n_embd=WIDTH, context_length=CONTEXT)
        return Trainer.start(
            folder, self.text, model, training, tokenizer="char", device=self.device, make_model=make_model
        )


def _add_point(curve: tuple[list[int], list[float]], step: int, trainer: Trainer) -> None:
    """Add the figure of the model as it is to a curve, unless its losses are not finite."""
    with eval_mode(trainer.model), suppress(JumokError):
        curve[1].append(trainer.task.validate(trainer.model, EVAL_TOKENS)["nats_per_char"])
        curve[0].append(step)


@torch.no_grad()
def write(model: nn.Module, tokenizer: Tokenizer, prompt: str, count: int, seed: int) -> str:
    """Sample at temperature 0.8, without a cache, which the reader's modules do not have."""
    generator = torch.Generator().manual_seed(seed)
    ids = tokenizer.encode(prompt).tolist()
    device = next(model.parameters()).device
    with eval_mode(model):
        for _ in range(count):
            window = torch.tensor([ids[-CONTEXT:]], device=device)  # (1, T)
            logits = model(window)[0, -1].float().cpu()  # (V,)
            ids.append(int(torch.multinomial((logits / 0.8).softmax(-1), 1, generator=generator)))
    return tokenizer.decode(ids)


@torch.no_grad()
def sees_future(model: GPT) -> bool:
    """Return whether the logits of a position depend on later tokens."""
    length = CONTEXT // 2
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (1, length), generator=generator)  # (1, T)
    other = ids.clone()
    other[0, length // 2 :] = (other[0, length // 2 :] + 1) % model.config.vocab_size
    device = model.head.weight.device
    logits = []
    with eval_mode(model), torch.random.fork_rng():
        for each in (ids, other):
            torch.manual_seed(0)  # the reader's dropout may not know of eval mode
            logits.append(model(each.to(device))[0, : length // 2])  # (T / 2, V)
    a, b = logits
    return not torch.allclose(a, b, rtol=1e-3, atol=1e-4)
