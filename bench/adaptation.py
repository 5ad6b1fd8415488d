"""Rules and rates of `jumok evaluate --adapt`: python bench/adaptation.py RUN TEXT RULE...

    python bench/adaptation.py runs/novel unseen.txt lars:0.003 lars:0.003:128 sgd:0.06 sgd:0.1:128 adam:1e-4

A RULE is NAME:RATE or NAME:RATE:STRIDE; the stride, in tokens, is a quarter of the context if it is left out.

    sgd       gradient descent
    momentum  the same with a momentum of 0.9
    unit      gradient descent along the gradient divided by its norm over all parameters
    lars      each tensor moves by RATE times its own norm (https://arxiv.org/abs/1708.03888), as jumok does it
    adam      Adam (https://arxiv.org/abs/1412.6980) with the defaults of torch
    muon      torch.optim.Muon at RATE for the matrices of the blocks, Adam at RATE / 10 for the rest

The first line is the static figure. Each line has nats per character, and the CPU seconds of this process, which has
one thread, per 1,000 characters. There are no seeds: nothing is drawn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Muon, Optimizer

import jumok
from jumok.data.ids import IdSequence
from jumok.errors import JumokError
from jumok.evaluation.dynamic import RelativeDescent, Rule, dynamic_score
from jumok.evaluation.language_model import Score, evaluation_of, score
from jumok.models.gpt import GPT
from jumok.text import read
from speed import describe


class UnitDescent(Optimizer):
    """Gradient descent by steps of a known length over all parameters together."""

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move each parameter that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            norm = torch.stack([p.grad.norm() for p in moved]).norm().clamp(min=1e-30)
            for parameter in moved:
                parameter.sub_(parameter.grad * (group["lr"] / norm))


class MuonAndAdam(Optimizer):
    """Muon for matrices, Adam for the rest, which includes the embedding."""

    def __init__(self, params: Iterable[Tensor], lr: float, vocab_size: int) -> None:
        every = list(params)
        super().__init__(every, {"lr": lr})
        inner = [p for p in every if p.dim() == 2 and p.shape[0] != vocab_size]
        rest = [p for p in every if all(p is not other for other in inner)]
        self._rules = (Muon(inner, lr=lr, weight_decay=0.0), Adam(rest, lr=lr / 10))

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take a step of both."""
        assert closure is None
        for rule in self._rules:
            rule.step()


def rule_of(name: str, rate: float, model: GPT) -> Rule:
    """What makes the optimizer of a rule."""
    rules: dict[str, Rule] = {
        "sgd": lambda params: SGD(params, lr=rate),
        "momentum": lambda params: SGD(params, lr=rate, momentum=0.9),
        "unit": lambda params: UnitDescent(params, rate),
        "lars": lambda params: RelativeDescent(params, rate=rate),
        "adam": lambda params: Adam(params, lr=rate),
        "muon": lambda params: MuonAndAdam(params, rate, model.config.vocab_size),
    }
    return rules[name]


def dynamic(model: GPT, rule: Rule, stride: int | None, ids: IdSequence, before: Sequence[int]) -> Score:
    """The score of ids that are learned from."""
    return dynamic_score(model, ids, before=before, rule=rule, stride=stride)


def measure(name: str, model: GPT, text: str, scored: Callable[[IdSequence, int], Score]) -> None:
    """Print a line: the figure and the time."""
    began = time.process_time()
    found = evaluation_of(model, text, scored)
    seconds = 1000 * (time.process_time() - began) / found.chars
    print(f"{name:20} {found.nats_per_char:.4f} nats/char, {seconds:.3f} s per 1,000 characters", flush=True)


def main() -> None:
    """Measure each rule in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("rules", nargs="+", metavar="RULE")
    parser.add_argument("--chars", type=int, help="of the text, from its beginning [all]")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = jumok.load(given.run, kind=GPT)
    with read(given.text) as found:
        text = "".join(found.chunks())[: given.chars]
    print(describe(torch.device("cpu")))
    print(f"{model.parameter_count():,} parameters, context {model.config.context_length}, {len(text):,} characters")
    measure("static", model, text, lambda ids, before: score(model, ids, before=before))
    for rule in given.rules:
        name, rate, *stride = rule.split(":")
        optimizer = rule_of(name, float(rate), model)
        steps = int(stride[0]) if stride else None
        try:
            measure(rule, model, text, partial(dynamic, model, optimizer, steps))
        except JumokError as error:
            print(f"{rule:20} {error}")


if __name__ == "__main__":
    main()
