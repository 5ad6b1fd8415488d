"""To and from the model folders of Hugging Face `transformers`, which itself is not needed for it.

    family    stock class        differs in
    modern    Qwen3ForCausalLM   nothing
    classic   GPT2LMHeadModel    n_head * head_dim = n_embd is fixed there; see `widen_heads` for what that means

One table for each family says which of our parameters make up a stock tensor. GPT-2 keeps q, k and v in one tensor,
and its matrices the other way round (its class calls them Conv1D); both are undone in `to_stock` and `from_stock`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from jumok.config import GPTConfig, RungConfig, from_dict
from jumok.errors import JumokError, RunError
from jumok.files import sync_folder
from jumok.models.gpt import GPT
from jumok.tokenizers import Tokenizer

ARCHITECTURES = {"modern": "Qwen3ForCausalLM", "classic": "GPT2LMHeadModel"}
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
MARK = "jumok_version"  # in config.json: this folder is an export, and may be replaced by a newer one

# Stock tensor: our parameters, one below the other. {i} is the number of a block.
QWEN3: dict[str, tuple[str, ...]] = {
    "model.embed_tokens.weight": ("token_embedding.weight",),
    "model.layers.{i}.input_layernorm.weight": ("blocks.{i}.attention_norm.weight",),
    "model.layers.{i}.self_attn.q_proj.weight": ("blocks.{i}.attention.q_proj.weight",),
    "model.layers.{i}.self_attn.k_proj.weight": ("blocks.{i}.attention.k_proj.weight",),
    "model.layers.{i}.self_attn.v_proj.weight": ("blocks.{i}.attention.v_proj.weight",),
    "model.layers.{i}.self_attn.o_proj.weight": ("blocks.{i}.attention.o_proj.weight",),
    "model.layers.{i}.self_attn.q_norm.weight": ("blocks.{i}.attention.q_norm.weight",),
    "model.layers.{i}.self_attn.k_norm.weight": ("blocks.{i}.attention.k_norm.weight",),
    "model.layers.{i}.post_attention_layernorm.weight": ("blocks.{i}.mlp_norm.weight",),
    "model.layers.{i}.mlp.gate_proj.weight": ("blocks.{i}.mlp.gate_proj.weight",),
    "model.layers.{i}.mlp.up_proj.weight": ("blocks.{i}.mlp.up_proj.weight",),
    "model.layers.{i}.mlp.down_proj.weight": ("blocks.{i}.mlp.down_proj.weight",),
    "model.norm.weight": ("norm.weight",),
    "lm_head.weight": ("head.weight",),
}
GPT2: dict[str, tuple[str, ...]] = {
    "transformer.wte.weight": ("token_embedding.weight",),
    "transformer.wpe.weight": ("position_embedding.weight",),
    **{
        f"transformer.h.{{i}}.{stock}.{kind}": tuple(f"blocks.{{i}}.{our}.{kind}" for our in ours)
        for stock, ours in {
            "ln_1": ("attention_norm",),
            "attn.c_attn": ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
            "attn.c_proj": ("attention.o_proj",),
            "ln_2": ("mlp_norm",),
            "mlp.c_fc": ("mlp.up_proj",),
            "mlp.c_proj": ("mlp.down_proj",),
        }.items()
        for kind in ("weight", "bias")
    },
    "transformer.ln_f.weight": ("norm.weight",),
    "transformer.ln_f.bias": ("norm.bias",),
    "lm_head.weight": ("head.weight",),
}
TABLES = {"modern": QWEN3, "classic": GPT2}
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # stored (in, out)
BUFFERS = (".attn.bias", ".attn.masked_bias")  # constants that old GPT-2 files carry along

GPT2_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}
# GPT-2's names for the tanh form of GELU; its "gelu" is the exact one, which jumok has not.
OUR_ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "relu": "relu"}


# --- out --------------------------------------------------------------------------------------------------------------


def to_hf(model: GPT, folder: str | os.PathLike[str]) -> None:
    """Write a model as a folder that `AutoModelForCausalLM.from_pretrained` loads, in transformers 4.56 or newer.

    With a tokenizer at `model.tokenizer`, `AutoTokenizer.from_pretrained` loads that too, with the same ids. Weights
    keep their type. The folder appears complete or not at all; an earlier export in its place is replaced.

    Raises:
        RunError: the folder holds something else, or cannot be written.
        JumokError: no stock class can express the model: a rung of the ladder, or a classic model whose heads are wider
            than n_embd.
    """
    target = Path(folder)
    _require_replaceable(target)
    config = model.config
    if isinstance(config, RungConfig):
        raise JumokError(
            "this is a rung of the ladder, a GPT with parts left out, and no stock class can express it; train a whole "
            "one with `jumok train` to take it to transformers."
        )
    parameters = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    if config.family == "classic":
        config, parameters = widen_heads(config, parameters)
    kind = str(model.token_embedding.weight.dtype).removeprefix("torch.")
    documents = {"config.json": stock_config(config, kind), "generation_config.json": dict(_NO_SPECIAL_IDS)}
    if model.tokenizer is not None:
        documents["tokenizer_config.json"] = _tokenizer_config(model.tokenizer, config)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", suffix=".tmp", dir=target.parent) as temporary:
            new, old = Path(temporary) / "new", Path(temporary) / "old"
            new.mkdir()
            for name, values in documents.items():
                (new / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
            if model.tokenizer is not None:
                model.tokenizer.save(new / "tokenizer.json")
            save_file(to_stock(config, parameters), new / "model.safetensors", metadata={"format": "pt"})
            for file in new.iterdir():
                with file.open("rb+") as handle:
                    os.fsync(handle.fileno())
            if target.exists():
                target.rename(old)
            try:
                new.rename(target)
            except OSError:
                old.rename(target)  # otherwise it would go with the temporary folder
                raise
            sync_folder(target.parent)
    except (OSError, SafetensorError) as error:
        raise RunError(f"cannot write {target}: {getattr(error, 'strerror', None) or error}.") from error


def stock_config(config: GPTConfig, dtype: str) -> dict[str, Any]:
    """The config.json of the stock class for a model of this shape, with weights of the type called `dtype`."""
    common = {
        "architectures": [ARCHITECTURES[config.family]],
        "dtype": dtype,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tie_embeddings,
        **_NO_SPECIAL_IDS,
        MARK: version("jumok"),
    }
    if config.family == "classic":
        return {
            "model_type": "gpt2",
            "n_positions": config.context_length,
            "n_embd": config.n_embd,
            "n_layer": config.n_layer,
            "n_head": config.n_head,
            "n_inner": config.mlp_width,
            "activation_function": GPT2_ACTIVATIONS[config.activation],
            "layer_norm_epsilon": config.norm_eps,
            "embd_pdrop": config.dropout,
            "resid_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
            **common,
        }
    return {
        "model_type": "qwen3",
        "max_position_embeddings": config.context_length,
        "hidden_size": config.n_embd,
        "intermediate_size": config.mlp_width,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_kv_head,
        "head_dim": config.head_dim,
        "hidden_act": config.activation,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,  # transformers 4 reads this one, 5 the next
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "attention_bias": False,
        "attention_dropout": config.attention_dropout,
        "use_sliding_window": False,
        **common,
    }


def widen_heads(config: GPTConfig, parameters: Mapping[str, Tensor]) -> tuple[GPTConfig, dict[str, Tensor]]:
    """The same classic model with heads that fill n_embd, as GPT-2 demands: n_head * head_dim = n_embd.

    Each head is padded with zeros, in q, k, v and in the matching columns of the output projection, which changes
    no product. GPT-2 divides the scores by the root of the new width instead of the old one; q grows by the root of
    their quotient to make up for it. Where n_embd is not divisible by n_head, heads of zeros are added until it is.
    The logits are equal up to rounding.

    Raises:
        JumokError: n_head * head_dim is more than n_embd, so that nothing can be padded.
    """
    heads = next((h for h in range(config.n_head, config.n_embd // config.head_dim + 1) if config.n_embd % h == 0), 0)
    if not heads:
        raise JumokError(
            f"GPT2LMHeadModel cannot express this model: n_head={config.n_head} heads of head_dim={config.head_dim} "
            f"do not fit into n_embd={config.n_embd} there. Train with n_head * head_dim of at most n_embd."
        )
    width = config.n_embd // heads
    if (heads, width) == (config.n_head, config.head_dim):
        return config, dict(parameters)
    wider = dict(parameters)
    for name, tensor in parameters.items():
        if ".q_proj." in name or ".k_proj." in name or ".v_proj." in name:
            scale = (width / config.head_dim) ** 0.5 if ".q_proj." in name else 1.0
            padded = tensor.new_zeros(heads, width, *tensor.shape[1:])  # (H', D') or (H', D', C)
            padded[: config.n_head, : config.head_dim] = tensor.unflatten(0, (config.n_head, config.head_dim)) * scale
            wider[name] = padded.flatten(0, 1)  # (C,) or (C, C)
        elif name.endswith("o_proj.weight"):
            padded = tensor.new_zeros(config.n_embd, heads, width)  # (C, H', D')
            padded[:, : config.n_head, : config.head_dim] = tensor.unflatten(1, (config.n_head, config.head_dim))
            wider[name] = padded.flatten(1)  # (C, C)
    return dataclasses.replace(config, n_head=heads, n_kv_head=heads, head_dim=width), wider


def to_stock(config: GPTConfig, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Stock tensors by name, from ours by name."""
    return {
        stock: _turned(stock, torch.cat([parameters[our] for our in ours])).contiguous()
        for stock, ours in _table(config).items()
    }


