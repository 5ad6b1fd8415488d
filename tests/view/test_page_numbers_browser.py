"""The numbers that a page prints are those of PyTorch, to the last digit that is printed.

What a page paints of One step is read as it is painted, with the names beside it: no number may be left that nothing is
known of. The words, the sums that are checked, the descriptions and what is said of each place are read too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from jumok.inference.answer import answer
from jumok.inference.classify import predict
from jumok.inference.fill_mask import fill_mask
from jumok.interpret.ablation import ablate
from jumok.interpret.record import record
from jumok.models import Model
from jumok.view.model_page import ModelPage, rounded
from model_pages import TEXT, Visits, bert, classifier, gpt, pairs, until, written
from printed_numbers import mistake_of

pytestmark = [pytest.mark.browser, pytest.mark.long]

STEP = "made.get('step').view"
LAYER, HEAD, LISTED = 1, 1, 12
NUMBER = re.compile(r"(?<![\w.])[+−-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+−-]?\d+)?%?|[+−]?∞")
SEED = 5

# Marks each text that is painted with the part of the picture that it belongs to.
TRANSCRIBE = """() => {
  const scene = Object.getPrototypeOf(made.get('step').view.stage.scene);
  const open = [];
  window.transcript = [];
  for (const name of ['strip', 'heading', 'cells', 'rows', 'axis', 'formula', 'caption', 'shapes', 'legend']) {
    const whole = scene[name];
    scene[name] = function (...given) {
      const subject = typeof given[0] === 'string' ? given[0] : '';
      open.push({ name, subject, texts: [] });
      try { return whole.apply(this, given); } finally {
        const { texts } = open.pop();
        const inside = open.some((one) => one.name === 'strip') ? 'strip ' : '';
        if (texts.length) window.transcript.push([inside + name, subject, texts]);
      }
    };
  }
  const paint = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
    const group = open.at(-1);
    if (group) group.texts.push(text); else window.transcript.push(['text', '', [text]]);
    return paint.call(this, text, ...at);
  };
}"""
READ = """(part) => {
  const view = made.get('step').view;
  window.transcript.length = 0;
  view.paint();
  return {
    painted: [...window.transcript],
    places: view.stage.scene.lists.map(({ name, places }) => [name, places.map(({ lines }) => lines)]),
    sentences: document.querySelector('.step-sentences').textContent,
    ruler: view.data.next.ruler.map(({ id }) => id),
    summary: document.querySelector('.step-stage').getAttribute('aria-label'),
    checks: [...document.querySelectorAll('.step-checks li')].map((one) =>
      [one.dataset.check, one.children[1].textContent]),
  };
}"""


def unsteady(**settings: Any) -> Model:
    """A model whose norms and biases count: they begin at one and zero, which would hide them."""
    model = gpt(**settings)
    torch.manual_seed(8)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data = parameter.data + 0.4 * torch.randn_like(parameter)
    return model


WRITERS: dict[str, dict[str, Any]] = {
    "modern": {},
    "modern untied": {"tie_embeddings": False},
    "classic": {"family": "classic"},
    "classic narrow": {"family": "classic", "activation": "relu", "head_dim": 6},
}


def printed(text: str) -> tuple[float, float]:
    """A number as it is printed, and what one of its last digit is worth."""
    share = 0.01 if text.endswith("%") else 1.0
    plain = text.replace("−", "-").replace(",", "").rstrip("%")
    if "∞" in plain:
        return (-math.inf if plain.startswith("-") else math.inf), 0.0
    mantissa, _, power = plain.partition("e")
    unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return float(plain) * share, unit * share


def require_printed(texts: list[str] | str, expected: Any, what: object) -> None:
    """Each number of the texts is one of `expected`, in their order, within its last digit."""
    found = NUMBER.findall(texts) if isinstance(texts, str) else [one for text in texts for one in NUMBER.findall(text)]
    values = [float(value) for value in expected]
    assert len(found) == len(values), (what, found, values)
    for text, value in zip(found, values, strict=True):
        number, unit = printed(text)
        if text == "0.01%" and value < 1e-4:
            continue  # less than it
        assert number == value or abs(number - value) <= unit + 1e-6, (what, text, value)


class Truth:
    """Everything that PyTorch computes for the last of some tokens, by the names that the page prints."""

    def __init__(self, model: Model, whole: list[int], length: int, off: Any, sampling: dict[str, float]) -> None:
        ids = whole[-length:]  # the window
        self.sampling = sampling
        penalty = sampling.get("repetition_penalty", 1)
        self.penalty = [[penalty]] if penalty != 1 else []
        self.config = cast(Any, model.config)
        self.modern = self.config.family == "modern"
        self.ids = ids
        seen: dict[str, tuple[Tensor, Tensor]] = {}
        hooks = [
            module.register_forward_hook(lambda _, given, out, name=name: seen.__setitem__(name, (given[0], out)))
            for name, module in model.named_modules()
            if name and not list(module.children())
        ]
        with torch.inference_mode(), ablate(model, off) if off else nullcontext(), record(model) as recording:
            self.logits = model(torch.tensor([ids]))[0, -1].double()
        for hook in hooks:
            hook.remove()

        def out(name: str) -> Tensor:
            return seen[name][1][0, -1].double()

        def given(name: str) -> Tensor:
            return seen[name][0][0, -1].double()

        self.norms = []
        for i in range(self.config.n_layer):
            at = f"blocks.{i}."
            before, middle = given(at + "attention_norm"), given(at + "mlp_norm")
            after = given(f"blocks.{i + 1}.attention_norm") if i + 1 < self.config.n_layer else given("norm")
            self.norms.append([float(one.norm()) for one in (middle - before, after - middle, after)])
        at, attention = f"blocks.{LAYER}.", recording.attention("self", LAYER)
        heads, groups, width = self.config.n_head, attention.n_kv_head, self.config.head_dim
        self.heads, self.groups, self.width = heads, groups, width
        self.group = HEAD * groups // heads
        self.off = (LAYER, HEAD) in off
        self.named = [f"Head {i}{' · off' if (LAYER, i) in off else ''}" for i in range(heads)]

        def by_head(name: str, count: int) -> Tensor:
            return out(at + name).reshape(count, width)

        self.q_all, self.k_all = by_head("attention.q_proj", heads), by_head("attention.k_proj", groups)
        self.v_all = by_head("attention.v_proj", groups)
        self.q_projected, self.k_projected = self.q_all[HEAD], self.k_all[self.group]
        self.q = out(at + "attention.q_norm")[HEAD] if self.modern else self.q_projected
        self.k = out(at + "attention.k_norm")[self.group] if self.modern else self.k_projected
        self.q_rotated = attention.q[0, HEAD, -1].double()
        self.keys, self.values = attention.k[0, self.group].double(), attention.v[0, self.group].double()
        self.weights = attention.weights(HEAD)[0, 0, -1].double()
        self.dots = self.keys @ self.q_rotated
        self.scores = self.dots / math.sqrt(width)
        self.powers = (self.scores - self.scores.max()).exp()
        self.joined = given(at + "attention.o_proj")
        self.input, self.norm1 = given(at + "attention_norm"), out(at + "attention_norm")
        self.attention_out = out(at + "attention.o_proj")
        self.residual1, self.norm2 = given(at + "mlp_norm"), out(at + "mlp_norm")
        self.gate = out(at + "mlp.gate_proj") if self.modern else None
        self.up, self.hidden, self.mlp_out = (
            out(at + "mlp.up_proj"), given(at + "mlp.down_proj"), out(at + "mlp.down_proj"),
        )  # fmt: skip
        self.residual2, self.norm = given("norm"), out("norm")  # the layer is the last one
        self.embedding = out("token_embedding")
        table = getattr(model, "position_embedding", None)
        self.position = None if table is None else table.weight[len(ids) - 1].detach()
        self.probabilities = self.logits.softmax(-1)
        self.chosen = chosen(self.logits, whole, sampling)
        self.top = sorted(range(len(self.logits)), key=lambda i: (-float(self.logits[i]), i))[:LISTED]
        order = sorted(range(len(self.logits)), key=lambda i: (-float(self.chosen[i]), i))
        ends = self.chosen[order].cumsum(0)
        self.segments = {
            i: (float(end - self.chosen[i]), float(end))
            for i, end in zip(order, ends, strict=True)
            if self.chosen[i] > 0
        }
        self.focus = max(range(1, len(ids) - 1), key=lambda key: float(self.weights[key]))
        ranked = sorted(range(len(ids)), key=lambda key: (-float(self.weights[key]), -key))
        kept = [len(ids) - 1, self.focus]
        self.listed = sorted([*kept, *[key for key in ranked if key not in kept]][: min(LISTED, len(ids))])

    def divisor(self, x: Tensor, *, rms: bool) -> float:
        centred = x if rms else x - x.mean()
        return float((centred.square().mean() + self.config.norm_eps).sqrt())

    def vectors(self, part: str) -> dict[str, Tensor]:
        """The vectors of a part, by their names."""
        query, key = f"query q · Head {HEAD}", f"key k · Head {self.group}"
        found: dict[str, dict[str, Any]] = {
            "embedding": {f"row {self.ids[-1]} of the embedding table": self.embedding,
                          "position embedding": self.position,
                          "residual stream x": None if self.position is None else self.embedding + self.position},
            "norm1": {"input x of the layer": self.input, "normalised x": self.norm1},
            "qkv": {query: self.q_projected, key: self.k_projected,
                    f"value v · Head {self.group}": self.v_all[self.group],
                    "q": self.q_all, "k": self.k_all, "v": self.v_all},
            "qknorm": {"query q = x · W_q": self.q_projected, "normalised query q": self.q,
                       "key k = x · W_k": self.k_projected, "normalised key k": self.k},
            "rotation": {"query q": self.q, "rotated q": self.q_rotated, "key k": self.k, "rotated k": self.keys[-1]},
            "scores": {("rotated q" if self.modern else "query q"): self.q_rotated,
                       ("rotated k of " if self.modern else "key k of "): self.keys[self.focus],
                       "products q × k": self.q_rotated * self.keys[self.focus]},
            "values": {f"output of head {HEAD}{' · off' if self.off else ''}": self.joined.view(self.heads, -1)[HEAD]},
            "join": {"joined vector": self.joined,
                     **dict(zip(self.named, self.joined.view(self.heads, -1), strict=True))},
            "output": {"joined vector": self.joined, "output of attention": self.attention_out},
            "residual1": {"input x of the layer": self.input, "output of attention": self.attention_out,
                          "x + output of attention": self.residual1},
            "norm2": {"x + output of attention": self.residual1, "normalised x": self.norm2},
            "hidden": {"normalised x": self.norm2, "gate g": self.gate, "u": self.up, "activations h": self.hidden},
            "mlp": {"activations h": self.hidden, "output of the MLP": self.mlp_out},
            "residual2": {"x + output of attention": self.residual1, "output of the MLP": self.mlp_out,
                          "output of the layer": self.residual2},
            "norm": {"final vector": self.norm},
            "logits": {"all logits": self.logits},
        }  # fmt: skip
        return {name: one.flatten() for name, one in found.get(part, {}).items() if one is not None}

    def strongest(self) -> list[int]:
        return sorted(range(len(self.hidden)), key=lambda i: -abs(float(self.hidden[i])))[:6]

    def rows(self, part: str) -> tuple[list[list[float]], list[float]]:
        """The numbers in each row of bars, and what the bars are as long as."""

        def of_keys(*lists: Tensor) -> list[list[float]]:
            return [[float(one[key]) for one in lists] for key in self.listed]

        rows: list[list[float]] = []
        if part == "before":
            rows = [[one] for norms in self.norms[:LAYER] for one in norms]
        elif part == "scores":
            rows = of_keys(self.dots)
        elif part == "scale":
            rows = of_keys(self.scores)
            return rows, [value for row in rows + of_keys(self.dots) for value in row]
        elif part == "softmax":
            rows = of_keys(self.powers, self.weights)
            return rows, [row[1] for row in rows]
        elif part == "values":
            rows = of_keys(self.weights)
        elif part == "hidden":
            gates = [] if self.gate is None else [nn.functional.silu(self.gate)]
            rows = [[float(one[i]) for one in (*gates, self.up, self.hidden)] for i in self.strongest()]
            return rows, [row[-1] for row in rows]
        elif part == "logits":
            rows = [[float(self.logits[i])] for i in self.top[:10]]
        elif part == "probabilities":
            pairs = [(float(self.probabilities[i]), float(self.chosen[i])) for i in self.top]
            return [[one for one in pair if one > 0] for pair in pairs], [one for pair in pairs for one in pair]
        return rows, [value for row in rows for value in row]

    def shapes(self, part: str) -> list[float]:
        C, H, G, D, F = self.config.n_embd, self.heads, self.groups, self.width, len(self.hidden)
        product = [C, F, F]
        return {
            "qkv": [C, C, H * D, H, D, C, G * D, G, D, C, G * D, G, D],
            "join": [H, D, H * D],
            "output": [H * D, H * D, C, C],
            "hidden": [C, *product, *(product if self.modern else [])],
            "mlp": [F, F, C, C],
            "logits": [C, C, len(self.logits), len(self.logits)],
        }.get(part, [])


def chosen(logits: Tensor, ids: list[int], sampling: dict[str, float]) -> Tensor:
    """The probabilities after the settings, from their definitions."""
    temperature, penalty = sampling.get("temperature", 1.0), sampling.get("repetition_penalty", 1.0)
    found = logits.clone()
    for i in set(ids):
        found[i] = found[i] / penalty if found[i] > 0 else found[i] * penalty
    if temperature == 0:
        return nn.functional.one_hot(found.argmax(), len(found)).double()
    found = found / temperature
    k = int(sampling.get("top_k") or len(found))
    found[found < found.sort(descending=True).values[k - 1]] = -math.inf
    order = found.argsort(descending=True)
    before = found.softmax(-1)[order].cumsum(0) - found.softmax(-1)[order]
    found[order[before >= sampling.get("top_p", 1.0)]] = -math.inf
    found[found.softmax(-1) < sampling.get("min_p", 0.0) * found.softmax(-1).max()] = -math.inf
    return found.softmax(-1)


def mulberry32(seed: int, count: int) -> list[float]:
    """The random numbers of a page."""
    found, state = [], seed
    for _ in range(count):
        state = (state + 0x6D2B79F5) % 2**32
        mixed = ((state ^ (state >> 15)) * (state | 1)) % 2**32
        mixed ^= (mixed + ((mixed ^ (mixed >> 7)) * (mixed | 61)) % 2**32) % 2**32
        found.append((mixed ^ (mixed >> 14)) / 2**32)
    return found


def name_of(vectors: dict[str, Tensor], name: str) -> Tensor:
    """The vector of this name; that of a key has its token behind it."""
    key = next((one for one in vectors if one == name or (one.endswith(" of ") and name.startswith(one))), None)
    assert key is not None, f"the page names {name!r}, and this part has {list(vectors)}"
    return vectors[key]


def require_painted(truth: Truth, part: str, painted: list[Any], names: list[str]) -> None:
    """Compare everything that is painted. Names of tokens are taken away first: they may hold digits."""
    vectors, (rows, bars) = truth.vectors(part), truth.rows(part)
    how: dict[str, list[Any]] = {}
    for name, before, after in (("norm1", truth.input, "normalised x"), ("norm2", truth.residual1, "normalised x")):
        if part == name:
            mean = [] if truth.modern else [abs(float(before.mean()))]
            how[after] = [*mean, truth.divisor(before, rms=truth.modern)]
    if part == "qknorm":
        how = {"normalised query q": [truth.divisor(truth.q_projected, rms=True)],
               "normalised key k": [truth.divisor(truth.k_projected, rms=True)]}  # fmt: skip
    T, D = len(truth.ids), truth.width
    products = truth.q_rotated * truth.keys[truth.focus]
    temperature = truth.sampling["temperature"]
    once: dict[str, list[list[Any]]] = {
        "scores": [[products[0], *products[1:3].abs(), products.sum()]],
        "scale": [[D, math.sqrt(D)]],
        "softmax": [[truth.scores.max(), truth.powers.sum()], [1.0]],
        "token": [[truth.ids[-1]]],
        "probabilities": [[temperature]] if temperature else [],
    }
    captions: dict[str, list[list[Any]]] = {
        "token": [[T]],
        "hidden": [[int((truth.hidden.abs() > 0.1).sum()), len(truth.hidden), 0.1]],
        "probabilities": [*truth.penalty, [int((truth.chosen > 0).sum())]],
        "qkv": [
            [
                truth.group * truth.heads // truth.groups,
                (truth.group + 1) * truth.heads // truth.groups - 1,
                truth.group,
            ]
        ]
        if truth.groups < truth.heads
        else [],
    }
    if T > LISTED:
        for name in ("scores", "scale", "softmax", "values"):
            captions[name] = [[T - LISTED]]
    formulas, notes = iter(once.get(part, [])), iter(captions.get(part, []))
    for group, subject, texts in painted:
        what = (part, group, subject, texts)
        plain = [bare(text, names) for text in texts]
        if group in ("strip heading", "heading") and subject in how:
            require_printed(plain[-2], how[subject], what)
        if group == "strip heading":
            vector = name_of(vectors, subject)
            sizes = [float(one) for one in re.findall(r"= \((\d+)\)", plain[-1])]
            assert sizes in ([], [len(vector)]), what
            require_printed(plain[-1], [*sizes, float(vector.norm())], what)
        elif group == "strip cells":
            require_printed(plain, name_of(vectors, subject), what)
        elif group == "rows":
            own = plain[-2 * len(rows) :]
            head = " ".join(plain[: -2 * len(rows)])
            require_printed(head, [T, D] if "(T, D)" in head else [], what)
            for label, text, row in zip(own[::2], own[1::2], rows, strict=True):
                if part == "hidden":
                    assert label in [f"h[{i}]" for i in truth.strongest()], what
                require_printed(text, row, (*what, text))
        elif group == "axis":
            least, most = min(0.0, *bars), max(0.0, *bars)
            ends = [*([least] if least < 0 else []), *([0.0] if "0" in plain else []), most]
            require_printed(plain, ends, what)
        elif group == "formula" and part != "draw":
            if numbers := NUMBER.findall(" ".join(plain)):
                require_printed(" ".join(plain).replace("− ", ""), next(formulas), what)
                assert numbers
        elif group == "caption":
            if NUMBER.search(" ".join(plain)) and part != "rotation":
                require_printed(" ".join(plain), next(notes), what)
        elif group == "shapes":
            require_printed(plain, truth.shapes(part), what)
        elif group == "heading":
            whole = {"embedding": [truth.config.vocab_size, truth.config.n_embd], "join": [len(truth.joined)]}
            require_printed(plain[-1], whole[part], what)
        elif group == "legend":
            require_printed(texts, [0], what)
        elif group == "text" and part not in ("draw", "token"):
            [text] = plain
            if part == "rotation":
                first, second, angle = NUMBER.findall(text)
                i, j = int(first), int(second)
                turn = math.degrees(
                    math.atan2(float(truth.q_rotated[j]), float(truth.q_rotated[i]))
                    - math.atan2(float(truth.q[j]), float(truth.q[i]))
                )
                assert j == i + D // 2
                assert abs((printed(angle)[0] - turn + 180) % 360 - 180) < 1, what
            elif part == "qkv":
                rest = re.fullmatch(r"([qkv]) \((\d+), (\d+)\)", text)
                assert rest, what
                assert [int(one) for one in rest.groups()[1:]] == [truth.groups if rest[1] != "q" else truth.heads, D]
            elif NUMBER.search(text):
                expected = {"embedding": [truth.ids[-1]], "scale": [T] if "(T)" in text else [-math.inf]}.get(part)
                if part == "join":
                    assert re.fullmatch(r"Head \d( · off)?", text), what
                else:
                    assert expected is not None, what
                    require_printed(text, expected, what)
    assert next(formulas, None) is None, part
    assert next(notes, None) is None, part


def bare(text: str, names: list[str]) -> str:
    """Without the names of tokens, which may hold digits."""
    if text in names:
        return ""
    return re.sub(r"‘[^’]*’", "", text)


def require_places(truth: Truth, part: str, places: list[Any]) -> None:
    """Compare what is said of each place of a picture."""
    vectors = truth.vectors(part)
    count = 0
    for name, lists in places:
        for i, lines in enumerate(lists):
            for line in lines:
                if line.get("value") is None:
                    continue
                element = re.fullmatch(r"(.*) \[(\d+)\]", line["text"])
                if element and (name == element[1] or part == "hidden"):
                    require_printed(line["value"], [name_of(vectors, element[1])[int(element[2])]], (part, line))
                    count += 1
                elif part in ("scores", "scale", "softmax", "values"):
                    key = truth.listed[i]
                    value = {"q · k": truth.dots, "score": truth.scores, "e^(score − highest)": truth.powers,
                             "weight": truth.weights}[line["text"]][key]  # fmt: skip
                    require_printed(line["value"], [value], (part, line))
                elif part == "logits":
                    require_printed(line["value"], [truth.logits[truth.top[i]]], (part, line))
                elif part == "probabilities":
                    values = {
                        "logit": truth.logits,
                        "probability": truth.probabilities,
                        "probability when drawn": truth.chosen,
                    }
                    share = float(values[line["text"]][truth.top[i]])
                    if line["value"] == "cut off":
                        assert share == 0
                    else:
                        require_printed(line["value"], [share], (part, line))
                elif part in ("before", "after"):
                    require_printed(line["value"], truth.rows(part)[0][i], (part, line))
                else:
                    assert part in ("draw", "rotation"), (part, line)
    if vectors:
        assert count >= sum(len(one) for one in vectors.values() if len(one) <= 4096) * 0.9, part


def require_summary(truth: Truth, part: str, summary: str, names: list[str]) -> None:
    vectors = truth.vectors(part)
    for name, n, length, least, most in re.findall(
        r"([^.]*?): (\d+) numbers, length (\S+), from (\S+) to (\S+?)\.(?= |$)", summary
    ):
        vector = name_of(vectors, bare(name.strip(), names).strip() if "‘" not in name else name.strip())
        assert int(n) == len(vector)
        require_printed([length, least, most], [vector.norm(), vector.min(), vector.max()], (part, summary))


def require_checks(truth: Truth, checks: list[Any]) -> None:
    root, key = math.sqrt(truth.width), truth.focus
    best = truth.top[0]
    expected: dict[str, list[Any]] = {
        "step.check.turn": [truth.q.norm(), truth.q_rotated.norm()],
        "step.check.score": [truth.dots[key], root, truth.scores[key], truth.scores[key]],
        "step.check.weight": [truth.powers[key], truth.powers.sum(), truth.weights[key], truth.weights[key]],
        "step.check.one": [1],
        "step.check.probability": [truth.logits[best], truth.probabilities[best], truth.probabilities[best]],
        "step.check.join": [HEAD, HEAD * truth.width, (HEAD + 1) * truth.width - 1, 0],
        "step.check.input": [0, 0],
    }
    for name, sentence in checks:
        values = expected.get(name, [0])
        found = NUMBER.findall(sentence)
        assert len(found) == len(values), sentence
        for text, value in zip(found, values, strict=True):
            number, unit = printed(text)
            # Numbers of a hundred have four decimals, of which float32 has three; differences are of its last digit.
            assert abs(number - float(value)) <= unit + 2e-5 * max(1.0, abs(float(value))), (sentence, value)


def require_sentences(truth: Truth, part: str, sentences: str, names: list[str]) -> None:
    plain = bare(sentences, names).replace("CO2", "")
    expected: dict[str, list[Any]] = {
        "token": [len(truth.ids) - 1],
        "embedding": [truth.ids[-1], truth.config.n_embd] if truth.modern else [len(truth.ids) - 1, truth.ids[-1]],
        "norm1": [*([] if truth.modern else [truth.input.mean()]), truth.divisor(truth.input, rms=truth.modern)],
        "norm2": [
            *([] if truth.modern else [truth.residual1.mean()]),
            truth.divisor(truth.residual1, rms=truth.modern),
        ],
        "qknorm": [truth.divisor(truth.q_projected, rms=True), truth.divisor(truth.k_projected, rms=True)],
        "scale": [math.sqrt(truth.width), -math.inf, 0],
        "softmax": [1, truth.scores.max(), truth.powers.sum()],
        "values": [HEAD],
        "join": [truth.heads, truth.heads * truth.width],
        "output": [truth.config.n_embd],
        "hidden": [len(truth.hidden)],
        "mlp": [len(truth.hidden), truth.config.n_embd],
        "residual2": [LAYER],
        "norm": [truth.config.n_embd],
        "logits": [len(truth.logits), len(truth.logits)],
    }
    if part not in ("probabilities", "draw"):
        require_printed(plain, expected.get(part, []), (part, sentences))


def require_draw(truth: Truth, read: dict[str, Any], number: float | None, following: int | None, name: str) -> None:
    """The intervals, the needle's number, and the token that it draws."""
    shares = [truth.segments[i] for i in read["ruler"]]
    rest = 1 - sum(end - start for start, end in shares)
    expected = sorted([*shares, *([(shares[min(LISTED, len(shares)) - 1][1], 1.0)] if rest > 1e-6 else [])])
    for (start, end), lines in zip(expected, read["places"][0][1], strict=True):
        value = rest if lines[0]["text"] == "the rest" else end - start
        require_printed(lines[0]["value"], [value], lines)
    assert read["ruler"][:LISTED] == list(truth.segments)[:LISTED]
    formula = " ".join(text for group, _, texts in read["painted"] if group == "formula" for text in texts)
    if number is None or following is None:
        assert "≤" not in formula
        return
    start, end = truth.segments[following]
    assert start - 1e-6 <= number < end + 1e-6
    require_printed(bare(formula, []), [start, number, end], formula)
    assert f"‘{name}’" in formula
    assert f"{number:.6f}" in read["sentences"]


