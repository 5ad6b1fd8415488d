"""Rewards: advantages, the gradient, seeds, the reference, whole runs that are killed anywhere, and bad input."""

from __future__ import annotations

import itertools
import json
import math
import shlex
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import jumok
from conftest import TINY, Jumok, assert_same, events_of, only, run_until
from jumok.errors import ConfigError, JumokError, ResumeError, RunError, TextError
from jumok.evaluation.chat import Question
from jumok.inference.chat import Answer
from jumok.models.gpt import GPT
from jumok.models.tensors import load_tensors
from jumok.runs.events import Eval, Event, Finish, Sample, Step
from jumok.runs.parameters import parameters_of
from jumok.text import Table
from jumok.text.conversations import from_conversations
from jumok.training import optim
from jumok.training.run_record import further_command
from jumok.training.tasks import reward as module
from jumok.training.tasks.reward import Reward, advantages, divergences
from jumok.training.tasks.rewards import reward_of
from jumok.training.trainer import Trainer
from talking_models import talking, taught

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]  # of transformers, about peft

SETTINGS: dict[str, Any] = {
    **{name: value for name, value in TINY.items() if name not in ("n_layer", "n_head", "n_embd", "context_length")},
    "task": "reward", "dropout": 0.0, "learning_rate": 3e-3, "prompts_per_step": 3, "answers_per_prompt": 4,
}  # fmt: skip
WORDS = ["하나", "둘", "셋", "넷", "다섯", "여섯"]
SPACES = "def reward(messages, answer):\n    return answer.count(' ') / (1 + len(answer))\n"  # differs in most groups


def table(rows: int = 30, checks: bool = True, **more: Any) -> Table:
    found = [
        {
            "messages": [
                {"role": "user", "content": f"{WORDS[i % 6]} {i}"},
                {"role": "assistant", "content": WORDS[(i + 1) % 6]},
            ],
            "checks": [".*[가-힣 ].{0,3}"] if checks else None,
            **more,
        }
        for i in range(rows)
    ]
    return from_conversations(found)


def file(folder: Path, source: str = SPACES, name: str = "score.py") -> str:
    (folder / name).write_text(source, encoding="utf-8")
    return str(folder / name)


@cache
def ending() -> GPT:
    """A model most of whose answers end by themselves: others have no reward."""
    return taught(steps=10)


def begin(folder: Path, material: Table | None = None, **settings: Any) -> Trainer:
    """Begin a tiny run in folder/run from the model in folder/init, which is made if it is not there."""
    if not (folder / "init").exists():
        jumok.save(ending(), folder / "init")
    out = settings.pop("out", "run")
    given = {**SETTINGS, **settings}
    return Trainer.start(folder / out, material or table(), **given, init=folder / "init", device="cpu")


def parts_of(trainer: Trainer) -> tuple[Reward, GPT]:
    assert isinstance(trainer.task, Reward)
    assert isinstance(trainer.model, GPT)
    return trainer.task, trainer.model


# --- the gradient -----------------------------------------------------------------------------------------------------


