"""One attempt of a run, from its lease to its end."""
