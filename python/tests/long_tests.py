"""Cases that only `script/check --only deaths` runs: everyday tests have the first ones of each kind."""
import os


def cases(everyday, more):
    return everyday + more if os.environ.get("CAIRN_LONG_TESTS") else everyday
