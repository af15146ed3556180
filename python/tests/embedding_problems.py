"""Tables beside torch modules of the same rows, for the tests of cairn.nn.

A Pair is a cairn module and the torch module that it must equal. Unbounded tables get keys from a
pool of distinct 64-bit numbers, of which torch's module sees the positions.
"""
import torch
from hypothesis import settings, strategies as st
from torch import nn

import cairn

settings.register_profile("embedding", deadline=None, max_examples=60, print_blob=True,
                          derandomize=True, database=None)
settings.load_profile("embedding")

KEYS = st.integers(-(2**63), 2**63 - 1)


class Pair:
    def __init__(self, bag, pool, dim, padding, **options):
        """pool: None for a bounded table of `rows` rows, else the keys of an unbounded one."""
        rows = options.pop("rows") if pool is None else len(pool)
        kind = "EmbeddingBag" if bag else "Embedding"
        self.pool = None if pool is None else torch.tensor(pool)
        key = padding if pool is None or padding is None else pool[padding]
        self.mine = getattr(cairn.nn, kind)(None if pool else rows, dim, padding_idx=key, **options)
        self.torch = getattr(nn, kind)(rows, dim, padding_idx=padding, **options)
        with torch.no_grad():
            self.torch.weight.copy_(self.rows())

    def rows(self):
        """All rows of the table, in torch's order."""
        if self.pool is None:
            return self.mine.state_dict()["weight"]
        with torch.no_grad():
            return cairn.nn.Embedding.forward(_Reader(self.mine), self.pool)

    def ids(self, positions):
        return positions if self.pool is None else self.pool[positions.long()]

    def check_gradient(self, used):
        """The filed gradient is torch's, and has rows for nothing but `used` (positions)."""
        expected = self.torch.weight.grad
        filed = self.mine.table.rows_of.filed()
        used = sorted(set(used.reshape(-1).tolist()) - {self.torch.padding_idx})
        if filed is None:
            assert not used
            return
        keys, rows = filed
        assert keys.dtype == torch.int64 and rows.dtype == torch.float32 and rows.is_contiguous()
        wanted = self.ids(torch.tensor(used, dtype=torch.int64))
        assert sorted(keys.tolist()) == sorted(wanted.tolist())
        order = {key: i for i, key in enumerate(keys.tolist())}
        mine = rows[[order[key] for key in wanted.tolist()]]
        torch.testing.assert_close(mine, expected[used].float(), rtol=1e-5, atol=1e-6)


class _Reader(cairn.nn.Embedding):
    """Reads the rows of another module's table one by one, whatever that module makes of them."""

    def __init__(self, module):
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim = None, module.embedding_dim
        self.padding_idx, self.scale_grad_by_freq = None, False
        self.table = module.table


@st.composite
def pools(draw):
    """None, or keys of an unbounded table."""
    if draw(st.booleans()):
        return None
    return draw(st.lists(KEYS | st.integers(-3, 3), min_size=1, max_size=12, unique=True))


@st.composite
def tables(draw, bag):
    """Arguments of a Pair."""
    pool = draw(pools())
    rows = draw(st.integers(1, 12)) if pool is None else len(pool)
    low = -rows if pool is None else 0
    return {
        "bag": bag, "pool": pool, "dim": draw(st.sampled_from([1, 3, 4, 16])),
        "padding": draw(st.none() | st.integers(low, rows - 1)),
        **({} if bag else {"scale_grad_by_freq": draw(st.booleans())}),
        **({"rows": rows} if pool is None else {}),
    }


def rows_of(table):
    return table["rows"] if table["pool"] is None else len(table["pool"])


def positions(draw, count, shape, pool):
    """Positions in the table, of a random integer type."""
    size = 1
    for n in shape:
        size *= n
    values = draw(st.lists(st.integers(0, count - 1), min_size=size, max_size=size))
    dtype = draw(st.sampled_from([torch.int64, torch.int32])) if pool is None else torch.int64
    return torch.tensor(values, dtype=dtype).reshape(shape)


def upstream(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
