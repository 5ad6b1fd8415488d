"""How the processes of a launch find each other, by the environment variables of torchrun."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import uuid4

import torch.distributed as dist

from jumok.errors import ConfigError, SharedFault, TrainingError
from jumok.messages import tr
from jumok.training.distributed import World
from jumok.training.heartbeat import Heartbeat

stores: Any = dist  # which exports the stores without types
VARIABLES = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # of torchrun, beside WORLD_SIZE
JOINING = 60.0  # seconds in which all ranks must have come
CONNECTING = timedelta(seconds=30)  # in which each must have reached each other one
LONGEST_WAIT = timedelta(days=7)  # for rank 0 to read and tokenize; heartbeats show that it lives
SIOCGIFADDR = 0x8915  # of Linux: the address of a network interface, netdevice(7)


def launched() -> int:
    """The number of processes of the launch that this one belongs to, by torchrun's variables; 1 for a process alone.

    Raises:
        ConfigError: a variable is missing or out of range.
    """
    given = os.environ.get("WORLD_SIZE", "1")
    if not given.isdecimal() or int(given) < 1:
        raise ConfigError(
            "WORLD_SIZE={given!r} is out of range: it is the number of processes, 1 or more.", given=given
        )
    missing = [name for name in VARIABLES if name not in os.environ]
    if int(given) > 1 and missing:
        raise ConfigError(
            "WORLD_SIZE={given} asks for several processes, but {missing} is not set; start them with torchrun, or "
            "unset WORLD_SIZE.",
            given=given,
            missing=", ".join(missing),
        )
    if int(given) > 1:
        _require_number("RANK", 0, int(given) - 1)
        _require_number("MASTER_PORT", 0, 65535)  # 0: any, which torchrun's own store has
    return int(given)


def _require_number(name: str, least: int, most: int) -> None:
    given = os.environ[name]
    if not given.isdecimal() or not least <= int(given) <= most:
        raise ConfigError(
            "{name}={given!r} is out of range: {least} to {most}.", name=name, given=given, least=least, most=most
        )


@contextmanager
def joined(backend: str = "gloo", facts: Mapping[str, str] | None = None) -> Iterator[World]:
    """The processes of this launch inside the block; a process that was started alone is a world of its own.

    When the block ends in rank 0, by an error as well, the others are told to end.

    Args:
        backend: of torch.distributed. facts: that must be the same in all processes.

    Raises:
        ConfigError: the variables of the launch are not whole. SharedFault: the facts differ.
        TrainingError: a rank does not come, or the port is in use.
    """
    size = launched()
    if size == 1:
        yield World()
        return
    rank = int(os.environ["RANK"])
    store, heartbeat, attempt = _meet(rank, size)
    _connect_all(backend, store, rank, size)
    heartbeat.start()
    world, failure = World(rank, size, heartbeat, attempt), None
    try:
        world.require_same(facts or {})
        yield world
    except BaseException as error:
        failure = error
        raise
    finally:
        world.leave(failure)


def _meet(rank: int, size: int) -> tuple[Any, Heartbeat, int]:
    """Connect to the store of the launch, and wait there for the other ranks.

    Returns:
        The store of this attempt, the heartbeat, and the number of the attempt, from 1. torchrun's own count may differ
        between hosts: one whose process did not fail restarts it without counting.
    """
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    lobby, name, until = _connect(rank, serves=serves), uuid4().hex, time.monotonic() + JOINING
    if rank == 0:
        attempt = int(lobby.add("attempts", 1))
    else:
        lobby.set(f"name/{rank}", name)
        _wait(lambda: [] if _is_set(lobby, f"attempt/{name}") else [0], size, until)
        attempt = int(lobby.get(f"attempt/{name}"))
    store = stores.PrefixStore(f"{attempt}", lobby)
    heartbeat = Heartbeat(stores.PrefixStore(f"{attempt}", _connect(rank)), rank, range(1, size) if rank == 0 else (0,))
    store.set(f"here/{rank}", "")

    absent = list(range(size))

    def missing() -> list[int]:
        absent[:] = [other for other in absent if not _is_set(store, f"here/{other}")]
        if rank == 0:  # tell the others; a name may be that of a process of the attempt before
            for other in absent:
                if _is_set(lobby, f"name/{other}"):
                    lobby.set(f"attempt/{lobby.get(f'name/{other}').decode()}", f"{attempt}")
        return absent

    _wait(missing, size, until)
    return store, heartbeat, attempt


def _wait(missing: Callable[[], list[int]], size: int, until: float) -> None:
    while absent := missing():
        if time.monotonic() > until:
            text = tr(
                "rank {missing} of {size} did not come within {seconds:.0f} s; was it started?",
                missing=", ".join(map(str, absent)),
                size=size,
                seconds=JOINING,
            )
            # If rank 0 is there, it reports this.
            raise TrainingError("{error}", error=text) if 0 in absent else SharedFault("{error}", error=text)
        time.sleep(0.02)


def _connect_all(backend: str, store: Any, rank: int, size: int) -> None:
    """Connect each rank to each other one."""
    if "GLOO_SOCKET_IFNAME" not in os.environ and (name := interface_to(os.environ["MASTER_ADDR"])):
        os.environ["GLOO_SOCKET_IFNAME"] = name
    try:
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=CONNECTING)
    except RuntimeError as error:
        raise TrainingError(
            "rank {rank} cannot connect to the other processes ({reason}). Set GLOO_SOCKET_IFNAME on each host to its "
            "network interface in the network of the hosts, eth0 for example.",
            rank=rank,
            reason=str(error).strip().splitlines()[0],
        ) from error
    dist.distributed_c10d._set_pg_timeout(LONGEST_WAIT)


def interface_to(host: str) -> str:
    """The network interface by which a host is reached, by Linux; "" if it is not known.

    gloo would take the address of this host's name, which is 127.0.0.1 or 127.0.1.1 on many systems.
    """
    with suppress(ImportError, OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl = import_module("fcntl")  # not on Windows
        probe.connect((host, 9))  # sends nothing
        mine = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                request = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("40s", name.encode()))
                if request[20:24] == mine:
                    return name
    return ""


def _is_set(store: Any, key: str) -> bool:
    try:
        return bool(store.check([key]))
    except RuntimeError:  # rank 0 served the store, and has given up
        return False


def _has_libuv() -> bool:
    """Whether stores use libuv, by the rule of `torch.distributed`: PyTorch is built without it on Windows."""
    return os.environ.get("USE_LIBUV", "0" if sys.platform == "win32" else "1") == "1"


def _connect(rank: int, *, serves: bool = False) -> Any:
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    try:
        wait = timedelta(seconds=JOINING)
        store = stores.TCPStore(
            host, int(port), is_master=serves, wait_for_workers=False, timeout=wait, use_libuv=_has_libuv()
        )
    except (RuntimeError, ValueError) as error:
        if "EADDRINUSE" in str(error):
            raise ConfigError("MASTER_PORT={port} is in use on this host; choose another port.", port=port) from None
        raise TrainingError(
            "rank {rank} cannot reach rank 0 at MASTER_ADDR={host}, MASTER_PORT={port} ({reason}).",
            rank=rank,
            host=host,
            port=port,
            reason=str(error).strip().splitlines()[0],
        ) from error
    return stores.PrefixStore(f"jumok/{os.environ.get('TORCHELASTIC_RUN_ID', '')}", store)
