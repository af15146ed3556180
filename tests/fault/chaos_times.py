"""How long failovers take, for script/chaos: from the moment a server was hurt until the scheduler's
state has other primaries, and until every worker has had a push acknowledged that it submitted later."""
import collections
import time

STATUS_EVERY = 0.1  # seconds; it is asked by a process of its own


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


# What is left of a failover when it is over. `new_primaries` None: the server was spared.
Times = collections.namedtuple("Times", "at_once disturbed new_primaries acknowledged")


class Failover:
    """One server's: looked at again and again until it is done. `spared_after`: seconds from now after which the
    server, if it is heard as it was before, will not be declared dead any more: its scheduler had reason to give it
    more time than the detection takes (somebody's silence had just been its own). None: its process ends."""

    def __init__(self, nodes, server, at_once, incarnation, spared_after=None):
        self.nodes, self.server, self.at_once, self.incarnation = nodes, server, at_once, incarnation
        self.spared_after = spared_after
        self.begun = time.monotonic()
        self.disturbed = False  # something else was hurt before it was done
        self.new_primaries = None
        self.spared = False
        self.acknowledged = None
        self.next_status = 0.0
        self.awaited = {}
        for rank, account in enumerate(nodes.accounts):
            life = account.lives() - 1
            if life >= 0 and nodes.nodes[f"worker{rank}"].alive:
                # Both streams: a sum beyond what was submitted means that one later push is acknowledged.
                self.awaited[rank] = (life, account.submitted(life))

    def times(self):
        return Times(self.at_once, self.disturbed, self.new_primaries, self.acknowledged)

    def look(self):
        """True when both are known."""
        now = time.monotonic()
        if self.acknowledged is None:
            for rank, (life, submitted) in list(self.awaited.items()):
                account = self.nodes.accounts[rank]
                if account.lives() - 1 != life:
                    del self.awaited[rank]  # it was killed itself
                elif account.acknowledged(life) > submitted:
                    del self.awaited[rank]
            if not self.awaited:
                self.acknowledged = now - self.begun
        if self.new_primaries is None and now >= self.next_status:
            self.next_status = now + STATUS_EVERY
            status = self.nodes.status()
            same = [s for s in status["servers"] if s["incarnation"] == self.incarnation] if status else []
            if status and not same:
                self.new_primaries = time.monotonic() - self.begun
            heard = any(s["connected"] and s["seconds_since_heard"] < 1 for s in same)
            self.spared = self.spared_after is not None and now - self.begun > self.spared_after and heard
        return self.acknowledged is not None and (self.new_primaries is not None or self.spared)


def report(failovers, dead_after):
    """Lines for the end of the run."""
    lines = []
    spared = [f for f in failovers if f.new_primaries is None]
    failovers = [f for f in failovers if f.new_primaries is not None]
    if spared:
        lines.append(f"{len(spared)} servers were heard again before their time was up: longest wait for a push "
                     f"{max(f.acknowledged for f in spared):.2f} s")
    for at_once, words, detection in ((True, "the server came back at once", None),
                                      (False, "the server stayed away", dead_after)):
        mine = [f for f in failovers if f.at_once == at_once and not f.disturbed]
        if not mine:
            continue
        primaries, pushes = [f.new_primaries for f in mine], [f.acknowledged for f in mine]
        told = f", detection {detection:.1f} s" if detection else ""
        lines.append(f"failover, {words} ({len(mine)} times{told}): new primaries after "
                     f"p50 {percentile(primaries, .5):.2f} s  p99 {percentile(primaries, .99):.2f} s, pushes acknowledged "
                     f"again after p50 {percentile(pushes, .5):.2f} s  p99 {percentile(pushes, .99):.2f} s")
    undisturbed = [f for f in failovers if not f.disturbed]
    goal = dead_after + 1
    if undisturbed:
        met = sum(f.acknowledged <= goal for f in undisturbed)
        lines.append(f"failover goal (detection + 1 s = {goal:.1f} s): met {met} of {len(undisturbed)}")
    disturbed = [f.acknowledged for f in failovers if f.disturbed]
    if disturbed:
        lines.append(f"{len(disturbed)} more failovers while something else was hurt too: longest {max(disturbed):.2f} s")
    return lines
