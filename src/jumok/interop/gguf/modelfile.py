"""The Modelfile of a GGUF file, from which Ollama makes a model: https://docs.ollama.com/modelfile"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from jumok.config import GPTConfig
from jumok.tokenizers import Tokenizer, Turns

MARK = "# Written by jumok."  # may be replaced
SUFFIX = ".Modelfile"


def command(path: Path) -> str:
    """Return the command that makes a model of a Modelfile. Names of Ollama are in ASCII."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-") or "jumok"
    return f"ollama create {name} -f {shlex.quote(str(path))}"


def modelfile(path: Path, config: GPTConfig, tokenizer: Tokenizer, temperature: float) -> str:
    """Return the content of a Modelfile, which stands in the same folder as the file.

    A model that has learned to answer gets the turns of its chat template, and answers as in `jumok chat`. Where the
    template is not made of constant pieces, Ollama looks for one that it knows in the file. Other models get the prompt
    as it is: they continue a text and know no roles, and draw at the given temperature. A text has at most as many
    tokens as the context, because such a model does not end it.

    What Ollama would change about the probabilities by default is off.
    """
    template, stop, chat = 'TEMPLATE "{{ .Prompt }}"\n', "", tokenizer.chat
    if chat is not None:
        template = "" if chat.turns is None else f'TEMPLATE """{go_template(chat.turns)}"""\n'
        stop = "".join(f"PARAMETER stop {json.dumps(end, ensure_ascii=False)}\n" for end in chat.ends)
        temperature = 0.0
    return f"""{MARK} To use it: {command(Path(path.stem + SUFFIX))}
FROM ./{path.name}
{template}{stop}PARAMETER temperature {temperature:g}
PARAMETER top_k 0
PARAMETER top_p 1.0
PARAMETER min_p 0.0
PARAMETER repeat_penalty 1.0
PARAMETER num_ctx {config.context_length}
PARAMETER num_predict {config.context_length}
"""


def go_template(turns: Turns) -> str:
    """Return the turns of a chat template as a template of Ollama, in the language of Go."""
    start, prompt = _literal(turns.start), _literal(turns.generation_prompt)
    kinds = []
    for name, (before, after) in turns.roles.items():
        content = "{{ .Content }}"
        if name == "assistant" and turns.reasoning is not None:  # Ollama takes its tags from around .Thinking
            opening, closing = map(_literal, turns.reasoning)
            content = f"{{{{ if .Thinking }}}}{opening}{{{{ .Thinking }}}}{closing}{{{{ end }}}}{content}"
        kinds.append(f'if eq .Role "{name}" }}}}{_literal(before)}{content}{_literal(after)}')
    if start:
        start = f'{{{{ if ne (index .Messages 0).Role "system" }}}}{start}{{{{ end }}}}'
    return f"{start}{{{{ range .Messages }}}}{{{{ {'{{ else '.join(kinds)}{{{{ end }}}}{{{{ end }}}}{prompt}"


def _literal(piece: str) -> str:
    """Return what writes a text as it is: the text itself, or a string of Go where it would be read otherwise."""
    is_plain = re.search(r'{{|}}|"""|["{}]$|^["{}]', piece) is None
    return piece if is_plain else f"{{{{ {json.dumps(piece, ensure_ascii=False)} }}}}"
