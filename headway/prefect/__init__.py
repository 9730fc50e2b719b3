"""Prefect's API, spoken over HTTP."""
