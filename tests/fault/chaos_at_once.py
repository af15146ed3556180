"""Runs legs of script/chaos side by side: each in a process of its own, so that it has its own namespaces,
ports and children. The first failure ends the others; so does Ctrl-C. Each cleans up after itself."""
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import traceback

from chaos_legs import INTERRUPTED, LegResult

CLEAN_UP_SECONDS = 60
LOOK_SECONDS = 0.5


def _in_child(leg, run, sender):
    os.setpgid(0, 0)  # Ctrl-C reaches the parent, which tells each leg once
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        result = run(leg)
    except KeyboardInterrupt:
        result = LegResult(leg.name, failure=INTERRUPTED)
    except Exception:  # noqa: BLE001  a mistake of the script itself
        result = LegResult(leg.name, failure=f"{leg.name}: {traceback.format_exc()}")
    sender.send(result)
    sender.close()


class _Running:
    def __init__(self, leg, run):
        context = multiprocessing.get_context("fork")
        self.leg = leg
        self.receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_in_child, args=(leg, run, sender))
        self.process.start()
        sender.close()

    def result(self, seconds):
        """Its result, None if it has not come to one by then."""
        if not self.receiver.poll(seconds):
            return None
        try:
            result = self.receiver.recv()
        except EOFError:
            result = LegResult(self.leg.name, failure=f"{self.leg.name}: its process has died")
        self.process.join(CLEAN_UP_SECONDS)
        return result


def _end(running, results):
    """Tells them to end, and waits until they have cleaned up."""
    for one in running:
        if one.process.is_alive():
            os.kill(one.process.pid, signal.SIGTERM)
    end = time.monotonic() + CLEAN_UP_SECONDS
    for one in running:
        result = one.result(max(0.1, end - time.monotonic()))
        if result is None:
            one.process.kill()
            result = LegResult(one.leg.name, failure=f"{one.leg.name}: has not ended within {CLEAN_UP_SECONDS} s")
        results[one.leg.name] = result


def run_at_once(legs, most, run):
    """A result for each leg that was begun, in their order. `run` makes it of a leg."""
    waiting, running, results = list(legs), [], {}
    try:
        while waiting or running:
            while waiting and len(running) < most:
                running.append(_Running(waiting.pop(0), run))
            multiprocessing.connection.wait([one.receiver for one in running], LOOK_SECONDS)
            for one in list(running):
                result = one.result(0)
                if result is not None:
                    running.remove(one)
                    results[one.leg.name] = result
            if any(result.failure for result in results.values()):
                break
    except KeyboardInterrupt:
        print("interrupted: ending the legs that run", flush=True)
    _end(running, results)
    for leg in waiting:
        results[leg.name] = LegResult(leg.name, failure=INTERRUPTED)
    return [results[leg.name] for leg in legs]
