"""Models of huggingface.co by name, from a server on this machine that speaks its API: nothing here needs a network.

Bad inputs first: names that are none, models that are not there, private, gated, without safetensors, of no class at
all; revisions that are not there; connections that break, files that arrive damaged, a full disk, no network.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants, file_download
from safetensors.torch import load_file, save_file

import jumok
from conftest import TINY, Jumok
from hub_server import Hub, Repository, hub_server
from jumok.corpora import hub
from jumok.errors import JumokError, RunError
from jumok.interop.huggingface import to_hf
from jumok.messages import language
from jumok.models import build
from jumok.runs.load import read_shape, save, stored_shape
from jumok.serve.run_folders import RunFolders
from jumok.tokenizers import train_tokenizer

NAME = "hf:kim/tales"
NOT_WANTED = {
    "pytorch_model.bin": b"a pickle", "modeling_kim.py": b"import os", "tf_model.h5": b"", "README.md": b"# Tales",
    "onnx/model.safetensors": b"", "training_args.bin": b"", "adapter_model.safetensors": b"",
}  # fmt: skip


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory, tales: str) -> Path:
    """The folder of a GPT-2 of a few thousand parameters."""
    folder = tmp_path_factory.mktemp("gpt") / "gpt"
    tokenizer = train_tokenizer(tales, "char")
    sizes = {name: TINY[name] for name in ("n_layer", "n_head", "n_embd", "context_length")}
    torch.manual_seed(0)
    model = build(jumok.GPTConfig(family="classic", vocab_size=tokenizer.vocab_size, **sizes))
    model.tokenizer = tokenizer
    to_hf(model, folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, tales: str) -> Path:
    """The folder of a BERT of a few thousand parameters."""
    folder = tmp_path_factory.mktemp("bert")
    settings = {name: value for name, value in TINY.items() if name != "attention"}
    jumok.train(tales, out=folder / "run", task="mlm", device="cpu", **settings)
    to_hf(jumok.load(folder / "run"), folder / "hf")
    return folder / "hf"


@pytest.fixture(scope="module")
def served() -> Iterator[Hub]:
    with hub_server() as server:
        yield server


@pytest.fixture
def server(served: Hub, gpt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The server, with a GPT-2 at kim/tales, and an empty cache. `next_process` forgets what this process has seen."""
    served.requests.clear()
    served.repositories.clear()
    served.repositories["kim/tales"] = Repository(card={"license": "cc-by-sa-4.0"})
    served.repositories["kim/tales"].commit_folder(gpt, **NOT_WANTED)
    monkeypatch.setattr(constants, "ENDPOINT", served.address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", served.address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)  # between tries
    monkeypatch.chdir(tmp_path)
    hub._fetch.cache_clear()
    return served


next_process: Callable[[], None] = hub._fetch.cache_clear


@pytest.fixture
def no_network(server: Hub, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, nobody listens at the address of the server."""

    def cut() -> None:
        next_process()
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")

    return cut


def refused(name: str) -> str:
    """The message for a name, which must be the same for everything that opens the folder of a model."""
    found = set()
    for work in (jumok.load, read_shape, stored_shape, hub.folder_of):
        with pytest.raises(RunError) as error:
            work(name)
        found.add(str(error.value))
    assert len(found) == 1
    return found.pop()


# --- what is downloaded -----------------------------------------------------------------------------------------------


def test_a_model_by_its_name_is_that_of_its_folder(server: Hub, gpt: Path) -> None:
    """And of its files only settings, the tokenizer and the tensors are downloaded: no pickle and no code."""
    expected, model = jumok.load(gpt), jumok.load(NAME)
    assert model.state_dict().keys() == expected.state_dict().keys()
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in model.state_dict().items())
    assert list(model.tokenizer.encode("옛날 옛적에")) == list(expected.tokenizer.encode("옛날 옛적에"))
    assert {one.removeprefix("kim/tales ") for one in server.files()} == {path.name for path in gpt.iterdir()}
    assert [one for one in server.requests if one.startswith("GET ")][-1] == "GET kim/tales model.safetensors"


def test_nothing_else_is_asked(server: Hub, tmp_path: Path) -> None:
    """huggingface_hub asks once a day which programs are AI agents, to tell the hub if one runs it."""
    code = f"import jumok.corpora.hub as hub; print(hub.folder_of({NAME!r}))"
    environment = {**os.environ, "HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "home")}
    for name in ("HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK", "DISABLE_TELEMETRY"):
        environment.pop(name, None)
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip(), "model.safetensors").is_file()
    assert {one.split(" ")[1].removesuffix("/api") for one in server.requests} == {"kim/tales"}


def test_what_is_in_the_cache_is_not_downloaded_again(server: Hub) -> None:
    folder = hub.folder_of(NAME)
    server.requests.clear()
    assert hub.folder_of(NAME) == folder
    assert jumok.load(NAME) is not None
    assert server.requests == []  # in one process a name is one folder
    next_process()
    assert hub.folder_of(NAME) == folder
    assert server.requests == ["GET kim/tales/api"]


def test_shards_are_found_by_the_index(server: Hub, gpt: Path, tmp_path: Path) -> None:
    """A single file beside an index is not downloaded, since the index is read."""
    shutil.copytree(gpt, "sharded")
    tensors = load_file("sharded/model.safetensors")
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    for shard, inside in shards.items():
        save_file({name: tensors[name] for name in inside}, f"sharded/{shard}")
    index = {"weight_map": {name: shard for shard, inside in shards.items() for name in inside}}
    Path("sharded/model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    server.repositories["kim/big"] = Repository()
    server.repositories["kim/big"].commit_folder(Path("sharded"))
    model, expected = jumok.load("hf:kim/big"), jumok.load(gpt)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in model.state_dict().items())
    assert "kim/big model.safetensors" not in server.files()


def test_a_revision_is_a_branch_a_tag_or_a_commit(server: Hub, gpt: Path) -> None:
    repository = server.repositories["kim/tales"]
    first = repository.refs["main"]
    second = repository.commit_folder(gpt, ref="refs/pr/5", **{"added_tokens.json": b"{}"})
    repository.refs["v1.0"] = first
    names = [NAME, f"{NAME}@main", f"{NAME}@v1.0", f"{NAME}@{first}", f"{NAME}@refs/pr/5", f"{NAME}@{second}"]
    assert [hub.folder_of(name).name for name in names] == [first] * 4 + [second] * 2
    assert {hub.name_of(name) for name in names} == {"tales"}
    assert hub.source_of(NAME) == f"{NAME}@{first}"
    assert hub.source_of(f"{NAME}@refs/pr/5") == f"{NAME}@{second}"
    assert jumok.load(f"{NAME}@refs/pr/5") is not None


def test_a_new_commit_is_taken_by_the_next_process(server: Hub, gpt: Path, no_network: Callable[[], None]) -> None:
    """And after that it is what `main` means without a network, too."""
    before = hub.folder_of(NAME)
    server.repositories["kim/tales"].commit_folder(gpt, **{"added_tokens.json": b"{}"})
    assert hub.folder_of(NAME) == before
    next_process()
    after = hub.folder_of(NAME)
    assert after != before
    no_network()
    assert hub.folder_of(NAME) == after
    assert hub.folder_of(f"{NAME}@{before.name}") == before


def test_a_run_folder_on_the_hub(server: Hub, gpt: Path, tmp_path: Path) -> None:
    """Whoever uploads a run folder as it is can load it by its name."""
    model = jumok.load(gpt)
    save(model, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "state")
    server.repositories["kim/run"] = Repository()
    server.repositories["kim/run"].commit_folder(tmp_path / "run")
    again = jumok.load("hf:kim/run")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("card", "told"),
    [
        ({"license": "cc-by-nc-sa-4.0"}, "licence: cc-by-nc-sa-4.0."),
        ({"license": "other", "license_name": "exaone"}, "licence: exaone."),
        ({"license": "other"}, "licence: other."),
        ({}, "licence: not named."),
        ({"license": "mit\x1b[31m"}, "licence: mit␛[31m."),
    ],
)
def test_the_licence_is_told_once(
    server: Hub, card: dict[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.repositories["kim/tales"].card = card
    hub.folder_of(NAME)
    assert told in capsys.readouterr().err
    next_process()
    hub.folder_of(NAME)
    assert capsys.readouterr() == ("", "")


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "hf:", "hf:/", "hf:a/b/c", "hf:../b", "hf:a/..", "hf:a/b@", "hf:a/b@../../x", "hf:a/b@x y", "hf:김/소설",
        "hf:a b/c", "hf:https://huggingface.co/a/b", "hf:a/b@한글", "hf:-a/b--c", "hf:a/b\n", "hf:@main", "hf:a/b@/etc",
        "hf:a/b@x/../../../y",
    ],
)  # fmt: skip
def test_a_name_that_is_none(server: Hub, name: str) -> None:
    assert "is no name of a model of huggingface.co; write hf:OWNER/MODEL" in refused(name)
    assert server.requests == []


def test_a_folder_remains_a_folder(server: Hub, gpt: Path, tmp_path: Path) -> None:
    """Also one that is called like a name, by its whole path; and what begins with other letters is a path."""
    folder = tmp_path / "hf:kim" / "tales"
    shutil.copytree(gpt, folder)
    for path in (folder, r"C:\models\hf", "D:/hf:/x", "runs/hf", "HF:kim/tales", tmp_path, "hf"):
        assert not hub.is_name(path)
        assert hub.folder_of(path) == Path(path)
    assert jumok.load(folder).tokenizer is not None
    assert hub.source_of(folder) == str(folder)
    assert server.requests == []
    assert hub.folder_of(NAME) != Path(NAME)


def test_a_name_without_its_mark(server: Hub) -> None:
    """It is a path; the message for one that is not there says what to write."""
    for name, told in (("skt/kogpt2-base-v2", True), ("runs/novel", False), ("novel", False), ("a/b/c", False)):
        assert ("write hf:skt/kogpt2-base-v2" in hub.hint(Path(name))) == told
    Path("skt").mkdir()
    assert hub.hint(Path("skt/kogpt2-base-v2")) == ""


# --- what can go wrong ------------------------------------------------------------------------------------------------


def test_a_model_that_is_not_there(server: Hub) -> None:
    assert refused("hf:kim/novel").startswith(f"there is no model {server.address}/kim/novel, or you may not read it.")
    assert refused("hf:gpt2").startswith(f"there is no model {server.address}/gpt2, or")


def test_a_private_model_needs_a_token(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is that of huggingface_hub, and no message shows it."""
    server.repositories["kim/tales"].token = "hf_secretsecretsecret"
    assert "HF_TOKEN" in refused(NAME)
    monkeypatch.setenv("HF_TOKEN", "hf_wrongwrongwrong")
    message = refused(NAME)
    assert "you may not read it" in message
    assert "hf_wrong" not in message
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecretsecret")
    assert jumok.load(NAME) is not None


def test_a_gated_model_needs_an_agreement(server: Hub) -> None:
    server.repositories["kim/tales"].refuse = "GatedRepo"
    assert f"accept them at {server.address}/kim/tales, then run `hf auth login`" in refused(NAME)


def test_a_revision_that_is_not_there(server: Hub) -> None:
    assert f"{server.address}/kim/tales has no revision 'v9'" in refused(f"{NAME}@v9")
    assert "has no revision" in refused(f"{NAME}@{'0' * 40}")


def test_a_model_without_safetensors(server: Hub, gpt: Path) -> None:
    """Only pickles: nothing is downloaded, and the message says how to get the other form."""
    repository = server.repositories["kim/tales"]
    files = dict(repository.commits[repository.refs["main"]])
    del files["model.safetensors"]
    repository.commit(files)
    message = refused(NAME)
    assert "hf:kim/tales has no model.safetensors" in message
    assert f"{server.address}/kim/tales/discussions" in message
    assert "hf:kim/tales@REVISION" in message
    assert "`hf download kim/tales --local-dir tales`" in message
    assert server.files() == set()


def test_a_repository_of_something_else(server: Hub) -> None:
    server.repositories["kim/data"] = Repository()
    server.repositories["kim/data"].commit({"data.csv": b"a,b"})
    assert "has no config.json" in refused("hf:kim/data")


def test_a_class_that_jumok_does_not_know(server: Hub, gpt: Path) -> None:
    """It is refused before its tensors are downloaded."""
    shutil.copytree(gpt, "strange")
    config = {"architectures": ["MambaForCausalLM"], "model_type": "mamba"}
    Path("strange/config.json").write_text(json.dumps(config), encoding="utf-8")
    server.repositories["kim/strange"] = Repository()
    server.repositories["kim/strange"].commit_folder(Path("strange"))
    with pytest.raises(JumokError, match="hf:kim/strange is a model MambaForCausalLM"):
        jumok.load("hf:kim/strange")
    assert "kim/strange model.safetensors" not in server.files()


def test_a_connection_that_breaks_is_taken_up(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1_000)
    server.repositories["kim/tales"].cut["model.safetensors"] = 2
    assert jumok.load(NAME) is not None
    assert [one for one in server.requests if " from " in one]  # the rest only


def test_a_download_that_fails_goes_on_with_the_next_command(server: Hub) -> None:
    """Tensors are downloaded last, so that a folder with them is complete; what is complete is not downloaded again."""
    repository = server.repositories["kim/tales"]
    repository.cut["model.safetensors"] = 1_000
    with pytest.raises(RunError, match="or not all of it, and cannot be downloaded") as error:
        jumok.load(NAME)
    assert "The cache has" not in str(error.value)
    repository.cut.clear()
    server.requests.clear()
    assert jumok.load(NAME) is not None
    assert server.files() == {"kim/tales model.safetensors"}


def test_a_file_that_arrives_damaged_is_refused(server: Hub) -> None:
    """A proxy that answers for the hub: the size is right, the SHA-256 is not."""
    server.repositories["kim/tales"].wrong = {"model.safetensors"}
    with pytest.raises(RunError, match=r"model.safetensors of hf:kim/tales does not have the SHA-256") as error:
        jumok.load(NAME)
    assert "Run the command again" in str(error.value)
    server.repositories["kim/tales"].wrong.clear()
    assert jumok.load(NAME) is not None


def test_a_file_that_is_cut_off_in_the_cache_is_replaced(server: Hub) -> None:
    path = hub.folder_of(NAME) / "model.safetensors"
    os.truncate(path.resolve(), 100)
    next_process()
    assert jumok.load(NAME) is not None


def test_a_full_disk(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noticed before the download, and if others fill it meanwhile."""
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 9_999))  # type: ignore[attr-defined]
        with pytest.raises(RunError, match=r"hf:kim/tales cannot be stored in .*hub cache: No space left.*HF_HOME"):
            jumok.load(NAME)
    assert "kim/tales model.safetensors" not in server.files()

    def full(*args: Any, **kwargs: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    with pytest.raises(RunError, match=r"cannot be stored in .*No space left on device \(.*free on that disk\)"):
        jumok.load(NAME)


def test_an_error_of_the_server_shows_no_signature(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> NoReturn:
        raise OSError("403 for url: https://cdn.example/x?Signature=abc&Key=1 .")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fails)
    message = refused(NAME)
    assert "https://cdn.example/x" in message
    assert "Signature" not in message


# --- without a network ------------------------------------------------------------------------------------------------


def test_without_a_network_the_cache_is_used(
    server: Hub, no_network: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = hub.folder_of(NAME)
    no_network()
    capsys.readouterr()
    assert jumok.load(NAME) is not None
    assert f"hf:kim/tales is used as it is in the cache (commit {folder.name[:12]}): " in capsys.readouterr().err


def test_without_a_network_the_message_names_what_is_there(server: Hub, no_network: Callable[[], None]) -> None:
    hub.folder_of(NAME)
    no_network()
    message = refused("hf:skt/kogpt2-base-v2")
    assert "hf:skt/kogpt2-base-v2 is not in the cache" in message
    assert "`hf download skt/kogpt2-base-v2 --local-dir kogpt2-base-v2`" in message
    assert message.endswith("The cache has hf:kim/tales.")
    assert "not in the cache" in refused(f"{NAME}@v2")  # another revision is another model


def test_the_offline_mode_of_the_library(
    server: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is asked, and nothing is told of it."""
    hub.folder_of(NAME)
    next_process()
    server.requests.clear()
    capsys.readouterr()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert jumok.load(NAME) is not None
    assert capsys.readouterr() == ("", "")
    assert "hf:kim/none is not in the cache" in refused("hf:kim/none")
    assert server.requests == []


def test_half_a_model_in_the_cache_is_none(server: Hub, no_network: Callable[[], None]) -> None:
    folder = hub.folder_of(NAME)
    (folder / "model.safetensors").unlink()
    no_network()
    message = refused(NAME)
    assert "or not all of it" in message
    assert "The cache has" not in message


def test_messages_are_korean_for_koreans(server: Hub) -> None:
    language("ko")
    assert refused("hf:kim/novel").startswith(f"{server.address}/kim/novel: 모델이 없거나 읽을 권한이 없습니다.")


@pytest.mark.slow
def test_a_folder_needs_no_library_for_the_hub(gpt: Path) -> None:
    """Neither does the command line, and its help."""
    code = f"import sys, jumok, jumok.cli; jumok.load({str(gpt)!r}); sys.exit('huggingface_hub' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- everywhere that a model is taken ---------------------------------------------------------------------------------


@pytest.fixture
def text(server: Hub, tmp_path: Path, tales: str) -> Path:
    path = tmp_path / "tales.txt"
    path.write_text(tales, encoding="utf-8")
    return path


COMMANDS: dict[str, list[str]] = {
    "generate": ["generate", NAME, "옛날", "--tokens", "5", "--json"],
    "view": ["view", NAME, "옛날 옛적에"],
    "evaluate": ["evaluate", NAME, "tales.txt", "--json"],
    "evaluate two": ["evaluate", "FOLDER", NAME, "tales.txt", "--json"],
    "share": ["share", NAME],
    "convert": ["convert", NAME, "run", "--to", "jumok"],
    "convert to hf": ["convert", NAME, "exported", "--to", "hf"],
    "doctor": ["doctor", NAME, "--json"],
    "fill in": ["generate", "hf:kim/bert", "나는 [MASK] 읽었다", "--json"],
}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_every_command_takes_a_name(
    server: Hub, jumok: Jumok, text: Path, gpt: Path, bert: Path, arguments: list[str]
) -> None:
    server.repositories["kim/bert"] = Repository()
    server.repositories["kim/bert"].commit_folder(bert)
    end = jumok(*(str(gpt) if one == "FOLDER" else one for one in arguments))
    assert end.code == 0, end.err
    assert "licence: " in end.err
    next_process()
    shutil.rmtree("hub cache")
    made = [
        path for path in (Path("run"), Path("exported"), Path("tales.html"), Path("tales-view.html")) if path.exists()
    ]
    for path in made:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert len(made) == (arguments[0] in ("view", "share", "convert"))
    end = jumok(*(str(gpt) if one == "FOLDER" else one for one in arguments), "--quiet")
    assert (end.code, end.err) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["generate NONE", "serve NONE", "doctor NONE", "train tales.txt --init NONE"])
def test_every_command_refuses_a_name_that_is_none(server: Hub, jumok: Jumok, text: Path, arguments: str) -> None:
    end = jumok(*arguments.replace("NONE", "hf:kim/none").split())
    assert end.code == 1
    assert end.err.startswith(f"jumok: there is no model {server.address}/kim/none")


@pytest.mark.slow
@pytest.mark.parametrize("lora", [[], ["--lora", "2"]], ids=["whole", "lora"])
def test_a_run_records_the_commit_that_it_began_with(
    server: Hub, jumok: Jumok, text: Path, gpt: Path, lora: list[str]
) -> None:
    commit = server.repositories["kim/tales"].refs["main"]
    end = jumok("train", "tales.txt", "--init", NAME, "--out", "run", "--steps", "2", "--device", "cpu", *lora)
    assert end.code == 0, end.err
    assert json.loads(Path("run/config.json").read_text(encoding="utf-8"))["data"]["init"] == f"{NAME}@{commit}"


@pytest.mark.slow
def test_a_model_of_the_hub_learns_to_answer(server: Hub, jumok: Jumok, tmp_path: Path) -> None:
    """And is talked to by its name, when it is on the hub in turn."""
    rows = [[{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}!"}] for n in range(20)]
    Path("talk.jsonl").write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows), encoding="utf-8")
    options = ["--task", "chat", "--out", "run", "--steps", "2", "--batch-size", "1", "--device", "cpu"]
    end = jumok("train", "talk.jsonl", "--init", NAME, *options)
    assert end.code == 0, end.err
    assert jumok("convert", "run", "talk", "--to", "hf").code == 0
    server.repositories["kim/talk"] = Repository()
    server.repositories["kim/talk"].commit_folder(Path("talk"))
    end = jumok("chat", "hf:kim/talk", "안녕?", "--tokens", "4", "--json")
    assert end.code == 0, end.err
    assert json.loads(end.out)["messages"][0] == {"role": "user", "content": "안녕?"}
    assert "kim/talk tokenizer_config.json" in server.files()  # with the chat template


def test_a_server_names_a_model_after_the_hub(server: Hub) -> None:
    folders = RunFolders([Path(NAME)])
    assert folders.all() == {"tales": hub.folder_of(NAME)}


def test_nothing_is_uploaded(server: Hub, jumok: Jumok, gpt: Path) -> None:
    """`jumok convert RUN hf:me/novel` would have written a folder of that name, and said that it had."""
    end = jumok("convert", str(gpt), "hf:kim/novel", "--to", "hf")
    assert end.code == 2
    assert "jumok uploads nothing" in end.err
    assert not Path("hf:kim").exists()
