"""How long a run still takes."""
