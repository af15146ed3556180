"""From what was measured to the rows of the table, with the goals that the figures are held to.

A row's ratio is its share of the limit: a rate divided by the limit's, or the limit's time divided
by the row's, so that 1 is always the best. It is formed within a round, from figures that were
measured within a minute of each other; the median of the rounds is shown.
"""
import dataclasses
import statistics

from . import cluster


@dataclasses.dataclass
class Goal:
    text: str  # what is held to the bound, "" for the figure itself
    value: float
    bound: float
    at_most: bool = False

    @property
    def met(self):
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def __str__(self):
        sign = "≤" if self.at_most else "≥"
        return f"{self.text} {sign} {self.bound:g}".strip()


@dataclasses.dataclass
class Row:
    group: str
    work: str
    unit: str
    ours: float
    least: float
    most: float
    peers: dict = dataclasses.field(default_factory=dict)  # name: value, in the row's unit
    limit_name: str = ""
    limit: float | None = None
    ratio: float | None = None
    goals: list = dataclasses.field(default_factory=list)
    text: str = ""  # instead of the figure and its spread

    @property
    def met(self):
        return all(goal.met for goal in self.goals) if self.goals else None


def spread(values):
    return statistics.median(values), min(values), max(values)


class Rounds:
    """Figures by their way through the results: ("full", "shm", "dense_push_16mb_sgd")."""

    def __init__(self, results):
        self.rounds = results.get("rounds", [])

    def values(self, *path):
        found = []
        for part in self.rounds:
            for step in path:
                part = part.get(step) if isinstance(part, dict) else None
            if isinstance(part, dict):
                part = part.get("value")
            found.append(part)
        return found

    def ratios(self, above, below):
        pairs = zip(self.values(*above), self.values(*below))
        return [a / b for a, b in pairs if a is not None and b]


def _row(rounds, group, work, unit, path, limit=None, limit_name="", scale=1.0, less=False):
    """None where the figure is missing. `scale`: from the limit's unit to the row's."""
    values = [value for value in rounds.values(*path) if value is not None]
    if not values:
        return None
    row = Row(group, work, unit, *spread(values))
    if limit is not None:
        both = (path, ("limits", limit))
        ratios = rounds.ratios(*reversed(both)) if less else rounds.ratios(*both)
        limits = [value for value in rounds.values("limits", limit) if value is not None]
        if ratios and limits:
            row.limit_name, row.limit = limit_name, statistics.median(limits) * scale
            row.ratio = statistics.median(ratios) * (scale if less else 1 / scale)
    return row


SERVERS = {"rpc": "torch RPC", "ray": "Ray", "redis": "Redis"}


def _peers(row, results, figure, convert=lambda value: value, names=SERVERS):
    for peer, name in names.items():
        value = results.get("peers", {}).get(peer, {}).get(figure)
        if value is not None:
            row.peers[name] = convert(value)


def dense(results, rounds):
    rows = []
    for transport in cluster.TRANSPORTS:
        def full(figure, work, unit, limit, limit_name, transport=transport):
            return _row(rounds, "dense", work, unit, ("full", transport, figure), limit, limit_name)

        name, limit = (("ring with sum", "ring_sum_gb_per_s") if transport == "shm"
                       else ("loopback TCP", "loopback_gb_per_s"))
        row = full("dense_push_16mb_sgd", f"dense push 16 MB, {transport}", "GB/s", limit, name)
        if row:
            row.goals = [Goal("of limit", row.ratio, 0.7)] if row.ratio else []
            _peers(row, results, "push_16384kb_us", lambda us: (16 << 20) / us / 1e3)
            rows.append(row)
        # What bounds a push that is refused whole, and waited for.
        name, limit = (("bare ring, one at a time", "ring_push_gb_per_s") if transport == "shm"
                       else ("bare TCP, one at a time", "loopback_push_gb_per_s"))
        row = full("dense_push_16mb_sgd", f"the same beside one push at a time, {transport}", "GB/s", limit, name)
        if row and row.ratio:
            rows.append(row)
        for megabytes in (4, 16):
            row = full(f"dense_push_pull_{megabytes}mb_sgd",
                       f"dense push+pull {megabytes} MB, each way, {transport}", "GB/s",
                       "memcpy_gb_per_s", "memcpy")
            if row:
                if transport == "shm" and row.ratio:
                    row.goals = [Goal("of limit", row.ratio, 0.27)]
                _peers(row, results, f"push_pull_{megabytes << 10}kb_us",
                      lambda us, size=megabytes << 20: size / us / 1e3)
                rows.append(row)
    for transport, bound in (("shm", 8), ("tcp", 35)):
        name, limit = (("bare ring", "ring_ping_us") if transport == "shm"
                       else ("bare TCP", "loopback_ping_us"))
        whats = {"small_push": "back to back", "small_push_computing": "1 ms between"}
        for figure, what in whats.items():
            row = _row(rounds, "dense", f"dense push 4 KB, {what}, {transport}", "µs",
                       ("full", transport, figure), limit, name, less=True)
            if row:
                if figure == "small_push":
                    row.goals = [Goal("", row.ours, bound, at_most=True)]
                    _peers(row, results, "push_4kb_us")
                rows.append(row)
    return rows


