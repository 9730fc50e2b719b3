"""The folder of code that a run brings along: packed on a laptop, unpacked on a node."""
