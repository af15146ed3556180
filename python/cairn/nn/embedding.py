"""cairn.nn.Embedding: torch.nn.Embedding with its rows on the servers."""
from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .._rows.row_caching import Caching
from .._rows.rows_ahead import Lookup
from .gathered_rows import gathered
from .outside_graphs import outside_graphs
from .table_module import TableModule


@outside_graphs
class Embedding(TableModule):
    """As torch.nn.Embedding; num_embeddings=None takes any 64-bit key. Rows come when they are
    needed.

    name: of the table; modules with the same name share it. Without: embedding-0, … in the order in
        which modules are made, which must be the same on all workers.
    init: the rows' initial values: ("normal", mean, std), ("uniform", low, high), "zeros" or a
        number; with `seed` and the table's name they are the same in every run.
    wire: between hosts, None, "bf16" or "f16" (gradients and rows in two bytes), or "lz4".
    storage: how the servers keep the rows' values: "float32", or in half the memory "bfloat16" or
        "float16", rounded at random after each step. Optimizer state stays float32.
    sparse: without effect: gradients are always those of the rows that were used.
    cache_rows, cache_steps: for Async(): a row may be used for cache_steps steps after it was read, own
        updates and others' unseen; this worker keeps at most cache_rows hot rows for it. 0: none.
    """

    def __init__(self, num_embeddings: int | None, embedding_dim: int,
                 padding_idx: int | None = None, max_norm: float | None = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
                 _weight: torch.Tensor | None = None, _freeze: bool = False,
                 device: Any = None, dtype: torch.dtype | None = None, *, name: str | None = None,
                 init: Any = ("normal", 0, 1), seed: int = 0, wire: str | None = None,
                 storage: str | torch.dtype = "float32",
                 cache_rows: int = 0, cache_steps: int = 0) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, max_norm=max_norm,
                         norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse,
                         weight=_weight, freeze=_freeze, device=device, dtype=dtype, name=name,
                         init=init, seed=seed, wire=wire, storage=storage,
                         caching=Caching(cache_rows, cache_steps))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._output(*self._read(input), input)

    def _output(self, lookup: Lookup, rows: torch.Tensor, *inputs: Any) -> torch.Tensor:
        (ids,) = inputs
        weight, _ = self._weight(lookup, rows)
        if weight.device.type == "cpu":
            return gathered(weight, lookup.inverse).view(*ids.shape, self.embedding_dim)
        return F.embedding(lookup.inverse.to(weight.device).view(ids.shape), weight)

    @classmethod
    def from_pretrained(cls, embeddings: torch.Tensor, freeze: bool = True,
                        padding_idx: int | None = None, max_norm: float | None = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        sparse: bool = False, *, name: str | None = None,
                        storage: str | torch.dtype = "float32") -> Embedding:
        """As torch's: rows with these values."""
        assert embeddings.dim() == 2, "Embeddings parameter is expected to be 2-dimensional"
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                   embeddings, freeze, embeddings.device, embeddings.dtype, name=name,
                   storage=storage)

    @classmethod
    def from_torch(cls, module: torch.nn.Embedding, *, name: str | None = None,
                   storage: str | torch.dtype = "float32") -> Embedding:
        """The same module with its rows on the servers, values and all."""
        if not isinstance(module, torch.nn.Embedding):
            raise TypeError(f"from_torch takes a torch.nn.Embedding, not {type(module).__name__}")
        weight = module.weight
        made = cls(module.num_embeddings, module.embedding_dim, module.padding_idx, module.max_norm,
                   module.norm_type, module.scale_grad_by_freq, module.sparse, weight,
                   not weight.requires_grad, weight.device, weight.dtype, name=name,
                   storage=storage)
        return made.train(module.training)
