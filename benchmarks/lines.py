"""How many lines of code there are: `python benchmarks/lines.py [REVISION …]`.

Comments, docstrings, blank lines and migrations do not count. Of each revision, or of the files as
they are: all of headway/, of the tests, and how many files of headway/ have more than 400 lines.
"""

import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(source: str) -> int:
    """Lines of *source* that have code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - set(_said(ast.parse(source))))


def _said(tree: ast.AST) -> Iterator[int]:
    """Lines of texts that nothing is done with: docstrings, also those of attributes."""
    for node in ast.walk(tree):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Expr) and text and isinstance(node.value.value, str):  # type: ignore[attr-defined]
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def sources(revision: str) -> Iterator[tuple[str, str]]:
    """Path and text of each Python file; *revision* empty for the files as they are."""
    if not revision:
        for path in sorted(ROOT.glob("headway/**/*.py")) + sorted(ROOT.glob("tests/**/*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()
        return
    listed = _git("ls-tree", "-r", "--name-only", revision, "headway", "tests").splitlines()
    for name in listed:
        if name.endswith(".py"):
            yield name, _git("show", f"{revision}:{name}")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout


def main() -> None:
    """A row for each revision."""
    print("| revision | headway/ | tests/ | files of headway/ over 400 lines |\n|---|---|---|---|")
    for revision in sys.argv[1:] or [""]:
        count, long = {"headway": 0, "tests": 0}, 0
        for name, text in sources(revision):
            if "migrations/versions" not in name:
                count[name.partition("/")[0]] += code_lines(text)
                long += name.startswith("headway/") and text.count("\n") > 400
        print(f"| {revision or 'now'} | {count['headway']:,} | {count['tests']:,} | {long} |")


if __name__ == "__main__":
    main()
