"""The benchmarks, as script/bench runs them: limits, Cairn, training and peers in one table.

    python -m suite [--only limits,cluster,models,peers] [--quick] [--out build/bench]

Figures of the limits and of Cairn come in rounds, so that a slow minute of the machine meets all of
them; a ratio is formed within a round. Progress goes to standard error, the table to standard
output; the folder gets table.md, results.json and plot.svg. Ctrl-C ends what runs and writes what
there is.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import sys

from . import cluster, jobs, models, peers, plot, report, rows

PARTS = ("limits", "cluster", "models", "peers")


def arguments():
    parser = argparse.ArgumentParser(prog="script/bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS),
                        help="parts, with commas: " + ", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="small tables, one round")
    parser.add_argument("--rounds", type=int, default=3, help="of limits and cluster")
    parser.add_argument("--seconds", type=float, default=0.8, help="for a figure, in each round")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the sparse table")
    parser.add_argument("--keys", type=int, default=100_000, help="of a sparse push or pull")
    parser.add_argument("--steps", type=int, default=120, help="of a training, for each figure")
    parser.add_argument("--repetitions", type=int, default=3, help="of a training")
    parser.add_argument("--minutes", type=float, default=20,
                        help="no further round that would take longer")
    parser.add_argument("--out", type=pathlib.Path, default=jobs.ROOT / "build/bench")
    options = parser.parse_args()
    options.only = options.only.split(",")
    unknown = set(options.only) - set(PARTS)
    if unknown:
        parser.error(f"--only knows no {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    options.shape_rows, options.redis_rows, options.idle_seconds = 2_000_000, 1_000_000, 10
    if options.quick:
        options.rounds, options.repetitions, options.steps = 1, 1, 40
        options.seconds, options.rows = 0.2, 1_000_000
        options.shape_rows, options.redis_rows, options.idle_seconds = 500_000, 200_000, 3
    return options


def attempt(results, name, work):
    """What `work` gives, or None where it can't be had here: then the reason is in the results."""
    jobs.say(name)
    try:
        return work()
    except (jobs.Failed, OSError, ValueError, LookupError) as error:  # also: it said what is no JSON
        results["failed"][name] = str(error)
        jobs.say(f"{name}: NOT MEASURED: {error}")
        return None


def one_round(options, results, number):
    found = {"full": {}, "shapes": {transport: {} for transport in cluster.TRANSPORTS}}
    results["rounds"].append(found)
    prefix = f"round {number + 1} of {options.rounds}: "
    found["limits"] = attempt(results, prefix + "limits", lambda: cluster.limits(options)) or {}
    if "cluster" not in options.only:
        return
    found["worker"] = attempt(results, prefix + "ids of a batch", lambda: cluster.worker(options)) or {}
    for transport in cluster.TRANSPORTS:
        found["full"][transport] = attempt(results, f"{prefix}1 server, 1 worker, {transport}",
                                           lambda: cluster.full(options, transport)) or {}
    for name in cluster.SHAPES:
        for transport in cluster.TRANSPORTS:
            what = f"{prefix}{name}, {transport}"
            found["shapes"][transport][name] = attempt(
                results, what, lambda: cluster.shape(options, name, transport)) or {}


def rounds(options, results):
    # What the parts after the rounds take, in seconds; a guess on the safe side.
    reserve = sum(seconds for part, seconds in (("cluster", 60), ("models", 320), ("peers", 260))
                  if part in options.only)
    longest = 0.0
    for number in range(options.rounds):
        begun = jobs.seconds_so_far()
        if number > 0 and begun + longest + reserve > 60 * options.minutes:
            jobs.say(f"no round {number + 1}: it would go beyond --minutes {options.minutes:g}")
            results["notes"].append(f"{number} rounds, not {options.rounds}, for lack of time")
            break
        one_round(options, results, number)
        longest = max(longest, jobs.seconds_so_far() - begun)
        save(options, results)


def costs(options, results):
    for transport in cluster.TRANSPORTS:
        counted = attempt(results, f"allocations, {transport}",
                          lambda: cluster.allocations(options, transport))
        if counted:
            results["allocations"][transport] = counted
        idle = attempt(results, f"idle, {transport}", lambda: cluster.idle(options, transport))
        if idle is not None:
            results["idle"][transport] = idle


