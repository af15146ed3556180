"""What a wrap is made of, compared among the workers before its tables are made.

Tables are named by the order of wraps (optimizer-0/0, …). A worker that wraps in another order, or has
placed other parameters by cairn.assign, would find another's tables or wait for ever in one that nobody
else has. So the first worker to come writes down what its wrap is made of, where the first word stays,
and the others compare. A text is found by its hash, so that equal wraps need not read it.

Of models with equal names and shapes only the initial values tell which is which. They differ among workers
where these have seeds of their own, so nothing follows from a difference. But two wraps that each begin, on
one worker, with the values of the other one on another worker have changed places.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch

from .. import _core
from .._tables.cpu_memory import INTEGERS
from ..assign import is_table
from ..errors import Error
from .served_parts import plain_name
from .served_tables import ServedTables

_WORDS = 64  # of a row
_SAMPLE = 256  # values of a parameter


def lines_of(served: ServedTables, model: torch.nn.Module | None) -> list[str]:
    """The wrap in words, one thing a line. Devices and types may differ among workers."""
    found = [f"{type(served.optimizer).__name__}, {served.settings}"]
    held = {id(param) for group in served.optimizer.param_groups for param in group["params"]}
    reduced = {id(param) for part in served.reduced for param in part.params}
    for index, group in enumerate(served.optimizer.param_groups):
        if len(served.optimizer.param_groups) > 1:
            found.append(f"group {index} with {len(group['params'])} parameters")
        for position, param in enumerate(group["params"]):
            name = served.name_of(param) or f"parameter {index}.{position}"
            if is_table(param):
                found.append(f'{name.removesuffix(".table")}, the table "{param.rows_of.name}" of rows of '
                             f"{param.rows_of.dim}")
            else:
                place = "all-reduced" if id(param) in reduced else "on the servers"
                found.append(f"{name} of shape {tuple(param.shape)}, {place}")
    if model is not None:
        found += [f"{plain_name(name)} of shape {tuple(param.shape)}, not in the optimizer"
                  for name, param in model.named_parameters() if id(param) not in held]
        found += [f"the buffer {plain_name(name)} of shape {tuple(buffer.shape)}"
                  for name, buffer in model.named_buffers()]
    return found


def print_of(params: list[torch.Tensor]) -> int:
    """Of some of the values of each. Never 0."""
    found = hashlib.blake2b(digest_size=8)
    for param in params:
        if param.numel() > 0:
            row = param.detach()[(0,) * max(param.dim() - 1, 0)].reshape(-1)[:_SAMPLE]
            found.update(row.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return int.from_bytes(found.digest(), "little", signed=True) or 1


def agree(client: _core.Client, rank: int, name: str, lines: list[str]) -> int:
    """Raises if another worker was here before with another wrap of this name. Returns the rank of the
    first one."""
    table = _table(client)
    text = "\n".join(lines)
    mine, place = _number(text), _number(f"name of a wrap: {name}")
    first, theirs, size = _read(table, [place])[0, :3].tolist()
    if first == 0:
        rows = _rows_of(text)
        _write(table, [mine ^ i for i in range(len(rows))], rows)  # before anybody can want to read it
        row = torch.zeros(1, _WORDS, **INTEGERS)
        row[0, :3] = torch.tensor([1 + rank, mine, len(rows)], **INTEGERS)
        _write(table, [place], row)
        first, theirs, size = _read(table, [place])[0, :3].tolist()
    if theirs == mine:
        return int(first - 1)
    there = _text_of(_read(table, [theirs ^ i for i in range(size)])).split("\n")
    raise Error(
        f"{name} is not the same on all workers: {_difference(first - 1, there, rank, lines)}. Make the same "
        "models, and call cairn.assign() and cairn.DistributedOptimizer() alike and in the same order, on "
        "every worker")


def check_order(client: _core.Client, rank: int, number: int, params: list[torch.Tensor],
                agree_on: Callable[[], int]) -> None:
    """Around agree(), of the wrap optimizer-NUMBER: raises if it and an earlier one have changed places."""
    table = _table(client)

    def places(of: int, until: int) -> list[int]:
        return [_number(f"values of optimizer-{wrap} on rank {of}") for wrap in range(until)]

    row = torch.zeros(1, _WORDS, **INTEGERS)
    row[0, 0] = print_of(params)
    _write(table, places(rank, number + 1)[-1:], row)  # before others can find this worker to be the first
    other = agree_on()
    if other == rank or number == 0:
        return
    found = _read(table, places(rank, number + 1) + places(other, number + 1))[:, 0].tolist()
    mine, theirs = found[:number + 1], found[number + 1:]
    for wrap in range(number):
        if mine[number] == theirs[wrap] != 0 and mine[wrap] == theirs[number] != mine[number]:
            raise Error(
                f"optimizer-{wrap} and optimizer-{number} have changed places: rank {rank} has wrapped first "
                f"what rank {other} has wrapped later, as the initial values show. Call "
                "cairn.DistributedOptimizer() in the same order on every worker")


def _table(client: _core.Client) -> _core.SparseTable:
    return client.create_sparse("wraps of optimizers", _WORDS, dtype="int64", mode="async", optimizer="first")


def _difference(their_rank: int, theirs: list[str], rank: int, mine: list[str]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(theirs, mine)) if a != b), min(len(theirs), len(mine)))
    said = (f"rank {who} has {lines[at] if at < len(lines) else 'nothing more'}"
            for who, lines in ((their_rank, theirs), (rank, mine)))
    return ", ".join(said) + (f" (after {mine[at - 1]})" if at > 1 else "")


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _rows_of(text: str) -> torch.Tensor:
    data = text.encode()
    padded = bytearray(data + b"\0" * (-len(data) % (8 * _WORDS)))
    return torch.frombuffer(padded, dtype=torch.int64).view(-1, _WORDS)


def _text_of(rows: torch.Tensor) -> str:
    return rows.numpy().tobytes().rstrip(b"\0").decode(errors="replace")


def _write(table: _core.SparseTable, keys: list[int], rows: torch.Tensor) -> None:
    at = torch.tensor(keys, **INTEGERS)
    table.push(at.data_ptr(), len(keys), rows.data_ptr(), keep=(at, rows)).wait()


def _read(table: _core.SparseTable, keys: list[int]) -> torch.Tensor:
    at, rows = torch.tensor(keys, **INTEGERS), torch.zeros(len(keys), _WORDS, **INTEGERS)
    table.pull(at.data_ptr(), len(keys), rows.data_ptr(), keep=(at, rows)).wait()
    return rows
