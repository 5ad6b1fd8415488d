"""The chat template of jumok, that of Phi-3, which llama.cpp and Ollama know by its special tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Message = Mapping[str, str]

ROLES = SYSTEM, USER, ASSISTANT = ("system", "user", "assistant")
END, OPEN_REASONING, CLOSE_REASONING = "<|end|>", "<think>", "</think>"
CHAT_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>", END, OPEN_REASONING, CLOSE_REASONING)
TEMPLATE = """\
{% for message in messages %}
{% if message['role'] not in ['system', 'user', 'assistant'] %}
{{ raise_exception('a role is system, user or assistant') }}
{% endif %}
{{- '<|' + message['role'] + '|>\\n' }}
{%- if message['role'] == 'assistant' and message['reasoning_content'] %}
{{- '<think>' + message['reasoning_content'] + '</think>' }}
{%- endif %}
{{- message['content'] + '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>\\n' }}
{%- endif %}"""
# Of a model that reads a special token before each text.
TEMPLATE_AFTER_BOS = "{{- bos_token }}" + TEMPLATE


def own_text(messages: Sequence[Message], *, prompt: bool, bos: str = "") -> tuple[str, list[tuple[int, int]]]:
    """Return what the template writes, and where the answers with their ends stand in it.

    Args:
        prompt: begin another answer. bos: the token of TEMPLATE_AFTER_BOS.
    """
    parts, size, answers = [bos], len(bos), []
    for message in messages:
        role, thought = message["role"], message.get("reasoning_content")
        begin, said = f"<|{role}|>\n", message["content"] + END
        if role == ASSISTANT:
            said = f"{OPEN_REASONING}{thought}{CLOSE_REASONING}{said}" if thought else said
            answers.append((size + len(begin), size + len(begin) + len(said)))
        parts += [begin, said, "\n"]
        size += len(begin) + len(said) + 1
    return "".join(parts) + (f"<|{ASSISTANT}|>\n" if prompt else ""), answers
