"""What a flow process runs: Prefect's engine, for a run that nobody has ended meanwhile."""

import os
from uuid import UUID

from prefect.client.schemas.objects import FlowRun
from prefect.engine import handle_engine_signals
from prefect.flow_engine import load_flow, load_flow_run, run_flow


def main() -> None:
    """Run the flow of the run that the environment names; not one that was cancelled or ended.

    Prefect's server would let the engine take it from there to running.
    """
    run_id = UUID(os.environ["PREFECT__FLOW_RUN_ID"])
    with handle_engine_signals(run_id):
        found = load_flow_run(run_id)
        if not _is_over(found):
            run_flow(load_flow(found), flow_run=found)


def _is_over(run: FlowRun) -> bool:
    return run.state is not None and (run.state.is_final() or run.state.is_cancelling())


if __name__ == "__main__":
    main()