# --- in ---------------------------------------------------------------------------------------------------------------


def from_hf(folder: str | os.PathLike[str]) -> GPT:
    """Load a folder of a Qwen3ForCausalLM or a GPT2LMHeadModel, its weights in safetensors.

    Returns:
        The model in eval mode, float64 where the file is and float32 otherwise, with `tokenizer` set where the
        folder has a tokenizer.json.

    Raises:
        RunError: a file is missing or damaged, or the tensors do not fit config.json; all of them are listed.
        JumokError: the model is another one, or has something that jumok has not; the message names it.
    """
    path = Path(folder)
    if not path.is_dir():
        raise RunError(f"there is no folder {path}; give one with a config.json and a model.safetensors.")
    config = our_config(_read_json(path / "config.json"), str(path))
    tensors = _read_tensors(path)
    parameters = from_stock(config, tensors, str(path))
    model = GPT(config)
    model.to(torch.promote_types(parameters["token_embedding.weight"].dtype, torch.float32))
    model.load_state_dict(parameters)
    if (path / "tokenizer.json").is_file():
        model.tokenizer = Tokenizer.load(path / "tokenizer.json")
        if model.tokenizer.vocab_size > config.vocab_size:
            raise RunError(
                f"{path}: tokenizer.json has {model.tokenizer.vocab_size} ids, but the model was made for "
                f"{config.vocab_size}; put the tokenizer.json back that belongs to it."
            )
    return model.eval()


