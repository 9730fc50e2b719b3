from headway.client import Client as Client
from headway.client.run import Run as Run
from headway.model.job import After as After
from headway.model.job import Dataset as Dataset
from headway.model.job import Resources as Resources
from headway.model.job import Training as Training
from headway.model.job import TrainingJob as Job

__all__ = ["After", "Client", "Dataset", "Job", "Resources", "Run", "Training"]
