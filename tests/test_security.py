"""What code may not do: run what was read, unpickle, use a shell, trust a connection. And where compiled code lies.

`faults` looks at a syntax tree. The table BAD has a snippet for each rule, which it must find. docs/security.md says
what the rules are for.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from jumok.errors import JumokError
from jumok.training.compilation import keep_code_private

ROOT = Path(__file__).resolve().parents[1]

# --- the rules --------------------------------------------------------------------------------------------------------

RUNS_CODE = {
    *("eval", "exec", "compile", "__import__", "runpy.run_path", "runpy.run_module", "importlib.import_module"),
    *("importlib.util.spec_from_file_location", "torch.hub.load", "torch.utils.cpp_extension.load", "code.interact"),
}
LOADS_LIBRARIES = {f"ctypes.{name}" for name in ("CDLL", "PyDLL", "cdll.LoadLibrary", "WinDLL", "windll.LoadLibrary")}
SHELLS = {
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"),
    "asyncio.create_subprocess_shell",
}
UNPICKLES = {
    *("torch.save", "pandas.read_pickle", "pandas.DataFrame.to_pickle", "joblib.load", "joblib.dump"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "multiprocessing.connection.Client"),
    *(
        f"torch.distributed.{name}"
        for name in ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list")
    ),
}
CONNECTS = {
    *("urllib.request.urlopen", "urllib.request.urlretrieve", "urllib.request.Request", "urllib.request.build_opener"),
    *("http.client.HTTPConnection", "socket.create_connection"),
    *(f"{library}.{verb}" for library in ("requests", "httpx") for verb in ("get", "post", "request", "stream")),
    *("requests.Session", "httpx.Client", "httpx.AsyncClient"),
}
UNVERIFIED = {"ssl._create_unverified_context", "ssl.CERT_NONE"}
CALLS = {
    **dict.fromkeys(RUNS_CODE, "runs code"),
    **dict.fromkeys(LOADS_LIBRARIES, "loads a library"),
    **dict.fromkeys(SHELLS, "shell"),
    **dict.fromkeys(UNPICKLES, "pickle"),
    **dict.fromkeys(CONNECTS, "connects"),
    **dict.fromkeys(("tempfile.mktemp", "os.tempnam", "os.tmpnam"), "temporary name"),
    "shutil.unpack_archive": "unpacks",
}
MODULES = {
    **dict.fromkeys(("pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"), "pickle"),
    **dict.fromkeys(("ftplib", "telnetlib", "poplib", "imaplib", "smtplib"), "connects"),
    **dict.fromkeys(("pty", "imp"), "runs code"),
}

# Where a rule does not hold, and why that is safe.
ALLOWED = {
    ("src/jumok/__init__.py", "runs code"): "imports modules of jumok by the names of a table in this file",
    ("src/jumok/course/pages/chapter.py", "runs code"): "runs the examples of chapters, which come with the package",
    ("src/jumok/course/practice/earlier.py", "runs code"): "runs the reader's own exercise, which that is for",
    ("src/jumok/course/practice/child.py", "runs code"): "imports the checks of an exercise in jumok's own table",
    ("src/jumok/inference/native/build.py", "loads a library"): "built here, in a folder that nobody else enters",
    ("src/jumok/device.py", "loads a library"): "the C library that the process has loaded already",
    ("src/jumok/training/parallel.py", "pickle"): "between the processes of one run, which one person started",
    ("src/jumok/corpora/catalogue.py", "connects"): "https only, also after a redirect; the content has a SHA-256",
    ("bench/fuzz_targets.py", "pickle"): "writes a checkpoint of tensors, of which jumok reads tensors only",
    ("bench/soak.py", "runs code"): "imports modules of jumok by the names of a table in this file",
    ("bench/llama.py", "connects"): "to the server that it has started on this machine",
    ("bench/around.py", "runs code"): "imports modules of jumok by the names of a table in this file",
    ("bench/serving.py", "connects"): "to the server that it has started on this machine",
}


def faults(code: str) -> Iterator[tuple[int, str]]:
    """The lines of Python code that break a rule, each with the name of the rule."""
    tree = ast.parse(code)
    names = _imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from ((node.lineno, MODULES[top]) for name in modules if (top := name.split(".")[0]) in MODULES)
        elif isinstance(node, ast.Call):
            yield from ((node.lineno, rule) for rule in _faults_of_call(node, _dotted(node.func, names)))
        elif isinstance(node, ast.Attribute | ast.Name) and _dotted(node, names) in UNVERIFIED:
            yield node.lineno, "certificates"
        elif isinstance(node, ast.Assign) and _is_literal(node.value, False):
            targets = [one.attr for one in node.targets if isinstance(one, ast.Attribute)]
            yield from ((node.lineno, "certificates") for name in targets if name == "check_hostname")


def _faults_of_call(call: ast.Call, name: str) -> Iterator[str]:
    words = {one.arg: one.value for one in call.keywords if one.arg}
    literal_import = name.endswith("import_module") and call.args and isinstance(call.args[0], ast.Constant)
    if name in CALLS and not literal_import:
        yield CALLS[name]
    if "shell" in words and not _is_literal(words["shell"], False):
        yield "shell"
    if name == "torch.load" and not _is_literal(words.get("weights_only"), True):
        yield "pickle"
    if name == "numpy.load" and not _is_literal(words.get("allow_pickle"), False):
        yield "pickle"  # the default is False now, and was not always
    if "allow_pickle" in words and not _is_literal(words["allow_pickle"], False):
        yield "pickle"
    if "trust_remote_code" in words and not _is_literal(words["trust_remote_code"], False):
        yield "runs code"
    if "verify" in words and _is_literal(words["verify"], False):
        yield "certificates"
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method == "extractall" and not _is_literal(words.get("filter"), "data"):
        yield "unpacks"


def _imported(tree: ast.Module) -> dict[str, str]:
    """What the names of a module stand for, as far as it imports them."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                names[one.asname or one.name.split(".")[0]] = one.name if one.asname else one.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """`os.path.join` for that expression, whatever name `os` was imported by; "" if it begins otherwise."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    name = ".".join([names.get(node.id, node.id), *parts])
    return name.removeprefix("builtins.")


