"""Numbers before and during a run: runtime, memory, cost, remaining time."""
