"""What each worker says of its call before anything else is exchanged, so that workers whose calls don't
fit together get an error that names them."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..errors import InvalidArgumentError
from .exchange import Exchange

_BYTES = 512  # of the text of a record
_REFUSED = "!"  # what no name of a call begins with


@dataclass(frozen=True)
class Record:
    """call: its name. arguments: what must be the same on all workers, in this order and in words.
    refusal: why this worker can't make the call that it was asked for."""

    call: str
    arguments: tuple[Any, ...] = ()
    refusal: str = ""

    def __str__(self) -> str:
        if self.refusal:
            return f"{_REFUSED}{self.refusal}"
        words = ", ".join(str(argument) for argument in self.arguments)
        return f"{self.call}({words})"


def check_same(record: Record, group: Exchange) -> InvalidArgumentError | None:
    """None if all workers of the group make this call; the same error on all of them if not."""
    text = str(record).encode()[:_BYTES]
    padded = torch.zeros(_BYTES, dtype=torch.uint8)
    padded[:len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    said: dict[str, list[int]] = {}
    for rank, part in zip(group.ranks, group.all_gather(padded)):
        said.setdefault(part.numpy().tobytes().rstrip(b"\0").decode(errors="replace"), []).append(rank)
    refused = [(text[len(_REFUSED):], ranks) for text, ranks in said.items() if text.startswith(_REFUSED)]
    if refused:
        reasons = "; ".join(f"{_ranks(ranks)}: {reason}" for reason, ranks in refused)
        return InvalidArgumentError("another worker could not make its call, so nothing was exchanged. "
                                    f"{reasons}")
    if len(said) == 1:
        return None
    calls = "; ".join(f"{_ranks(ranks)} {'call' if len(ranks) > 1 else 'calls'} {call}"
                      for call, ranks in said.items())
    return InvalidArgumentError(f"the workers' calls do not fit together: {calls}. Nothing was exchanged; "
                                "make the same call on all of them")


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
