"""submitit's functions, with `headway` as the cluster."""

from math import sqrt

import submitit

if __name__ == "__main__":
    executor = submitit.AutoExecutor(folder="submitit-log", cluster="headway")
    executor.update_parameters(cpus_per_task=1, mem_gb=0.5, timeout_min=10)
    jobs = executor.map_array(sqrt, [4, 9])
    print([job.result() for job in jobs])
