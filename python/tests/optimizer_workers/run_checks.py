"""What `cairn run` starts as a worker: run_checks.py [MODULE or MODULE.CHECK …]. None: all."""
import sys

from optimizer_workers.checks import run_all
from optimizer_workers.every_check import EVERY_CHECK

if __name__ == "__main__":
    wanted = sys.argv[1:]
    run_all({name: function for name, function in EVERY_CHECK.items()
             if not wanted or name in wanted or name.split(".")[0] in wanted})
