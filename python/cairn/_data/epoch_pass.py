"""One worker's way through one epoch: its own part first, then what others have left behind.

Neighbours: epoch_cut.py, epoch_claims.py; cairn/data.py makes these. Not thread-safe.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .._runtime import context
from ..errors import NotFoundError
from .epoch_claims import Claim, EpochClaims, Survey
from .epoch_cut import EpochCut, Range, left_over


class EpochPass:
    """Iterate once. `balance`: also takes chunks that live workers have not come to yet."""

    def __init__(self, ctx: context.Context, cut: EpochCut, order: torch.Tensor | range,
                 claims: EpochClaims, balance: bool) -> None:
        self._client, self._rank = ctx.client, ctx.rank
        self._cut, self._order, self._claims = cut, order, claims
        # Who joined a running job has no part of its own: it lives on the others'.
        self._takes_from_the_living = balance or self._rank >= cut.workers
        self._current: tuple[int, int] | None = None  # chunk, and how many of its samples are used
        self.all_done = False  # known when the iteration has ended

    def __iter__(self) -> Iterator[int]:
        for claim in self._claimed_chunks():
            indices = self._indices(claim.chunk)
            for count, index in enumerate(indices, 1):
                self._current = (claim.chunk, count)
                yield index
            self._claims.mark_done(claim.chunk, claim.generation)
            self._current = None

    def _indices(self, chunk: int) -> list[int]:
        found: list[int] = []
        for start, end in self._cut.positions(chunk):
            piece: Any = self._order[start:end]
            found += piece.tolist() if isinstance(piece, torch.Tensor) else piece
        return found

    def used(self, length: int) -> list[Range]:
        """Positions that are used up: what was before the epoch was cut, every chunk that is done,
        by whomever, and what this worker has had of its current one."""
        found = left_over(length, self._cut.ranges)
        try:
            done = self._claims.survey().done
        except NotFoundError:
            return [(0, length)]  # the others are so far ahead that the table was dropped
        for chunk in done.nonzero().flatten().tolist():
            found += self._cut.positions(chunk)
        if self._current is not None:
            chunk, count = self._current
            for start, end in self._cut.positions(chunk):
                found.append((start, min(end, start + count)))
                count -= min(count, end - start)
        return found

    # Chunks.
    def _claimed_chunks(self) -> Iterator[Claim]:
        try:
            own = self._cut.parts[self._rank] if self._rank < self._cut.workers else range(0)
            yield from self._won(self._free(self._claims.survey(), own), ours=True)
            while True:
                survey = self._claims.survey()
                left = self._left_behind(survey)
                if not left:
                    self.all_done = bool((survey.done != 0).all())
                    return
                yield from self._won(left, ours=False)
        except NotFoundError:
            return  # the others are so far ahead that the epoch's table was dropped

    @staticmethod
    def _free(survey: Survey, chunks: Iterable[int]) -> list[tuple[int, int]]:
        owner, generation = survey.owner.tolist(), survey.generation.tolist()
        return [(chunk, generation[chunk]) for chunk in chunks if owner[chunk] == 0]

    def _left_behind(self, survey: Survey) -> list[tuple[int, int]]:
        """Free chunks that nobody else will come to: last ones first, from where most are left."""
        live = set(self._client.live_ranks())
        by_part: dict[int, list[tuple[int, int]]] = {}
        for chunk, generation in self._free(survey, range(self._cut.chunks)):
            part = self._cut.part_of[chunk]
            abandoned = generation > 0 or part not in live or part == self._rank
            if abandoned or self._takes_from_the_living:
                by_part.setdefault(part, []).append((chunk, generation))
        places = [(place, item) for items in by_part.values() for place, item in enumerate(items)]
        return [item for _, item in sorted(places, reverse=True)]

    def _won(self, chunks: list[tuple[int, int]], *, ours: bool) -> Iterator[Claim]:
        """Claims one after the other, one ahead of the one in use, and gives those that we got.

        Of others' chunks no more are tried after one that was lost: somebody else is at it, and a
        new survey is cheaper than to ask for each.
        """
        ahead: Claim | None = None
        lost = False
        for chunk, generation in chunks:
            if lost and not ours:
                break
            claim = self._claims.claim(chunk, generation)
            if ahead is not None:
                if self._is_won(ahead, ours):
                    yield ahead
                else:
                    lost = True
            ahead = claim
        if ahead is not None and self._is_won(ahead, ours):
            yield ahead

    def _is_won(self, claim: Claim, ours: bool) -> bool:
        # Where the table is gone (0), nobody will come to what is left of our part but us.
        owner = claim.owner()
        return owner == self._claims.me or (owner == 0 and ours)