def our_config(stock: Mapping[str, Any], where: str) -> GPTConfig:
    """The shape of a model, from a stock config.json; what it leaves out has the default of its class.

    Raises:
        RunError: a size is missing. ConfigError: one is of the wrong type or out of range.
        JumokError: jumok has no such model.
    """
    names = stock.get("architectures") or [f"of model_type {stock.get('model_type')!r}, no architectures given"]
    family = next((family for family, name in ARCHITECTURES.items() if name == names[0]), None)
    if family is None:
        raise JumokError(f"{where} is a model {names[0]}; jumok reads {' and '.join(ARCHITECTURES.values())}.")
    try:
        fields = _from_gpt2(stock, where) if family == "classic" else _from_qwen3(stock, where)
    except KeyError as error:
        raise RunError(f"{where}/config.json does not say {error}; restore it from a copy.") from None
    return from_dict(GPTConfig, fields)


def _from_gpt2(stock: Mapping[str, Any], where: str) -> dict[str, Any]:
    activation = stock.get("activation_function", "gelu_new")
    _refuse(
        where,
        {
            f"activation_function {activation!r}": activation not in OUR_ACTIVATIONS,
            "scale_attn_weights false": not stock.get("scale_attn_weights", True),
            "scale_attn_by_inverse_layer_idx": stock.get("scale_attn_by_inverse_layer_idx", False),
            "add_cross_attention": stock.get("add_cross_attention", False),
        },
    )
    return {
        "family": "classic",
        "vocab_size": stock["vocab_size"],
        "context_length": stock["n_positions"],
        "n_layer": stock["n_layer"],
        "n_head": stock["n_head"],
        "n_embd": stock["n_embd"],
        "mlp_width": stock.get("n_inner") or 4 * stock["n_embd"],
        "activation": OUR_ACTIVATIONS[activation],
        "dropout": stock.get("resid_pdrop", 0.1),
        "attention_dropout": stock.get("attn_pdrop", 0.1),
        "tie_embeddings": stock.get("tie_word_embeddings", True),
        "norm_eps": stock.get("layer_norm_epsilon", 1e-5),
    }


def _from_qwen3(stock: Mapping[str, Any], where: str) -> dict[str, Any]:
    rope = stock.get("rope_parameters") or stock.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    activation = stock.get("hidden_act", "silu")
    _refuse(
        where,
        {
            f"hidden_act {activation!r}": activation != "silu",
            f"rope_type {rope_type!r}": rope_type != "default",
            "attention_bias": stock.get("attention_bias", False),
            "use_sliding_window": stock.get("use_sliding_window", False),
        },
    )
    return {
        "family": "modern",
        "vocab_size": stock["vocab_size"],
        "context_length": stock["max_position_embeddings"],
        "n_layer": stock["num_hidden_layers"],
        "n_head": stock["num_attention_heads"],
        "n_kv_head": stock.get("num_key_value_heads") or stock["num_attention_heads"],
        "n_embd": stock["hidden_size"],
        "head_dim": stock.get("head_dim", 128),
        "mlp_width": stock["intermediate_size"],
        "attention_dropout": stock.get("attention_dropout", 0.0),
        "tie_embeddings": stock.get("tie_word_embeddings", False),
        "norm_eps": stock.get("rms_norm_eps", 1e-6),
        "rope_theta": rope.get("rope_theta") or stock.get("rope_theta") or 10_000.0,
    }


