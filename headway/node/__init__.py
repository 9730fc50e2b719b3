"""The life of a node: flow processes, janitor, sampler, what is pruned."""
