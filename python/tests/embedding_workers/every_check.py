"""MODULE.CHECK → function, of all modules with checks of tables. Those of `equality` work with any
number of workers."""
from embedding_workers import equality_checks, loop_checks

EQUALITY = {f"equality.{name}": function for name, function in equality_checks.CHECKS.items()}
EVERY_CHECK = {**EQUALITY,
    **{f"loop.{name}": function for name,
     function in loop_checks.CHECKS.items()}}
EQUALITY_OF_FOUR = {name: function for name, function in EQUALITY.items() if "repeats" not in name}