def test_advantages() -> None:
    found = advantages(torch.tensor([[1.0, 0, 0, 0], [3, 1, 3, 1], [0.1, 0.1, 0.1, 0.1]], dtype=torch.float64))
    deviation = (3 / 16) ** 0.5
    expected = [[0.75 / deviation, *[-0.25 / deviation] * 3], [1, -1, 1, -1], [0, 0, 0, 0]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_rewards_that_differ_by_rounding_are_equal(scale: float) -> None:
    """0.1 + 0.1 + 0.1 beside 0.3 gave -1.07 to seven of eight answers, a gradient norm of 2, and a loss of NaN."""
    noise = [0.1 + 0.1 + 0.1] * 7 + [0.3]
    float32 = [float(torch.tensor(0.7) + torch.tensor(0.2)), 0.9, 0.9, 0.9, *[0.9] * 4]
    assert len(set(noise)) == len(set(float32)) == 2
    found = advantages(torch.tensor([noise, float32], dtype=torch.float64) * scale)
    assert not found.any()


def test_what_is_left_of_a_sum_is_no_reward() -> None:
    found = advantages(torch.tensor([[0.1 + 0.2 - 0.3, 0.0, 0.0, 0.0]], dtype=torch.float64))
    assert not found.any()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_small_differences_of_rewards_count_fully(scale: float) -> None:
    """An epsilon in the denominator, as others have, would leave a hundredth of the first ones."""
    rewards = torch.tensor([[3.0, 1, 3, 1], [1.0001, 1, 1.0001, 1]], dtype=torch.float64) * scale
    expected = torch.tensor([[1.0, -1, 1, -1]] * 2, dtype=torch.float64)
    torch.testing.assert_close(advantages(rewards), expected, atol=1e-9, rtol=0)


def test_a_bandit_whose_gradient_is_known() -> None:
    """Expected over all groups, the gradient for rewards of 0 and 1 is that of their mean p, times a known factor.

    Of G answers k are right with the binomial probability. An answer that is right has the advantage sqrt((G - k) / k),
    another one -sqrt(k / (G - k)). Summed up, that is E[sqrt(k (G - k))] / (G p (1 - p)) times the gradient of p.
    """
    theta = torch.tensor([0.3, -0.7, 1.1, 0.2], dtype=torch.float64, requires_grad=True)
    rewards, group = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64), 4
    chances = theta.log_softmax(0)
    total: Tensor = torch.zeros((), dtype=torch.float64)
    for arms in itertools.product(range(4), repeat=group):
        gained = advantages(rewards[list(arms)][None])[0]
        total = total + chances[list(arms)].sum().exp().detach() * (gained * chances[list(arms)]).sum() / group
    [found] = torch.autograd.grad(total, theta, retain_graph=True)
    p = (chances.exp() * rewards).sum()
    [of_p] = torch.autograd.grad(p, theta)
    k, right = torch.arange(group + 1, dtype=torch.float64), float(p.detach())
    binomial = k.new_tensor([math.comb(group, i) * right**i * (1 - right) ** (group - i) for i in range(group + 1)])
    factor = (binomial * (k * (group - k)).sqrt()).sum() / (group * right * (1 - right))
    torch.testing.assert_close(found, factor * of_p, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("kl_weight", "temperature"), [(0.0, 1.0), (0.3, 0.7)])
def test_the_gradient_is_the_sum_of_the_paper(tmp_path: Path, kl_weight: float, temperature: float) -> None:
    """Answer by answer and token by token, in float64; the passes of a step add up to it."""
    settings = {"reward": file(tmp_path), "kl_weight": kl_weight, "temperature": temperature, "batch_size": 1}
    settings["prompts_per_step"] = 12
    task, model = parts_of(trainer := begin(tmp_path, **settings))
    model.double()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    assert task.reference is not None
    reference = task.reference.double()
    seen: list[Any] = []
    original, task._ask = task._ask, lambda *a, **k: seen.append(original(*a, **k)) or seen[-1]  # type: ignore[method-assign]
    task.begin_step(model, 0)
    [asked] = seen
    assert model.tokenizer is not None
    assert model.tokenizer.chat is not None
    total, tokens, kept = torch.zeros((), dtype=torch.float64), 0, set()
    for question, group, rewards in zip(asked.questions, asked.groups, asked.rewards, strict=True):
        assert [SPACE(answer.text) * (answer.finish == "stop") for answer in group] == rewards.tolist()
        equal = len(set(rewards.tolist())) == 1
        if equal and not kl_weight:
            continue
        kept.add(equal)
        prompt = model.tokenizer.chat.encode(question.before)
        gains = torch.zeros_like(rewards) if equal else (rewards - rewards.mean()) / rewards.std(correction=0)
        for answer, gained in zip(group, gains, strict=True):
            ids = torch.tensor([*prompt, *answer.ids])
            ours, theirs = ((m(ids[None, :-1])[0] / temperature).log_softmax(-1) for m in (model, reference))
            for place in range(len(prompt), len(ids)):
                log_p, log_r = ours[place - 1, ids[place]], theirs[place - 1, ids[place]].detach()
                total = total - gained * log_p + kl_weight * ((log_r - log_p).exp() - (log_r - log_p) - 1)
                tokens += 1
    assert kept == ({True, False} if kl_weight else {False})
    expected = torch.autograd.grad(total / tokens, list(model.parameters()))
    parts = task.parts(0)
    assert len(parts) > 1
    counts = [sum(each) for each in zip(*map(task.counts, parts), strict=True)]
    losses = sum(optim.Objective(task, model)(counts, *part).sum() for part in parts)
    found = torch.autograd.grad(losses, list(model.parameters()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-6)  # advantages are in float32
    assert float(losses.detach()) == pytest.approx(1 - task.figures["reward"])
    trainer.close()


def SPACE(text: str) -> float:
    return text.count(" ") / (1 + len(text))


def test_divergences_are_zero_only_where_nothing_differs() -> None:
    policy = torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64)
    assert divergences(policy, policy).tolist() == [0, 0, 0]
    assert (divergences(policy, policy + torch.tensor([0.5, -0.5, 0.1])) > 0).all()


