"""cairn.assign: which parameters of a model lie on the servers, and which are all-reduced.

    cairn.assign(model, server=[model.embedding], allreduce=["tower.*"])
    cairn.assign(model, "auto")          # tables to the servers, dense parameters by all-reduce

What was assigned is kept on the model by name, so that a deepcopy has it too. docs/guide/hybrid.md.
"""
from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import torch

from .errors import InvalidArgumentError

_KEPT = "_cairn_placement"  # attribute of the model: dict[name, "server" | "allreduce"]
SERVER, ALLREDUCE = "server", "allreduce"

What = str | torch.nn.Module | torch.nn.Parameter
Whats = What | Iterable[What]
Named = dict[str, torch.nn.Parameter]


def assign(model: torch.nn.Module, how: str | None = None, *, server: Whats = (),
           allreduce: Whats = ()) -> None:
    """Says where the parameters of a model are summed up. Call it before DistributedOptimizer(…,
    model), alike on every worker.

    server, allreduce: modules, parameters, or patterns of parameter names ("encoder.*"; a module's
        name stands for all of it). What is named more exactly wins: a parameter over a module, a
        module over one that contains it, and any of them over a pattern; of two patterns the one in
        `allreduce`. The rest stays as it was: on the servers, if nothing was said.
    how: "auto": cairn.nn tables and embeddings with sparse gradients to the servers, everything
        else by all-reduce; what `server` and `allreduce` name goes where they say.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is {type(model).__name__}, not a torch.nn.Module")
    if how not in (None, "auto"):
        raise InvalidArgumentError(
            f'cairn.assign(model, {how!r}): there is "auto", or server= and allreduce=')
    names = _names(model)
    places = _automatic(model, names) if how == "auto" else dict(placement_of(model))
    exactness: dict[str, int] = {}
    for place, whats in ((SERVER, server), (ALLREDUCE, allreduce)):
        for what in _list(whats):
            _place(model, names, what, place, places, exactness)
    _check(names, places)
    vars(model)[_KEPT] = places  # a compiled model hands setattr() on to the one inside


def placement_of(model: torch.nn.Module) -> dict[str, str]:
    """By the names of model.named_parameters(remove_duplicate=False): "server" or "allreduce", for
    those that assign() has placed. It may have been called with this model, with one around which
    torch.compile or DistributedDataParallel has made this one, or with parts of it (the whole
    wins)."""
    placed: dict[str, str] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, place in vars(module).get(_KEPT, {}).items():
            placed.setdefault(f"{prefix}.{name}" if prefix else name, place)
    return placed


def _names(model: torch.nn.Module) -> Named:
    return dict(model.named_parameters(remove_duplicate=False))


def _list(whats: Whats) -> list[What]:
    if isinstance(whats, (str, torch.nn.Module, torch.Tensor)):
        return [whats]  # type: ignore[list-item]  # a tensor that is no parameter is refused later
    return list(whats)


def _place(model: torch.nn.Module, names: Named, what: What, place: str,
           places: dict[str, str], exactness: dict[str, int]) -> None:
    found, exact = _find(model, names, what)
    if not found:
        raise InvalidArgumentError(
            f"cairn.assign(): {_described(what)} is no parameter of this model, nor a module with "
            f"any. Its parameters are {_some(list(names))}")
    for name in found:
        before = exactness.get(name, -1)
        if exact == before and places[name] != place and not isinstance(what, str):
            raise InvalidArgumentError(
                f"cairn.assign(): {name} is in server= and in allreduce=: say one")
        if exact >= before:
            places[name], exactness[name] = place, exact


def _find(model: torch.nn.Module, names: Named, what: What) -> tuple[list[str], int]:
    """Names, and how exactly they were named: patterns least, deeper modules more, parameters most."""
    if isinstance(what, str):
        return [name for name in names if _matches(name, what)], 0
    if isinstance(what, torch.nn.Module):
        modules = model.named_modules(remove_duplicate=False)
        prefixes = [prefix for prefix, module in modules if module is what]
        if not prefixes:
            return [], 0
        ours = {id(param) for param in what.parameters()}
        depth = 1 + max(0 if not prefix else 1 + prefix.count(".") for prefix in prefixes)
        return [name for name, param in names.items() if id(param) in ours], depth
    if isinstance(what, torch.Tensor):
        return [name for name, param in names.items() if param is what], 1 << 30
    raise TypeError("cairn.assign() takes modules, parameters and patterns of names, not "
                    f"{type(what).__name__}")


def _matches(name: str, pattern: str) -> bool:
    """Also without what torch.compile and DistributedDataParallel put in front."""
    plain = name.replace("_orig_mod.", "")
    return any(fnmatch.fnmatchcase(n, p) for n in {name, plain, plain.removeprefix("module.")}
               for p in (pattern, f"{pattern}.*"))


def _automatic(model: torch.nn.Module, names: Named) -> dict[str, str]:
    sparse = set()
    for module in model.modules():
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse:
            sparse.add(id(module.weight))
    return {name: SERVER if is_table(param) or id(param) in sparse else ALLREDUCE
            for name, param in names.items()}


def is_table(param: torch.Tensor) -> bool:
    """The handle of a table (cairn.nn.Embedding), whose rows are on the servers in any case."""
    return hasattr(param, "rows_of")


def _check(names: Named, places: dict[str, str]) -> None:
    by_param: dict[int, tuple[str, str]] = {}
    for name, place in places.items():
        param = names.get(name)
        if param is None:
            continue
        if place == ALLREDUCE and is_table(param):
            raise InvalidArgumentError(
                f"cairn.assign(): {name} is a table of rows, which lie on the servers: leave it out "
                "of allreduce=, or use torch.nn.Embedding")
        other = by_param.setdefault(id(param), (name, place))
        if other[1] != place:
            raise InvalidArgumentError(
                f"cairn.assign(): {other[0]} and {name} are one parameter (tied), and can't be at "
                f"{other[1]} and {place}: assign them alike")


def _described(what: What) -> str:
    if isinstance(what, str):
        return repr(what)
    if isinstance(what, torch.nn.Module):
        return f"a {type(what).__name__}"
    return f"a tensor of shape {tuple(what.shape)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more or "none"
