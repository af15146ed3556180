"""Clusters with many slots: their heartbeats stay small, and a killed scheduler finds everybody again."""
import os
import signal

import pytest

from processes import BIN, Run, child_with


@pytest.mark.parametrize("slots", [4096, 65536])
def test_a_killed_scheduler_knows_every_server_again(tmp_path, slots):
    with Run("run", "-s", 2, "-w", 2, "--slots", slots, "--no-logs", "--", BIN / "cairn-soak", "--dir",
             tmp_path / "accounts", "--until", tmp_path / "end", "--pause-us", 2000, "--region", 64) as run:
        run.wait_for("the scheduler is connected to")
        run.wait_for("soak.async.sparse")
        os.kill(child_with(run.process.pid, "cairn scheduler"), signal.SIGKILL)
        run.wait_for("started again, term 2")
        (tmp_path / "end").touch()
        assert run.wait() == 0, run.text
        run.wait_for(r"lost: 0  twice: 0")
        assert "is lost" not in run.text and "is dead" not in run.text, run.text
