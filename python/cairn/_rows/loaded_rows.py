"""Rows whose values were given by hand (pretrained, from a state_dict), until the servers have
them."""
from __future__ import annotations

import torch

from .unique_keys import Keys


class LoadedRows:
    def __init__(self) -> None:
        self._keys: Keys | None = None  # ascending, unique
        self._rows = torch.empty(0, device="cpu")

    def __bool__(self) -> bool:
        return self._keys is not None

    def add(self, keys: Keys, rows: torch.Tensor) -> None:
        """Values for `keys`; of a key that was given before, or is there twice, the last ones
        count."""
        rows = rows.detach().to(device="cpu", dtype=torch.float32, copy=True)
        if self._keys is not None:
            keys, rows = torch.cat((self._keys, keys)), torch.cat((self._rows, rows))
        keys, order = torch.sort(keys, stable=True)
        last = torch.ones_like(keys, dtype=torch.bool)
        last[:-1] = keys[:-1] != keys[1:]
        self._keys, self._rows = keys[last], rows[order[last]]

    def all(self) -> tuple[Keys, torch.Tensor] | None:
        return None if self._keys is None else (self._keys, self._rows)

    def write_over(self, keys: Keys, rows: torch.Tensor) -> None:
        """Puts what is here for `keys` into their `rows`."""
        if self._keys is None or not self._keys.numel():
            return
        at = torch.searchsorted(self._keys, keys).clamp_(max=self._keys.numel() - 1)
        (here,) = (self._keys[at] == keys).nonzero(as_tuple=True)
        rows[here] = self._rows[at[here]]

    def clear(self) -> None:
        self._keys, self._rows = None, torch.empty(0, device="cpu")