def read_parts(page: Any) -> dict[str, dict[str, Any]]:
    page.evaluate("document.fonts.ready.then(() => true)")
    found = {}
    for part in page.evaluate(f"{STEP}.parts.map(({{ id }}) => id)"):
        page.click(f"[data-part={part}]")
        found[part] = page.evaluate(READ, part)
    return found


def require_all(page: Any, model: Model, position: int) -> None:
    """Choose a place, read all parts there, and compare them."""
    page.evaluate(f"{STEP}.choose({{ layer: {LAYER}, head: {HEAD}, position: {position} }})")
    until(page, f"{STEP}.known === {STEP}.asked && !{STEP}.working && {STEP}.data?.layerNumber === {LAYER}")
    state = page.evaluate(
        f"({{ ids: session.ids, off: session.off, origin: {STEP}.data.origin, names: {STEP}.data.step.texts,"
        f"   texts: session.tree.path().map(({{ text }}) => text), length: {STEP}.data.step.length }})"
    )
    sampling = {name: value for name, value in state["origin"]["sampling"].items() if value is not None}
    off = [tuple(head) for head in state["off"]]
    truth = Truth(model, state["ids"][: position + 1], state["length"], off, sampling)
    names = [*state["names"], *page.evaluate(f"{STEP}.data.next.alternatives.map(({{ text }}) => text)"),
             *page.evaluate(f"{STEP}.data.step.top.map(({{ text }}) => text)")]  # fmt: skip
    parts = read_parts(page)
    assert ("qknorm" in parts) == ("rotation" in parts) == truth.modern
    for part, read in parts.items():
        require_painted(truth, part, read["painted"], names)
        if part != "token":
            require_places(truth, part, read["places"])
        require_summary(truth, part, read["summary"], names)
        require_checks(truth, read["checks"])
        require_sentences(truth, part, read["sentences"], names)
    more = len(state["ids"]) > position + 1
    following = state["ids"][position + 1] if more else None
    name = state["texts"][position + 1] if more else ""
    require_draw(truth, parts["draw"], state["origin"]["number"], following, name)


