"""What lets people's other tools in: Python functions, joblib, submitit, PSI/J, ssh.

Each stands on `headway.client` alone. What runs on the node is in `sent`: it travels with the
function, so that an image needs nothing of headway, joblib or submitit.
"""
