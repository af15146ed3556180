"""Servers that come and go while script/chaos hurts others: one more joins, then one that is chosen at
random moves its partitions away and leaves, and so on. Faults go on meanwhile, and may hit those two."""
import signal
import time

REST = (0.5, 3.0)


class Scaling:
    def __init__(self, chaos, spare):
        self.chaos, self.nodes, self.rng = chaos, chaos.nodes, chaos.rng
        self.spare = spare      # the node that is not in the job, None while all are
        self.leaving = None     # the node that drains
        self.told = None        # its process
        self.begun, self.next = 0.0, float("inf")  # begins with rest()
        self.joined = self.left = 0
        self.ending = False
        spare.absent = True

    def rest(self):
        self.next = time.monotonic() + self.rng.uniform(*REST)

    def look(self):
        """Does what is due. Called often."""
        now = time.monotonic()
        if self.leaving is not None:
            self.look_at_leaving(now)
        elif not self.ending and now >= self.next:
            if self.spare is not None:
                self.join()
            else:
                self.drain()

    def join(self):
        self.spare.absent = False
        self.nodes.start(self.spare)
        self.chaos.say(f"{self.spare.name} joins")
        self.spare, self.joined = None, self.joined + 1
        self.rest()

    def drain(self):
        status = self.chaos.fresh_status()
        there = {server["endpoint"] for server in status["servers"]} if status else set()
        # One that was killed and is just coming back may still be on record, and does not know signals yet.
        able = [node for node in self.nodes.of("server") if node.alive and not node.away and node.endpoint in there
                and self.nodes.registered(node)]
        if len(able) <= self.chaos.options.servers or self.chaos.later:
            return
        self.leaving, self.begun = self.rng.choice(able), time.monotonic()
        self.told = self.leaving.process
        self.nodes.signal(self.leaving, signal.SIGTERM)
        self.chaos.say(f"{self.leaving.name} is told to leave")

    def look_at_leaving(self, now):
        node = self.leaving
        if node.process is not self.told:  # it was killed, and has been started again to stay
            self.leaving = None
            return self.rest()
        if node.alive:
            if now - self.begun > self.chaos.options.patience:  # whatever happens to the others
                self.chaos.fail(f"{node.name} was told to leave {now - self.begun:.0f} s ago, and is still there")
            return
        if node.name not in {entry[2] for entry in self.chaos.later}:  # else it was killed, and is started again
            code, died = node.process.returncode, self.was_declared_dead(node)
            if code != 0 and not died:
                self.chaos.fail(f"{node.name} was told to leave, and has ended with code {code}")
            node.absent, self.spare, self.left = True, node, self.left + (not died)
            self.chaos.say(f"{node.name} {'was declared dead while it left' if died else 'has left'}")
        self.leaving = None
        self.rest()

    def was_declared_dead(self, node):
        """It was stopped or cut off for long enough: no server that is leaving is started again for that."""
        last = self.nodes.log(node.name).splitlines()[-3:]
        return node.process.returncode != 0 and any(
            "declared dead" in line or "is lost to the job" in line for line in last)

    def explains(self, node):
        """That this server is not there is no failure."""
        return node is self.leaving or node.absent

    @property
    def idle(self):
        return self.leaving is None