@pytest.mark.parametrize("name", WRITERS)
def test_one_step_prints_what_pytorch_computes(visit: Visits, tmp_path: Path, name: str) -> None:
    """q and k were printed after their norm as x·W, one matrix stood for two, and the drawn number was invented."""
    made = unsteady(**WRITERS[name])
    model = rounded(made).double()
    page = visit(
        ModelPage(made, name).save(tmp_path / "page.html"), text=TEXT, link=f"n=60&seed={SEED}&t=1.2&k=30&p=0.9"
    )
    written(page, len(TEXT) + 60)
    draws = page.evaluate("session.tree.path().map(({ draw }) => draw)")
    assert draws[len(TEXT) :] == mulberry32(SEED, 60)
    page.click("#tab-step")
    until(page, f"{STEP}.data")
    page.evaluate(TRANSCRIBE)
    require_all(page, model, 11)  # typed
    require_all(page, model, len(TEXT) + 9)  # drawn
    page.evaluate("session.set({ sampling: { temperature: 0.55, top_k: 4, min_p: 0.1, repetition_penalty: 1.3 } })")
    require_all(page, model, len(TEXT) + 9)  # as it was written, and not as the sliders stand
    assert "sliders now stand at Temperature 0.55, top-k 4, min-p 0.1" in page.inner_text(".step-sentences")
    require_all(page, model, len(TEXT) + 59)  # of what would come next, beyond the context
    page.evaluate(f"session.set({{ off: [[{LAYER}, {HEAD}], [0, 2]] }})")
    require_all(page, model, 11)
    page.evaluate("session.set({ sampling: { temperature: 0 } })")
    require_all(page, model, len(TEXT) + 59)


