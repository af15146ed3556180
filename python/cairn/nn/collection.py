"""cairn.nn.EmbeddingCollection: many tables, one round trip."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .._rows.row_table import RowTable, read
from ..errors import InvalidArgumentError
from .outside_graphs import outside_graphs
from .table_module import TableModule, refuse_to_save_nothing


@outside_graphs
class EmbeddingCollection(torch.nn.ModuleDict):
    """Embeddings and bags by name, read together:

        rows = EmbeddingCollection({"user": Embedding(None, 16), "tags": EmbeddingBag(None, 8)})
        out = rows({"user": user_ids, "tags": (tag_ids, offsets)})

    Each name gets what its module's forward takes: ids, or a tuple of ids and the other arguments.
    Names may be left out. What comes back is what each module would return."""

    def __init__(self, modules: Mapping[str, TableModule]) -> None:
        super().__init__()
        for name, module in modules.items():
            if not isinstance(module, TableModule):
                raise TypeError(
                    f"{name!r} is a {type(module).__name__}: a collection holds cairn.nn.Embedding "
                    "and EmbeddingBag")
            self[name] = module

    def forward(self, ids: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        modules = [self._member(name) for name in ids]
        inputs = [value if isinstance(value, tuple) else (value,) for value in ids.values()]
        with torch.inference_mode(False), torch.no_grad():
            lookups = [module._lookup(given[0]) for module, given in zip(modules, inputs)]
            rows = read([module._rows for module in modules], lookups)
        outputs = [module._output(lookup, found, *given)
                   for module, lookup, found, given in zip(modules, lookups, rows, inputs)]
        return dict(zip(ids, outputs))

    def _ids_by_table(self, asked: Mapping[str, Any]) -> Iterator[tuple[RowTable, torch.Tensor]]:
        """For cairn.prefetch: as forward() takes it."""
        for module, ids in {self._member(name): ids for name, ids in asked.items()}.items():
            yield from module._ids_by_table(ids)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        refuse_to_save_nothing(self, args, kwargs)
        return super().state_dict(*args, **kwargs)

    def _member(self, name: str) -> TableModule:
        if name not in self:
            raise InvalidArgumentError(
                f"the collection has no {name!r}: it has {', '.join(self.keys())}")
        return self[name]  # type: ignore[return-value]  # __init__ took no others
