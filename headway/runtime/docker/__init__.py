"""Containers in a Docker engine; the only home of the Docker SDK."""
