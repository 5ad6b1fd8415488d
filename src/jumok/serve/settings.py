"""`ServeSettings`: what a server may do, checked; and the keys of its clients."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from jumok.config import require_count, require_range
from jumok.errors import ConfigError
from jumok.inference.slots import Quantization

KEY = re.compile(r"[!-~]+")  # what an Authorization header can carry without quoting
ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+")


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """The settings of a server.

    Fields:
        host, port: where it listens; port 0: any free one.
        slots: texts that each model writes side by side. waiting: texts that may wait for a slot.
        keys: API keys of the clients; without one the server listens only on this machine.
        cors: origins whose pages may read answers, such as "http://localhost:3000"; "*" for all.
        max_body: bytes of a request's body. max_prompt: characters of a prompt. max_tokens: tokens to write.
        max_upload: bytes of a text that is uploaded for a run.
        share: whether the page may show a page that holds the weights of a model, as `jumok share` writes it.
        timeout: seconds that a request may take. read_timeout: seconds in which a client sends the body, and as many
            for which an idle connection stays open.
        quantize: as in `jumok.generate`.

    Raises:
        ConfigError: a value is out of range, or the host can be reached from outside and there is no key.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    slots: int = 64
    waiting: int = 256
    keys: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    max_body: int = 1_000_000
    max_prompt: int = 100_000
    max_tokens: int = 100_000
    max_upload: int = 200_000_000
    share: bool = False
    timeout: float = 600.0
    read_timeout: float = 30.0
    quantize: Quantization | None = None

    def __post_init__(self) -> None:
        require_count("port", self.port, 0, 65_535)
        for name in ("slots", "max_body", "max_prompt", "max_tokens", "max_upload"):
            require_count(name, getattr(self, name), 1)
        require_count("waiting", self.waiting, 0)
        for name in ("timeout", "read_timeout"):
            require_range(name, getattr(self, name), 0.001)
        for origin in self.cors:
            if not ORIGIN.fullmatch(origin):
                raise ConfigError(
                    "{--cors {origin}} is not an origin; write scheme, host and port without a path, for example "
                    "http://localhost:3000, or * for all.",
                    origin=origin,
                )
        if not self.keys and not is_local(self.host):
            raise ConfigError(
                "host {host} can be reached from other machines, and there is no API key: anyone could use the models. "
                "Name a file with keys, {--api-key-file FILE}, or listen on 127.0.0.1.",
                host=self.host,
            )

    @property
    def may_write(self) -> bool:
        """Return True if clients may start trainings and send texts: with a key, or from this machine alone."""
        return bool(self.keys) or is_local(self.host)


def is_local(host: str) -> bool:
    """Return whether only this machine reaches a host: localhost, 127.0.0.0/8 or ::1."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def read_keys(path: Path) -> tuple[str, ...]:
    """Read API keys: one in each line; empty lines and lines that begin with # are skipped.

    Raises:
        ConfigError: the file cannot be read, has no key or a key with other characters than visible ASCII, or others
            than its owner and group can read it.
    """
    try:
        mode = path.stat().st_mode
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "cannot read the API keys in {path}: {reason}.",
            path=path,
            reason=error,
        ) from None
    if os.name == "posix" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(
            "other users of this machine can read the API keys in {path}; allow only yourself to: chmod 600 {path}",
            path=path,
        )
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        raise ConfigError("{path} has no API key; write one in each line.", path=path)
    for number, line in enumerate(lines, start=1):  # the key itself is not shown
        if line.strip() in keys and not KEY.fullmatch(line.strip()):
            raise ConfigError(
                "line {number} of {path} is not an API key: only ASCII letters, digits and punctuation can be sent in "
                "a header, and no blanks.",
                number=number,
                path=path,
            )
    return tuple(dict.fromkeys(keys))
