"""Models of huggingface.co by name: `hf:OWNER/MODEL` or `hf:OWNER/MODEL@REVISION`, in place of the folder of a model.

`folder_of` downloads such a model to the cache of `huggingface_hub` and returns its folder there. Whatever opens the
folder of a model calls it; everything above passes the name on. What does not begin with `hf:` is a folder.

Only tensors in safetensors files and files of settings and tokenizers are downloaded: no pickle, and no code. Tensors
come last, so a folder that has all of them is complete. `huggingface_hub` is imported when the first name is looked up.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.errors import JumokError, RunError
from jumok.files import on_disk, parse_json, sha256_of, space
from jumok.messages import reason_of, shell, tr
from jumok.text.hangul import nfc

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

MARK = "hf:"
NAME = re.compile(r"hf:((?:[\w.-]+/)?([\w.-]+))(?:@(\w[\w./-]*))?", re.ASCII)
LIKE_A_NAME = re.compile(r"(?!runs/)\w[\w.-]*/\w[\w.-]*", re.ASCII)  # runs/ is where runs usually are
FILES = re.compile(
    r"(generation_|tokenizer_)?config\.json|tokenizer\.json|special_tokens_map\.json|added_tokens\.json|vocab\.(txt|json)"
    r"|merges\.txt|tokenizer\.model|spiece\.model|sentencepiece\.bpe\.model|source\.spm|chat_template\.jinja"
    r"|additional_chat_templates/[\w.-]+\.jinja"
)
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
SECONDS = 10.0  # without an answer, after which the cache is used
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENOENT)
quiet: ContextVar[bool] = ContextVar("quiet", default=False)  # no progress and no licence on stderr


def is_name(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is the name of a model of the hub, valid or not, rather than a folder."""
    return Path(path).as_posix().startswith(MARK)


def name_of(path: str | os.PathLike[str]) -> str:
    """Return the name of a model in NFC: that of its folder, or MODEL of `hf:OWNER/MODEL@REVISION`."""
    return _parts(path)[0].rpartition("/")[2] if is_name(path) else nfc(Path(path).resolve().name)


