"""How many round trips the servers of this process's embedded cluster have counted."""
import json
import os
import pathlib
import subprocess
import time

import torch

import cairn
from cairn._runtime import context

_MARKS = 4096  # new rows: more than what is counted makes itself, on each server
_SECONDS = 30


class RoundTrips:
    """Servers report to the scheduler now and then; rows that are new with them say that they have.

        trips = RoundTrips()
        …
        assert trips.taken() == [5]
    """

    _made = 0

    def __init__(self):
        RoundTrips._made += 1
        self._marks = cairn.sparse_table(f"marks-{RoundTrips._made}", 1, mode=cairn.Async(),
                                         optimizer="sum")
        self._marked, self._rows = 0, [s["rows"] for s in _stats()]
        self._count = self._settled()

    def taken(self):
        """Of each server, since the last call of this; the call of its own is left out."""
        before, self._count = self._count, self._settled()
        return [now - then - 1 for now, then in zip(self._count, before)]

    def _settled(self):
        keys = torch.arange(self._marked, self._marked + _MARKS)
        self._marked += _MARKS
        self._marks.push(keys, torch.ones(_MARKS, 1)).wait()
        end = time.monotonic() + _SECONDS
        while True:
            stats = _stats()
            if all(s["rows"] >= rows + _MARKS // (2 * len(stats))
                   for s, rows in zip(stats, self._rows)):
                self._rows = [s["rows"] for s in stats]
                return [s["round_trips"] for s in stats]
            assert time.monotonic() < end, f"the servers do not report: {stats}, {self._rows}"
            time.sleep(0.01)


def _stats():
    port = context.current()._cluster.scheduler_port
    program = pathlib.Path(os.environ["CAIRN_BIN"]) / "cairn"
    said = subprocess.run([program, "status", f"127.0.0.1:{port}", "--json"], capture_output=True,
                          text=True, timeout=_SECONDS, check=True)
    return [server["stats"] for server in json.loads(said.stdout)["servers"]]
