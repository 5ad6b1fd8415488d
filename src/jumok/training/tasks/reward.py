"""Write answers, and make those with a higher reward likelier: a policy gradient with groups of answers.

Each step answers some prompts several times, at random. The answers to a prompt are a group, and what one of them
counts is its advantage there (https://arxiv.org/abs/2402.03300, section 4.1.2):

    advantage = (reward - mean of the group) / standard deviation of the group
    loss      = - sum over the tokens of all answers of advantage * log p(token), divided by the number of tokens

The answers are learned from once, so they are always those of the model as it is (on policy), and there is no ratio to
clip. The tokens of all answers count the same; divided by the length of its answer, as in the paper, a wrong token
would cost less in a long one (https://arxiv.org/abs/2503.20783). With `kl_weight` the divergence from the model that
the run began with (the reference) is added, estimated for each token as r - log r - 1, where r is its probability there
divided by the one here.

A group whose rewards are all equal, up to rounding, has no advantage, and takes part in the update only with
`kl_weight`, which keeps the model near the reference where its answers are right already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jumok.config import RewardConfig, TaskConfig, TrainConfig
from jumok.data.batches import RowBatches
from jumok.data.random_streams import Purpose, random_for
from jumok.data.rows import evenly_spread
from jumok.errors import ConfigError, ResumeError, TextError
from jumok.evaluation.chat import Question, questions_in
from jumok.inference.chat import Answer, answer_chats, chat_prompt, has_room
from jumok.messages import message, tr
from jumok.models import ModelConfig, build
from jumok.models.gpt import GPT
from jumok.models.losses import IGNORED
from jumok.runs.folder import RunFolder
from jumok.runs.parameters import parameters_of, restore_parameters
from jumok.text.conversations import COLUMNS, checks_of, messages_of
from jumok.tokenizers import Tokenizer
from jumok.training.tasks.answers import (
    REFERENCE,
    Answered,
    AnsweredRows,
    JudgesAnswers,
    answer_log_probabilities,
    answered,
    passes,
)
from jumok.training.tasks.chat import HELD_OUT, Chat
from jumok.training.tasks.material import Material
from jumok.training.tasks.rewards import CHECKS, RewardFunction, identity_of, is_file, is_same_file, reward_of
from jumok.training.tasks.stored_rows import Row, at_time_of, read_cells
from jumok.training.tasks.task import Baseline, Goal

ANSWERED = 256  # held-out questions that a validation answers, at most
ANSWERED_AT_THE_END = 1024
DIVERGENCE_ROWS = 16  # answers of a step by which its divergence from the reference is told
# Rewards are equal that differ by less than a millionth of the largest of their group, several roundings of float32;
# or by less than what is left of rounding where a sum cancels out.
EQUAL, EQUAL_TO_ZERO = 1e-6, 1e-12


def advantages(rewards: Tensor) -> Tensor:
    """Return how much better each reward is than the others of its group, (P, G) -> (P, G), 0 where all are equal.

    Rewards that differ by rounding are equal: divided by their deviation, rounding would count as much as a reward of 1
    beside one of 0. Nothing is added to the deviation, so that small rewards count as much as large ones.
    """
    spread = rewards.amax(dim=1, keepdim=True) - rewards.amin(dim=1, keepdim=True)  # (P, 1)
    differ = spread > (EQUAL * rewards.abs().amax(dim=1, keepdim=True)).clamp(min=EQUAL_TO_ZERO)
    deviation = rewards.std(dim=1, correction=0, keepdim=True)
    return torch.where(differ, (rewards - rewards.mean(dim=1, keepdim=True)) / deviation, 0.0)


def divergences(policy: Tensor, reference: Tensor) -> Tensor:
    """Estimate the divergence at each token that the policy has drawn, from its log-probabilities; 0 or more."""
    ratio = reference - policy
    return ratio.exp() - ratio - 1


class Reward(JudgesAnswers, Chat):
    """Write answers, and make those with a higher reward likelier."""

    config_type: ClassVar[type[TaskConfig]] = RewardConfig
    keys = Chat.keys - {"packed_rows", "row_length", "answer_tokens"} | {
        "most_answer_tokens",
        "reference_sha256",
        "reward_sha256",
    }
    goal = Goal(figure="reward", unit=message("a mean reward"), best=1.0)
    loss_label = message("1 - reward")
    fixed_shapes = False
    learns_from_answers = True

    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None:
        assert isinstance(config.task, RewardConfig)
        self.folder, self.data, self.tokenizer, self.model = folder, data, tokenizer, model
        self.settings, self.seed = config.task, config.seed
        at_time_of(data, tokenizer)
        self.held_out = read_cells(folder.state / HELD_OUT, data["val_rows"], len(COLUMNS))
        only_checks = self.settings.reward == CHECKS
        self.questions, self.asked = (_questions(rows, only_checks) for rows in (self.train, self.held_out))
        self.batches = RowBatches(len(self.questions), self.settings.prompts_per_step, config.seed)
        self.answers_per_step = self.settings.prompts_per_step * self.settings.answers_per_prompt
        self.width = max(2, data["train_tokens"] // data["train_rows"])  # ids of a conversation
        self.tokens_per_batch = self.answers_per_step * self.width
        self.tokens = min(self.tokens_per_batch, config.batch_size * model.context_length)  # of a pass
        self.validation_tokens = data["val_tokens"]
        self.reward: RewardFunction | None = None
        self.reference: GPT | None = None
        self.rows: AnsweredRows | None = None  # answers of this step to learn from
        self.advantages = torch.zeros(0)  # of these rows, (rows,)
        self.figures: dict[str, float] = {}  # of the answers of this step

    # --- before the run -----------------------------------------------------------------------------------------------

    @classmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Write the conversations of both parts; see `Task.prepare`."""
        assert isinstance(config.task, RewardConfig)
        if config.accumulate > 1:
            raise ConfigError(
                "accumulate={accumulate} is not for rewards: a step learns from all of its answers at once; leave it "
                "out, and give more {--prompts-per-step}.",
                accumulate=config.accumulate,
            )
        train, val, refused = cls.encoded(material, tokenizer, model, config)
        for part, name in ((train, tr("training part")), (val, tr("held-out part"))):
            if part and not _questions([row for row, _ in part], config.task.reward == CHECKS):
                raise TextError(
                    "no answer of the {part} has a check, so none can be rewarded. Give conversations with checks "
                    "(jumok corpus write talk), or {--reward re:PATTERN} or {--reward FILE.py}.",
                    part=name,
                )
        longest = max(chat.longest for _, chat in train)
        most = min(model.context_length, longest + longest // 2 + 1)
        return {**cls.written(folder, material, tokenizer, train, val, refused), "most_answer_tokens": most}

    def begin(self, model: GPT, named: Mapping[str, Any], report: Callable[[str], None]) -> dict[str, Any]:
        """Read the rewards and the reference, and answer held-out questions with the model to begin with.

        The Python file of a reward is run only where this launch names it: config.json may be a stranger's.
        """
        self.reward, sha256 = self._read_reward(named.get("reward"))
        tensors, recorded = self.stored_reference(
            lambda: {name: tensor.cpu() for name, tensor in parameters_of(model).items()}
        )
        with torch.random.fork_rng(devices=[]):
            reference = build(model.config)
        assert isinstance(reference, GPT)
        restore_parameters(reference, tensors, where=REFERENCE)
        self.reference = reference.to(model.token_embedding.weight.device).eval().requires_grad_(False)
        self.reference.tokenizer = self.tokenizer
        if not recorded:
            if sha256 == self.data["reward_sha256"]:
                return {}
            self.changed = tr(
                "{file} is not as it was: from here on its rewards are those of the corrected file. The reward of the "
                "model that the run began with is measured anew, and the best parameters are chosen anew.",
                file=named["reward"],
            )
        report(tr("answering with the model to begin with"))
        baselines = self._answered(self.reference, ANSWERED_AT_THE_END) if self.asked else {}
        return {**recorded, "reward_sha256": sha256, "baselines": baselines}

    def _read_reward(self, named: str | None) -> tuple[RewardFunction, str]:
        """Return the function that rewards answers, and the SHA-256 of the setting or its file.

        A file may be corrected; another name and another content are another reward.

        Args:
            named: the setting as this launch has given it.

        Raises:
            ResumeError: it is not the reward that the run began with, or a file that was not named.
        """
        recorded, recorded_sha256 = self.settings.reward, self.data.get("reward_sha256")
        if named is None and is_file(recorded):
            raise ResumeError(
                "the rewards of this run come from a Python file, which is run only if it is named: give {--reward "
                "{recorded}}.",
                recorded=recorded,
            )
        setting = named or recorded
        sha256 = identity_of(setting)
        if recorded_sha256 not in (None, sha256) and not is_same_file(setting, recorded):
            raise ResumeError(
                "{setting} is not what this run began to reward, which was {recorded}. Give that, or start a new run "
                "with {--init {run}}.",
                setting=setting,
                recorded=recorded,
                run=self.folder.path,
            )
        return reward_of(setting), sha256

    # --- a step -------------------------------------------------------------------------------------------------------

    def begin_step(self, model: GPT, number: int) -> None:
        """Answer the prompts of a step, reward the answers, and keep the groups that have a gradient."""
        seed = int(random_for(Purpose.ANSWERS, self.seed, number).integers(2**62))
        found = self._ask(model, [self.questions[row] for row in self.batches.rows(number)], seed=seed)
        gained = advantages(found.rewards)
        taught = gained.any(dim=1)  # (P,)
        used = taught | (self.settings.kl_weight > 0)
        kept = used.repeat_interleave(gained.shape[1]).nonzero()[:, 0].tolist()
        self.rows = AnsweredRows.of([found.rows[row] for row in kept or [0]])
        self.advantages = gained.flatten()[kept].float() if kept else torch.zeros(1)
        told = evenly_spread(len(found.rows), min(DIVERGENCE_ROWS, len(found.rows)))
        self.figures = {
            "reward": float(found.rewards.mean()),
            "best_of_group": float(found.rewards.max(dim=1).values.mean()),
            "spread": float(found.rewards.std(dim=1, correction=0).mean()),
            "groups_kept": float(taught.double().mean()),
            "answer_tokens": found.mean_length,
            "kl": self._divergence(model, [found.rows[row] for row in told]),
        }

    def _ask(
        self, model: GPT, questions: Sequence[Question], *, seed: int = 0, temperature: float | None = None
    ) -> Rewarded:
        """Answer questions and reward the answers: groups at random, or one answer each at temperature 0.

        Raises:
            TextError: no question leaves room for an answer; others are left out.
        """
        tokens = self.data["most_answer_tokens"]
        asked = [one for one in questions if has_room(model, one.before, tokens)] or questions[-1:]
        prompts = [chat_prompt(model, one.before, tokens)[0] for one in asked]
        samples = 1 if temperature == 0 else self.settings.answers_per_prompt
        groups = answer_chats(
            model,
            [question.before for question in asked],
            tokens=tokens,
            temperature=self.settings.temperature if temperature is None else temperature,
            samples=samples,
            seed=seed,
        )
        assert self.reward is not None  # `begin` has read it
        pairs = [(place, answer) for place, group in enumerate(groups) for answer in group]
        rewards = [self.reward(asked[place], answer) for place, answer in pairs]
        return Rewarded(
            questions=asked,
            groups=groups,
            rewards=torch.tensor(rewards, dtype=torch.float64).view(-1, samples),
            rows=[answered([*prompts[place], *answer.ids], len(prompts[place])) for place, answer in pairs],
        )

    @torch.inference_mode()
    def _divergence(self, model: GPT, sequences: Sequence[Answered]) -> float:
        """Return the mean divergence from the reference of the tokens of answers, in nats."""
        rows = AnsweredRows.of(sequences)
        total, count, device = 0.0, 0, model.token_embedding.weight.device
        for part in passes(rows.inputs.lengths[:, None], self.tokens):
            inputs, targets = (each.to(device) for each in rows.batch(part))
            policy = answer_log_probabilities(model, inputs, targets, self.settings.temperature)
            total += float(self._divergences(policy, inputs, targets).sum())
            count += int((targets != IGNORED).sum())
        return total / max(1, count)

    def _divergences(self, policy: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the divergences at the tokens of answers, of which `policy` are the log-probabilities: (B, T) each."""
        assert self.reference is not None  # `begin` has read it
        with torch.no_grad():
            reference = answer_log_probabilities(self.reference, inputs, targets, self.settings.temperature)
        return divergences(policy, reference)

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Return inputs and targets, (B, T) each, and advantages, (B,), of the first part."""
        return self.parts(number)[0]

    def parts(self, number: int) -> list[tuple[Tensor, ...]]:
        """Return the answers of this step that have a gradient, in parts; before the first one a stand-in."""
        if self.rows is None:  # a step is measured
            width = min(self.width, self.model.context_length)
            inputs = torch.zeros(max(1, self.tokens // width), width, dtype=torch.int64)
            return [(inputs, inputs.masked_fill(torch.arange(width) < width // 2, IGNORED), torch.zeros(len(inputs)))]
        chosen = passes(self.rows.inputs.lengths[:, None], self.tokens)
        return [(*self.rows.batch(rows), self.advantages[rows]) for rows in chosen]

    @property
    def tokens_per_pass(self) -> int:
        """The most ids of a pass."""
        return self.tokens

    @property
    def rows_per_batch(self) -> int:
        """The answers of a step."""
        return self.answers_per_step

    def cost(self, batch: tuple[Tensor, ...]) -> float:
        """Return the cost by the number of ids, padding included."""
        return batch[0].numel() / self.tokens_per_batch

    def loss_sums(self, model: GPT, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return a sum with the gradient of the loss. Its value is 1 - reward for each token, which says more."""
        inputs, targets, gained = batch
        policy = answer_log_probabilities(model, inputs, targets, self.settings.temperature)
        total = -(gained[:, None] * policy).sum()
        if self.settings.kl_weight and self.reference is not None:
            total = total + self.settings.kl_weight * self._divergences(policy, inputs, targets).sum()
        shown = (1 - self.figures.get("reward", 0.0)) * int((targets != IGNORED).sum())
        return (total - total.detach() + shown,)

    def figures_of_step(self, losses: Sequence[float]) -> dict[str, float]:
        """Return the mean reward, that of the best answers, and what else is known of the answers of the step."""
        return self.figures

    # --- figures ------------------------------------------------------------------------------------------------------

    def _answered(self, model: GPT, most: int) -> dict[str, float]:
        """Answer evenly spread held-out questions, always with the likeliest token."""
        chosen = evenly_spread(len(self.asked), min(most, len(self.asked)))
        found = self._ask(model, [self.asked[one] for one in chosen], temperature=0.0)
        reward = float(found.rewards.mean())
        return {
            "loss": 1 - reward,
            "reward": reward,
            "reward_error": float(found.rewards.std(correction=0) / len(found.rewards) ** 0.5),
            "answer_tokens": found.mean_length,
            "kl": self._divergence(model, found.rows),
            "rows": len(found.questions),
            "tokens": sum(len(inputs) for inputs, _ in found.rows),
        }

    @property
    def held_out_size(self) -> int:
        """Held-out questions."""
        return len(self.asked)

    def validate(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """Compute the mean reward, with its standard error, of greedy answers to some held-out questions."""
        return self._answered(model, ANSWERED)

    def final(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """Compute the figures of `validate` with more answers."""
        return self._answered(model, ANSWERED_AT_THE_END)

    def final_reads(self, max_tokens: int) -> int:
        """Return the tokens of the questions that are answered."""
        return self.validation_tokens * min(ANSWERED_AT_THE_END, len(self.asked)) // max(1, len(self.asked))

    def headline(self, figures: Mapping[str, float]) -> str:
        """Return the mean reward beside that of the model that the run began with, the length and the divergence."""
        return tr(
            "reward {reward:.3f} ± {error:.3f} (before: {before:.3f}), {tokens:.1f} tokens an answer, KL {kl:.4f}",
            reward=figures["reward"],
            error=figures["reward_error"],
            before=self.data["baselines"]["reward"],
            tokens=figures["answer_tokens"],
            kl=figures["kl"],
        )

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """Return the reward of the model that the run began with."""
        known = self.data.get("baselines")
        if not known:
            return ()
        name, words = message("the model that the run began with"), message("reward {value:.3f}")
        return (Baseline("reward", known["reward"], name, words, is_share=True, error=known["reward_error"]),)

    def sample(self, model: GPT, tokens: int, seed: int) -> str:
        """Return a prompt with the best and the worst one of several answers."""
        questions = self.asked or self.questions
        found = self._ask(model, [questions[seed % len(questions)]], seed=seed)
        [[question], [group], [rewards]] = found.questions, found.groups, found.rewards
        best, worst = int(rewards.argmax()), int(rewards.argmin())
        return tr(
            "prompt: {prompt}\nbest ({best_reward:.2f}): {best}\nworst ({worst_reward:.2f}): {worst}",
            prompt=question.before[-1]["content"],
            best=group[best].text,
            best_reward=float(rewards[best]),
            worst=group[worst].text,
            worst_reward=float(rewards[worst]),
        )


class Rewarded(NamedTuple):
    """Questions, the answers to each with their rewards, (P, G), and all of them in a row as sequences."""

    questions: Sequence[Question]
    groups: Sequence[Sequence[Answer]]
    rewards: Tensor
    rows: Sequence[Answered]

    @property
    def mean_length(self) -> float:
        """The mean number of tokens of an answer, the end of the turn included."""
        return float(np.mean([len(answer.ids) for group in self.groups for answer in group]))


def _questions(rows: Sequence[Row], only_checks: bool) -> list[Question]:
    """Return all questions of conversations, or those whose answer has a check."""
    return [
        question
        for messages, skill, checks in rows
        for question in questions_in(messages_of(messages), skill, checks_of(checks))
        if question.check or not only_checks
    ]
