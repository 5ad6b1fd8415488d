"""`jumok serve`: the models of run folders behind an HTTP API, and a page."""

from __future__ import annotations

import importlib.util
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.commands import PATH, Verb, common, option
from jumok.cli.console.output import print_json, say, write
from jumok.cli.interrupts import INTERRUPTED
from jumok.cli.native_step import build_native_step
from jumok.errors import ConfigError, ServeError
from jumok.messages import shell, tr

if TYPE_CHECKING:
    from jumok.serve.served_models import ServedModels

DEFAULT_RUNS = Path("runs")
PACKAGES = ("starlette", "pydantic", "uvicorn")
# The path of an example for each task, and its body; `chat` is for all models that answer.
EXAMPLES: dict[str, tuple[str, dict[str, object]]] = {
    "lm": ("/v1/completions", {"prompt": "그날 밤", "max_tokens": 50}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "안녕하세요"}]}),
    "classify": ("/v1/classify", {"input": "정말 재미있게 봤어요"}),
    "mlm": ("/v1/embeddings", {"input": "그날 밤"}),
}


@click.command(
    cls=Verb,
    short_help="Serve runs to OpenAI clients.",
    examples="""
    jumok serve
    jumok serve runs/novel
    jumok serve runs/novel runs/numbers runs/reviews --port 8080
    jumok serve runs/novel --quantize int8
    jumok serve runs/novel --host 0.0.0.0 --api-key-file keys.txt
    jumok serve runs/novel --cors http://localhost:3000
    jumok serve runs/novel --share
    """,
)
@click.argument("runs", nargs=-1, type=PATH, metavar="[RUN]...")
@option(
    "--runs", "folder", type=PATH, metavar="FOLDER",
    help="folder whose runs are models, too, and are followed [runs, if it exists or no RUN is given]",
)  # fmt: skip
@option(
    "--host",
    default="127.0.0.1",
    help="address to listen on; one that other machines can reach needs keys [127.0.0.1]",
)
@option("--port", type=int, default=8000, help="port to listen on; 0: any free one [8000]")
@option(
    "--api-key-file", type=PATH, metavar="FILE",
    help="file with API keys of clients, one in each line",
)  # fmt: skip
@option("--cors", multiple=True, metavar="ORIGIN", help="origin whose pages may use the server; can be repeated [none]")
@option("--share", is_flag=True, help="let the page show the model itself, step by step; it then receives the weights")
@option("--slots", type=int, default=64, section="Models", help="texts that a model writes side by side [64]")
@option("--waiting", type=int, default=256, section="Models", help="texts that may wait for a slot [256]")
@option(
    "--quantize", type=click.Choice(["int8", "bfloat16"]), section="Models",
    help="round matrices to 8 or 16 bits; faster [off]",
)  # fmt: skip
@common()
def serve(
    runs: tuple[Path, ...],
    folder: Path | None,
    host: str,
    port: int,
    api_key_file: Path | None,
    cors: tuple[str, ...],
    share: bool,
    slots: int,
    waiting: int,
    quantize: Any,
    device: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Serve the models of run folders over HTTP, in the API of OpenAI, with a playground for the browser.

    The playground is the page at the address that is printed. It writes with the models, compares them and shows
    their attention. It also follows the runs of a folder as they are trained, and starts a new one there.

    The name of a model is that of its run folder. The first one is loaded at once, the others when they are used.
    After Ctrl-C or SIGTERM the server finishes the requests that have begun, and ends. A second one ends it at once.
    """
    if folder is None and (not runs or DEFAULT_RUNS.is_dir()):
        folder = DEFAULT_RUNS
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ConfigError("{--runs {folder}} is a file; name a folder of runs.", folder=folder)
    _require_packages()

    from jumok.runs.native import device_name
    from jumok.serve.server import serve as run_server
    from jumok.serve.settings import ServeSettings, read_keys

    settings = ServeSettings(
        host=host, port=port, slots=slots, waiting=waiting, cors=cors,
        keys=() if api_key_file is None else read_keys(api_key_file),
        quantize=quantize, share=share,
    )  # fmt: skip

    def ready(url: str, models: ServedModels) -> None:
        names = models.names()[: len(runs)]
        if as_json:
            print_json({"url": url, "models": names})
            return
        if names:
            said = tr("Listening on {url}; models: {names}. Ctrl-C ends the server.", url=url, names=", ".join(names))
        else:
            said = tr("Listening on {url}. Ctrl-C ends the server.", url=url)
        say(said)
        say(tr("Playground: {url}/", url=url))
        if names:
            task = models.task(names[0])
            answers = task == "seq2seq" or models.has_chat(names[0])
            write(_curl(url, names[0], "chat" if answers else task or "lm", api_key_file))

    def stopping() -> None:
        say(tr("Finishing the requests that have begun ... (Ctrl-C again ends at once)"), quiet=quiet)

    finished = run_server(
        runs, settings, device_name(device), root=folder, ready=ready, stopping=stopping,
        prepare=partial(build_native_step, quiet=quiet), quiet=quiet,
    )  # fmt: skip
    if not finished:
        click.get_current_context().exit(INTERRUPTED)


def _require_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ServeError(
            "a server needs packages that are not installed ({names}). Install them with: pip install 'jumok[serve]'",
            names=", ".join(missing),
        )


def _curl(url: str, name: str, task: str, key_file: Path | None) -> str:
    """Return a command that asks a model for something."""
    path, body = EXAMPLES[task]
    command = shell("curl", f"{url}{path}", "-H", "Content-Type: application/json")
    if key_file is not None:
        command += f' -H "Authorization: Bearer $(grep -m 1 "^[^#]" {shell(key_file)})"'
    return f"{command} {shell('-d', json.dumps({'model': name, **body}, ensure_ascii=False))}"
