"""Firefox and WebKitGTK of the system, driven by WebDriver's commands, to open pages in more than Chromium.

Firefox takes them over Marionette, the socket behind geckodriver; WebKitGTK over HTTP, from WebKitWebDriver. Both are
started with a profile of their own and without a way to the network, and what their consoles say is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's reference, from the standard
PATIENCE = 100  # seconds
# The commands that are used here: the name that Marionette knows, and the method and path of the standard.
COMMANDS = {
    "WebDriver:NewSession": ("POST", ""),
    "WebDriver:Navigate": ("POST", "/url"),
    "WebDriver:ExecuteScript": ("POST", "/execute/sync"),
    "WebDriver:FindElement": ("POST", "/element"),
    "WebDriver:ElementClick": ("POST", "/element/{id}/click"),
    "WebDriver:ElementSendKeys": ("POST", "/element/{id}/value"),
    "WebDriver:PerformActions": ("POST", "/actions"),
    "WebDriver:SetWindowRect": ("POST", "/window/rect"),
}
KEYS = {"ArrowDown": "\ue015"}  # of the standard

FIREFOX_SETTINGS: dict[str, Any] = {
    "app.normandy.enabled": False,
    "app.update.enabled": False,
    "browser.aboutwelcome.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False,
    "marionette.port": 0,  # a free one, which a file of the profile then names
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
}
# Stands in a page before its policy, which would forbid it, and keeps what a console would show.
LISTENER = """<script>
window.complaints = [];
for (const level of ["debug", "error", "info", "log", "warn"])
  console[level] = (...said) => window.complaints.push(`${level}: ${said.join(" ")}`);
addEventListener("error", ({ message, target }) =>
  window.complaints.push(`error: ${message ?? target?.outerHTML}`), true);
