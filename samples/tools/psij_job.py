"""A job of PSI/J's on the site."""

from pathlib import Path

import psij

if __name__ == "__main__":
    executor = psij.JobExecutor.get_instance("headway")
    spec = psij.JobSpec("/bin/echo", ["hello"], stdout_path=Path("hello.txt").absolute())
    executor.submit(job := psij.Job(spec))
    print(job.wait(), Path("hello.txt").read_text().strip())
