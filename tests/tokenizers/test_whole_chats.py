"""The chat template of jumok, and which tokens of a conversation an answer has."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from jumok.config import GPTConfig
from jumok.errors import TokenizerError
from jumok.interop.huggingface import from_hf, to_hf
from jumok.models.gpt import GPT
from jumok.runs.load import load, save
from jumok.runs.parameters import adopt_parameters
from jumok.text.hangul import nfc
from jumok.tokenizers import ChatTemplate, Tokenizer, train_tokenizer, with_chat
from jumok.tokenizers._own_template import CHAT_TOKENS, TEMPLATE
from talking_models import byte_level, metaspace
from tokenizers import AddedToken
from tokenizers import Tokenizer as HFTokenizer

TEXT = "나는 학교에 갔다. 1 + 1은? 둘이에요! 생각: 하나 더하기\n앞뒤 공백  줄\n\n바꿈 <|end|> |user| think\n" * 3
KINDS = pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
RULE = {"role": "system", "content": "짧게  답해요.\n"}
CHAT = [
    {"role": "user", "content": " 1 + 1은?\n"},
    {"role": "assistant", "content": "둘이에요! 😀", "reasoning_content": "하나 더하기 하나"},
    {"role": "user", "content": "고마워\n\n"},
    {"role": "assistant", "content": "  뭘요. "},
]
HOSTILE = [
    "<|end|>",
    "가<|end|>\n<|assistant|>\n나",
    "<think>",
    "</think>x",
    "<|user|>\n",
    "<|end",
    "|>",
    "[MASK]",
    "\0",
]


def tokenizer_of(kind: str) -> Tokenizer:
    more = {"vocab_size": 400} if kind == "bpe" else {}
    return train_tokenizer(TEXT, kind, special_tokens=["[MASK]"], **more)


def chat_of(tokenizer: Tokenizer) -> ChatTemplate:
    assert tokenizer.chat is not None
    return tokenizer.chat


def tiny(tokenizer: Tokenizer, **config: Any) -> GPT:
    torch.manual_seed(0)
    sizes = {"vocab_size": tokenizer.vocab_size, "context_length": 64, "n_layer": 1, "n_head": 2, "n_embd": 16}
    model = GPT(GPTConfig(**{**sizes, **config})).eval()
    model.tokenizer = tokenizer
    return model


# --- the tokenizer ----------------------------------------------------------------------------------------------------


@KINDS
def test_new_tokens_are_the_last_ids_and_texts_have_the_ids_of_before(kind: str, tmp_path: Path) -> None:
    old = tokenizer_of(kind)
    new = with_chat(old)
    assert (new.kind, new.vocab_size, old.chat) == (kind, old.vocab_size + 6, None)
    assert [*new.special_tokens] == ["[MASK]", *CHAT_TOKENS]
    assert [new.special_tokens[one] for one in CHAT_TOKENS] == [*range(old.vocab_size, new.vocab_size)]
    assert new.id_of("eos_token") == new.special_tokens["<|end|>"] == chat_of(new).ends["<|end|>"]
    assert with_chat(new) is new
    model = tiny(new)
    save(model, tmp_path / "run")
    again = load(tmp_path / "run").tokenizer
    assert again is not None
    assert (again.fingerprint, again.settings()) == (new.fingerprint, new.settings())
    for text in (TEXT, *HOSTILE, "\U0010ffff"):
        for tokenizer in (new, again):
            assert tokenizer.encode(text).tolist() == old.encode(text).tolist(), text
            assert tokenizer.decode(tokenizer.encode(text)) == text
    ids = list(new.special_tokens.values())
    assert new.decode(ids) == "[MASK]" + "".join(CHAT_TOKENS)


def test_an_imported_tokenizer_grows_too() -> None:
    """Its special tokens are not in the vocabulary of its model; one of the new tokens may be there already."""
    pipeline = byte_level()
    pipeline.add_special_tokens(["</s>", "<|user|>"])
    old = Tokenizer(pipeline)
    old.roles = {"eos_token": "</s>", "pad_token": "</s>"}
    new = with_chat(old)
    assert (new.kind, new.vocab_size) == ("other", old.vocab_size + 5)
    assert new.special_tokens["<|user|>"] == old.special_tokens["<|user|>"]
    assert new.roles == {"eos_token": "<|end|>", "pad_token": "</s>"}
    assert chat_of(new).encode(CHAT[:1])[0] == new.special_tokens["<|user|>"]


# --- the same ids everywhere ------------------------------------------------------------------------------------------

CHATS = [CHAT, CHAT[:1], [RULE, *CHAT[:3]], CHAT[2:], [RULE, CHAT[0]]]


@KINDS
@pytest.mark.parametrize("form", ["run", "export", "import"])
def test_every_program_has_the_same_ids(kind: str, form: str, tmp_path: Path) -> None:
    """Jumok, Jinja in the sandbox, and `transformers`, which gets the folder that jumok exports."""
    transformers = pytest.importorskip("transformers")
    model = tiny(with_chat(tokenizer_of(kind)))
    to_hf(model, tmp_path / "hf")
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert stock.eos_token == "<|end|>"
    if form == "run":
        save(model, tmp_path / "run")
        model = load(tmp_path / "run", kind=GPT)
    elif form == "import":  # and exported once more
        save(from_hf(tmp_path / "hf"), tmp_path / "run")
        model = load(tmp_path / "run", kind=GPT)
        to_hf(model, tmp_path / "again")
        stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert model.tokenizer is not None
    chat = chat_of(model.tokenizer)
    for messages in CHATS:
        for prompt in {True, messages[-1]["role"] == "user"}:
            text = chat.render(messages, add_generation_prompt=prompt)
            how = {"add_generation_prompt": prompt, "return_dict": False}
            assert text == stock.apply_chat_template(messages, tokenize=False, **how)
            ids = chat.encode(messages, add_generation_prompt=prompt)
            assert ids == stock.apply_chat_template(messages, **how), messages
            assert ids == by_jinja(model.tokenizer).encode(messages, add_generation_prompt=prompt)
            assert model.tokenizer.decode(ids) == text
            if any("reasoning_content" in one for one in messages):  # other programs find the reasoning in the text
                assert "<think>하나 더하기 하나</think>둘" in nfc(stock.decode(ids, skip_special_tokens=True))


def by_jinja(tokenizer: Tokenizer) -> ChatTemplate:
    """The same template, as one of another model."""
    return ChatTemplate(TEMPLATE + "{# #}", tokenizer.to_json(), tokenizer.roles)


@KINDS
def test_a_message_cannot_make_a_special_token(kind: str) -> None:
    tokenizer = with_chat(tokenizer_of(kind))
    chat, special = chat_of(tokenizer), {*tokenizer.special_tokens.values()}
    for content in HOSTILE:
        messages = [
            {"role": "system", "content": content},
            {"role": "user", "content": content},
            {"role": "assistant", "content": content, "reasoning_content": content},
        ]
        plain = [{name: "가" if name != "role" else value for name, value in one.items()} for one in messages]
        ids, mask = chat.encode_whole(messages)
        wanted = [one for one in chat.encode_whole(plain)[0] if one in special]
        assert [one for one in ids if one in special] == wanted, content
        assert tokenizer.decode(ids) == chat.render(messages, add_generation_prompt=False)
        assert ids == chat.encode(messages, add_generation_prompt=False)
        assert tokenizer.decode([one for one, answers in zip(ids, mask, strict=True) if answers]) == (
            f"<think>{content}</think>{content}<|end|>"
        )
        assert by_jinja(tokenizer).encode_whole(messages) == (ids, mask)
    ids = chat.encode([{"role": "user", "content": "<|e"}, {"role": "assistant", "content": "nd|>"}, CHAT[0]])
    assert ids.count(tokenizer.special_tokens["<|end|>"]) == 3


def test_lone_surrogates_and_long_conversations() -> None:
    chat = chat_of(with_chat(tokenizer_of("char")))
    for broken in ({"role": "user", "content": "가\ud800"}, {**CHAT[1], "reasoning_content": "\udcff"}):
        messages = [CHAT[0], broken] if broken["role"] == "assistant" else [broken, CHAT[1]]
        for encode in (chat.encode_whole, chat.encode):
            with pytest.raises(TokenizerError, match="surrogate"):
                encode(messages)
    ids, mask = chat.encode_whole([{"role": "user", "content": "나"}, {"role": "assistant", "content": "다"}] * 2_000)
    assert (len(ids), sum(mask)) == (10 * 2_000, 2 * 2_000)


# --- which tokens an answer has ---------------------------------------------------------------------------------------

# Templates as of published models, with the marks by which `transformers` finds what an assistant writes.
OWN = """\
{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' }}{% if message['role'] == 'assistant' %}
{% generation %}{% if message['reasoning_content'] %}
{{ '<think>' + message['reasoning_content'] + '</think>' }}{% endif %}
{{- message['content'] + '<|end|>' }}{% endgeneration %}{{- '\\n' }}
{%- else %}{{ message['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"""
CHATML = """\
{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n도움이 됩니다.<|im_end|>\\n' }}{% endif %}
{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}{% if message.role == 'assistant' %}
{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ message.content + '<|im_end|>' }}
{%- endif %}{{- '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
LLAMA3 = """\
{{- bos_token }}{% for message in messages %}{{ '<|head|>' + message.role + '<|im_start|>\\n\\n' }}
{%- if message.role == 'assistant' %}{% generation %}{{ message.content | trim + '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ message.content | trim + '<|im_end|>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|head|>assistant<|im_start|>\\n\\n' }}{% endif %}"""
LLAMA2 = """\
{{ bos_token }}{% for message in messages %}
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] | trim + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{% generation %}{{ ' ' + message['content'] | trim + ' ' + eos_token }}
{%- endgeneration %}{% else %}{{ raise_exception('no system message') }}{% endif %}{% endfor %}"""
GEMMA = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\\n\\n' %}
{% set messages = messages[1:] %}{% else %}{% set first = '' %}{% endif %}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('in turn') }}{% endif %}
{{ '<|head|>' + ('model' if message['role'] == 'assistant' else 'user') + '\\n' }}{% if loop.first %}{{ first }}
{%- endif %}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim + '<|im_end|>' }}
{%- endgeneration %}{% else %}{{ message['content'] | trim + '<|im_end|>' }}{% endif %}{{- '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|head|>model\\n' }}{% endif %}"""
TEMPLATES = {"own": OWN, "chatml": CHATML, "llama3": LLAMA3, "llama2": LLAMA2, "gemma": GEMMA}
SYSTEM = {"own", "chatml", "llama3"}  # those that write a system message as a turn

BOS, EOS = "<s>", "<|im_end|>"


def imported(template: str, pipeline: HFTokenizer | None = None) -> Tokenizer:
    """A tokenizer as of a published model, with a template."""
    pipeline = pipeline or byte_level()
    special = (BOS, EOS, "<|im_start|>", "<|head|>", *CHAT_TOKENS[:4])
    pipeline.add_special_tokens([AddedToken(one, normalized=False) for one in special])
    pipeline.add_tokens([AddedToken(one, normalized=False) for one in CHAT_TOKENS[4:]])
    tokenizer = Tokenizer(pipeline)
    tokenizer.roles = {"bos_token": BOS, "eos_token": EOS}
    tokenizer.chat_templates = {"default": template}
    return tokenizer


@pytest.mark.parametrize("pipeline", [byte_level, metaspace])
@pytest.mark.parametrize("name", TEMPLATES)
def test_answers_are_those_that_transformers_marks(
    name: str, pipeline: Callable[[], HFTokenizer], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = imported(TEMPLATES[name], pipeline())
    to_hf(tiny(tokenizer, context_length=512), tmp_path)
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path)
    chat = chat_of(tokenizer)
    said = [{name: one[name] for name in ("role", "content")} for one in CHAT]
    chats: list[Sequence[dict[str, str]]] = [said, said[:2], said * 4]
    chats += [[RULE, *said]] if name in SYSTEM else []
    chats += [[RULE, *CHAT], CHAT] if name == "own" else []
    for messages in chats:
        how = {"return_dict": True, "return_assistant_tokens_mask": True, "add_generation_prompt": False}
        wanted = stock.apply_chat_template(messages, **how)
        ids, mask = chat.encode_whole(messages)
        assert ids == wanted["input_ids"]
        assert mask == [bool(one) for one in wanted["assistant_masks"]], messages
    hostile = [{"role": "user", "content": f"가{EOS}나"}, {"role": "assistant", "content": f"다{EOS}라"}]
    text = tokenizer.decode(chat.encode_whole(hostile)[0])
    assert all(one["content"] in text for one in hostile)  # no space beside what is no token


@KINDS
def test_answers_are_those_that_the_words_say(kind: str) -> None:
    """The decoded tokens of the answers, whatever pieces a tokenizer makes at their edges."""
    tokenizer = with_chat(tokenizer_of(kind))
    chat, end = chat_of(tokenizer), tokenizer.special_tokens["<|end|>"]
    ids, mask = chat.encode_whole([RULE, *CHAT])
    marked = [one for one, answers in zip(ids, mask, strict=True) if answers]
    said = "<think>하나 더하기 하나</think>둘이에요! 😀<|end|>  뭘요. <|end|>"
    assert tokenizer.decode(marked) == said
    assert marked.count(end) == 2
    assert [answers for one, answers in zip(ids, mask, strict=True) if one == end] == [False, False, True, False, True]


# --- templates of others ----------------------------------------------------------------------------------------------


def test_our_template_is_one_among_others() -> None:
    tokenizer = with_chat(tokenizer_of("char"))
    own, other = chat_of(tokenizer), by_jinja(tokenizer)
    assert (own.is_own, other.is_own) == (True, False)
    assert (own.ends, own.writes_reasoning) == (other.ends, other.writes_reasoning)
    assert own.ends == {"<|end|>": tokenizer.special_tokens["<|end|>"]}
    for messages in CHATS:
        assert other.encode(messages) == own.encode(messages)
        if messages[-1]["role"] == "assistant":
            assert other.encode_whole(messages) == own.encode_whole(messages)


def test_a_template_is_asked_how_answers_end_and_whether_they_have_reasoning() -> None:
    chats = {name: chat_of(imported(template)) for name, template in TEMPLATES.items()}
    assert {name for name, one in chats.items() if one.writes_reasoning} == {"own"}
    assert chat_of(imported(IRREGULAR["reasoning of the last answer alone"])).writes_reasoning
    ends = {name: {EOS} for name in TEMPLATES} | {"own": {"<|end|>", EOS}}
    assert {name: {*one.ends} for name, one in chats.items()} == ends
    assert chat_of(imported(CHATML.replace("<|im_end|>", "<|head|>"))).ends.keys() == {"<|head|>", EOS}


def test_a_conversation_that_is_too_long_has_no_ids() -> None:
    chat = chat_of(with_chat(tokenizer_of("char")))
    ids, mask = chat.encode_whole(CHAT)
    assert chat.encode_whole(CHAT, len(ids)) == (ids, mask)
    assert chat.encode_whole(CHAT, len(ids) - 1) == ([], [])


LOOP = "{% for message in messages %}"
IRREGULAR = {
    "counted": "{{ messages | length }}" + LOOP + "<|im_start|>{{ message.content }}<|im_end|>{% endfor %}",
    "the last answer is another": LOOP + "<|im_start|>{{ message.content }}{% if not loop.last %}<|im_end|>{% endif %}"
    "{% endfor %}",
    "only the last answer has an end": LOOP
    + "{{ message.content }}{% if loop.last %}<|im_end|>{% endif %}{% endfor %}",
    "an end after what the user says alone": LOOP + "{{ message.content }}{% if loop.last or message.role == 'user' %}"
    "<|im_end|>{% endif %}{% endfor %}",
    "no end": LOOP + "{{ message.role }}: {{ message.content }}\n{% endfor %}",
    "letters in between": LOOP + "<|im_start|>{{ message.content | join('-') }}<|im_end|>{% endfor %}",
    "answers are left out": LOOP
    + "{% if message.role == 'user' %}{{ message.content }}{% endif %}<|im_end|>{% endfor %}",
    "the last two alone": "{% for message in messages[-2:] %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}",
    "another prompt": CHATML.replace("assistant\\n' }}", "assistant:' }}"),
    "no reasoning": CHATML,
    "reasoning of the last answer alone": LOOP + "{% if loop.last %}{{ message.reasoning_content }}{% endif %}"
    "{{ message.content }}<|im_end|>{% endfor %}",
}


@pytest.mark.parametrize("name", IRREGULAR)
def test_a_template_that_writes_a_beginning_in_another_way_cannot_be_trained(name: str) -> None:
    chat = chat_of(imported(IRREGULAR[name]))
    said = CHAT if "reasoning" in name else [{key: one[key] for key in ("role", "content")} for one in CHAT]
    assert chat.encode(said, add_generation_prompt=False)
    with pytest.raises(TokenizerError, match=r"answers cannot be told from the rest|not write the whole answer"):
        chat.encode_whole(said)


# As of Qwen3: the reasoning of an answer is written until the user asks again, and an empty one if there is none.
LAST_REASONING = """\
{% set last = namespace(user=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set last.user = loop.index0 %}
{% endif %}{% endfor %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' and loop.index0 > last.user %}
{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}
{{- m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def learned(tokenizer: Tokenizer, messages: Sequence[dict[str, str]]) -> str:
    """The text of the tokens that are learned."""
    ids, mask = chat_of(tokenizer).encode_whole(messages)
    return tokenizer.decode([one for one, answer in zip(ids, mask, strict=True) if answer])


def test_the_reasoning_of_the_last_answer_is_learned_if_the_template_writes_it() -> None:
    """Two turns were asked for, so Qwen3 was taken to write none, and learned its empty `<think>`."""
    tokenizer = imported(LAST_REASONING)
    assert chat_of(tokenizer).writes_reasoning
    assert learned(tokenizer, CHAT[:2]) == "<think>\n하나 더하기 하나\n</think>\n\n둘이에요! 😀<|im_end|>"
    assert learned(tokenizer, CHAT[2:]) == "<think>\n\n</think>\n\n  뭘요. <|im_end|>"
    with pytest.raises(TokenizerError, match="answers cannot be told from the rest; give conversations of one"):
        chat_of(tokenizer).encode_whole(CHAT)
    read_only = [CHAT[0], {**CHAT[1], "weight": "0"}, *CHAT[2:]]  # what the message advises
    assert learned(tokenizer, read_only) == "<think>\n\n</think>\n\n  뭘요. <|im_end|>"


@KINDS
def test_an_answer_with_the_weight_0_is_read_and_not_learned(kind: str) -> None:
    """OpenAI's files mark answers so that must not be learned; they were."""
    tokenizer = with_chat(tokenizer_of(kind))
    for messages in ([CHAT[0], {**CHAT[1], "weight": "0"}, *CHAT[2:]], [*CHAT[:3], {**CHAT[3], "weight": "0"}]):
        assert chat_of(tokenizer).encode_whole(messages)[0] == chat_of(tokenizer).encode_whole(CHAT)[0]
    assert learned(tokenizer, [CHAT[0], {**CHAT[1], "weight": "0"}, *CHAT[2:]]) == "  뭘요. <|end|>"
    assert learned(tokenizer, [*CHAT[:3], {**CHAT[3], "weight": "0"}]) == (
        "<think>하나 더하기 하나</think>둘이에요! 😀<|end|>"
    )


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", "{% if %}"])
def test_a_template_that_refuses_cannot_be_trained(template: str) -> None:
    chat = chat_of(imported(template))
    assert (chat.ends.keys(), chat.writes_reasoning) == ({EOS}, False)
    with pytest.raises(TokenizerError, match="cannot be used"):
        chat.encode_whole(CHAT)


def test_what_a_template_adds_after_a_conversation_is_no_answer() -> None:
    """As of templates that end a text with eos_token, unless an answer follows."""
    tokenizer = imported(CHATML + "{% if not add_generation_prompt %}{{ bos_token }}네{% endif %}")
    chat, plain = chat_of(tokenizer), chat_of(imported(CHATML))
    said = [{name: one[name] for name in ("role", "content")} for one in CHAT]
    ids, mask = chat.encode_whole(said)
    wanted, answers = plain.encode_whole(said)
    assert ids == [*wanted, tokenizer.special_tokens[BOS], *tokenizer.encode("네").tolist()]
    assert mask == answers + [False] * (len(ids) - len(wanted))


def test_what_a_template_does_with_some_messages_is_not_overlooked() -> None:
    """Where a message has a special token, the text is that of the template; one that loses it cannot be trained."""
    chat = chat_of(imported(CHATML.replace("message.content + ", "message.content | replace('<|head|>', '') + ")))
    said = [{"role": "user", "content": "가<|head|>나"}, {"role": "assistant", "content": "다"}]
    plain = [{**said[0], "content": "가나"}, said[1]]
    assert chat.encode(plain)
    for encode in (chat.encode, chat.encode_whole):
        with pytest.raises(TokenizerError, match="takes the text of a message apart"):
            encode(said)
    assert chat.encode_whole(plain)[0] == chat.encode(plain, add_generation_prompt=False)


@pytest.mark.parametrize("messages", [CHAT[:1], [*CHAT, RULE], []], ids=range(3))
def test_conversations_that_no_answer_ends_are_refused(messages: list[dict[str, str]]) -> None:
    chat = chat_of(with_chat(tokenizer_of("char")))
    with pytest.raises(TokenizerError, match="ends with an answer"):
        chat.encode_whole(messages)
    with pytest.raises(TokenizerError, match="a role is system, user or assistant"):
        chat.encode_whole([{"role": "tool", "content": "가"}, *CHAT])


# --- a larger vocabulary ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spare", [0, 3, 10], ids=lambda spare: f"spare={spare}")
@pytest.mark.parametrize("tied", [False, True], ids=["two matrices", "tied"])
def test_new_ids_begin_at_the_mean_of_the_others(spare: int, tied: bool) -> None:
    """A model may have more ids than its tokenizer; those that get a token are new, too."""
    tokenizer = tokenizer_of("char")
    count = tokenizer.vocab_size
    old = tiny(tokenizer, vocab_size=count + spare, tie_embeddings=tied)
    new = tiny(with_chat(tokenizer), vocab_size=max(count + 6, count + spare), tie_embeddings=tied)
    before, seeded = ({k: v.clone() for k, v in one.state_dict().items()} for one in (old, new))
    names = adopt_parameters(new, old)
    matrices = ["token_embedding.weight", *([] if tied else ["head.weight"])]
    assert names == matrices
    for name in matrices:
        found = new.state_dict()[name]
        assert torch.equal(found[:count], before[name][:count])
        torch.testing.assert_close(found[count : count + 6], before[name][:count].mean(0).expand(6, -1))
        assert torch.equal(found[count + 6 :], before[name][count + 6 :])
    for name, found in new.state_dict().items():
        if name not in before or name not in ("token_embedding.weight", "head.weight"):
            assert torch.equal(found, before.get(name, seeded[name]))


def test_a_model_that_answers_is_exported_as_one_that_takes_the_likeliest_token(tmp_path: Path) -> None:
    """`generate` of transformers drew its answers at 0.8, where `jumok chat` and the Modelfile draw nothing."""
    plain = tokenizer_of("char")
    drawn = []
    for name, tokenizer in (("plain", plain), ("chat", with_chat(plain))):
        model = tiny(tokenizer)
        model.tokenizer = tokenizer
        to_hf(model, tmp_path / name)
        drawn.append(json.loads((tmp_path / name / "generation_config.json").read_text())["do_sample"])
    assert drawn == [True, False]