def _is_literal(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value == value and type(node.value) is type(value)


# --- the rules find what they are for ---------------------------------------------------------------------------------

BAD = [
    ("import os\nos.system('ls')", "shell"),
    ("from os import system as run\nrun('ls')", "shell"),
    ("import subprocess\nsubprocess.run('ls', shell=True)", "shell"),
    ("eval(text)", "runs code"),
    ("import builtins\nbuiltins.eval(text)", "runs code"),
    ("import importlib\nimportlib.import_module(name)", "runs code"),
    ("from importlib import util\nutil.spec_from_file_location('x', path)", "runs code"),
    ("AutoModel.from_pretrained(folder, trust_remote_code=True)", "runs code"),
    ("import ctypes\nctypes.CDLL(path)", "loads a library"),
    ("import pickle", "pickle"),
    ("def f():\n    import marshal", "pickle"),
    ("import torch\ntorch.load(path)", "pickle"),
    ("from torch import load\nload(path, weights_only=safe)", "pickle"),
    ("import torch\ntorch.save(model, path)", "pickle"),
    ("import torch.distributed as dist\ndist.all_gather_object(found, mine)", "pickle"),
    ("import numpy as np\nnp.load(path)", "pickle"),
    ("reader.read(path, allow_pickle=True)", "pickle"),
    ("import yaml\nyaml.load(text)", "pickle"),
    ("import tempfile\ntempfile.mktemp()", "temporary name"),
    ("import tarfile\ntarfile.open(path).extractall(folder)", "unpacks"),
    ("archive.extractall(folder, filter='fully_trusted')", "unpacks"),
    ("import shutil\nshutil.unpack_archive(path)", "unpacks"),
    ("import requests\nrequests.get(url, verify=False)", "certificates"),
    ("import ssl\ncontext.verify_mode = ssl.CERT_NONE", "certificates"),
    ("context.check_hostname = False", "certificates"),
    ("import urllib.request\nurllib.request.urlretrieve(url)", "connects"),
    ("import ftplib", "connects"),
]
GOOD = """
import importlib, os, re, subprocess, tempfile
import numpy as np
import torch
model.eval()
re.compile("a")
torch.compile(f)
subprocess.run(["ls"], shell=False)
torch.load(path, weights_only=True, map_location="cpu")
np.load(path, allow_pickle=False)
tempfile.mkstemp()
tarfile.open(path).extractall(folder, filter="data")
importlib.import_module("sentencepiece")
AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
"""


@pytest.mark.parametrize(("code", "rule"), BAD, ids=range(len(BAD)))
def test_a_rule_finds_what_it_is_for(code: str, rule: str) -> None:
    assert rule in {found for _, found in faults(code)}


def test_each_rule_has_a_snippet() -> None:
    assert {rule for _, rule in BAD} == {*CALLS.values(), *MODULES.values(), "certificates"}


def test_what_is_safe_is_not_found() -> None:
    assert list(faults(GOOD)) == []


# --- the tree ---------------------------------------------------------------------------------------------------------


def programs() -> Iterator[tuple[str, str]]:
    """The Python files of the project without its tests, and the examples in its documentation."""
    for place in ("src", "bench", "docs", ".ci", "setup.py"):
        path = ROOT / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
    for file in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        text = file.read_text(encoding="utf-8")
        for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
            yield file.relative_to(ROOT).as_posix(), textwrap.dedent(block)


@pytest.mark.slow
def test_the_tree_keeps_the_rules() -> None:
    """The list of exceptions is exact: one that is needed no longer is an error, too."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name, code in programs():
        for line, rule in faults(code):
            found[name, rule].append(line)
    assert {place: lines for place, lines in found.items() if place not in ALLOWED} == {}
    assert set(ALLOWED) <= set(found)


def test_workflows_have_few_rights_and_name_commits() -> None:
    """A tag of an action can be moved to other code, and a release can publish."""
    workflows = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")}
    assert {"test", "release"} <= set(workflows)
    for name, text in workflows.items():
        assert re.search(r"^permissions:(\n  contents: read$| \{\}$)", text, flags=re.MULTILINE), name
        assert "pull_request_target" not in text, name
        assert not re.search(r"run:.*\$\{\{ *github\.(event|head_ref)", text), name  # a title becomes a command
        used = re.findall(r"uses: (\S+)", text)
        assert used, name
        assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", one) for one in used), used


# --- compiled code ----------------------------------------------------------------------------------------------------

CACHE = "TORCHINDUCTOR_CACHE_DIR"


@pytest.mark.parametrize(
    "before", [None, str(Path(tempfile.gettempdir()) / "torchinductor_me")], ids=["unset", "torch"]
)
def test_compiled_code_lies_where_nobody_else_writes(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile kept libraries and pickled graphs in /tmp/torchinductor_USER, which any user could create first.

    torch writes its default into the environment, so that it looks like a choice of the user.
    """
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(CACHE, before or "")
    if before is None:
        monkeypatch.delenv(CACHE)
    keep_code_private()
    folder = tmp_path / "cache" / "torchinductor"
    assert Path(cache_dir()) == folder
    if os.name == "posix":
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_chosen_cache_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "mine"))
    keep_code_private()
    assert os.environ[CACHE] == str(tmp_path / "mine")


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_a_cache_that_others_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    monkeypatch.delenv(CACHE, raising=False)
    (tmp_path / "torchinductor").mkdir()
    (tmp_path / "torchinductor").chmod(0o777)
    with pytest.raises(JumokError, match="others can write to"):
        keep_code_private()
    assert CACHE not in os.environ
