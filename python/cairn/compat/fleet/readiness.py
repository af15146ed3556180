"""Waiting until the servers listen, with the lines that Paddle's users know."""
from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from ...errors import DeadlineExceededError
from .. import starting

_EVERY_S = 3.0  # what the line says
_POLL_S = 0.1
_TRY_S = 1.0  # for one endpoint, where packets are dropped


def split(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def _listens(endpoint: str) -> bool:
    try:
        with socket.create_connection(split(endpoint), timeout=_TRY_S):
            return True
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
