"""A worker of test_sampler.py: writes down each index that its sampler gives it, when it has it.

    FOLDER/used-RANK-LIFE     one line "epoch index" a sample; a life is one start of this rank
"""
import argparse
import json
import os
import pathlib
import signal
import time

import cairn

SECONDS = 60


def wait_until(condition, what):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)  # between looks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--length", type=int, default=400)
    parser.add_argument("--length-of-rank-1", type=int)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--chunk", type=int)
    parser.add_argument("--balance", action="store_true")
    parser.add_argument("--load", type=pathlib.Path, help="a state to go on from")
    parser.add_argument("--stop-at", type=int, help="after so many samples, with a state saved by rank 0")
    parser.add_argument("--die-at", type=int, help="rank 1, in its first life, of the last epoch")
    parser.add_argument("--late", help="rank 1 begins when this file is there")
    parser.add_argument("--pause-at", type=int, help="rank 0 waits at this sample for --pause-for")
    parser.add_argument("--pause-for", help="a file, or alone: until no other worker lives")
    options = parser.parse_args()

    context = cairn.init()
    rank, folder = cairn.rank(), options.folder
    life = len(list(folder.glob(f"used-{rank}-*")))
    (folder / "port").write_text(os.environ.get("CAIRN_SCHED_PORT", ""))
    length = options.length_of_rank_1 if rank == 1 and options.length_of_rank_1 else options.length
    sampler = cairn.data.Sampler(range(length), chunk=options.chunk, balance=options.balance)
    if options.load:
        sampler.load_state_dict(json.loads(options.load.read_text()))
    (folder / f"start-{rank}-{life}").write_text(f"{sampler.start_epoch()} {len(sampler)}")
    if rank == 1 and options.late:
        wait_until((folder / options.late).exists, f"no {options.late}")

    def pause():
        if options.pause_for == "alone":
            wait_until(lambda: context.client.live_ranks() == [rank], "the other worker does not die")
        else:
            wait_until(lambda: list(folder.glob(options.pause_for)), f"no {options.pause_for}")

    with open(folder / f"used-{rank}-{life}", "w", buffering=1) as log:
        for epoch in range(sampler.epoch, options.epochs):
            sampler.set_epoch(epoch)
            for count, index in enumerate(sampler):
                if count == options.stop_at:
                    break
                log.write(f"{epoch} {index}\n")
                if epoch == options.epochs - 1 and count + 1 == options.die_at and rank == 1 and life == 0:
                    sampler.state_dict()  # waits until the servers know what is done
                    os.kill(os.getpid(), signal.SIGKILL)
                if count + 1 == options.pause_at and rank == 0:
                    pause()
    state = sampler.state_dict()
    if options.stop_at:
        cairn.barrier()
        state = sampler.state_dict()
    if rank == 0:
        (folder / "state").write_text(json.dumps(state))
    (folder / f"end-{rank}").touch()


main()