def _at_memcpy(rounds, path, row, bound):
    """A goal that was set on a machine whose memcpy does 15 GB/s; the same machine has slower hours."""
    ratios = rounds.ratios(path, ("limits", "memcpy_gb_per_s"))
    if not ratios:
        return Goal("", row.ours, bound)
    there = 15 * statistics.median(ratios)
    return Goal(f"{there:.1f} where memcpy is 15 GB/s", there, bound)


def sparse(results, rounds):
    rows = []
    for transport in cluster.TRANSPORTS:
        for what in ("push", "pull"):
            path = ("full", transport, f"sparse_{what}_sgd")
            row = _row(rounds, "sparse", f"sparse {what} 100 k keys of 16, {transport}", "M keys/s",
                       path, f"sparse_{what}_sgd_keys_per_s", "table in process", scale=1e-6)
            if row is None:
                continue
            if transport == "shm":
                row.goals = [_at_memcpy(rounds, path, row, 16)]
                row.goals += [Goal("of limit", row.ratio, 0.6)] if row.ratio else []
            else:
                row.goals = [_at_memcpy(rounds, path, row, 12)]
            _peers(row, results, f"sparse_{what}_m_keys_per_s")
            rows.append(row)
    return rows


# What is done with a batch's 13,312 ids: the benchmark of micro_worker, and the most µs that are wanted.
IDS = (("equal ids found, places kept", "Unique", None),
       ("by slot, equal ids found and summed", "Push/dim:1/servers:1/repeats:1", 200),
       ("the same with rows of 16", "Push/dim:16/servers:1/repeats:1", None),
       ("rows of 16 out of the hot-row cache", "CacheHits", None))


def ids(rounds):
    rows = []
    for what, figure, most in IDS:
        row = _row(rounds, "worker", f"13,312 ids: {what}", "µs", ("worker", figure))
        if row:
            row.goals = [Goal("", row.ours, most, at_most=True)] if most else []
            rows.append(row)
    return rows


KINDS = (("sparse push", "M keys/s", "sparse_push_{}", "sparse_push_{}_keys_per_s", 1e-6),
         ("dense push 16 MB", "GB/s", "dense_push_16mb_{}", "dense_push_{}_gb_per_s", 1.0))


def optimizers(rounds):
    rows = []
    for transport in cluster.TRANSPORTS:
        for optimizer, bound in (("adagrad", 0.5), ("adam", 0.35)):
            for what, unit, figure, limit, scale in KINDS:
                path = ("full", transport, figure.format(optimizer))
                work = f"{what}, {optimizer.capitalize()}, {transport}"
                row = _row(rounds, "optimizers", work, unit, path, limit.format(optimizer), "table in process", scale=scale)
                ratios = rounds.ratios(path, ("full", transport, figure.format("sgd")))
                if row and ratios:
                    ratio = statistics.median(ratios)
                    row.goals = [Goal(f"{ratio:.2f} of SGD's", ratio, bound)]
                    rows.append(row)
    return rows


FIGURES = (("dense_push_16mb_sgd", "dense push 16 MB", "GB/s"),
           ("sparse_push_sgd", "sparse push", "M keys/s"),
           ("sparse_pull_sgd", "sparse pull", "M keys/s"))