# --- a step -----------------------------------------------------------------------------------------------------------


def answers_of(task: Reward, model: GPT, number: int) -> list[list[int]]:
    task.begin_step(model, number)
    assert task.rows is not None
    return [task.rows.inputs[row].tolist() for row in range(len(task.rows.inputs))]


def test_the_answers_follow_from_seed_and_step(tmp_path: Path) -> None:
    """All prompts are the same, so that answers differ by their random numbers alone."""
    rows = from_conversations([{"prompt": "하나 둘", "completion": "셋"}] * 20)
    settings = {"reward": file(tmp_path), "answers_per_prompt": 8}
    task, model = parts_of(begin(tmp_path, rows, **settings))
    fourth = answers_of(task, model, 4)
    assert answers_of(task, model, 5) != fourth
    assert answers_of(task, model, 4) == fourth
    again, same = parts_of(begin(tmp_path, rows, **settings, out="again"))
    assert answers_of(again, same, 4) == fourth
    other, same = parts_of(begin(tmp_path, rows, **settings, out="other", seed=1))
    assert answers_of(other, same, 4) != fourth


def test_the_divergence_is_zero_at_the_beginning(tmp_path: Path) -> None:
    list(begin(tmp_path, reward=file(tmp_path), learning_rate=0.02).run())
    steps = [event for event in events_of(tmp_path / "run") if event["event"] == "step"]
    assert steps[0]["kl"] == 0.0
    assert steps[-1]["kl"] > 1e-4
    assert {"reward", "best_of_group", "spread", "groups_kept", "answer_tokens"} <= steps[0].keys()
    assert steps[0]["loss"] == pytest.approx(1 - steps[0]["reward"])


def test_groups_of_equal_rewards_change_nothing(tmp_path: Path) -> None:
    trainer = begin(tmp_path, reward=file(tmp_path, "def reward(messages, answer):\n    return -0.1\n"), steps=2)
    before = {name: tensor.clone() for name, tensor in parameters_of(trainer.model).items()}
    steps = [event for event in trainer.run() if isinstance(event, Step)]
    assert [step.figures["groups_kept"] for step in steps] == [0, 0]
    assert all(torch.equal(tensor, before[name]) for name, tensor in parameters_of(trainer.model).items())


ONE = "def reward(messages, answer):\n    return 1.0\n"
MINUS = "def reward(messages, answer):\n    return -2.0\n"


@pytest.mark.parametrize(("kind", "ended", "cut"), [("re:.*", 1.0, 0.0), (ONE, 1.0, 0.0), (MINUS, -2.0, -2.0)])
def test_an_answer_that_did_not_end_is_not_rewarded(tmp_path: Path, kind: str, ended: float, cut: float) -> None:
    """A pattern that any text matches would reward talking on and on; a file did, against docs/conversations.md."""
    task, model = parts_of(begin(tmp_path, reward=kind if kind.startswith("re:") else file(tmp_path, kind)))
    found = task._ask(model, task.questions[:20], seed=1)
    ends = [answer.finish == "stop" for group in found.groups for answer in group]
    assert found.rewards.flatten().tolist() == [ended if end else cut for end in ends]
    assert 0 < sum(ends) < len(ends)


def test_a_reward_sees_the_conversation(tmp_path: Path) -> None:
    source = (
        "def reward(messages, answer):\n"
        "    assert messages[-1]['role'] == 'user' and isinstance(answer, str)\n"
        "    messages.clear()\n"
        "    return True\n"
    )
    task, model = parts_of(begin(tmp_path, reward=file(tmp_path, source)))
    assert {*task._ask(model, task.questions[:9], seed=1).rewards.flatten().tolist()} == {0.0, 1.0}
    assert task.questions[0].before


@pytest.mark.parametrize(
    "value", ["np.float32(0.5)", "np.float64(0.5)", "np.bool_(True)", "True", "torch.tensor([0.5])", "np.array(0.5)"]
)
def test_numbers_of_numpy_and_torch_are_numbers(tmp_path: Path, value: str) -> None:
    source = f"import numpy as np\nimport torch\n\n\ndef reward(messages, answer):\n    return {value}\n"
    task, model = parts_of(begin(tmp_path, reward=file(tmp_path, source)))
    found = {*task._ask(model, task.questions[:9], seed=1).rewards.flatten().tolist()}
    assert found == {0.0, 1.0 if "True" in value else 0.5}


