"""What `cairn run` starts as a worker: all checks on two workers, those of equality on any
number."""
import cairn
from embedding_workers.every_check import EQUALITY_OF_FOUR, EVERY_CHECK
from optimizer_workers.checks import run_all

if __name__ == "__main__":
    cairn.init()
    run_all(EVERY_CHECK if cairn.world_size() == 2 else EQUALITY_OF_FOUR)
