"""How long a job will run."""
