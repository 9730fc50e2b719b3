"""Engines: whoever decides which job runs on the machines of a pool that are not headway's own."""
