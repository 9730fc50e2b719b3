"""The nightly refit, through its deployment."""

import pytest

from tests.support.site import LiveSite, wait_for


@pytest.mark.prefect
def test_the_nightly_deployment_runs(process_site: LiveSite) -> None:
    run_id = process_site.start("retrain-estimators/nightly")
    assert process_site.ended(run_id)["type"] == "COMPLETED"
    deployment = process_site.call("GET", "deployments/name/retrain-estimators/nightly")
    assert [each["schedule"]["cron"] for each in deployment["schedules"]] == ["0 2 * * *"]
    wait_for(
        lambda: "estimators" in process_site.artifacts(run_id),
        lambda: "no report artifact",
    )
