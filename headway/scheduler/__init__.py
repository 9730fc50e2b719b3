"""The queue of a pool on this node: what may start, what waits and why."""