addEventListener("unhandledrejection", (event) => window.complaints.push(`rejected: ${event.reason}`));
document.addEventListener("securitypolicyviolation", (event) =>
  window.complaints.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
</script>"""


class Failed(AssertionError):
    """What a browser answered instead of doing as it was told."""


class Transport(Protocol):
    """A way to send a command to a browser."""

    def send(self, command: str, values: dict[str, Any]) -> Any:
        """Do it, and give back what it answers."""


class Marionette:
    """The socket of a Firefox: messages [0, number, command, values], each after its length."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._stream = self._socket.makefile("rb")
        self._number = 0
        self._read()  # its greeting

    def _read(self) -> Any:
        length = b""
        while not length.endswith(b":"):
            part = self._stream.read(1)
            if not part:
                raise Failed("Firefox closed its socket")
            length += part
        return json.loads(self._stream.read(int(length[:-1])))

    def send(self, command: str, values: dict[str, Any]) -> Any:
        self._number += 1
        message = json.dumps([0, self._number, command, values]).encode()
        self._socket.sendall(f"{len(message)}:".encode() + message)
        _, _, error, result = self._read()
        if error:
            raise Failed(f"{command}: {error['error']}: {error['message']}")
        return result.get("value", result) if isinstance(result, dict) else result

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


class HTTP:
    """The standard's way: each command is a request."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/session"
        self._session = ""
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def send(self, command: str, values: dict[str, Any]) -> Any:
        method, path = COMMANDS[command]
        data = json.dumps(values).encode()
        request = urllib.request.Request(
            self._address + self._session + path.format(**values),
            data=data,
            method=method,
            headers={"Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                found = json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise Failed(f"{command}: {error.read().decode(errors='replace')}") from None
        if command == "WebDriver:NewSession":
            self._session = f"/{found['sessionId']}"
        return found


class Window:
    """A browser with one window."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def open(self, path: Path | str, link: str = "") -> None:
        """Load a file or an address. Waits for the end of loading. Of a file, `complaints` will be known."""
        if isinstance(path, Path):
            html = path.read_text(encoding="utf-8")
            path = path.with_name(f"listened-{path.name}")
            path.write_text(html.replace("<head>", f"<head>{LISTENER}", 1), encoding="utf-8")
            path = path.as_uri()
        self._transport.send("WebDriver:Navigate", {"url": path + link})

    def evaluate(self, expression: str, *args: Any) -> Any:
        """The value of an expression in the page, as JSON; of a promise, what it becomes. It may use arguments[i]."""
        script = f"return ({expression});"
        return self._transport.send("WebDriver:ExecuteScript", {"script": script, "args": list(args)})

    def until(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(f"!!({condition})"):
            if time.monotonic() > deadline:
                raise Failed(f"never: {condition}; {self.evaluate('document.body.innerText.slice(0, 500)')}")
            time.sleep(0.03)

    def find(self, selector: str) -> str:
        """The reference of the first element that a CSS selector finds."""
        found = self._transport.send("WebDriver:FindElement", {"using": "css selector", "value": selector})
        return str(found[ELEMENT])

    def click(self, selector: str) -> None:
        """Click an element as a pointer does: it must be seen, and nothing may lie over it."""
        self._transport.send("WebDriver:ElementClick", {"id": self.find(selector)})

    def type(self, selector: str, text: str) -> None:
        """Type into a field, behind what it holds."""
        self._transport.send("WebDriver:ElementSendKeys", {"id": self.find(selector), "text": text})

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, where the focus is: characters, or the names in KEYS."""
        values = [KEYS.get(key, key) for key in keys]
        steps = [{"type": kind, "value": value} for value in values for kind in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keyboard", "actions": steps}]
        self._transport.send("WebDriver:PerformActions", {"actions": actions})

    def resize(self, width: int, height: int) -> None:
        """Make the page itself so many pixels large, or as near as the system lets it."""
        for _ in range(2):
            frame = self.evaluate("[outerWidth - innerWidth, outerHeight - innerHeight]")
            self._transport.send("WebDriver:SetWindowRect", {"width": width + frame[0], "height": height + frame[1]})

    def complaints(self) -> list[str]:
        """What a file's console was told, and what its policy refused."""
        return list(self.evaluate("window.complaints"))


@contextlib.contextmanager
def firefox(folder: Path, language: str = "en", *, dark: bool = False) -> Iterator[Window]:
    """A Firefox whose profile is in `folder`; skips where there is none."""
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.skip("there is no Firefox; on Debian: apt install firefox-esr")
    settings = {**FIREFOX_SETTINGS, "intl.accept_languages": "ko-KR, ko, en" if language == "ko" else "en-US, en"}
    settings["ui.systemUsesDarkTheme"] = int(dark)
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items()]
    (folder / "user.js").write_text("".join(lines), encoding="utf-8")
    command = [program, "--headless", "--marionette", "--no-remote", "--profile", str(folder)]
    with _process(command, folder / "log.txt", {"HOME": str(folder), "MOZ_DISABLE_CONTENT_SANDBOX": "1"}) as process:
        port = folder / "MarionetteActivePort"
        _wait_for(process, "Firefox", lambda: port.is_file() and port.read_text().strip())
        with contextlib.closing(Marionette(int(port.read_text()))) as transport:
            transport.send("WebDriver:NewSession", {"capabilities": {}})
            yield Window(transport)


@contextlib.contextmanager
def webkit(folder: Path, *, dark: bool = False) -> Iterator[Window]:
    """A WebKitGTK on a screen of its own, with its files in `folder`; skips where one of its programs is missing.

    Its language is English: another one needs a locale of the system.
    """
    browser = next(iter(sorted(Path("/usr").glob("lib/*/webkit2gtk-4.*/MiniBrowser"))), None)
    for program in ("WebKitWebDriver", "Xvfb"):
        if shutil.which(program) is None or browser is None:
            pytest.skip("there is no WebKitGTK to drive; on Debian: apt install webkit2gtk-driver xvfb")
    log = folder / "log.txt"
    read, write = os.pipe()
    screen = ["Xvfb", "-displayfd", str(write), "-screen", "0", "1440x1000x24", "-nolisten", "tcp"]
    with free_port() as port, _process(screen, folder / "screen.txt", {}, passed=write):
        os.close(write)
        with open(read, encoding="ascii") as answer:
            display = answer.readline().strip()
        environment = {
            "DISPLAY": f":{display}", "HOME": str(folder), "LC_ALL": "C",
            "GTK_THEME": f"Adwaita:{'dark' if dark else 'light'}", "NO_AT_BRIDGE": "1", "GDK_BACKEND": "x11",
            "WEBKIT_DISABLE_COMPOSITING_MODE": "1",
        }  # fmt: skip
        with _process(["WebKitWebDriver", f"--port={port}"], log, environment) as process:
            _wait_for(process, "WebKitWebDriver", lambda: not _refused(port))
            transport = HTTP(port)
            args = ["--automation", "--proxy=http://127.0.0.1:9"]
            options = {"webkitgtk:browserOptions": {"binary": str(browser), "args": args}}
            transport.send("WebDriver:NewSession", {"capabilities": {"alwaysMatch": options}})
            yield Window(transport)


@contextlib.contextmanager
def free_port() -> Iterator[int]:
    """A port that the system gives to nobody else within the block, where one process may listen all the same."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


BROWSERS = {"firefox": firefox, "webkit": webkit}


@contextlib.contextmanager
def _process(
    command: list[str], log: Path, environment: dict[str, str], passed: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program and all that it starts, until the end of the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            pass_fds=() if passed is None else (passed,),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], name: str, ready: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"{name} did not start")
        time.sleep(0.05)


def _refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False
