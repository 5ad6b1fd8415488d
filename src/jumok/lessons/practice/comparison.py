"""Train the production GPT with a part of the reader's in it, and then without, on the same text for the same steps."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from jumok.config import GPTConfig, TrainConfig
from jumok.errors import LessonError
from jumok.lessons.practice.own_parts import Part, production_with
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode
from jumok.runs.events import Eval, Event, Finish
from jumok.text import Text
from jumok.tokenizers import Tokenizer
from jumok.training.trainer import Trainer

CONTEXT = 128
EVALUATIONS = 20  # points of a curve
SAMPLE = 120  # tokens
TOO_GOOD = 0.2  # nats per character below the production model
WORSE = 0.2  # nats per character above it
LEAST = 10 * CONTEXT  # characters: the held-out tenth is one context


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One of the two models, trained. curve: steps, and nats per character of the held-out text.

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
    """Two runs in temporary folders: the model with the reader's part for a time, then jumok's for as many steps.

    Args:
        part: from `read_part`. text: its last tenth is held out. minutes: of the first run.

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
    ) -> None:
        if text.chars < LEAST:
            raise LessonError(
                "the text has {count:,} characters; this model needs at least {least:,}.", count=text.chars, least=LEAST
            )
        self.part, self.text, self.minutes, self.steps = part, text, minutes, steps
        self.seed, self.device, self.prompt = seed, device, prompt
        self.yours: Trained | None = None
        self.jumok: Trained | None = None
        self._trainer: Trainer | None = None
        self._stop = False

    def run(self) -> Iterator[tuple[str, Event]]:
        """Train both; yields ("yours" or "jumok", event).

        Raises:
            LessonError: the reader's code raised an error.
        """
        self.yours = yield from self._train("yours", self.minutes, self.steps)
        if self.yours is not None and not self._stop:
            self.jumok = yield from self._train("jumok", None, self.yours.steps)

    def request_stop(self) -> None:
        """End after the step that is under way. Safe in a signal handler."""
        self._stop = True
        if self._trainer is not None:
            self._trainer.request_stop()

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
        self, which: str, minutes: float | None, steps: int | None
    ) -> Generator[tuple[str, Event], None, Trained | None]:
        with ExitStack() as held:
            folder = Path(held.enter_context(TemporaryDirectory(prefix="jumok-use-"))) / "run"
            held.enter_context(production_with(self.part) if which == "yours" else nullcontext())
            trainer = self._start(folder, minutes, steps)
            held.enter_context(trainer)
            self._trainer = trainer
            if self._stop:  # asked before there was a trainer
                return None
            curve: tuple[list[int], list[float]] = ([], [])
            for event in trainer.run():
                if isinstance(event, Eval):
                    curve[0].append(event.step)
                    curve[1].append(event.figures["nats_per_char"])
                yield which, event
            if self._stop or not isinstance(event, Finish) or "nats_per_char" not in event.figures:
                return None
            model = trainer.model
            assert isinstance(model, GPT)
            assert model.tokenizer is not None
            return Trained(
                parameters=model.parameter_count(),
                steps=event.step,
                seconds=trainer.seconds,
                nats_per_char=event.figures["nats_per_char"],
                bigram=event.figures.get("baseline_nats_per_char"),
                curve=curve,
                sample=write(model, model.tokenizer, self.prompt, SAMPLE, self.seed),
                sees_future=sees_future(model),
            )

    def _start(self, folder: Path, minutes: float | None, steps: int | None) -> Trainer:
        every = 0 if steps is None else max(1, steps // EVALUATIONS)
        training = TrainConfig(
            steps=steps, minutes=minutes, seed=self.seed, batch_size=16, learning_rate=1e-3, optimizer="adamw",
            compile="off", precision="float32", sample_tokens=0, patience=0, eval_tokens=4096, eval_every=every,
        )  # fmt: skip
        model = GPTConfig(family="classic", dropout=0.0, n_layer=4, n_head=4, n_embd=128, context_length=CONTEXT)
        return Trainer.start(folder, self.text, model, training, tokenizer="char", device=self.device)


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
    """Whether the logits of a position depend on later tokens."""
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