def training(options, results):
    ways = ["plain", "async1", "async2", "single2", "ddp2"]
    found = results["models"] = {"ctr": {}}
    for mlp in models.MLPS:
        rates = attempt(results, f"click model, MLP {mlp}: {', '.join(ways)}",
                        lambda: models.clicks(options, mlp, ways))
        if rates:
            found["ctr"][mlp] = rates
    found["lenet"] = attempt(results, "LeNet, 2 workers: ddp2, cairn2, single2",
                             lambda: models.lenet(options, ["ddp2", "cairn2", "single2"])) or {}


def others(options, results):
    found = results["peers"]
    found["gloo"] = attempt(results, "peer: torch gloo all-reduce",
                            lambda: peers.torch_parts(options, "allreduce")) or {}
    found["rpc"] = attempt(results, "peer: torch RPC parameter server",
                           lambda: peers.torch_parts(options, "rpc")) or {}
    found["redis"] = attempt(results, "peer: Redis, MGET and MSET",
                             lambda: peers.redis(options)) or {}
    found["ray"] = attempt(results, "peer: Ray, an actor as parameter server",
                           lambda: peers.ray(options)) or {}
    found["paddle"] = {mlp: {} for mlp in models.MLPS}
    ways = [("plain", "", 1, 1), ("async", " 1x1", 1, 1), ("geo", " 1x1", 1, 1),
            ("async", " 2x2", 2, 2)]
    for _ in range(min(2, options.repetitions)):
        for mlp, hidden in models.MLPS.items():
            for way, shape, servers, workers in ways:
                rate = attempt(results, f"peer: Paddle 2.6.2, click model, MLP {mlp}, {way}{shape}",
                               lambda: peers.paddle(options, way, hidden, servers, workers))
                if rate is not None:
                    found["paddle"][mlp].setdefault(way + shape, []).append(rate)


def machine():
    """What the figures are of."""
    with open("/proc/cpuinfo") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return {"cores": os.cpu_count(), "processor": names[0] if names else platform.machine(),
            "kernel": platform.release(), "python": platform.python_version(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "load_at_start": os.getloadavg()[0]}


def save(options, results):
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")


def write(options, results):
    """Everything, and the table on standard output."""
    made = rows.all_rows(results)
    notes = [f"{name}: {why}" for name, why in results["failed"].items()]
    results["table"] = [dict(zip(report.HEAD, report.cells(row))) for row in made]
    results["seconds"] = round(jobs.seconds_so_far())
    save(options, results)
    parts = [report.text(made), report.limits_text(results), *results["notes"],
             *(f"NOT MEASURED: {note}" for note in notes)]
    print("\n\n".join(part for part in parts if part), flush=True)
    marked = [report.text(made, markdown=True), report.limits_text(results, markdown=True),
              *(f"- not measured: {note}" for note in notes)]
    (options.out / "table.md").write_text("\n\n".join(marked) + "\n")
    try:
        if plot.draw(options.out / "plot.svg", results, made):
            plot.draw(options.out / "plot.png", results, made)
    except ImportError:
        jobs.say("no plot: no matplotlib (.venv/bin/pip install -r script/requirements-demo.txt)")
    jobs.say(f"{results['seconds']} s in all; {options.out} has table.md, results.json and plot.svg")


def main():
    options = arguments()

    def stop(number, _):
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    settings = {key: str(value) for key, value in vars(options).items()}
    results = {"machine": machine(), "settings": settings,
               "rounds": [], "allocations": {}, "idle": {}, "peers": {}, "failed": {}, "notes": []}
    code = 0
    try:
        for measure, of in ((rounds, {"limits", "cluster"}), (costs, {"cluster"}),
                            (training, {"models"}), (others, {"peers"})):
            if of & set(options.only):
                measure(options, results)
                save(options, results)
    except KeyboardInterrupt:
        jobs.say("interrupted: what was measured so far follows")
        results["notes"].append("interrupted")
        code = 130
    write(options, results)
    # A peer that can't be had here is no failure; a figure of Cairn is.
    return code or int(any(not name.startswith("peer") for name in results["failed"]))


if __name__ == "__main__":
    sys.exit(main())
