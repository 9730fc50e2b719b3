"""Prefect's worker of a GPU node."""