def test_modules_beside_a_reward_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are imported as beside a script, also by the function: `python rewards.py` found them, training did not."""
    path = [*sys.path]
    (tmp_path / "pairs").mkdir()
    file(tmp_path, "", "pairs/__init__.py"), file(tmp_path, "WEIGHT = 2.0\n", "pairs/weights.py")
    file(tmp_path, "from pairs import weights\n\nWEIGHT = weights.WEIGHT\n", "late_scoring.py")
    source = (
        "from pairs.weights import WEIGHT\n\n\ndef reward(messages, answer):\n"
        "    import late_scoring\n    return late_scoring.WEIGHT * WEIGHT\n"
    )
    function = reward_of(file(tmp_path, source))
    question = Question([{"role": "user", "content": "하나?"}], 1, "", "", counts=True)
    assert function(question, Answer(text="둘", reasoning="", ids=(1,), finish="stop")) == 4.0
    assert sys.path == path
    for name in ("pairs", "pairs.weights", "late_scoring"):
        monkeypatch.delitem(sys.modules, name)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_learns_what_is_rewarded(tmp_path: Path) -> None:
    settings = {"steps": 40, "eval_every": 40, "learning_rate": 0.01, "answers_per_prompt": 8}
    events = list(begin(tmp_path, reward=file(tmp_path), **settings).run())
    end = only(events, Finish)[0]
    before = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))["data"]["baselines"]["reward"]
    assert end.figures["reward"] > before + 0.15
    assert f"(before: {before:.3f})" in end.headline
    sample = only(events, Sample)[-1].text
    assert "\nbest (" in sample
    assert "\nworst (" in sample


@pytest.mark.parametrize("place", ["answers", "step"])
@pytest.mark.parametrize("lora", [None, 2])
def test_a_killed_run_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, lora: int | None
) -> None:
    """While it writes answers, or while it learns from them; and the model that it began with is gone."""
    settings = {"lora": lora, "reward": file(tmp_path), "steps": 5, "eval_every": 2, "save_every": 0.0}
    list(begin(tmp_path, out="whole", **settings, kl_weight=0.1).run())
    trainer = begin(tmp_path, **settings, kl_weight=0.1)
    owner, name = (module, "answer_chats") if place == "answers" else (module.Reward, "loss_sums")
    original, step = getattr(owner, name), -1

    def kill(*arguments: Any, **more: Any) -> Any:
        if step == 3:
            raise KeyboardInterrupt
        return original(*arguments, **more)

    def go() -> None:
        nonlocal step
        for event in trainer.run():
            step = event.step

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, kill)
        with pytest.raises(KeyboardInterrupt):
            go()
    trainer.close()
    shutil.rmtree(tmp_path / "init")
    list(Trainer.resume(tmp_path / "run", reward=settings["reward"], device="cpu").run())
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_the_reference_of_adapters_is_the_model_without_them(tmp_path: Path) -> None:
    trainer = begin(tmp_path, lora=2, reward=file(tmp_path), steps=3, learning_rate=0.05)
    stored = load_tensors(tmp_path / "run" / "state" / "reference.safetensors")
    start = parameters_of(jumok.load(tmp_path / "init"))
    assert stored.keys() == start.keys()
    assert all(torch.equal(tensor, start[name]) for name, tensor in stored.items())
    list(trainer.run())
    steps = [event for event in events_of(tmp_path / "run") if event["event"] == "step"]
    assert steps[0]["kl"] == 0.0
    assert steps[2]["kl"] > 1e-5


def test_the_command_line(jumok: Jumok, tmp_path: Path) -> None:
    import jumok as package

    package.save(talking(), tmp_path / "init")
    rows = [{"prompt": f"하나 {i}", "completion": "둘"} for i in range(30)]
    (tmp_path / "talk.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    options = ("--task", "reward", "--init", tmp_path / "init", "--steps", "2", "--prompts-per-step", "2")
    given = ("train", tmp_path / "talk.jsonl", *options)
    end = jumok(*given, "--out", tmp_path / "run", "--reward", "re:.*[가-힣].*")
    assert end.code == 0, end.err
    assert "KL 0." in end.err
    assert "best_of_group" in (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    refused = jumok(*given, "--out", tmp_path / "other")
    assert refused.code == 1
    assert "no answer of the training part has a check" in refused.err
    assert not (tmp_path / "other").exists()


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"reward": "checks"}, TextError, "no answer of the training part has a check"),
        ({"reward": "score"}, ConfigError, "reward='score' is not known"),
        ({"reward": "re:(가"}, TextError, "cannot be used"),
        ({"reward": "gone.py"}, ConfigError, "cannot be read"),
        ({"temperature": 0.0}, ConfigError, "gives each prompt the same answer"),
        ({"answers_per_prompt": 1}, ConfigError, "answers_per_prompt=1 is out of range"),
        ({"accumulate": 2}, ConfigError, "accumulate=2 is not for rewards"),
        ({"beta": 0.1}, ConfigError, "beta"),
    ],
)
def test_wrong_settings(tmp_path: Path, settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        begin(tmp_path, table(checks=False), **{"reward": "re:.*", **settings})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise RuntimeError('no')", r"cannot be run \(RuntimeError: no\)"),
        ("def reward(messages", "SyntaxError"),
        ("import sys\nsys.exit(0)", r"cannot be run \(SystemExit: 0\)"),
        ("def reward(messages, answer):\n    raise SystemExit", "the result was SystemExit"),
        ("score = 3", r"has no function reward\(messages, answer\)"),
        ("def reward(messages, answer):\n    return float('nan')", "the result was nan"),
        ("def reward(messages, answer):\n    return 'good'", "the result was 'good'"),
        ("def reward(messages, answer):\n    return None", "the result was None"),
        ("import torch\ndef reward(messages, answer):\n    return torch.ones(2)", "2 elements cannot be converted"),
        ("def reward(messages, answer):\n    return 10**400", "OverflowError"),
        ("import gone_module", "No module named 'gone_module'"),
        ("def reward(messages, answer):\n    return 1 / 0", "ZeroDivisionError"),
        ("def reward(answer):\n    return 1", "TypeError"),
    ],
)
def test_a_file_that_gives_no_rewards(tmp_path: Path, source: str, words: str) -> None:
    """A file that calls `sys.exit(0)` ended the training without a word, and with the exit code of success."""
    with pytest.raises(JumokError, match=words):
        begin(tmp_path, reward=file(tmp_path, source))
    assert not (tmp_path / "run").exists()


def test_a_model_that_does_not_answer(tmp_path: Path) -> None:
    jumok.save(talking(template=None), tmp_path / "init")
    with pytest.raises(ConfigError, match="no chat template"):
        begin(tmp_path)
    with pytest.raises(ConfigError, match="name one with init=RUN"):
        Trainer.start(tmp_path / "run", table(), task="reward", device="cpu")


def test_questions_that_leave_no_room(tmp_path: Path) -> None:
    """They are left out of their group of prompts; if all are, the run is refused."""
    long, other = {"prompt": "나는 " * 37, "completion": "둘"}, {"prompt": "셋", "completion": "나는 학교에 " * 6}
    rows = [long, other, *({"prompt": f"하나 {i}", "completion": "둘"} for i in range(8))]
    task, model = parts_of(begin(tmp_path, from_conversations(rows), reward="re:.*", val=0.2))
    assert task.data["train_rows"] == 8
    assert len(task._ask(model, task.questions, seed=0).questions) == 7
    with pytest.raises(TextError, match="the last message has"):
        task._ask(model, task.questions[:1], seed=0)


def test_a_reward_that_fails_later_leaves_a_run_to_go_on_from(tmp_path: Path) -> None:
    """What was learned is saved before the error, and can begin another run."""
    source = (
        "calls = 0\n\n\ndef reward(messages, answer):\n    global calls\n    calls += 1\n"
        "    return calls % 3 if calls < 60 else None\n"
    )
    events: list[Event] = []
    trainer = begin(tmp_path, reward=file(tmp_path, source), steps=50, eval_every=50)
    with pytest.raises(JumokError, match="the result was None"):
        events.extend(trainer.run())
    trainer.close()
    steps = len(only(events, Step))
    assert steps > 1
    again = Trainer.resume(tmp_path / "run", reward=file(tmp_path, source), device="cpu")
    assert again.clock.step == steps
    assert not again.notices
    again.close()
    assert isinstance(jumok.load(tmp_path / "run"), GPT)


def test_a_corrected_reward_file_goes_on(tmp_path: Path) -> None:
    """It was refused: "late.py is not what this run began to reward, which was late.py". Figures are of one file."""
    late = "calls = 0\n\n\ndef reward(messages, answer):\n    global calls\n    calls += 1\n"
    file(tmp_path, f"{late}    return 0.5 if calls < 80 else None\n")
    trainer = begin(tmp_path, reward=str(tmp_path / "score.py"), steps=12, eval_every=1)
    with pytest.raises(JumokError, match="goes on with the corrected file"):
        list(trainer.run())
    trainer.close()
    config, path = tmp_path / "run" / "config.json", file(tmp_path, SPACES)
    before = json.loads(config.read_text(encoding="utf-8"))["data"]
    trainer = Trainer.resume(tmp_path / "run", reward=path, device="cpu")
    assert any("score.py is not as it was" in notice for notice in trainer.notices)
    trainer.close()  # the change is recorded
    data = json.loads(config.read_text(encoding="utf-8"))["data"]
    [changed] = data["before"]
    assert changed["until_step"] == trainer.clock.step > 0
    assert {name: changed[name] for name in before if name in changed} == {
        name: before[name] for name in ("reward_sha256", "baselines")
    }
    assert data["baselines"] != before["baselines"]
    assert data["baselines"] == parts_of(begin(tmp_path, out="other", reward=path))[0].data["baselines"]
    trainer = Trainer.resume(tmp_path / "run", reward=path, device="cpu")
    assert not trainer.notices
    events = list(trainer.run())
    first = only(events, Eval)[0]
    assert first.best  # though 0.5 was more
    assert only(events, Finish)[0].figures["reward"] < 0.5


def test_a_file_is_run_only_where_it_is_named(tmp_path: Path) -> None:
    """A run folder may be a stranger's."""
    mark = tmp_path / "mark"
    path = file(tmp_path, f"from pathlib import Path\nPath({str(mark)!r}).touch()\n{SPACES}")
    begin(tmp_path, reward=path).close()
    mark.unlink()
    with pytest.raises(ResumeError, match="which is run only if it is named: give reward="):
        Trainer.resume(tmp_path / "run", device="cpu")
    with pytest.raises(ResumeError, match="checks is not what this run began to reward"):
        Trainer.resume(tmp_path / "run", reward="checks", device="cpu")
    with pytest.raises(ResumeError, match="is not what this run began to reward"):
        Trainer.resume(tmp_path / "run", reward=file(tmp_path, SPACES, "other.py"), device="cpu")
    assert not mark.exists()
    moved = file(tmp_path, Path(path).read_text(encoding="utf-8"), "moved.py")
    Trainer.resume(tmp_path / "run", reward=moved, device="cpu").close()
    assert mark.exists()


