"""The GPT in one file: it equals the production model, and runs alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from jumok.config import GPTConfig
from jumok.course import gpt_script
from jumok.models import GPT


def with_parameters_of(model: GPT, script: gpt_script.GPT) -> None:
    """Copy the parameters of a classic GPT. The heads of the script are rows of the production projections."""
    theirs = dict(model.named_parameters())
    names = {"tokens.": "token_embedding.", "positions.": "position_embedding.", "norm.": "norm."}
    inside = {"norm_1": "attention_norm", "norm_2": "mlp_norm", "mlp.0": "mlp.up_proj", "mlp.2": "mlp.down_proj"}
    inside["attention.projection"] = "attention.o_proj"
    with torch.no_grad():
        for name, parameter in script.named_parameters():
            if ".heads." in name:
                _, block, _, _, head, part, kind = name.split(".")
                rows = theirs[f"blocks.{block}.attention.{part[0]}_proj.{kind}"]
                size = parameter.shape[0]
                parameter.copy_(rows[int(head) * size : (int(head) + 1) * size])
                continue
            if name.startswith("blocks."):
                _, block, rest = name.split(".", 2)
                part, kind = rest.rsplit(".", 1)
                name = f"blocks.{block}.{inside[part]}.{kind}"
            else:
                start = next(start for start in names if name.startswith(start))
                name = names[start] + name.removeprefix(start)
            parameter.copy_(theirs[name])


def test_it_equals_the_classic_gpt() -> None:
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=70, family="classic", n_layer=2, n_head=3, n_embd=24, context_length=10, tie_embeddings=True
    )
    model = GPT(config).double().eval()
    script = gpt_script.GPT(70, length=10, layers=2, heads=3, width=24).double().eval()
    assert sum(p.numel() for p in script.parameters()) == model.parameter_count()
    for parameter in model.parameters():  # zeros and ones would hide a wrong place
        torch.nn.init.normal_(parameter, std=0.3)
    with_parameters_of(model, script)
    ids = torch.randint(70, (4, 7))
    torch.testing.assert_close(script(ids), model(ids), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("text", ["가나다 abc", "🙂 rare", "뷁", "half \udcb0 of a pair", ""])
def test_its_tokenizer_never_fails(text: str) -> None:
    characters = gpt_script.Characters("가나다가나다 abcabc")
    ids = characters.encode(text)
    assert all(0 <= i < characters.size for i in ids)
    assert characters.decode(ids) == text.encode("utf-8", "replace").decode()


def test_it_is_short() -> None:
    assert len(Path(gpt_script.__file__).read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.long
def test_it_runs_alone(tmp_path: Path) -> None:
    """In a folder of its own, without jumok on the path."""
    script = tmp_path / "gpt.py"
    script.write_bytes(Path(gpt_script.__file__).read_bytes())
    text = tmp_path / "novel.txt"
    text.write_text("그날 밤 나는 집을 나섰다. 비가 왔다.\n" * 200, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", script, text, "--minutes", "0.02", "--prompt", "그날"],
        capture_output=True, text=True, encoding="utf-8", timeout=280, check=True,
    )  # fmt: skip
    assert "nats per character" in done.stdout
    assert "\n그날" in done.stdout
