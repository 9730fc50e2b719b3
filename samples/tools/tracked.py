"""Makes the block by which ends of a team's runs are written to its MLflow server."""

import os
import sys

from headway.leader.mlflow import HeadwayMlflow

name, url = sys.argv[1:]  # such as: vision https://mlflow.example.org
HeadwayMlflow(url=url, secret=os.environ.get("MLFLOW_TRACKING_TOKEN")).save(name, overwrite=True)
print("name it in headway-line/site:", {"teams": {name: {"tracker": f"headway-mlflow/{name}"}}})
