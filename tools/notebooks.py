"""Run the tutorials and write them as notebooks.

The pages in docs/tutorials/ are the source. Their Python blocks run in order in one namespace, in an empty folder; what
each prints is written below it in the page and becomes the output of its cell in examples/<page>.ipynb. A block that
binds `figure` shows that figure: in the notebook, and in the page as docs/tutorials/<page>.png. Run it after a change
of a tutorial; tests/test_documents.py checks that pages and notebooks agree.

    python tools/notebooks.py [PAGE ...]
"""

import base64
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TUTORIALS, NOTEBOOKS = ROOT / "docs" / "tutorials", ROOT / "examples"
BLOCK = re.compile(r"^```python[^\n]*\n(?P<code>.*?)^```\n(?:\n```text\n.*?^```\n)?", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s#]+)")


def run_page(page: Path) -> None:
    """Run a page, write the outputs into it, and write its notebook."""
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": page.stem}
    cells: list[dict[str, Any]] = []
    written, end = [], 0
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for block in BLOCK.finditer(text):
            printed, picture = run_code(block["code"], namespace)
            cells += [prose(text[end : block.start()], page), code_cell(block["code"], printed, picture)]
            fence = text[block.start() : block.end()].partition("\n")[0]
            output = f"\n```text\n{printed.rstrip()}\n```\n" if printed.strip() else ""
            written += [text[end : block.start()], f"{fence}\n{block['code']}```\n{output}"]
            end = block.end()
            if picture:
                page.with_suffix(".png").write_bytes(picture)
    cells.append(prose(text[end:], page))
    page.write_text("".join([*written, text[end:]]), encoding="utf-8")
    write_notebook(NOTEBOOKS / f"{page.stem}.ipynb", [cell for cell in cells if cell["source"]])


def run_code(code: str, namespace: dict[str, Any]) -> tuple[str, bytes | None]:
    """Return what the code prints, and the figure it binds as PNG."""
    namespace.pop("figure", None)
    printed, image = io.StringIO(), io.BytesIO()
    with redirect_stdout(printed):
        exec(compile(code, "tutorial", "exec"), namespace)
    if "figure" not in namespace:
        return without_trailing_spaces(printed.getvalue()), None
    namespace["figure"].savefig(image, format="png", dpi=80)
    return without_trailing_spaces(printed.getvalue()), image.getvalue()


def without_trailing_spaces(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def prose(text: str, page: Path) -> dict[str, Any]:
    """Return a Markdown cell; links lead from the notebook's folder, the page's own picture is in the output above."""
    text = re.sub(rf"^!\[[^\]]*\]\({page.stem}\.png\)\n", "", text, flags=re.MULTILINE)

    def moved(link: re.Match[str]) -> str:
        if "://" in link[2]:
            return link[0]
        return link[1] + os.path.relpath(os.path.normpath(page.parent / link[2]), NOTEBOOKS)

    return {"cell_type": "markdown", "metadata": {}, "source": lines(LINK.sub(moved, text).strip())}


def code_cell(code: str, printed: str, picture: bytes | None) -> dict[str, Any]:
    outputs: list[dict[str, Any]] = []
    if printed:
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed)})
    if picture:
        data = {"image/png": base64.b64encode(picture).decode()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "source": lines(code.rstrip()),
        "outputs": outputs,
    }


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write_notebook(path: Path, cells: list[dict[str, Any]]) -> None:
    numbered = iter(range(1, len(cells) + 1))
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place}"
        if cell["cell_type"] == "code":
            cell["execution_count"] = next(numbered)
    notebook = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def pages(names: list[str]) -> Iterator[Path]:
    """Yield the pages of these names, or all; a name that is none ends the program with a sentence."""
    found = {page.stem: page for page in sorted(TUTORIALS.glob("*.md"))}
    for name in names:
        if name not in found:
            sys.exit(f"unknown page {name!r}; allowed, without .md: {', '.join(found)}")
    yield from (page for name, page in found.items() if not names or name in names)


if __name__ == "__main__":
    for page in pages(sys.argv[1:]):
        run_page(page)
        print(f"{page.relative_to(ROOT)} -> examples/{page.stem}.ipynb")
