"""A server that speaks S3, for stores."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "runs"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """A server with one bucket; the environment in which boto3 finds it."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "headway",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        boto3.client(
            "s3",
            endpoint_url=found["AWS_ENDPOINT_URL"],
            aws_access_key_id=found["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=found["AWS_SECRET_ACCESS_KEY"],
            region_name=found["AWS_DEFAULT_REGION"],
        ).create_bucket(Bucket=BUCKET)
        yield found
    finally:
        server.stop()
