"""What Prefect's pages show of a run, as Markdown."""

import re
from datetime import datetime

from headway.views.run_history import RunHistory
from headway.views.run_report import FACTS, Section, headline, run_report, time_text


def markdown(history: RunHistory) -> str:
    """The report as Markdown; what users wrote stays text."""
    parts = [escaped(headline(history))]
    for section in run_report(history):
        parts.append(f"## {escaped(section.title)}")
        parts.append(_list(section) if section.columns == FACTS else _table(section))
    own, links = f"/v1/runs/{history.record.run_id}", page_link(history.record.run_id)
    if history.attempts:
        links += f", [its log]({own}/log), [its outputs]({own}/outputs)"
    parts.append(links)
    return "\n\n".join(parts) + "\n"


def page_link(run_id: str) -> str:
    """The way from Prefect's pages to the site's page of the run, as Markdown.

    By its path, since only who reads it knows by which name the gateway is asked.
    """
    return f"At the gateway: [its page](/headway#/runs/{run_id})"


def waiting_text(sentence: str, at: datetime) -> str:
    """Why a run waits as Markdown; an empty *sentence* once it was given its place."""
    if not sentence:
        return f"It waits no more: it was given its place at {time_text(at)}.\n"
    return f"**It waits:** {escaped(sentence)}.\n\nSaid at {time_text(at)}.\n"


def _list(section: Section) -> str:
    named = ((f"**{escaped(name)}** " if name else "", text) for name, text in section.rows)
    return "\n".join(f"- {name}{escaped(text)}" for name, text in named)


def _table(section: Section) -> str:
    rows = [section.columns, ("---",) * len(section.columns)]
    rows += [tuple(escaped(cell) for cell in row) for row in section.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def escaped(text: str) -> str:
    """*text* with what Markdown would take for its own marks taken as it is."""
    return re.sub(r"([\\`*_{}\[\]<>|#&~])", r"\\\1", text)
