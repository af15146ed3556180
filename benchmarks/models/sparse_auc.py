"""Test AUC of examples/census.py and examples/ctr.py in one process, and with 2 servers, 2 workers.

    python benchmarks/models/sparse_auc.py [--seeds 3] [--only census ctr]

Prints a table: for each example and way the median over the seeds, the range, and how far the
median is from the one of plain torch in one process, with the same batch and learning rate for an
update. The ways train on the same data; a seed gives the order and the MLP's initial weights. The
real data is fetched first: script/fetch-census. Needs `cairn` and the package: installed, or a
build's with PYTHONPATH=build/release/python CAIRN_BIN=build/release/bin.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

from taking_turns import cairn_program

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
WITHIN = 0.003
JOBS = {  # what is run; their other settings are the examples' own
    "census": ["census.py"],
    "ctr": ["ctr.py", "--samples", "200000"],
}
MODES = {"local": "plain torch, 1 process", "sync": "cairn Sync, 2 × 2",
         "async": "cairn Async, 2 × 2", "hybrid": "cairn hybrid, 2 × 2"}


def train(job, mode, seed, timeout):
    """The test AUC of one run."""
    script, *settings = JOBS[job]
    command = [sys.executable, EXAMPLES / script, "--mode", mode, "--seed", str(seed),
               "--every", "1000000", *settings]
    if mode != "local":
        job = [cairn_program(), "run", "--no-logs", "--no-progress", "-s", "2", "-w", "2", "--"]
        command = [*job, *command]
    done = subprocess.run(command, env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
    found = re.findall(r"test AUC: (\S+)", done.stdout)
    if done.returncode != 0 or len(found) != 1:
        raise SystemExit(f"{done.stdout}\n{script} --mode {mode} ended with {done.returncode}")
    return float(found[0])


def report(areas, seeds):
    print(f"| example | | test AUC, median (least–most) of {seeds} seeds | against one process |")
    print("|---|---|---|---|")
    for job in areas:
        base = statistics.median(areas[job]["local"]) if areas[job].get("local") else None
        for mode, found in areas[job].items():
            median = statistics.median(found)
            apart = ""
            if base is not None and mode != "local":
                apart = f"{median - base:+.4f}"
                apart += "" if abs(median - base) <= WITHIN else " (too far)"
            print(f"| `{JOBS[job][0]}` | {MODES[mode]} | {median:.4f} "
                  f"({min(found):.4f}–{max(found):.4f}) | {apart} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), help="some examples")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="some ways")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that a run may take")
    options = parser.parse_args()
    areas = {job: {mode: [] for mode in MODES if mode in options.modes} for job in options.only}
    for job in areas:
        for seed in range(1, options.seeds + 1):
            for mode, found in areas[job].items():
                started = time.perf_counter()
                found.append(train(job, mode, seed, options.timeout))
                took = time.perf_counter() - started
                print(f"{job}, seed {seed}, {mode}: {found[-1]:.4f} ({took:.0f} s)",
                      file=sys.stderr, flush=True)
    report(areas, options.seeds)


if __name__ == "__main__":
    main()