def test_a_token_says_how_it_came(model_page: Callable[[str], Path], visit: Visits) -> None:
    """Typed and chosen tokens had a random number; at temperature 0 the page divided by 0.00."""
    page = visit(model_page("gpt"), text=TEXT, link="n=6&seed=3&t=1")
    written(page, len(TEXT) + 6)
    page.evaluate("session.set({ place: 23 })")
    until(page, "!document.querySelector('.distribution[aria-busy]')")
    page.click("[data-preset=greedy]")
    page.select_option("#length", "50")
    page.locator(".candidate[aria-pressed=false]").first.click()
    until(page, "session.tree.current.kind === 'chosen' && !session.writing")
    page.click("#tab-step")
    page.click("[data-part=draw]")
    for position, words in (
        (5, "was typed, not drawn"),
        (len(TEXT), "the random number was"),
        (22, "was chosen by hand, not drawn"),
        (30, "At temperature 0 no random number is drawn"),
        (23 + 50, "The text ends here"),
    ):
        page.evaluate(f"{STEP}.choose({{ position: {position} }})")
        until(page, f"{STEP}.known === {STEP}.asked && !{STEP}.working")
        assert words in page.inner_text(".step-sentences"), position
    page.click("[data-part=probabilities]")
    assert "÷ 0" not in str(page.evaluate(f"({TRANSCRIBE})() ?? ({READ})('probabilities').painted"))