def test_a_file_of_the_model_to_begin_with_is_not_run(tmp_path: Path) -> None:
    """With the material of the run in `init`, its settings were taken, and with them a stranger's file was run."""
    mark = tmp_path / "mark"
    path = file(tmp_path, f"from pathlib import Path\nPath({str(mark)!r}).touch()\n{SPACES}")
    first = begin(tmp_path, reward=path)
    list(first.run())
    mark.unlink()
    with Trainer.start(tmp_path / "further", table(), task="reward", steps=2, init=tmp_path / "run") as further:
        assert further.config.to_dict()["reward"] == "checks"
    assert not mark.exists()
    command = further_command(tmp_path / "run", first.task.data, first.model.config, first.config)
    assert f"--reward={path}" in shlex.split(command)


def test_another_reward_is_refused(tmp_path: Path) -> None:
    run_until(begin(tmp_path, reward="re:.*"), 2)
    with pytest.raises(ResumeError, match=r"re:\. is not what this run began to reward, which was re:\.\*"):
        Trainer.resume(tmp_path / "run", reward="re:.", device="cpu")
    Trainer.resume(tmp_path / "run", reward="re:.*", device="cpu").close()


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_reference_that_is_gone_or_changed(tmp_path: Path, damage: str) -> None:
    begin(tmp_path, reward="re:.*").close()
    path = tmp_path / "run" / "state" / "reference.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink() if damage == "gone" else path.write_bytes(content)
    with pytest.raises(RunError, match=r"reference\.safetensors, which belongs to the model that the run began with"):
        Trainer.resume(tmp_path / "run", device="cpu")


def test_without_a_held_out_part(tmp_path: Path) -> None:
    events: Sequence[Event] = list(begin(tmp_path, val=0.0, steps=2).run())
    assert not only(list(events), Eval)
    assert only(list(events), Sample)
