"""The door through which jobs and questions come in."""