def test_an_answer_of_a_chat_was_drawn(model_page: Callable[[str], Path], visit: Visits) -> None:
    """In One step, the tokens of an answer were said to be typed, and a link had them as typed."""
    page = visit(model_page("chat"), link="t=1")
    chat = "made.get('chat').view"
    for again in (False, True):
        if again:
            page.click("#tab-chat")
            page.evaluate(f"{chat}.choose({chat}.conversation.turns[0].pieces[1].alternatives.at(-1).id)")
        else:
            page.fill("#chat-message", "나는")
            page.keyboard.press("Enter")
        until(page, f"!{chat}.conversation.writing && {chat}.conversation.turns[0]?.pieces.length > 1")
        page.evaluate(f"{chat}.look({chat}.conversation.turns[0], 1)")
        page.locator("#panel-chat .row-tools button").first.click()
        until(page, f"{STEP}.data && {STEP}.known === {STEP}.asked && !{STEP}.working")
        assert page.evaluate(f"{STEP}.data.origin.kind") == ("chosen" if again else "drawn")
        page.evaluate(f"{STEP}.choose({{ position: {STEP}.chosen - 1 }})")
        until(page, f"{STEP}.known === {STEP}.asked && !{STEP}.working")
        assert page.evaluate(f"{STEP}.data.origin.kind") == "drawn"
        expected = page.evaluate("({ ids: session.ids, draws: session.tree.path().map(({ draw }) => draw ?? null) })")
        link = page.evaluate("window.jumok.ready.then(({ frame }) => frame.address())")[1:]
        other = visit(model_page("chat"), link=link)
        until(other, f"!session.writing && session.ids.length === {len(expected['ids'])}")
        assert other.evaluate("session.ids") == expected["ids"]
        assert other.evaluate("session.tree.path().map(({ draw }) => draw ?? null)") == expected["draws"]


