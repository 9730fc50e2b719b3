"""What an operator sets up once, in the UI or in code: Prefect blocks."""
