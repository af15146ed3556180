"""What the user of `cairn run` sees: progress, the first traceback, the summary; and a standard output
that is full or closed."""
import os
import pty
import re
import signal
import subprocess
import threading

import pytest

from processes import CAIRN, SECONDS, Run, clean_environment

PROGRESS = re.compile(r"^\[cairn\] \d+:\d\d  ")


def on_terminal(*arguments, stdout_too, **variables):
    """The exit code, what the terminal was sent, and standard output if it is a pipe."""
    terminal, end = pty.openpty()
    process = subprocess.Popen([CAIRN, "run", *map(str, arguments)], stdin=subprocess.DEVNULL, stderr=end,
                               stdout=end if stdout_too else subprocess.PIPE,
                               env=clean_environment(**{"TERM": "xterm", "NO_COLOR": 1} | variables))
    os.close(end)
    seen = []

    def read():
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            seen.append(piece)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        output = process.communicate(timeout=SECONDS)[0]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    reader.join(SECONDS)
    os.close(terminal)
    return process.returncode, b"".join(seen).decode(), (output or b"").decode()


def drawn(text):
    """The lines that a terminal shows in the end, and every line that it ever showed as its last."""
    lines, current, column, shown = [], "", 0, []
    for token in re.findall(r"\x1b\[K|[\r\n]|[^\x1b\r\n]+", text):
        if token == "\n":
            lines.append(current)
            current, column = "", 0
        elif token == "\r":
            column = 0
        elif token == "\x1b[K":
            shown.append(current)
            current = current[:column]
        else:
            current = current[:column] + token + current[column + len(token):]
            column += len(token)
    return lines + [current], shown


def test_progress_stays_at_the_bottom_and_out_of_the_lines():
    script = 'for i in 1 2 3 4 5 6 7 8; do echo "line $i of $RANK"; sleep 0.2; done'
    code, text, _ = on_terminal("-w", 2, "--", "sh", "-c", script, stdout_too=True)
    lines, shown = drawn(text)
    assert code == 0, text
    assert any(PROGRESS.match(line) for line in shown), text
    assert not any(PROGRESS.match(line) for line in lines), lines
    assert lines[-1] == "" and "finished in" in lines[-2], lines
    assert all(re.match(r"\[(cairn|scheduler|server 0|worker [01])\] ", line) for line in lines[:-1]), lines
    assert [line for line in lines if line.startswith("[worker 1]")] == [f"[worker 1] line {i} of 1" for i in range(1, 9)]


def test_nothing_is_redrawn_on_a_dumb_terminal_or_where_it_is_not_wanted():
    job = ("--", "sh", "-c", "sleep 0.3")
    code, text, output = on_terminal(*job, stdout_too=False)
    assert code == 0 and any(PROGRESS.match(line) for line in drawn(text)[1]), text
    assert "[cairn]" not in output and "\x1b" not in output
    for options, terminal in ((("--no-progress",), "xterm"), ((), "dumb")):
        code, text, _ = on_terminal(*options, *job, stdout_too=False, TERM=terminal)
        assert code == 0 and "\x1b" not in text and "0:00" not in text, text
    code, text, _ = on_terminal("--progress", *job, stdout_too=False, TERM="dumb")
    assert code == 0 and any(PROGRESS.match(line) for line in drawn(text)[1]), text


def test_without_a_terminal_progress_comes_now_and_then():
    with Run("run", "--progress-every", 0.2, "--", "sh", "-c", "sleep 1") as run:
        assert run.wait() == 0
        assert any(PROGRESS.match(line) for line in run.lines), run.text
        assert "\x1b" not in run.text
    with Run("run", "--progress-every", 0.2, "--no-progress", "--", "sh", "-c", "sleep 1") as run:
        assert run.wait() == 0
        assert not any(PROGRESS.match(line) for line in run.lines), run.text


def test_the_summary_of_a_program_that_does_not_use_cairn():
    with Run("run", "-w", 2, "true") as run:
        assert run.wait() == 0
        assert re.fullmatch(r"\[cairn\] finished in \S+ s: 2 workers done, 0 restarts, logs in /.*", run.lines[-1])
        assert "no worker has used Cairn" in run.text and "failed" not in run.text, run.text


RAISES = """
import os, sys, time
if os.environ["RANK"] == "1":
    def depth(n):
        if n == 0:
            try:
                {}["no such key"]
            except KeyError as error:
                raise ValueError("no such data") from error
        depth(n - 1) if n % 2 else depth(n - 1)
    depth(20)
print("worker", os.environ["RANK"], "waits", flush=True)
time.sleep(1000)
"""


def test_the_first_traceback_comes_last_and_whole(tmp_path):
    (tmp_path / "train.py").write_text(RAISES)
    with Run("run", "-w", 3, tmp_path / "train.py") as run:
        assert run.wait() == 1, run.text
    assert re.match(r"\[cairn\] failed after \S+ s: worker 1 exited with code 1; logs in /", run.lines[-1])
    assert run.lines[-2] == "[worker 1] ValueError: no such data"
    start = run.lines.index("[cairn] the first traceback, of worker 1:")
    assert run.lines[start + 1] == "[worker 1] Traceback (most recent call last):"
    assert sum("direct cause" in line for line in run.lines[start:]) == 1
    assert all(line.startswith("[worker 1]") for line in run.lines[start + 1:-1])


FALLS_OVER = """
import os, pathlib, sys, time, traceback
first = pathlib.Path(sys.argv[1])
if os.environ["RANK"] == "0":
    while not first.exists():
        time.sleep(0.01)
    raise RuntimeError("a consequence")
try:
    raise ValueError("the cause")
except ValueError:
    traceback.print_exc()
    sys.stderr.flush()
    first.touch()
    time.sleep(1000)  # still busy ending when the other one has ended
"""


def test_the_cause_is_shown_and_not_its_consequence(tmp_path):
    (tmp_path / "train.py").write_text(FALLS_OVER)
    with Run("run", "-w", 2, tmp_path / "train.py", tmp_path / "first") as run:
        assert run.wait() == 1, run.text
    assert run.lines[-2] == "[worker 1] ValueError: the cause", run.text
    assert "worker 1 failed first: ValueError: the cause" in run.lines[-1]


def test_a_full_standard_output_does_not_end_the_job():
    with open("/dev/full", "w") as full:
        done = subprocess.run([CAIRN, "run", "--", "sh", "-c", "echo one; sleep 0.3; echo two"], stdout=full,
                              stderr=subprocess.PIPE, text=True, env=clean_environment(), timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("No space left on device") == 1 and "interrupted" not in done.stderr
    log = re.search(r"logs in (\S+)$", done.stderr.strip())[1]
    with open(f"{log}/worker-0.log") as file:
        assert file.read() == "one\ntwo\n"


def test_closed_streams_are_no_interrupt():
    code = subprocess.run(["sh", "-c", f"exec {CAIRN} run -- sh -c 'echo one' >&- 2>&- <&-"], env=clean_environment(),
                          timeout=SECONDS).returncode
    assert code == 0


def test_an_answer_that_can_not_be_written_is_an_error():
    with open("/dev/full", "w") as full:
        done = subprocess.run([CAIRN, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
    assert done.returncode == 1 and "standard output" in done.stderr


@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_is_the_last_word(number, code):
    with Run("run", "--", "sh", "-c", "echo here; exec sleep 1000") as run:
        run.wait_for("here")
        run.signal(number)
        assert run.wait() == code
        assert re.match(r"\[cairn\] interrupted after \S+ s; logs in /", run.lines[-1]), run.text
