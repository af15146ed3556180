"""script/chaos at work: a cluster under load, whose processes are killed, stopped and cut off at random, as
often as it can promise to survive: no second server is hurt before every partition has its backups again;
schedulers and workers are hurt at any time. Loads: chaos_loads.py; what is taken in turn: chaos_legs.py;
servers that come and go: chaos_scaling.py."""
import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from chaos_at_once import run_at_once  # noqa: E402
from chaos_legs import INTERRUPTED, LegResult, legs  # noqa: E402
from chaos_loads import MAX_LIVES, ROOT, Failed  # noqa: E402
from chaos_nodes import Namespaces, Nodes  # noqa: E402
from chaos_scaling import Scaling  # noqa: E402
from chaos_times import Failover, report  # noqa: E402

ROLES = ("scheduler", "server", "worker")
SHARE_AT_LEAST = 0.15
RETIRED = 75        # a server that was taken for dead asks to be started again
POLL = 0.02


class Chaos:
    """One leg of the run."""

    def __init__(self, options, leg, namespaces, folder, seed):
        self.options, self.leg, self.kills, self.rng = options, leg, leg.kills, leg.choices(seed)
        self.nodes = Nodes(folder, options, leg, namespaces)
        self.namespaces = namespaces
        self.scaling = Scaling(self, self.nodes.of("server")[-1]) if leg.scaling else None
        self.later = []      # (when, what to do, words)
        self.failovers, self.measuring = [], []
        self.done = collections.Counter()  # by role
        self.ways = collections.Counter()
        self.fewest = None   # acknowledged, or steps, between two kills
        self.status, self.status_at = None, 0.0
        self.acknowledged = self.lost = self.twice = 0
        self.longest = ""

    def result(self, failure):
        return LegResult(self.leg.name, self.done, self.ways, self.fewest, [f.times() for f in self.failovers],
                         self.acknowledged, self.lost, self.twice, self.longest, failure)

    # Everything that waits goes through here: what is due is done, and who died is noticed.
    def tend(self):
        now = time.monotonic()
        if now >= self.options.deadline:
            raise Failed("the whole run has taken longer than --timeout")
        for entry in [e for e in self.later if e[0] <= now]:
            self.later.remove(entry)
            entry[1]()
        if self.scaling:
            self.scaling.look()
        for failover in list(self.measuring):
            if failover.look():
                self.measuring.remove(failover)
                self.failovers.append(failover)
            elif now - failover.begun > self.options.patience:
                raise Failed(f"{self.options.patience:.0f} s after {failover.server} was hurt: new primaries "
                             f"{'yes' if failover.new_primaries else 'no'}, pushes acknowledged again by all but ranks "
                             f"{sorted(failover.awaited)}")
        pending = {entry[2] for entry in self.later}
        for node in self.nodes.nodes.values():
            if node.alive or node.name in pending or (self.scaling and self.scaling.explains(node)):
                continue
            code = node.process.returncode
            if (node.role == "server" and code == RETIRED) or self.deposed(node):
                self.nodes.start(node)
            else:
                self.fail(f"{node.name} has ended with code {code}, and nobody had killed it")

    def deposed(self, node):
        """A scheduler that was away for longer than its lease ends; whoever started it starts it again."""
        last = self.nodes.log(node.name).splitlines()[-3:]
        return node.role == "scheduler" and self.leg.schedulers == "etcd" and any("no longer leads" in l for l in last)

    @staticmethod
    def fail(words):
        raise Failed(words)

    def say(self, words):
        print(f"{self.leg.name}: {words}", flush=True)

    def wait(self, condition, what):
        end = time.monotonic() + self.options.patience
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise Failed(f"not within {self.options.patience:.0f} s: {what() if callable(what) else what}")
            self.tend()
            time.sleep(POLL)  # between two looks

    def fresh_status(self):
        if time.monotonic() - self.status_at > 0.25:
            self.status, self.status_at = self.nodes.status(), time.monotonic()
        return self.status

    def whole(self):
        """Every server is there, and every partition has all its owners in sync. While servers come and go
        it is enough that each has two."""
        servers = [n for n in self.nodes.of("server") if not n.absent]
        if any(not n.alive or n.away for n in servers):
            return False
        status = self.fresh_status()
        if not status or status["phase"] != "running":
            return False
        moving = self.scaling is not None and not self.scaling.ending
        if {s["endpoint"] for s in status["servers"]} != {n.endpoint for n in servers} and not moving:
            return False
        slots = status["slots"]
        fresh = all(not s["lost"] and s["connected"] for s in status["servers"])
        if moving:
            return fresh and slots["single"] == 0
        return fresh and slots["in_sync"] == slots["total"] and slots["copying"] == 0

    def nodes_away(self):
        """Somebody is dead, stopped or cut off, or was until a moment ago and may not have joined again."""
        joined = self.status and len(self.status["workers"]) == self.leg.load.workers
        return bool(self.later) or not joined

    def hurt(self, node):
        way = self.rng.choice(["kill"] * 7 + ["stop"] * 2 + (["cut"] * 2 if self.namespaces else []))
        for failover in self.measuring:
            failover.disturbed = True
        # Long enough to be declared dead. A scheduler that is away can declare nobody dead.
        away = self.rng.uniform(1.3, 2.0) * self.options.dead_after
        at_once = way == "kill" and self.rng.random() < 0.5
        if node.role == "worker" and not self.leg.load.workers_may_die:
            way, away = "stop", self.rng.uniform(0.2, 0.4) * self.options.dead_after
        if node.role == "server":
            number = int(node.name.removeprefix("server"))
            incarnation = next(s["incarnation"] for s in self.status["servers"] if s["endpoint"] == node.endpoint)
            # The scheduler may give it 5 s and a detection time more than the detection takes.
            spared_after = None if way == "kill" else away + 2 * self.options.dead_after + 5
            self.measuring.append(Failover(self.nodes, f"server {number}", at_once, incarnation, spared_after))
            self.measuring[-1].disturbed = self.nodes_away()
        now = time.monotonic()
        if way == "kill":
            self.nodes.signal(node, signal.SIGKILL)
            self.later.append((now + (0 if at_once else away), lambda: self.nodes.start(node), node.name))
        else:
            node.away = True
            if way == "stop":
                self.nodes.signal(node, signal.SIGSTOP)
                # On time: what else is done here may wait a second for a scheduler that does not answer.
                waker = threading.Timer(away, self.nodes.signal, (node, signal.SIGCONT))
                waker.daemon = True
                waker.start()
            else:
                self.nodes.cut(node, True)
            self.later.append((now + away, lambda: self.heal(node, way), node.name))
        self.done[node.role] += 1
        self.ways[way] += 1
        words = {"kill": "kill -9", "stop": f"stopped for {away:.1f} s", "cut": f"cut off for {away:.1f} s"}[way]
        back = (", back at once" if at_once else f", back after {away:.1f} s") if way == "kill" else ""
        return words + back

    def heal(self, node, way):
        if way == "stop":
            self.nodes.signal(node, signal.SIGCONT)
        else:
            self.nodes.cut(node, False)
        node.away = False

    def candidate(self, deck):
        """The next role of the deck that may be hurt now, and who of it: None if none."""
        pending = {entry[2] for entry in self.later}
        for role in dict.fromkeys(deck):
            if role == "server":
                if not self.whole() or any(f.acknowledged is None for f in self.measuring):
                    continue
            nodes = [n for n in self.nodes.of(role) if n.alive and not n.away and n.name not in pending]
            if role == "server":
                there = {s["endpoint"] for s in self.status["servers"]}
                nodes = [n for n in nodes if n.endpoint in there]
            if role == "worker" and self.leg.load.workers_may_die:
                nodes = [n for n in nodes
                         if 0 < self.nodes.accounts[int(n.name.removeprefix("worker"))].lives() < self.options.lives - 8]
            if nodes:
                return role, self.rng.choice(nodes)
        return None

    def run(self):
        self.nodes.start_all()
        before, wanted, unit = self.nodes.acknowledged(), self.leg.load.between, self.leg.load.unit
        self.wait(lambda: all(account.acknowledged() for account in self.nodes.accounts), "the load runs")
        if self.scaling:
            self.scaling.rest()
        deck = [ROLES[i % 3] for i in range(self.kills)]
        self.rng.shuffle(deck)
        for number in range(1, self.kills + 1):
            self.wait(lambda: self.nodes.acknowledged() - before >= wanted,
                      lambda: f"{wanted} {unit} since the last kill ({self.nodes.acknowledged() - before} so far)")
            role, node = self.wait(lambda: self.candidate(deck),
                                   lambda: f"somebody who may be hurt ({', '.join(sorted(set(deck)))}); the scheduler "
                                           f"says {self.brief()}")
            between = self.nodes.acknowledged() - before
            deck.remove(role)
            how = self.hurt(node)
            self.fewest = between if self.fewest is None else min(self.fewest, between)
            before = self.nodes.acknowledged()
            print(f"{self.leg.name:5}  {number:4} of {self.kills}  {node.name:10}  {how:34}  {between:7} {unit} since",
                  flush=True)
        self.finish()

    def brief(self):
        status = self.nodes.status()
        if status:
            (self.nodes.folder / "status.json").write_text(json.dumps(status, indent=1))
        return "nothing" if not status else (f"{status['phase']}, {len(status['servers'])} servers, slots {status['slots']}, "
                                             f"{status['awaiting'] or 'nobody awaited'}")

    def finish(self):
        if self.scaling:
            self.scaling.ending = True
            self.wait(lambda: self.scaling.idle, "the server that leaves has left")
            self.say(f"{self.scaling.joined} servers have joined, {self.scaling.left} have left")
        self.wait(lambda: not self.later and not self.measuring, "everybody is back and failovers are over")
        self.wait(self.whole, lambda: f"every partition has its copies again; the scheduler says {self.brief()}")
        self.nodes.until.touch()
        workers = self.nodes.of("worker")
        # A worker may be fenced and live again until the very end; who exits must exit with 0.
        self.nodes.wait_exit(workers, self.options.patience)
        self.nodes.wait_exit([n for n in self.nodes.of("server") if not n.absent] + self.nodes.of("scheduler"), self.options.patience)
        self.acknowledged, self.lost, self.twice, self.longest = self.leg.load.result(self.nodes.folder,
                                                                                      self.nodes.log("worker0"))


