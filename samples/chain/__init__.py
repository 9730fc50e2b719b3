"""A chain from Python: stage, train three variants, evaluate the best one."""