def test_nothing_untrue_flashes_while_a_step_is_computed(model_page: Callable[[str], Path], visit: Visits) -> None:
    """“Write something first” stood there while the text was read, and while its step was computed."""
    watch = """
      window.said = new Set();
      new MutationObserver(() => {
        for (const one of document.querySelectorAll('.step-status, .attention-status'))
          if (one.checkVisibility()) window.said.add(one.textContent);
      }).observe(document, { subtree: true, childList: true, characterData: true });
    """
    for view in ("step", "attention"):
        page = visit(model_page("gpt"), text=TEXT, link=f"view={view}", before=watch)
        until(page, f"document.querySelector('#panel-{view} canvas') && session.ids.length")
        assert not [one for one in page.evaluate("[...window.said]") if "Write something" in one]


def require_true(shown: str, truth: float, what: object) -> None:
    mistake = mistake_of(shown, truth)
    assert mistake is None, (what, mistake)


def shared(visit: Visits, model: Model, folder: Path, text: str) -> Any:
    return visit(ModelPage(model, "shared").save(folder / "page.html"), text=text)


def test_a_classifier_prints_what_python_computes(visit: Visits, tmp_path: Path) -> None:
    """The probability of each class, and by how much it changes without each word."""
    model = classifier()
    page = shared(visit, model, tmp_path, TEXT)
    until(page, "document.querySelectorAll('.more tbody tr').length")
    words = [(word.group(), TEXT[: word.start()].removesuffix(" ") + TEXT[word.end() :])
             for word in re.finditer(r"\S+", TEXT)]  # fmt: skip
    whole, *without = predict(rounded(model).double(), [TEXT, *(rest for _, rest in words)])
    for label, shown in zip(model.config.labels, page.locator(".label-value").all_inner_texts(), strict=True):
        require_true(shown, whole.probabilities[label], label)
    now = math.log(whole.probabilities[whole.label])
    changes = [math.log(one.probabilities[whole.label]) - now for one in without]
    expected = sorted(zip([word for word, _ in words], changes, strict=True), key=lambda one: one[1])
    page.click(".more summary")
    rows = [line.split("\t") for line in page.inner_text(".more tbody").splitlines()]
    assert [word for word, _ in rows] == [word for word, _ in expected]
    for (word, shown), (_, change) in zip(rows, expected, strict=True):
        require_true(shown, change, word)
    titles = page.locator(".decisive span").evaluate_all("(all) => all.map(({ title }) => title)")
    for title, (word, _), change in zip(titles, words, changes, strict=True):
        assert title.startswith(f"{word}: ")
        require_true(NUMBER.findall(title.removeprefix(word))[0].replace("+", ""), change, title)
    [most] = re.findall(r"stands for (\S+) nats", page.locator("#panel-classify").inner_text())
    require_true(most, max(map(abs, changes)), "deepest colour")