def parse(arguments):
    parser = argparse.ArgumentParser(prog="script/chaos", description="Kills processes of a cluster under load and "
                                     "counts what was lost or applied twice.")
    parser.add_argument("--kills", type=int, required=True, help="how often something is killed, stopped or cut off")
    parser.add_argument("--load", choices=("soak", "lenet", "ctr"),
                        help="numbered updates with an account; a training that must equal one in peace bit for bit "
                             "(each in turn)")
    parser.add_argument("--mode", choices=("sync", "async", "both"), default="both", help="of the soak load (both, in turn)")
    parser.add_argument("--schedulers", choices=("one", "etcd"), help="one with a log, or three over etcd (in turn)")
    parser.add_argument("--scaling", action=argparse.BooleanOptionalAction,
                        help="servers join and leave meanwhile, or not (in turn)")
    parser.add_argument("--servers", type=int, default=3, help="(3)")
    parser.add_argument("--workers", type=int, default=4, help="(4)")
    parser.add_argument("--replicas", type=int, default=2, help="servers that have a copy of a partition (2)")
    parser.add_argument("--threads", type=int, default=1, help="shard threads of a server (1)")
    parser.add_argument("--seed", type=int, default=None, help="of the choices; it is printed (random)")
    parser.add_argument("--dead-after", type=float, default=1.5, help="seconds (1.5; a cluster's own default is 5)")
    parser.add_argument("--heartbeat", type=float, default=0.3, help="seconds (0.3; a cluster's own default is 1)")
    parser.add_argument("--pause-us", type=int, default=4000, help="of a worker between two updates (4000)")
    parser.add_argument("--at-once", type=int, default=max(1, (os.cpu_count() or 1) // 4),
                        help="legs that run side by side, each a cluster of its own (one for every 4 cores)")
    parser.add_argument("--timeout", type=float, default=None, help="seconds for all (120 + 30 for each kill)")
    parser.add_argument("--patience", type=float, default=120, help="seconds that any one condition may take (120)")
    parser.add_argument("--no-partitions", action="store_true", help="make no network namespaces")
    parser.add_argument("--keep", action="store_true", help="keep the logs of a run that went well")
    parser.add_argument("--python", default=str(ROOT / ".venv" / "bin" / "python"), help="for trainings (.venv's)")
    parser.add_argument("--bin", default=os.environ.get("CAIRN_BIN", "build/release/bin"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.kills < 1 or options.servers < 2 or options.workers < 1 or options.at_once < 1:
        parser.error("at least one kill, two servers, one worker and one leg at once")
    if not 2 <= options.replicas <= options.servers:
        parser.error("--replicas is from 2 to --servers: with one copy the death of a server ends the job")
    options.lives = min(MAX_LIVES, 24 + options.kills)
    options.deadline = time.monotonic() + (options.timeout or 120 + 30 * options.kills)
    options.left = lambda: max(1.0, options.deadline - time.monotonic())
    return options


def conditions(legs, results, kills):
    """What was promised of the run itself, and was not kept."""
    done = sum((result.done for result in results), collections.Counter())
    broken = [f"{done[role]} of {kills} kills were of a {role}, less than {SHARE_AT_LEAST:.0%}"
              for role in ROLES if done[role] < SHARE_AT_LEAST * kills]
    broken += [f"{leg.name}: fewer than {leg.load.between} {leg.load.unit} between two kills"
               for leg, result in zip(legs, results) if result.fewest is not None and result.fewest < leg.load.between]
    return broken


def run_leg(options, leg, folder, seed):
    """One leg, from its namespaces to its result. Ctrl-C and SIGTERM end it, and it cleans up."""
    namespaces = None
    if not options.no_partitions:
        namespaces = Namespaces(Nodes.most_places(options))
        why_not = namespaces.make()
        if why_not:
            print(f"{leg.name}: no partitions of the network: {why_not}; kills and pauses only", flush=True)
            namespaces = None
    chaos, failure = None, None
    try:
        chaos = Chaos(options, leg, namespaces, folder / leg.name, seed)
        chaos.run()
    except Failed as error:
        failure = f"{leg.name}: {error}\nthe scheduler says: {chaos.brief()}"
        print(f"\nscript/chaos: {failure}\n{chaos.nodes.tails()}", flush=True)
    except KeyboardInterrupt:
        failure = INTERRUPTED
    finally:
        if chaos:
            chaos.nodes.stop_all()
        if namespaces:
            namespaces.remove()
    return chaos.result(failure) if chaos else LegResult(leg.name, failure=failure)


def main(arguments):
    options = parse(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background, too
        signal.signal(number, signal.default_int_handler)
    chosen, left_out = legs(options)
    for line in left_out:
        print(line, flush=True)
    if not chosen:
        print("script/chaos: nothing is left to run")
        return 1
    print(f"seed {seed}: {options.kills} kills ({', '.join(f'{leg.name} {leg.kills}' for leg in chosen)}), "
          f"{min(options.at_once, len(chosen))} at once, {options.servers} servers, {options.workers} workers (trainings: "
          f"2 at most), {options.replicas} copies, heartbeat {options.heartbeat} s, dead after {options.dead_after} s "
          f"(a cluster's own defaults: 1 s, 5 s)", flush=True)
    Namespaces.remove_left()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-chaos-"))
    results = run_at_once(chosen, options.at_once, lambda leg: run_leg(options, leg, folder, seed))
    return summary(options, chosen, results, folder, seed)


def summary(options, chosen, results, folder, seed):
    """Prints what came of all legs; the exit code."""
    for result in results:
        if result.longest:
            print(f"{result.name}: {result.longest}")
    for line in report([times for result in results for times in result.failovers], options.dead_after):
        print(line)
    done = sum((result.done for result in results), collections.Counter())
    ways = sum((result.ways for result in results), collections.Counter())
    print("hurt: " + ", ".join(f"{role} {done[role]}" for role in ROLES) + "; " +
          ", ".join(f"{way} {ways[way]}" for way in ("kill", "stop", "cut")))
    lost, twice = sum(result.lost for result in results), sum(result.twice for result in results)
    failures = [result.failure for result in results if result.failure]
    interrupted = bool(failures) and all(failure == INTERRUPTED for failure in failures)
    broken = [] if failures else conditions(chosen, results, options.kills)
    for what in broken:
        print(f"this run does not count: {what}")
    good = not failures and not broken and lost == 0 and twice == 0
    if good and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"logs: {folder}")
    for failure in [INTERRUPTED] if interrupted else [failure for failure in failures if failure != INTERRUPTED]:
        print(f"FAILED after {sum(done.values())} kills (seed {seed}): {failure}")
    for leg, result in zip(chosen, results):
        if result.failure not in (None, INTERRUPTED) or result.lost or result.twice:
            print(f"this leg again: {leg.repeat(seed, options)}")
    counted = {unit: sum(r.acknowledged for leg, r in zip(chosen, results) if leg.load.unit == unit)
               for unit in dict.fromkeys(leg.load.unit for leg in chosen)}
    print(f"kills: {sum(done.values())}  {'  '.join(f'{unit}: {count}' for unit, count in counted.items())}  lost: {lost}  "
          f"twice: {twice}{'' if good else '  (not a good run)'}", flush=True)
    return 0 if good else 130 if interrupted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
