"""A page of the contract as its sentences, each under the section it stands in and numbered there from 1.

A bullet or a row of a table is at least one sentence, a code example is one. The head of a table, the lines before a
page's title and headings with nothing under them (a page's menu) are none.
"""

import re
from itertools import groupby
from typing import NamedTuple

END_OF_SENTENCE = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?:\*\*)?\s+(?=[A-Z`*\[(\"])")
BULLET = re.compile(r"^(?:[*-]|\d+\.) +")
MENU_OR_TITLE = re.compile(r"[^\t]*[^.:?!\t]")


class Sentence(NamedTuple):
    """One sentence of a page, at its place."""

    section: str
    number: int
    text: str


def sentences(page):
    """List the sentences of a page in its order, whether it is Markdown or plain text."""
    found, section, counts = [], "", {}
    for kind, text in _markdown(page.splitlines()) if re.search("^# ", page, re.MULTILINE) else _plain(page):
        if kind == "heading":
            section = text
            continue
        for part in [text] if kind == "code" else END_OF_SENTENCE.split(text):
            counts[section] = counts.get(section, 0) + 1
            found.append(Sentence(section, counts[section], part))
    return found


def _markdown(lines):
    """Yield the pieces of a Markdown page from its title on: headings, code, and pieces of prose."""
    rest = iter(lines[next(i for i, line in enumerate(lines) if line.startswith("# ")) :])
    prose, rows = [], 0

    def closed():
        text = " ".join(prose)
        prose.clear()
        return [("prose", text)] if text else []

    for line in rest:
        rows = rows + 1 if line.startswith("|") else 0
        if line.startswith(("```", "#", "|")) or BULLET.match(line) or not line.strip():
            yield from closed()
        if line.startswith("```"):
            yield "code", "\n".join(iter(lambda: next(rest), "```"))
        elif line.startswith("#"):
            yield "heading", line.lstrip("# ")
        elif line.startswith("|"):
            prose += [line.strip("| ")] if rows > 2 else []
        elif line.strip():
            prose.append(BULLET.sub("", line.strip().removeprefix("> ")))
    yield from closed()


def _plain(page):
    """Yield the pieces of a page of plain text, whose blocks stand apart by empty lines."""
    for empty, block in groupby(page.splitlines(), key=lambda line: not line.strip()):
        lines = list(block)
        if empty:
            continue
        if lines[0].startswith(("curl ", "{")):
            yield "code", "\n".join(lines)
        elif "\t" in lines[0]:
            yield from (("prose", line.replace("\t", " | ")) for line in lines[1:])
        elif len(lines) == 1 and MENU_OR_TITLE.fullmatch(lines[0]):
            yield "heading", lines[0]
        else:
            yield "prose", " ".join(lines)
