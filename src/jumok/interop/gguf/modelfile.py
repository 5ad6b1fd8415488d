"""The Modelfile of a GGUF file, from which Ollama makes a model: https://docs.ollama.com/modelfile"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from jumok.config import GPTConfig
from jumok.tokenizers import Tokenizer

MARK = "# Written by jumok."  # may be replaced
SUFFIX = ".Modelfile"
# The chat template of jumok in the language of Go. Ollama takes the tags of reasoning from around .Thinking.
TEMPLATE = '''TEMPLATE """{{ range .Messages }}<|{{ .Role }}|>
{{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}<|end|>
{{ end }}<|assistant|>
"""
'''


def command(path: Path) -> str:
    """Return the command that makes a model of a Modelfile. Names of Ollama are in ASCII."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-") or "jumok"
    return f"ollama create {name} -f {shlex.quote(str(path))}"


def modelfile(path: Path, config: GPTConfig, tokenizer: Tokenizer, temperature: float) -> str:
    """Return the content of a Modelfile, which stands in the same folder as the file.

    A model that has learned to answer gets the chat template of jumok, and answers as in `jumok chat`. For another
    template, Ollama looks for one that it knows in the file. Other models get the prompt as it is: they continue a text
    and know no roles, and draw at the given temperature. A text has at most as many tokens as the context, because such
    a model does not end it.

    What Ollama would change about the probabilities by default is off.
    """
    template, stop, chat = 'TEMPLATE "{{ .Prompt }}"\n', "", tokenizer.chat
    if chat is not None:
        template = TEMPLATE if chat.is_own else ""
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
