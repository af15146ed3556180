"""MODULE.CHECK → function, of all modules with checks for two workers."""
from optimizer_workers import (
    async_checks,
    bounded_checks,
    clip_checks,
    interrupt_checks,
    join_checks,
    step_checks,
    weight_checks,
)

EVERY_CHECK = {
    f"{module.__name__.split('.')[-1].removesuffix('_checks')}.{name}": function
    for module in (step_checks, clip_checks, join_checks, interrupt_checks, async_checks, bounded_checks, weight_checks)
    for name, function in module.CHECKS.items()
}
