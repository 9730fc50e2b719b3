"""A hook of MkDocs: the root's pages join those of docs/, README as the first, and the commands."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from benchmarks.reference import all_commands

ROOT = Path(__file__).resolve().parents[1]
FIRST = "README.md"
LINK = re.compile(r"\]\((?![a-z]+:)([^)#]+)")


def place(inside: Path) -> str:
    """Where in the site a file of the clone is, given by its path in the clone."""
    return "index.md" if str(inside) == FIRST else inside.as_posix().removeprefix("docs/")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them, and the samples that pages lead to."""
    files.append(File.generated(config, "reference/commands.md", content=all_commands()))
    for each in (*ROOT.glob("*.md"), *ROOT.glob("samples/*/*.py"), *ROOT.glob("samples/*/*.sh")):
        inside = each.relative_to(ROOT)
        files.append(File.generated(config, place(inside), abs_src_path=str(each)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Have links lead where the site has what they lead to in the clone."""
    if page.file.abs_src_path is None:
        return markdown
    here = Path(page.file.abs_src_path).resolve().parent
    folder = posixpath.dirname(page.file.src_uri)

    def of_site(link: re.Match[str]) -> str:
        target = (here / link[1]).resolve()
        if not target.is_relative_to(ROOT):
            return link[0]
        return "](" + posixpath.relpath(place(target.relative_to(ROOT)), folder or ".")

    return LINK.sub(of_site, markdown)
