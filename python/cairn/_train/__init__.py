"""The parts of cairn.DistributedOptimizer: what lies on the servers (served_model.py and its neighbours), how
a step goes (steps.py, step.py, step_parts.py, overlap.py), how workers come late and run out of data
(catching_up.py, late_joiner.py, join.py), and the state (optimizer_state.py)."""