def shapes(results, rounds):
    rows = []
    compared = (("1 server, 2 threads", "1 server", 0.9), ("2 servers", "1 server", 0.9),
                ("2 servers, 2 copies", "2 servers", 0.4), ("2 × 2, 2 copies", "2 × 2", 0.4))
    for name, base, bound in compared:
        for transport in cluster.TRANSPORTS:
            for figure, what, unit in FIGURES:
                if "copies" in name and "pull" in figure:
                    continue  # is not sent twice
                path = ("shapes", transport, name, figure)
                row = _row(rounds, "shapes", f"{what}, {name}, {transport}", unit, path)
                ratios = rounds.ratios(path, ("shapes", transport, base, figure))
                if row and ratios:
                    ratio = statistics.median(ratios)
                    row.goals = [Goal(f"{ratio:.2f} of {base}", ratio, bound)]
                    rows.append(row)
    for transport in cluster.TRANSPORTS:
        for size, kilobytes in (("4 KB", 4), ("4 MB", 4096), ("16 MB", 16384)):
            work = f"sync round of 2 workers, {size}, 2 × 2, {transport}"
            row = _row(rounds, "shapes", work, "µs", ("shapes", transport, "2 × 2", f"sync_{kilobytes}kb"))
            if row:
                _peers(row, results, f"allreduce_{kilobytes}kb_us",
                       names={"gloo": "gloo all-reduce"})
                rows.append(row)
    return rows


ALLOCATIONS = {"small_push": "push 4 KB", "dense_push_16mb_sgd": "dense push 16 MB",
               "dense_push_pull_16mb_sgd": "dense push+pull 16 MB",
               "sparse_push_sgd": "sparse push", "sparse_pull_sgd": "sparse pull", "sparse_push_pull_sgd": "sparse push+pull",
               "sync_4kb": "sync round 4 KB", "sync_16384kb": "sync round 16 MB"}


def costs(results):
    rows = []
    for transport, figures in results.get("allocations", {}).items():
        for name, what in ALLOCATIONS.items():
            if name not in figures:
                continue
            client, server = (figures[name][f"{role}_allocations"] for role in ("client", "server"))
            total = client + server
            # Heartbeats come by the clock and allocate a little whatever is pushed: less than one a request.
            rows.append(Row("costs", f"heap allocations a request, {what}, {transport}", "", total,
                            total, total, goals=[Goal("", round(total, 1), 0.9, at_most=True)],
                            text=f"{client:.2f} worker, {server:.2f} server"))
    for transport, value in results.get("idle", {}).items():
        work = f"CPU of an idle 2 × 2 cluster, all processes, {transport}"
        rows.append(Row("costs", work, "ms/s", value, value, value))
    return rows


def training(results):
    rows = []
    models, peers = results.get("models", {}), results.get("peers", {})
    goals = {"400-400-400": (0.85, 1.5), "32": (0.7, 1.1)}
    for mlp, found in models.get("ctr", {}).items():
        plain = statistics.median(found["plain"])
        paddle = peers.get("paddle", {}).get(mlp, {})
        for way, what, bound in (("async1", "1 × 1", goals[mlp][0]),
                                 ("async2", "2 × 2, 2 copies", goals[mlp][1]),
                                 ("single2", "2 × 2, 1 copy", goals[mlp][1])):
            if way not in found:
                continue
            row = Row("models", f"click model, MLP {mlp}, Async {what}", "samples/s",
                      *spread(found[way]))
            row.limit_name, row.limit = "plain torch, 1 process", plain
            row.ratio = row.ours / plain
            row.goals = [Goal("of plain torch", row.ratio, bound)]
            shape = "1x1" if way == "async1" else "2x2"
            for peer, name in (("async", "Paddle async"), ("geo", "Paddle GEO")):
                if f"{peer} {shape}" in paddle:
                    row.peers[name] = statistics.median(paddle[f"{peer} {shape}"])
            if way != "async1" and "ddp2" in found:
                row.peers["DDP gloo"] = statistics.median(found["ddp2"])
            rows.append(row)
    lenet = models.get("lenet", {})
    for way, what in (("cairn2", "2 copies"), ("single2", "1 copy")):
        if way in lenet and "ddp2" in lenet:
            row = Row("models", f"LeNet, 2 workers, Sync, 2 servers, {what}", "ms/step",
                      *spread(lenet[way]))
            ddp = statistics.median(lenet["ddp2"])
            row.peers["DDP gloo"] = ddp
            row.goals = [Goal(f"{row.ours / ddp:.2f} of DDP's", row.ours / ddp, 0.9, at_most=True)]
            rows.append(row)
    return rows


def all_rows(results):
    rounds = Rounds(results)
    return [*dense(results, rounds), *sparse(results, rounds), *ids(rounds), *optimizers(rounds),
            *shapes(results, rounds), *training(results), *costs(results)]
