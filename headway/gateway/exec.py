"""Commands beside the programs of runs, for `headway exec`: who may, on which node, noted."""

from contextlib import suppress

import anyio
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from headway.errors import ExecRefused, HeadwayError, NodeSilent, NotAllowed, PortClosed
from headway.gateway.actions import note_act
from headway.gateway.door import shown_token
from headway.gateway.refusals import refusal
from headway.gateway.run_ports import OpenRun, open_run, open_way
from headway.model.access import Caller
from headway.model.exec_messages import ExecCommand, ExecRefusal, read, written
from headway.node.run_exec import RunExec, commanded, heard, said
from headway.node.shares import in_thread
from headway.site import Site


def exec_in(site: Site) -> APIRouter:
    """The route to commands in *site*'s runs."""
    router = APIRouter()
    execs = RunExec(site)

    @router.websocket("/runs/{run}/exec")
    async def execute(client: WebSocket, run: str) -> None:
        """Start a command beside the run's program, and carry its streams."""
        with suppress(WebSocketDisconnect, RuntimeError):  # it has left meanwhile
            try:
                found = await _allowed(site, client, run)
            except HeadwayError as error:
                await client.send_denial_response(refusal(error))
                return
            await client.accept()
            try:
                command = await _noted(site, client, run)
                if found.node.node.name == site.settings.node:
                    await execs.serve(client, run, command)
                else:
                    await _elsewhere(site, client, found, command)
            except HeadwayError as error:
                await said(client, ExecRefusal(why=str(error)))
            await client.close()

    return router


async def _allowed(site: Site, client: WebSocket, run: str) -> OpenRun:
    """The run, if *client* may start something there."""
    if shown_token(dict(client.headers.items()))[1]:
        raise NotAllowed("a page may not ask this: send the token in Authorization")
    caller: Caller = client.state.caller
    try:
        return await in_thread(lambda: open_run(site, caller, run, alone=False))
    except PortClosed as error:
        raise ExecRefused(run, f"{error.cause}; `headway show` says more") from error


async def _noted(site: Site, client: WebSocket, run: str) -> ExecCommand:
    """What *client*, which was accepted, wants to start.

    Its first word alone is noted: the others may have secrets in them.
    """
    command = await commanded(client)
    details = {"command": command.arguments[0][:200]}
    await in_thread(note_act, site, client.state.caller, "run.exec", run, details)
    return command


async def _elsewhere(site: Site, client: WebSocket, found: OpenRun, command: ExecCommand) -> None:
    """Have the run's own node do it, and carry what *client* and that node say."""
    node = await open_way(site, found.node, f"/runs/{found.record.run_id}/exec")
    try:
        await node.send(written(command))
        async with anyio.create_task_group() as both:
            both.start_soon(_there, client, node, both.cancel_scope)
            # Where the node is lost, the client is closed without a word about the command's end.
            with suppress(ConnectionClosed):
                async for message in node:
                    await said(client, read(message))
            both.cancel_scope.cancel()
    except ConnectionClosed as error:
        raise NodeSilent(found.node.node.name, "it has closed the connection") from error
    finally:
        with anyio.CancelScope(shield=True):
            await node.close()


async def _there(client: WebSocket, node: ClientConnection, both: anyio.CancelScope) -> None:
    """Pass on what *client* says, until it has left or the node has."""
    with suppress(WebSocketDisconnect, HeadwayError, ConnectionClosed):
        while True:
            await node.send(written(await heard(client)))
    both.cancel()
