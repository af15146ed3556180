"""What backward passes have left for a table: gradients of rows, by key, until somebody takes them.

A backward pass files keys and rows; they are added up only when somebody looks, since a step of a
batch that was used once needs no adding up at all.
"""
from __future__ import annotations

import torch

from .unique_keys import Keys, sum_by_key


class FiledGradient:
    def __init__(self) -> None:
        self._filings: list[tuple[Keys, torch.Tensor]] = []
        self._shown = -1  # the version of the first filing when somebody got it as .grad; -1: nobody

    def __bool__(self) -> bool:
        return bool(self._filings)

    def file(self, keys: Keys, rows: torch.Tensor) -> None:
        """`keys` are unique; both are kept, and must not change."""
        if keys.numel():
            self._filings.append((keys, rows))

    def clear(self) -> None:
        self._filings = []
        self._shown = -1

    def _was_zeroed(self) -> bool:
        """By zero_grad(set_to_none=False): somebody got the rows, wrote to them, and all are 0 now.
        torch's sparse gradients have no rows then; here their keys would be dragged along for ever."""
        rows = self._filings[0][1]
        return self._shown >= 0 and rows._version != self._shown and not bool(rows.any())

    def sum(self) -> tuple[Keys, torch.Tensor] | None:
        """Everything by key. It stays here, and what is written to the rows counts."""
        if self._filings and self._was_zeroed():
            self._filings, self._shown = self._filings[1:], -1
        filings = self._filings
        if not filings:
            return None
        if len(filings) > 1:
            device, dtype = filings[-1][1].device, filings[-1][1].dtype
            filings = [(keys, rows.to(device, dtype)) for keys, rows in filings]
            self._filings = [sum_by_key(filings)]
            self._shown = -1
        return self._filings[0]

    def show(self, device: torch.device, dtype: torch.dtype) -> torch.Tensor | None:
        """The rows of sum(), as a tensor that may be written to; the same one until more is
        filed."""
        summed = self.sum()
        if summed is None:
            return None
        keys, rows = summed
        if rows.device != device or rows.dtype != dtype:
            rows = rows.to(device, dtype)
            self._filings = [(keys, rows)]
            self._shown = -1
        if self._shown < 0:
            self._shown = rows._version
        return rows

    def replace(self, rows: torch.Tensor) -> None:
        """Other values for the rows of sum()."""
        summed = self.sum()
        if summed is None or summed[1].shape != rows.shape:
            have = "there is none" if summed is None else f"its shape is {tuple(summed[1].shape)}"
            raise RuntimeError(
                f"assigned a gradient of shape {tuple(rows.shape)} to a table, whose own has a row "
                f"for each key of the backward passes ({have}): change it in place, or set it to "
                "None")
        self._filings = [(summed[0], rows.detach())]
        self._shown = self._filings[0][1]._version
