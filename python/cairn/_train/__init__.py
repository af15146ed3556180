"""The parts of cairn.DistributedOptimizer: what lies on the servers (served_model.py and its neighbours), how a step
travels (rounds.py, overlap.py), how workers come and go (joining.py, late_joiner.py, uneven.py), and the state
(optimizer_state.py)."""
