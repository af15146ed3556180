"""Waiting until the servers listen, with the lines that Paddle's users know."""
from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from ...errors import DeadlineExceededError
from .. import starting

_EVERY_S = 3.0  # what the line says
_POLL_S = 0.1
_TRY_S = 1.0  # for one endpoint, where packets are dropped


def split(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def _listens(endpoint: str) -> bool:
    host, port = split(endpoint)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_answers(family, address) for family, _, _, _, address in found)


def _answers(family: int, address: tuple[Any, ...]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # The port that the probe gets may be the very one that a server of this machine is to listen at:
        # then it connects to itself, and it must not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        probe.settimeout(_TRY_S)
        try:
            probe.connect(address)
            return bool(probe.getsockname() != probe.getpeername())
        except OSError:
            return False


def wait(endpoints: Sequence[str], until: float) -> None:
    """Returns when something listens at each of them. `until` is time.monotonic()'s."""
    begun = told = None
    missing = list(endpoints)
    while True:
        missing = [endpoint for endpoint in missing if not _listens(endpoint)]
        if not missing:
            return
        now = time.monotonic()
        begun = now if begun is None else begun
        if now >= until:
            raise DeadlineExceededError(
                f"not ready endpoints:{missing} after {now - begun:.0f} s: start these servers, "
                "and see whether this machine reaches their ports")
        if told is None or now - told >= _EVERY_S:
            told = now
            starting.say("server not ready, wait 3 sec to retry...")
            starting.say(f"not ready endpoints:{missing}")
        time.sleep(min(_POLL_S, until - now))
