"""The process that schedules a pool, while it leads it: one for all nodes."""
