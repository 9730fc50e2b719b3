from headway.bridges.futures import Executor as Executor
from headway.client import Client as Client
from headway.client.frames import curve as curve
from headway.client.frames import nodes as nodes
from headway.client.frames import queue as queue
from headway.client.frames import runs as runs
from headway.client.frames import traces as traces
from headway.client.frames import usage as usage
from headway.client.run import Run as Run
from headway.model.job import TrainingJob as Job
from headway.model.job_parts import After as After
from headway.model.job_parts import Dataset as Dataset
from headway.model.job_parts import Resources as Resources
from headway.model.job_parts import Training as Training

__all__ = [
    "After",
    "Client",
    "Dataset",
    "Executor",
    "Job",
    "Resources",
    "Run",
    "Training",
    "curve",
    "nodes",
    "queue",
    "runs",
    "traces",
    "usage",
]
