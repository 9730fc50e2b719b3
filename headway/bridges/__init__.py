"""What lets people's other tools hand in runs: Python functions, joblib, submitit, PSI/J.

Each stands on `headway.client` alone. What runs on the node is in `sent`: it travels with the
function, so that an image needs nothing of headway, joblib or submitit.
"""
