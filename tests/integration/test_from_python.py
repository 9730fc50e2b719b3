"""What people's programs do with headway: the page about it and the sample, on a live site."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headway import After, Client, Job, Run
from headway.errors import RunFailed, WaitTimedOut
from samples.chain import chain
from tests.support.site import ROOT, LiveSite

pytestmark = pytest.mark.prefect

CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def _come_in(process_site: LiveSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in process_site.at_the_gateway().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


def test_the_page_does_what_it_says(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, frames = CODE.findall((ROOT / "docs/python.md").read_text())
    exec(compile(first, "docs/python.md", "exec"), {})
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "Completed"
    exec(compile(frames, "docs/python.md", "exec"), {})
    assert "predicted_basis" in capsys.readouterr().out
    assert '{"headway": {"iteration": 1' in told[1]
    assert (tmp_path / "first-outputs/x.json").exists()


def test_the_sample_picks_the_best_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    chain.main()
    told = capsys.readouterr().out.splitlines()
    assert len([line for line in told if line.startswith("train-")]) == 3
    assert told[-1].startswith("best is train-0.4, x = 2.999")


def test_what_does_not_end_well_is_raised_wherever_it_is_waited_for() -> None:
    bad = Job(name="bad", image="headway-samples:local", command=["false"])
    with Client() as client, ThreadPoolExecutor() as executor:
        run = client.submit(bad)
        after = client.submit(
            Job(
                name="never", image="headway-samples:local", command=["true"],
                after=After(run=run.run_id),
            )
        )  # fmt: skip
        assert isinstance(after, Run)
        with pytest.raises(WaitTimedOut, match="goes on"):
            after.wait(timeout_s=0.0)
        future = executor.submit(run.wait)
        with pytest.raises(RunFailed, match="bad is Failed: "):
            future.result()

        async def waited() -> None:
            await after

        with pytest.raises(RunFailed, match="which ended as failed; nothing was started"):
            asyncio.run(waited())
        assert {each.run_id for each in client.as_completed([run, after])} == {
            run.run_id, after.run_id
        }  # fmt: skip
