"""Decisions: pure functions of values that return instructions."""
