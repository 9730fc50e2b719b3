"""What the gateway answers about who held what of the site: for group leaders."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from headway.errors import NotAllowed
from headway.gateway.door import Watcher
from headway.gateway.run_lookup import seen_team
from headway.model.access import Caller
from headway.node.apart import apart
from headway.site import Site
from headway.views.usage_document import usage_document

_Name = Annotated[str | None, Field(max_length=63, pattern=r"^[^\x00]*$")]


def usages(site: Site) -> APIRouter:
    """The routes of *site* about usage: a member sees its own team's, an operator all."""
    router = APIRouter()

    @router.get("/usage")
    def usage(
        caller: Watcher, team: _Name = None, user: _Name = None, month: _Name = None
    ) -> dict[str, Any]:
        """What users held in a month: hours, cost, and what of it was not used."""
        return usage_document(site, team=_asked_team(caller, team), user=user, month=month)

    @router.get("/usage.png", response_class=Response)
    async def picture(
        caller: Watcher, team: _Name = None, user: _Name = None, month: _Name = None
    ) -> Response:
        """The hours of each team as a picture."""
        asked = _asked_team(caller, team)
        drawn = await apart(site, caller.team, _drawn, asked, user, month)
        return Response(drawn, media_type="image/png")

    return router


def _drawn(site: Site, team: str | None, user: str | None, month: str | None) -> bytes:
    from headway.views.charts import draw_usage  # noqa: PLC0415 - matplotlib takes a second

    return draw_usage(usage_document(site, team=team, user=user, month=month)["rows"])


def _asked_team(caller: Caller, team: str | None) -> str | None:
    """The team that is asked about; every team for None, where *caller* sees them.

    Raises:
        NotAllowed: It is another one's.
    """
    if team is not None and not caller.sees(team):
        raise NotAllowed("this token sees the usage of its own team alone; leave the team out")
    return team if team is not None else seen_team(caller)
