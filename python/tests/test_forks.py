"""Processes that a worker makes: those of fork have none of its connections, those of spawn run the
script's top level again. Neither may use cairn, disturb the worker, or hang at its end."""
import sys

import pytest

import scripts

LOADER = """
    import sys, torch, cairn
    from torch.utils.data import DataLoader

    context = cairn.init()  # spawned children come here too

    def refused(call):
        try:
            call()
            return 0
        except cairn.ForkedError as error:
            return int("DataLoader" in str(error))

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, i):
            return refused(cairn.barrier) + 10 * refused(lambda: cairn.init().client.live_ranks())

    if __name__ == "__main__":
        table = cairn.dense_table("w", 4, mode="async", optimizer="sum")
        pending = table.pull(when_assigned=True)  # under way while processes are made
        print(sum(int(x.sum()) for x in DataLoader(Data(), batch_size=4, num_workers=2,
                                                   multiprocessing_context=sys.argv[1])))
        table.assign(torch.ones(4)).wait()
        print(pending.result().tolist(), context.client.live_ranks())
    """


def by_script(text):
    """Without what the client says of a call that takes long, as on a busy machine."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("[cairn "))


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_a_loader_with_processes(job, tmp_path, how):
    """All eight samples come, and every call was refused with advice."""
    script = scripts.write(tmp_path, LOADER)
    code, text = job.wait(job.python(script, how))
    assert (code, by_script(text)) == (0, "88\n[1.0, 1.0, 1.0, 1.0] [0]\n")


def test_a_spawned_child_registers_no_worker(job, tmp_path):
    """In a job of two that waits for its second worker, a child that calls init() at top level must not
    become it."""
    script = scripts.write(tmp_path, """
        import multiprocessing, os, cairn
        context = cairn.init()
        def look(queue):
            queue.put((cairn.is_worker(), cairn.rank(), cairn.world_size(), os.environ["RANK"], repr(cairn.init())))
        if __name__ == "__main__":
            spawn = multiprocessing.get_context("spawn")
            queue = spawn.Queue()
            child = spawn.Process(target=look, args=(queue,))
            child.start()
            print(queue.get(timeout=50), context.client.live_ranks())
            child.join(50)
            assert child.exitcode == 0
            cairn.shutdown()
            # Without a worker as its parent a child is one itself.
            child = spawn.Process(target=look, args=(queue,))
            child.start()
            print(queue.get(timeout=50)[:3])
            child.join(50)
            assert child.exitcode == 0
        """)
    code, text = job.wait(job.python(script))
    assert code == 0, text
    first, second = text.splitlines()
    assert first.startswith("(False, 0, 1, '0', ") and first.endswith("[0]")
    assert second == "(True, 0, 1)"


def test_a_forked_child_ends(job, tmp_path):
    """Its copies of our objects have no threads behind them: nothing may be waited for."""
    script = scripts.write(tmp_path, """
        import os, sys, torch, cairn
        context = cairn.init()
        table = cairn.dense_table("w", 4, mode="async")
        pending = [table.pull(when_assigned=True) for _ in range(3)]
        for end in ("os._exit(5)", "sys.exit(5)", "raise SystemExit(5)", "del context, table; sys.exit(5)"):
            if os.fork() == 0:
                for call in (cairn.rank, cairn.barrier, pending[0].wait, pending[0].done, table.pull, cairn.init):
                    try:
                        call()
                        print("no error", call)
                    except cairn.ForkedError as error:
                        pass
                cairn.shutdown()
                del pending
                exec(end)
            print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)  # or the next child prints it too
        table.assign(torch.ones(4)).wait()
        print(pending[0].result().tolist())
        """)
    code, text = job.wait(job.python(script))
    assert (code, by_script(text)) == (0, "5\n5\n5\n5\n[1.0, 1.0, 1.0, 1.0]\n")


def test_fork_before_init(job, tmp_path):
    """Importing starts nothing: children that are made before init() may each have their own."""
    script = scripts.write(tmp_path, """
        import os, cairn
        child = os.fork()
        cairn.init()
        cairn.dense_table("w", 4, mode="async").pull().wait()
        cairn.shutdown()
        if child:
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
            print("both")
        """)
    assert job.wait(job.python(script)) == (0, "both\n")


def test_a_program_started_by_a_worker(job, tmp_path, cairn_bin):
    """`cairn run` from inside a program that has called init() is a job of its own."""
    inner = scripts.write(tmp_path, """
        import multiprocessing, cairn
        def look(queue):
            cairn.init()
            queue.put(cairn.is_worker())
        if __name__ == "__main__":
            cairn.init()
            print("inner", cairn.is_worker(), cairn.rank(), cairn.world_size(), flush=True)
            if cairn.rank() == 0:
                spawn = multiprocessing.get_context("spawn")
                queue = spawn.Queue()
                child = spawn.Process(target=look, args=(queue,))
                child.start()
                print("innermost", queue.get(timeout=50), flush=True)
                child.join(50)
        """, "inner.py")
    outer = scripts.write(tmp_path, f"""
        import subprocess, sys, cairn
        cairn.init()
        done = subprocess.run([{str(cairn_bin / 'cairn')!r}, "run", "--no-logs", "-w", "2", {str(inner)!r}],
                              timeout=50)
        subprocess.run([sys.executable, {str(inner)!r}], timeout=50, check=True)
        sys.exit(done.returncode)
        """, "outer.py")
    code, text = job.wait(job.python(outer, CAIRN_PYTHON=sys.executable), 100)
    assert code == 0, text
    for words in ("inner True 0 2", "inner True 1 2", "inner True 0 1"):
        assert words in text, text
    assert text.count("innermost False") == 2, text
