"""Containers: the port, the Docker adapter, and the process runtime without an engine."""
