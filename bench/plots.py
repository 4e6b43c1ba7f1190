#!/usr/bin/env python3
"""Draws tables of benchmarks as SVG, one picture for each table of weir and a peer.

    plots.py TABLES.md FOLDER [SECTION...]

TABLES.md is what `make bench` prints, or docs/benchmarks.md. A picture is named after its section.
"""

import html
import re
import sys
from pathlib import Path

WIDTH, LABEL, BAR, ROW = 860, 400, 330, 44
# Rows of which one side is smaller than this part of the other are drawn as a line of that length.
LEAST = 0.004
STYLE = """<style>
  text { font: 13px sans-serif; fill: #24292f; } .end { text-anchor: end; }
  .small { font-size: 12px; fill: #57606a; }
  .title { font-size: 15px; font-weight: bold; } .weir { fill: #0969da; } .peer { fill: #afb8c1; }
</style>"""
NUMBER = re.compile(r"^([0-9][0-9,.]*)\s*(\S.*)?$")


def tables(text):
    """Yields the heading, the names of the columns and the rows of each table."""
    heading, lines = "", []
    for line in text.splitlines() + [""]:
        if line.startswith("|"):
            lines.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        if len(lines) > 2:
            yield heading, lines[0], lines[2:]
        lines = []
        if line.startswith("#"):
            heading = line.lstrip("# ")


def amount(cell):
    """Returns the number and the unit in a cell, or None."""
    found = NUMBER.match(cell.replace("**", ""))
    if not found:
        return None
    return float(found[1].replace(",", "")), found[2] or ""


def comparable(row):
    """Returns what a row compares: a text, and two numbers of one unit with their texts; or None."""
    # A row whose second figure is its bar has no peer.
    has_peer = len(row) >= 3 and row[2] != row[-1]
    sides = [amount(cell) for cell in row[1:3]] if has_peer else [None]
    if None in sides or sides[0][1] != sides[1][1] or 0 in (sides[0][0], sides[1][0]):
        return None
    return row[0], [(number, cell) for (number, _), cell in zip(sides, row[1:3])]


def draw(heading, peer, rows):
    """Returns a picture: two bars for each row, the longer one as long as there is room."""
    height = 56 + ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">',
        f"<title>{html.escape(heading)}: weir beside {html.escape(peer)}</title>",
        STYLE,
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="24" class="title">{html.escape(heading)}</text>',
        f'<rect x="{LABEL}" y="14" width="12" height="12" class="weir"/>'
        f'<text x="{LABEL + 18}" y="25">weir</text>',
        f'<rect x="{LABEL + 64}" y="14" width="12" height="12" class="peer"/>'
        f'<text x="{LABEL + 82}" y="25">{html.escape(peer.replace("`", ""))}</text>',
    ]
    for n, (what, sides) in enumerate(rows):
        top, largest = 44 + ROW * n, max(number for number, _ in sides)
        for line, words in enumerate(wrapped(what, 58)):
            y, words = top + 13 + 15 * line, html.escape(words)
            parts.append(f'<text x="{LABEL - 12}" y="{y}" class="end">{words}</text>')
        for side, (number, text) in enumerate(sides):
            length, y = BAR * max(number / largest, LEAST), top + 17 * side
            name = ["weir", "peer"][side]
            parts.append(f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="14" class="{name}"/>')
            text = html.escape(text.replace("**", ""))
            parts.append(f'<text x="{LABEL + length + 6:.1f}" y="{y + 11}" class="small">{text}</text>')
    return "\n".join([*parts, "</svg>", ""])


def wrapped(text, columns):
    """Returns at most two lines."""
    if len(text) <= columns:
        return [text]
    at = text.rfind(" ", 0, columns)
    rest = text[at + 1 :]
    return [text[:at], rest if len(rest) <= columns else rest[: columns - 1] + "…"]


def main():
    source, folder, *sections = sys.argv[1:]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    seen, drawn = set(), set()
    for heading, columns, rows in tables(Path(source).read_text()):
        found = [compared for compared in map(comparable, rows) if compared]
        name = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
        if len(columns) < 3 or columns[1] != "weir" or not found:
            continue
        # A section may have several tables.
        name = next(n for n in (name, *(f"{name}-{n}" for n in range(2, 100))) if n not in seen)
        seen.add(name)
        if sections and name not in sections:
            continue
        drawn.add(name)
        (folder / f"{name}.svg").write_text(draw(heading, columns[2], found))
        print(folder / f"{name}.svg")
    missing = set(sections) - drawn
    if missing:
        sys.exit(f"no such table: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
