"""Whether the nodes that a session may go to can open a shell, asked before it is queued."""

from headway.errors import InvalidInput
from headway.model.job_text import JobText
from headway.policy.base_image import without_engine
from headway.site import Site


def refuse_shell(site: Site, read: JobText, *, pool: str, queue: str) -> None:
    """Refuse a session that is a shell where all nodes run programs without a container engine.

    Args:
        site: Where.
        read: The job.
        pool: The work pool it goes to.
        queue: Its work queue; one of a node's name binds it to that node.

    Raises:
        InvalidInput: None of them can; says which nodes of the site do.
    """
    session = read.job.session
    if session is None or not session.shell:
        return
    records = site.ledger.nodes.all()
    of_pool = [each for each in records if each.node.pool == pool]
    able = [each for each in of_pool if each.node.name == queue] or of_pool
    lacks = {
        each.node.name for each in records if each.reading and without_engine(each.reading.pythons)
    }
    if not able or not lacks.issuperset(each.node.name for each in able):
        return
    others = [each.node for each in records if each.node.name not in lacks]
    where = ", ".join(f"{node.name} in pool {node.pool}" for node in others)
    allowed = (
        f"{', '.join(each.node.name for each in able)} run programs without a container engine, "
        f"where no shell can be opened beside them; the nodes that have one: {where or 'none'}"
    )
    raise InvalidInput("session.shell", True, allowed, where=read.place("session.shell"))
