"""cairn.nn.EmbeddingBag: torch.nn.EmbeddingBag with its rows on the servers."""
from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .._rows.row_caching import Caching
from .._rows.rows_ahead import Lookup
from ..errors import InvalidArgumentError
from .outside_graphs import outside_graphs
from .table_module import TableModule


@outside_graphs
class EmbeddingBag(TableModule):
    """As torch.nn.EmbeddingBag; num_embeddings=None takes any 64-bit key. `name`, `init`, `seed`,
    `wire`, `storage` and `cache_…` are those of cairn.nn.Embedding."""

    def __init__(self, num_embeddings: int | None, embedding_dim: int,
                 max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                 _weight: torch.Tensor | None = None,
                 include_last_offset: bool = False, padding_idx: int | None = None,
                 device: Any = None, dtype: torch.dtype | None = None, *, name: str | None = None,
                 init: Any = ("normal", 0, 1), seed: int = 0, wire: str | None = None,
                 storage: str | torch.dtype = "float32", _freeze: bool = False,
                 cache_rows: int = 0, cache_steps: int = 0) -> None:
        if mode not in ("sum", "mean", "max"):
            raise InvalidArgumentError(f'mode is {mode!r}: give "sum", "mean" or "max"')
        if mode == "max" and scale_grad_by_freq:
            raise ValueError("max mode does not support scaling the gradient by the frequency")
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, max_norm=max_norm,
                         norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse,
                         weight=_weight, freeze=_freeze, device=device, dtype=dtype, name=name,
                         init=init, seed=seed, wire=wire, storage=storage,
                         caching=Caching(cache_rows, cache_steps))
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input: torch.Tensor, offsets: torch.Tensor | None = None,
                per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
        return self._output(*self._read(input), input, offsets, per_sample_weights)

    def _output(self, lookup: Lookup, rows: torch.Tensor, *inputs: Any) -> torch.Tensor:
        ids, offsets, per_sample_weights = (*inputs, None, None)[:3]
        weight, padding = self._weight(lookup, rows)
        inverse = lookup.inverse.to(weight.device).view(ids.shape)
        if offsets is not None:
            offsets = self._ending_at_the_last_id(offsets.to(weight.device), inverse)
        return F.embedding_bag(
            inverse, weight, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset, padding_idx=padding)

    def _ending_at_the_last_id(self, offsets: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """With a padding_idx torch counts ids behind the last offset to the last bag, without one it
        does not. F.embedding_bag below is given none where the batch has no padding in it."""
        if not self.include_last_offset or self.padding_idx is None or offsets.numel() < 2 or ids.dim() != 1:
            return offsets
        return torch.cat((offsets[:-1], offsets[-1:].clamp(min=ids.numel())))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"

    @classmethod
    def from_pretrained(cls, embeddings: torch.Tensor, freeze: bool = True,
                        max_norm: float | None = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, mode: str = "mean",
                        sparse: bool = False, include_last_offset: bool = False,
                        padding_idx: int | None = None, *, name: str | None = None,
                        storage: str | torch.dtype = "float32") -> EmbeddingBag:
        """As torch's: rows with these values."""
        assert embeddings.dim() == 2, "Embeddings parameter is expected to be 2-dimensional"
        rows, columns = embeddings.shape
        return cls(rows, columns, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings,
                   include_last_offset, padding_idx, embeddings.device, embeddings.dtype, name=name,
                   storage=storage, _freeze=freeze)

    @classmethod
    def from_torch(cls, module: torch.nn.EmbeddingBag, *, name: str | None = None,
                   storage: str | torch.dtype = "float32") -> EmbeddingBag:
        """The same module with its rows on the servers, values and all."""
        if not isinstance(module, torch.nn.EmbeddingBag):
            raise TypeError(
                f"from_torch takes a torch.nn.EmbeddingBag, not {type(module).__name__}")
        weight = module.weight
        made = cls(module.num_embeddings, module.embedding_dim, module.max_norm, module.norm_type,
                   module.scale_grad_by_freq, module.mode, module.sparse, weight,
                   module.include_last_offset, module.padding_idx, weight.device, weight.dtype,
                   name=name, storage=storage, _freeze=not weight.requires_grad)
        return made.train(module.training)
