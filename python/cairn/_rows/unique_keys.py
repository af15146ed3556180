"""Keys of rows, each once: where ids repeat, one row travels and one gradient returns."""
from __future__ import annotations

import torch

from .. import _core

Keys = torch.Tensor  # int64, one dimension, contiguous, on the CPU: a uint64 key bit by bit


def keys_to(count: int) -> Keys:
    """0 to count - 1."""
    return torch.arange(count, dtype=torch.int64, device="cpu")


def unique(ids: Keys) -> tuple[Keys, torch.Tensor]:
    """The keys in order of first appearance, and for each id the position of its key."""
    count = ids.numel()
    keys, inverse = (torch.empty(count, dtype=torch.int64, device="cpu") for _ in range(2))
    found = _core.unique(ids.data_ptr(), count, keys.data_ptr(), inverse.data_ptr())
    if 2 * found < count:  # don't hold memory for ids that were the same
        return keys[:found].clone(), inverse
    return keys[:found], inverse


def positions(keys: Keys, among: Keys) -> torch.Tensor:
    """For each of `keys` its position in `among`, whose keys are unique; len(among) or more: it is
    not there."""
    # The unique ones of both come out in order of first appearance: `among` first, as it is.
    return unique(torch.cat((among, keys)))[1][among.numel():]


def sum_by_key(filings: list[tuple[Keys, torch.Tensor]]) -> tuple[Keys, torch.Tensor]:
    """Rows of equal keys added up. The keys of each filing are unique."""
    if len(filings) == 1:
        return filings[0]
    keys, inverse = unique(torch.cat([keys for keys, _ in filings]))
    rows = torch.cat([rows for _, rows in filings])
    total = rows.new_zeros((keys.numel(), rows.shape[1]))
    return keys, total.index_add_(0, inverse.to(rows.device), rows)
