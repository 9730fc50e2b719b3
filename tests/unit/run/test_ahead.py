"""What a job says of how long it trains."""

from headway.model.job_text import job_from_document
from headway.run.ahead import totals_of_job


def test_a_job_says_it_by_its_environment_too() -> None:
    asked = {"name": "t", "python": "3", "command": ["python", "t.py"], "env": {"NUM_EPOCHS": "6"}}
    assert totals_of_job(job_from_document(asked)).epochs == 6
    assert totals_of_job(job_from_document(asked | {"training": {"epochs": 7}})).epochs == 7
    other = asked | {"command": ["python", "t.py", "--epochs", "5"]}
    assert totals_of_job(job_from_document(other)).epochs == 5, "what was typed is surer"
    early = asked | {
        "env": {"TEXT": "x" * 20_000},
        "command": ["python", "t.py", "--patience", "3"],
    }
    assert totals_of_job(job_from_document(early)).stops_early