def test_blanks_print_what_python_computes(visit: Visits, tmp_path: Path) -> None:
    model = bert()
    text = "나는 [MASK]교에 [MASK]다."
    page = shared(visit, model, tmp_path, text)
    until(page, "document.querySelectorAll('.candidate').length === 16")
    expected = fill_mask(rounded(model).double(), text, top=8)
    for blank, mask in zip(page.locator(".blank").all(), expected.masks, strict=True):
        best, *_ = shares = [each.probability for each in mask.candidates]
        require_true(NUMBER.findall(blank.locator(".keys").inner_text())[0], best, mask)
        for row, share in zip(blank.locator(".candidate").all(), shares, strict=True):
            require_true(row.locator("b").inner_text(), share, mask)
            require_true(str(row.get_attribute("aria-label")).rpartition(" ")[2], share, mask)


def test_an_answer_prints_what_python_computes(visit: Visits, tmp_path: Path) -> None:
    model = pairs()
    page = shared(visit, model, tmp_path, TEXT)
    until(page, "!session.writing && document.querySelector('.figures').textContent")
    [[expected]] = answer(rounded(model).double(), [TEXT])
    assert page.inner_text(".answer-text").strip() == expected.text.strip()
    figures = page.inner_text(".figures")
    require_true(NUMBER.findall(figures)[0], expected.score, figures)
    assert ("context length" in figures) == (expected.finish == "length")
