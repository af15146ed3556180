"""The legs of one run of script/chaos: which load, over which schedulers, with or without servers that come
and go. Each has its own share of the faults, and its own choices from the seed, so that it can be repeated
alone."""
import collections
import dataclasses
import pathlib
import random
import shutil

from chaos_loads import Soak, Training

# What the default takes in turn. Whatever an option names is the same in all of them.
IN_TURN = (("async", "one", False), ("sync", "one", True), ("lenet", "one", False), ("async", "etcd", True),
           ("ctr", "one", True), ("sync", "etcd", False), ("lenet", "etcd", True))

INTERRUPTED = "interrupted"  # by Ctrl-C, or since another leg has failed


@dataclasses.dataclass
class Leg:
    load: object
    schedulers: str  # one: with its log in a folder; etcd: three over it
    scaling: bool
    kills: int = 0

    @property
    def name(self):
        return "-".join([self.load.name, *(["etcd"] if self.schedulers == "etcd" else []),
                         *(["scaling"] if self.scaling else [])])

    def choices(self, seed):
        return random.Random(f"{seed} {self.name}")

    def repeat(self, seed, options):
        words = ["script/chaos", "--kills", self.kills, "--seed", seed, *self.load.words, "--schedulers", self.schedulers,
                 "--scaling" if self.scaling else "--no-scaling"]
        for name in ("servers", "workers", "replicas", "threads", "dead_after", "heartbeat", "pause_us"):
            words += [f"--{name.replace('_', '-')}", getattr(options, name)]
        words += ["--no-partitions"] if options.no_partitions else []
        return " ".join(map(str, words))


@dataclasses.dataclass
class LegResult:
    """What a leg has come to, as it is told from one process to another."""
    name: str
    done: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # kills, by role
    ways: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # kills, by kind
    fewest: int | None = None  # acknowledged, or steps, between two kills
    failovers: list = dataclasses.field(default_factory=list)  # chaos_times.Times
    acknowledged: int = 0
    lost: int = 0
    twice: int = 0
    longest: str = ""
    failure: str | None = None


def missing(leg):
    """Why a leg can't run here, or None."""
    if leg.schedulers == "etcd" and shutil.which("etcd") is None and not pathlib.Path("/usr/bin/etcd").exists():
        return "etcd is not installed: script/bootstrap installs it"
    return leg.load.missing() if isinstance(leg.load, Training) else None


def legs(options):
    """The legs that were asked for, each with its share of the kills; a line for each that can't run."""
    chosen = []
    for load, schedulers, scaling in IN_TURN:
        if options.load and options.load != ("soak" if load in ("async", "sync") else load):
            continue
        if load in ("async", "sync") and options.mode not in (load, "both"):
            continue
        entry = (load, options.schedulers or schedulers, scaling if options.scaling is None else options.scaling)
        if entry not in chosen:
            chosen.append(entry)
    made, left_out, reasons = [], [], {}
    for load, schedulers, scaling in chosen:
        leg = Leg(Soak(options, load) if load in ("async", "sync") else Training(options, load), schedulers, scaling)
        key = (isinstance(leg.load, Training), schedulers)
        reasons[key] = reasons[key] if key in reasons else missing(leg)
        if reasons[key]:
            left_out.append(f"{leg.name} is left out: {reasons[key]}")
        else:
            made.append(leg)
    made = made[:options.kills]
    for number, leg in enumerate(made):
        leg.kills = (options.kills + number) // len(made)
    return made, left_out
