"""Two network namespaces as two machines, for tests that may make some; the others are skipped."""
import contextlib
import os
import subprocess
import uuid

import pytest

SECONDS = 60


@contextlib.contextmanager
def two_namespaces(addresses):
    """Joined by a pair of virtual interfaces with these addresses: the words to run a command in each."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    tag = uuid.uuid4().hex[:6]
    names = [f"cairn-{tag}-{i}" for i in range(2)]

    def ip(*words):
        return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=SECONDS)

    try:
        steps = [("netns", "add", name) for name in names]
        steps.append(("link", "add", f"cn{tag}a", "netns", names[0], "type", "veth", "peer", "name", f"cn{tag}b", "netns",
                      names[1]))
        for name, end, address in zip(names, "ab", addresses):
            steps += [("-n", name, "addr", "add", f"{address}/24", "dev", f"cn{tag}{end}"),
                      ("-n", name, "link", "set", f"cn{tag}{end}", "up"), ("-n", name, "link", "set", "lo", "up")]
        for step in steps:
            try:
                done = ip(*step)
            except FileNotFoundError:
                pytest.skip("no `ip` here")
            if done.returncode != 0:
                pytest.skip(f"no network namespaces here: ip {' '.join(step)}: {done.stderr.strip()}")
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            ip("netns", "del", name)