def from_stock(config: GPTConfig, tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Our parameters by name, ready for `load_state_dict`, from stock tensors by name.

    Raises:
        RunError: tensors are missing, unknown or of another shape; all are listed.
    """
    with torch.device("meta"):  # shapes without numbers
        shapes = {name: tensor.shape for name, tensor in GPT(config).state_dict().items()}
    wanted = {
        stock: _turned(stock, torch.cat([torch.empty(shapes[our], device="meta") for our in ours])).shape
        for stock, ours in _table(config).items()
    }
    prefix = next(iter(wanted)).partition(".")[0] + "."
    if not any(name.startswith(prefix) for name in tensors):  # saved from the class without a head
        tensors = {name if name == "lm_head.weight" else prefix + name: tensor for name, tensor in tensors.items()}
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(BUFFERS)}
    if config.tie_embeddings:  # some files hold the shared matrix twice
        tensors.pop("lm_head.weight", None)
    faults = [f"{name} is missing" for name in wanted if name not in tensors]
    faults += [f"{name} is unknown" for name in tensors if name not in wanted]
    faults += [
        f"{name} is {tuple(tensors[name].shape)}, not {tuple(shape)}"
        for name, shape in wanted.items()
        if name in tensors and tensors[name].shape != shape
    ]
    if faults:
        raise RunError(f"the tensors of {where} do not fit its config.json: {'; '.join(faults)}.")
    parameters: dict[str, Tensor] = {}
    for stock, ours in _table(config).items():
        parts = _turned(stock, tensors[stock]).split([shapes[our][0] for our in ours])
        parameters.update(zip(ours, parts, strict=True))
    if config.tie_embeddings:
        parameters["head.weight"] = parameters["token_embedding.weight"]
    return parameters


# --- both ways --------------------------------------------------------------------------------------------------------

# GPT-2's class would put its own end-of-text id, 50256, where these are left out.
_NO_SPECIAL_IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def _table(config: GPTConfig) -> dict[str, tuple[str, ...]]:
    """The family's table with a row for each tensor of each block."""
    rows: dict[str, tuple[str, ...]] = {}
    for stock, ours in TABLES[config.family].items():
        if stock == "lm_head.weight" and config.tie_embeddings:
            continue
        for i in range(config.n_layer if "{i}" in stock else 1):
            rows[stock.format(i=i)] = tuple(our.format(i=i) for our in ours)
    return rows


def _turned(stock: str, tensor: Tensor) -> Tensor:
    return tensor.T if stock.endswith(CONV1D) else tensor


def _tokenizer_config(tokenizer: Tokenizer, config: GPTConfig) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.context_length,
        "clean_up_tokenization_spaces": False,
        # jumok's own kinds take "[MASK]" in a text for text; see jumok.tokenizers.Tokenizer.
        "split_special_tokens": tokenizer.kind != "other",
    }


def _refuse(where: str, faults: Mapping[str, bool]) -> None:
    found = [fault for fault, there in faults.items() if there]
    if found:
        raise JumokError(f"{where} needs what jumok's model has not: {', '.join(found)}.")


def _require_replaceable(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise RunError(f"{target} is a file; give a folder for the export.")
    if not target.is_dir() or not any(target.iterdir()):
        return
    names = {path.name for path in target.iterdir()}
    ours = names <= set(FILES) and "config.json" in names and MARK in _read_json(target / "config.json")
    if not ours:
        raise RunError(
            f"{target} holds other files, which an export would replace; give a new folder, or an empty one."
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path.parent} has no {path.name}; is it the folder of a Hugging Face model?") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); restore it from a copy.") from None
    if not isinstance(values, dict):
        raise RunError(f"{path} holds a {type(values).__name__}, not settings; restore it from a copy.")
    return values


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, in one file or in the several that an index lists."""
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.is_file():
        places = _read_json(index).get("weight_map")
        if not isinstance(places, dict):
            raise RunError(f"{index} does not say which file holds which tensor; restore it from a copy.")
        names = sorted({str(name) for name in places.values()})
    tensors = {}
    for name in names:
        path = folder / Path(name).name  # an index cannot point out of its folder
        if not path.is_file():
            pickled = sorted(file.name for file in folder.glob("*.bin"))
            hint = (
                f"; {pickled[0]} is a pickle, which could run code, so jumok does not open it: load the model with "
                "transformers and save it again with save_pretrained"
                if pickled
                else ""
            )
            raise RunError(f"{folder} has no {name}{hint}.")
        try:
            tensors.update(load_file(path))
        except (SafetensorError, OSError) as error:
            raise RunError(f"{path} is damaged ({error}); restore it from a copy.") from None
    return tensors
