"""What wire= gives on a slow network: one server and one worker, each in a network namespace of its
own, joined by a link of a given rate in both directions (tc tbf). As root, on Linux:

    python benchmarks/network/slow_network.py --mbit 1000 [--json FILE]

Prints, for each way, steps a second of a dense push_pull (and of a push alone) and of a push and pull
of rows, with the bytes that the link carried.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("CAIRN_BIN", ROOT / "build" / "release" / "bin"))
SECONDS = 120
PORT = 7171  # in a namespace of our own nothing else has it
SERVER, WORKER = "10.77.0.1", "10.77.0.2"

DENSE = {"float32": {}, "bf16": {"wire": "bf16"}, "f16": {"wire": "f16"}, "lz4": {"wire": "lz4"},
         "topk 0.01": {"wire": "topk", "wire_topk": 0.01}}
ROWS = {name: options for name, options in DENSE.items() if "wire_topk" not in options}


def run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=SECONDS)


class Link:
    """Two namespaces and the wire between them, as slow as we want."""

    def __init__(self, mbit: int) -> None:
        tag = uuid.uuid4().hex[:6]
        self.names = [f"cairn-{tag}-{side}" for side in "ab"]
        self.ends = [f"cn{tag}{side}" for side in "ab"]
        self._mbit = mbit

    def __enter__(self) -> Link:
        for name in self.names:
            run("ip", "netns", "add", name)
        run("ip", "link", "add", self.ends[0], "netns", self.names[0], "type", "veth", "peer", "name", self.ends[1],
            "netns", self.names[1])
        for name, end, address in zip(self.names, self.ends, (SERVER, WORKER)):
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", end)
            run("ip", "-n", name, "link", "set", end, "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            if self._mbit:
                # Bursts of a millisecond; the kernel cuts large segments itself.
                burst = max(self._mbit * 1000 // 8, 80_000)
                run("tc", "-n", name, "qdisc", "add", "dev", end, "root", "tbf", "rate", f"{self._mbit}mbit",
                    "burst", str(burst), "latency", "50ms")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], timeout=SECONDS)

    def start(self, side: int, *words: str, **variables: str) -> subprocess.Popen[bytes]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CAIRN_")}
        return subprocess.Popen(["ip", "netns", "exec", self.names[side], *words], env={**kept, **variables})


def median_seconds(step, repeat: int) -> float:
    step()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def carried(end: str) -> int:
    """Bytes that left and reached this side of the link."""
    folder = pathlib.Path("/sys/class/net") / end / "statistics"
    return sum(int((folder / name).read_text()) for name in ("tx_bytes", "rx_bytes"))


def measure(end: str, elements: int, repeat: int) -> dict[str, dict[str, float]]:
    import torch

    import cairn

    torch.set_num_threads(1)
    cairn.init()
    found: dict[str, dict[str, float]] = {}

    def note(work: str, name: str, step) -> None:
        before = carried(end)
        seconds = median_seconds(step, repeat)
        found.setdefault(work, {})[name] = seconds
        found.setdefault(work + ", bytes", {})[name] = (carried(end) - before) / (repeat + 1)

    torch.manual_seed(1)
    gradient = torch.randn(elements) * 0.01
    for name, options in DENSE.items():
        table = cairn.dense_table(f"dense {name}", elements, mode=cairn.Sync(), optimizer="sgd", lr=0.1, **options)
        note("dense push", name, lambda: table.push(gradient).wait())
        out = torch.empty(elements)
        note("dense push_pull", name, lambda: table.push_pull(gradient, out).wait())
    keys = torch.randint(0, 1 << 40, (elements // 16,))
    rows = torch.randn(keys.numel(), 16) * 0.01
    for name, options in ROWS.items():
        table = cairn.sparse_table(f"rows {name}", 16, mode=cairn.Sync(), optimizer="sgd", lr=0.1, **options)
        out = torch.empty(keys.numel(), 16)

        def both() -> None:
            table.push(keys, rows).wait()
            table.pull(keys, out).wait()

        note("push and pull of rows", name, both)
    cairn.shutdown()
    return found


def show(found: dict[str, dict[str, float]], mbit: int) -> None:
    print(f"link of {mbit or 'any number of'} Mbit/s; ms a step, MB on the link, against float32")
    for work, of in found.items():
        if work.endswith(", bytes"):
            continue
        for name, seconds in of.items():
            print(f"  {work:24} {name:10} {seconds * 1e3:8.1f} ms {found[work + ', bytes'][name] / 1e6:8.2f} MB "
                  f"{of['float32'] / seconds:6.2f} ×")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbit", type=int, default=1000, help="0: as fast as it goes")
    parser.add_argument("--elements", type=int, default=1 << 20)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", help="write the figures here too")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker, options.elements, options.repeat)), flush=True)
        return
    ours = {"CAIRN_SCHED_HOST": SERVER, "CAIRN_SCHED_PORT": str(PORT), "CAIRN_NUM_SERVERS": "1",
            "CAIRN_NUM_WORKERS": "1", "CAIRN_CALL_TIMEOUT_MS": "60000"}
    children = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the namespaces go too
    with Link(options.mbit) as link:
        try:
            children.append(link.start(0, str(BIN / "cairn"), "scheduler", CAIRN_ROLE="scheduler", **ours))
            children.append(link.start(0, str(BIN / "cairn"), "server", CAIRN_ROLE="server", **ours))
            words = [sys.executable, __file__, "--worker", link.ends[1], "--elements", str(options.elements), "--repeat",
                     str(options.repeat)]
            kept = {k: v for k, v in os.environ.items() if not k.startswith("CAIRN_")}
            said = subprocess.run(["ip", "netns", "exec", link.names[1], *words], stdout=subprocess.PIPE, text=True,
                                  env={**kept, **ours, "CAIRN_ROLE": "worker"}, timeout=SECONDS, check=True)
        finally:
            for child in children:
                child.terminate()
            for child in children:
                child.wait(SECONDS)
    found = json.loads(said.stdout.splitlines()[-1])
    show(found, options.mbit)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"mbit": options.mbit, "elements": options.elements, **found}))


if __name__ == "__main__":
    main()
