"""Cases that only `script/check --only deaths` runs: everyday tests have the first ones of each kind.
They cost seconds each, mostly for processes that import torch."""
import os

import pytest


def cases(everyday, more):
    return everyday + more if os.environ.get("CAIRN_LONG_TESTS") else everyday


# For a whole test that others of its file come close to.
longer = pytest.mark.skipif(not os.environ.get("CAIRN_LONG_TESTS"), reason="script/check --only deaths runs it")