def folder_of(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a model; one of the hub is downloaded, unless the cache has its newest files.

    In a process the same name is always the same folder. Without a network, what is in the cache is used.

    Args:
        path: a folder, which is returned as the disk spells it, or the name of a model of the hub.

    Raises:
        RunError: the name is not valid, there is no such model or revision, it may not be read, has no safetensors
            files, or cannot be downloaded or stored.
    """
    return _fetch(*_parts(path)) if is_name(path) else on_disk(path)


def is_hf(path: str | os.PathLike[str]) -> bool:
    """Return whether the config.json of a folder describes a model of `transformers`, supported or not.

    Raises:
        RunError: as `folder_of`.
    """
    try:
        values = parse_json((folder_of(path) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # missing or damaged; opening the folder reports that
        return False
    return isinstance(values, dict) and not {"architectures", "model_type"}.isdisjoint(values)


def source_of(path: str | os.PathLike[str]) -> str:
    """Return what a run that begins with a model records: its folder, or its name with the commit of its files."""
    return f"{MARK}{_parts(path)[0]}@{folder_of(path).name}" if is_name(path) else os.fspath(path)


def hint(path: Path) -> str:
    """Return a sentence for a folder that is not there and may be a model of the hub, as skt/kogpt2-base-v2; or ""."""
    if not LIKE_A_NAME.fullmatch(path.as_posix()) or path.parent.is_dir():
        return ""
    return tr(" If it is a model of huggingface.co, write {name}.", name=MARK + path.as_posix())


def _parts(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Return OWNER/MODEL and the revision of a name."""
    given = Path(path).as_posix()
    found = NAME.fullmatch(given)
    if found is None or ".." in given:
        raise _wrong_name(given)
    return found[1], found[3] or "main"


def _wrong_name(given: str) -> RunError:
    return RunError(
        "{name} is no name of a model of huggingface.co; write {mark}OWNER/MODEL, or {mark}OWNER/MODEL@REVISION with a "
        "branch, a tag or a commit.",
        name=given,
        mark=MARK,
    )


# --- downloading ------------------------------------------------------------------------------------------------------


@cache
def _fetch(repo: str, revision: str) -> Path:
    """Return the folder of a model in the cache, with all files of the newest commit of the revision."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # with it the hub is also asked for a list of AI agents
    import shutil

    import huggingface_hub as hub
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from jumok.config.huggingface import our_config, read_json

    if quiet.get():
        disable_progress_bars()
        logging.set_verbosity_error()
    name = MARK + repo if revision == "main" else f"{MARK}{repo}@{revision}"
    older: Path | None = None  # in the cache
    try:
        known = hub.try_to_load_from_cache(repo, "config.json", revision=revision)
        older = Path(known).parent if isinstance(known, str) else None
        info = hub.HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=SECONDS)
        wanted = _wanted(name, {one.rfilename: one for one in info.siblings or ()})
        folder = Path(hub.hf_hub_download(repo, "config.json", revision=info.sha)).parent
        missing = [one for one in wanted if not _is_there(folder / one.rfilename, one.size)]
        if missing and "architectures" in (config := read_json(folder / "config.json")):
            our_config(config, name)  # raises if jumok does not support it, before its tensors are downloaded
        needed = sum(one.size or 0 for one in missing)
        if missing and missing[-1].rfilename.endswith(".safetensors"):
            _say(tr("{name}: {megabytes:,.1f} MB, licence: {licence}.", name=name, megabytes=needed / 1e6,
                    licence=_licence(info)))  # fmt: skip
        if needed > shutil.disk_usage(folder).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for one in missing:
            _download(name, folder, one)
        if older != folder:
            hub.hf_hub_download(repo, "config.json", revision=revision)  # the cache records what the revision is
    except JumokError:
        raise
    except Exception as error:  # those of the library and of its library for HTTP, which differ between versions
        if older is None or not _is_complete(older):
            raise _refusal(name, error) from None
        if not hub.constants.HF_HUB_OFFLINE:
            _say(tr("{name} is used as it is in the cache (commit {commit}): {reason}.", name=name,
                    commit=older.name[:12], reason=_reason(error)))  # fmt: skip
        return older
    return folder


def _wanted(name: str, found: dict[str, RepoSibling]) -> list[RepoSibling]:
    """Return the files to download of those of a model, tensors last."""
    from huggingface_hub.constants import ENDPOINT

    repo = _parts(name)[0]
    tensors = [INDEX, *filter(SHARD.fullmatch, sorted(found))] if INDEX in found else [WHOLE]
    if "config.json" in found and tensors[0] not in found:
        raise RunError(
            "{name} has no {file}. Other files of tensors can hold code and are not downloaded. Look at {page} for a "
            "revision that has the file, such as refs/pr/1, and write {model}@REVISION. Or, if you trust its author, "
            "run `{command}`, and give that folder: of a pickle jumok reads nothing but tensors.",
            name=name,
            file=WHOLE,
            page=f"{ENDPOINT}/{repo}/discussions",
            model=MARK + repo,
            command=_command(repo),
        )
    return [found[one] for one in [*filter(FILES.fullmatch, sorted(found)), *tensors] if one in found]


def _command(repo: str) -> str:
    return shell("hf", "download", repo, "--local-dir", repo.rpartition("/")[2])


def _is_there(path: Path, size: int | None) -> bool:
    return path.is_file() and size in (None, path.stat().st_size)


def _is_complete(folder: Path) -> bool:
    """Return whether a folder in the cache has all tensors, which are downloaded last."""
    try:
        index = folder / INDEX
        shards = parse_json(index.read_bytes())["weight_map"].values() if index.is_file() else [WHOLE]
        return all((folder / str(one)).is_file() for one in shards)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged
        return False


def _download(name: str, folder: Path, file: RepoSibling) -> None:
    """Download a file; one with a known SHA-256 must have it. A damaged file in the cache is replaced."""
    import huggingface_hub as hub

    damaged = (folder / file.rfilename).is_file()
    repo = _parts(name)[0]
    path = Path(hub.hf_hub_download(repo, file.rfilename, revision=folder.name, force_download=damaged))
    if file.lfs is not None and sha256_of(path) != file.lfs.sha256:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise RunError(
            "{file} of {name} does not have the SHA-256 that {hub} names; it was removed. A proxy may stand in "
            "between. Run the command again.",
            file=file.rfilename,
            name=name,
            hub=hub.constants.ENDPOINT,
        )


def _licence(info: Any) -> str:
    """Return the licence that a model card names."""
    card = info.card_data or {}
    licence = card.get("license")
    return str((card.get("license_name") if licence == "other" else None) or licence or tr("not named"))


def _say(text: str) -> None:
    from jumok.text import with_signs

    if not quiet.get():
        print(with_signs(text), file=sys.stderr)


# --- what can go wrong ------------------------------------------------------------------------------------------------


def _refusal(name: str, error: Exception) -> RunError:
    """Return the message for an error of the library. It never has a token, nor an address that holds a signature."""
    import huggingface_hub as hub
    from huggingface_hub import errors

    repo, revision = _parts(name)
    status = getattr(getattr(error, "response", None), "status_code", None)
    page, login = f"{hub.constants.ENDPOINT}/{repo}", shell("hf", "auth", "login")
    if isinstance(error, errors.HFValidationError):
        return _wrong_name(name)
    if isinstance(error, errors.GatedRepoError):
        return RunError(
            "{name} is given only to those who accept its conditions: accept them at {page}, then run `{login}`, or "
            "set HF_TOKEN.",
            name=name,
            page=page,
            login=login,
        )
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403):
        return RunError(
            "there is no model {page}, or you may not read it. For a private one run `{login}`, or set HF_TOKEN.",
            page=page,
            login=login,
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return RunError("{page} has no revision {revision!r}; see {page}/commits/main.", page=page, revision=revision)
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return RunError("{page} has no config.json, so it is no model that jumok can read.", page=page)
    cache = Path(hub.constants.HF_HUB_CACHE)
    if isinstance(error, OSError) and error.errno in DISK:
        return RunError(
            "{name} cannot be stored in {cache}: {reason} ({space}). Make room, or set HF_HOME to a folder on another "
            "disk.",
            name=name,
            cache=cache,
            reason=error,
            space=space(cache),
        )
    folders = {
        path.parents[2].name for path in cache.glob("models--*/snapshots/*/config.json") if _is_complete(path.parent)
    }
    names = ", ".join(MARK + folder.removeprefix("models--").replace("--", "/") for folder in sorted(folders))
    return RunError(
        "{name} is not in the cache, or not all of it, and cannot be downloaded from {hub}: {reason}. Files that are "
        "complete are kept: run the command again when there is a network. Or download it elsewhere with `{command}`, "
        "and give that folder.{cached}",
        name=name,
        hub=hub.constants.ENDPOINT,
        reason=_reason(error),
        command=_command(repo),
        cached=tr(" The cache has {names}.", names=names) if names else "",
    )


def _reason(error: BaseException) -> str:
    """Return the first line of the first error of a chain, without the parameters of addresses."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    line = next(iter(reason_of(error).strip().splitlines()), "") or type(error).__name__
    return re.sub(r"\?[^\s'\"]+", "", line)[:200].rstrip(".")
