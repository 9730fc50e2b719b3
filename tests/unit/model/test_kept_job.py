"""Jobs that another version of headway kept."""

import json

import pytest

from headway.errors import InvalidInput
from headway.model.job_text import job_from_document, kept_job

KEPT = json.loads("""
{"name": "x", "image": "a:1", "python": "", "command": ["b"], "workdir": "", "code": null,
"requirements": "", "dataset": {"uri": "/data", "sha256": null, "size": null, "shard": null},
"datasets": {"more": {"uri": "/more", "sha256": null, "size": null, "shard": null}}, "after":
{"run": "r1", "when": "ok"}, "resources": {"gpus": "1-2", "nodes": 1, "gpu_memory": null,
"gpu_type": "", "sharing": "shared", "host_memory": "auto", "cpus": 1.0, "shm": "64MiB", "disk":
null, "cpu_fallback": false}, "training": {"framework": "", "network": "", "batch_size": null,
"epochs": 3, "data_threads": null, "samples": null, "precision": "fp32", "settings": {}},
"launch": "torch", "max_runtime": null, "stop_grace": "10s", "retries": 2, "preemptible": false,
"ports": [], "session": {"port": null, "shell": false, "idle": null}, "env": {}, "config": {},
"secrets": {}, "outputs": ["**"], "owner": "", "team": "default", "notify":
["slack-webhook/vision"], "volumes": ["scratch"], "user_folder": false, "profile": false,
"progress": "step (?P<iteration>[0-9]+)"}
""")
"""As 0.2.0.dev wrote one into its ledger before data sets could not be divided any more."""


def test_a_job_of_an_earlier_version_is_read_though_fields_are_gone() -> None:
    job = kept_job(KEPT)
    assert job is not None
    assert [each.uri for each in job.data.values()] == ["/data", "/more"]
    assert kept_job(job.document()) == job


def test_what_is_gone_is_refused_where_somebody_asks_for_it() -> None:
    with pytest.raises(InvalidInput, match="shard"):
        job_from_document(KEPT | {"dataset": {"uri": "/data", "shard": "node"}})
