"""The Modelfile of a GGUF file, from which Ollama makes a model: https://docs.ollama.com/modelfile"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from jumok.config import GPTConfig

MARK = "# Written by jumok."  # may be replaced
SUFFIX = ".Modelfile"


def command(path: Path) -> str:
    """Return the command that makes a model of a Modelfile. Names of Ollama are in ASCII."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-") or "jumok"
    return f"ollama create {name} -f {shlex.quote(str(path))}"


def modelfile(path: Path, config: GPTConfig, temperature: float) -> str:
    """Return the content of a Modelfile, which stands in the same folder as the file.

    The prompt goes to the model as it is, because a GPT continues a text and knows no roles. What Ollama would change
    about the probabilities by default is off, except for the temperature. A text has at most as many tokens as the
    context, because the model does not end it.
    """
    return f"""{MARK} To use it: {command(Path(path.stem + SUFFIX))}
FROM ./{path.name}
TEMPLATE "{{{{ .Prompt }}}}"
PARAMETER temperature {temperature:g}
PARAMETER top_k 0
PARAMETER top_p 1.0
PARAMETER min_p 0.0
PARAMETER repeat_penalty 1.0
PARAMETER num_ctx {config.context_length}
PARAMETER num_predict {config.context_length}
"""
