"""What the documents say is so: their code runs and prints what they show, their commands parse, their links lead on.

Python blocks of a page share one namespace and run in order, in an empty folder. A block followed by a text block
prints that text; numbers with a decimal point may differ by one in their last digit, because processors round
differently. A block marked `needs=package` stands alone and is skipped where the package is absent. The commands of a
block marked `run=true` run in that folder, too, and print the lines that the page shows, among others.
"""

import ast
import importlib.util
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer

from primecast.cli.app import app, main
from primecast.data.catalog import CATALOG
from primecast.experiments.spec import Spec, parse_setting, resolve
from primecast.experiments.studies import STUDIES
from primecast.nn.primer import Primer

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)?([^\n`]*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
DECIMAL = re.compile(r"-?\d+\.(\d+)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `shown` is the text block right after it, if there is one."""

    page: Path
    line: int
    language: str
    needs: str | None
    runs: bool
    text: str
    shown: str | None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    after = [*found, None][1:]
    return [
        Block(
            page=page,
            line=text.count("\n", 0, one.start()) + 2,
            language=one[1] or "",
            needs=one[2].partition("needs=")[2].strip() or None,
            runs="run=true" in one[2],
            text=one[3],
            shown=following[3] if following is not None and following[1] == "text" else None,
        )
        for one, following in zip(found, after, strict=True)
    ]


def run(block: Block, namespace: dict[str, object]) -> None:
    """The lines stand where they stand in the page, so that a traceback points there."""
    code = compile(ast.parse("\n" * (block.line - 1) + block.text), block.page.name, "exec")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, namespace)
    if block.shown is not None:
        assert same_text(printed.getvalue(), block.shown), f"{block} prints\n\n{printed.getvalue()}"


def run_commands(block: Block) -> None:
    printed = io.StringIO()
    for line in block.text.splitlines():
        (arguments,) = words(line, "primecast")
        with patch.object(sys, "argv", ["primecast", *arguments]), redirect_stdout(printed), redirect_stderr(printed):
            with pytest.raises(SystemExit) as end:
                main()
            assert not end.value.code, f"{line}: {printed.getvalue()}"
    lines = iter(printed.getvalue().splitlines())
    for shown in (block.shown or "").splitlines():
        assert any(same_text(line, shown) for line in lines), f"{block} prints\n\n{printed.getvalue()}"


def same_text(printed: str, shown: str) -> bool:
    """Word for word; of two decimal numbers with equally many digits, the last may differ by one."""
    ours, theirs = printed.split(), shown.split()
    return len(ours) == len(theirs) and all(map(same_word, ours, theirs))


def same_word(one: str, other: str) -> bool:
    a, b = DECIMAL.fullmatch(one), DECIMAL.fullmatch(other)
    if a is None or b is None or len(a[1]) != len(b[1]):
        return one == other
    return abs(float(one) - float(other)) < 1.5 * 10.0 ** -len(a[1])


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("a  1.24\n", "a 1.25", True),
        ("a 1.24", "a 1.26", False),
        ("a 1.24", "a 1.2", False),
        ("a 3", "a 4", False),
        ("a", "a b", False),
        ("-0.01", "0.00", True),
    ],
)
def test_texts_are_compared_to_the_last_digit(printed: str, shown: str, same: bool) -> None:
    assert same_text(printed, shown) is same


# ---------------------------------------------------------------- Python

PYTHON = [block for page in PAGES for block in blocks(page) if block.language == "python"]
WITH_CODE = sorted({block.page for block in PYTHON})


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    for block in blocks(page):
        if block.runs:
            run_commands(block)
        elif block.language == "python" and block.needs is None:
            run(block, namespace)


@pytest.mark.filterwarnings("default")  # other packages have warnings of their own
@pytest.mark.parametrize("block", [block for block in PYTHON if block.needs], ids=str)
def test_code_that_needs_another_package_runs_where_it_is(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert block.needs is not None
    if importlib.util.find_spec(block.needs) is None:
        pytest.skip(f"{block} needs {block.needs}, which is not installed")
    monkeypatch.chdir(tmp_path)
    run(block, {"__name__": block.page.stem})


def test_every_block_says_what_it_is() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.language in ("python", "sh", "text", "toml"), f"{block} is of no language we check"


# ---------------------------------------------------------------- notebooks

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_a_notebook_has_the_code_and_the_output_of_its_page(page: Path) -> None:
    notebook = json.loads((ROOT / "examples" / f"{page.stem}.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    expected = [block for block in blocks(page) if block.language == "python"]
    assert ["".join(cell["source"]) for cell in cells] == [block.text.rstrip() for block in expected]
    for cell, block in zip(cells, expected, strict=True):
        printed = "".join(line for output in cell["outputs"] for line in output.get("text", []))
        assert printed.split() == (block.shown or "").split(), f"{block}: run tools/notebooks.py"


@pytest.mark.parametrize("name", ["own_csv.md", "own"])
def test_a_page_that_is_none_is_refused_before_any_is_run(name: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / "notebooks.py"), "your_model", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    allowed = ", ".join(page.stem for page in TUTORIALS)
    assert done.stderr == f"unknown page {name!r}; allowed, without .md: {allowed}\n"


def test_every_notebook_has_a_page() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.ipynb")} == {page.stem for page in TUTORIALS}


# ---------------------------------------------------------------- the shell


def commands() -> Iterator[tuple[str, str]]:
    """Each command line of the pages: where it stands, and what it says."""
    for page in PAGES:
        for block in blocks(page):
            if block.language == "sh":
                for line in block.text.replace("\\\n", " ").splitlines():
                    if line.strip() and not line.lstrip().startswith("#"):
                        yield f"{page.name}: {line}", line


def words(line: str, program: str) -> Iterator[list[str]]:
    """What follows the program in each part of a pipe: `torchrun ... -m primecast run X | cat` has [run, X]."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>&;")
    lexer.whitespace_split = True
    part: list[str] = []
    for word in [*lexer, "|"]:
        if set(word) <= set("|<>&;"):
            if program in part:
                yield part[part.index(program) + 1 :]
            part = []
        else:
            part.append(word)


COMMANDS = dict(commands())
OURS = [(place, found) for place, line in COMMANDS.items() for found in words(line, "primecast")]


@pytest.mark.parametrize("arguments", [found for _, found in OURS], ids=[place for place, _ in OURS])
def test_a_command_of_ours_has_the_options_it_is_shown_with(arguments: list[str]) -> None:
    known: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    name, *rest = arguments
    assert name in known, f"there is no command {name!r}; there are {', '.join(known)}"
    with known[name].make_context(name, rest) as context:  # parses, does not run
        check_names(name, context.params)


def check_names(command: str, given: dict[str, Any]) -> None:
    """Names that are parsed as text only: data sets, studies, settings."""
    if command == "fetch":
        assert given["name"] in CATALOG
    if command == "study" and given["name"] is not None:
        assert given["name"] in STUDIES
    if command == "run":
        chosen = {name: given[name] for name in ("dataset", "model", "attention", "lookback", "seed", "preset")}
        chosen["dataset"] = chosen["dataset"] or "wth"  # a table of one's own has its settings
        settings = dict(parse_setting(text) for text in given["settings"] or ())
        resolve(Spec(**chosen, horizon=given["horizon"] or 96, settings=settings))
        own = {name.removeprefix("primer.") for name in settings if name.startswith("primer.")}
        assert own <= set(signature(Primer).parameters)


def test_targets_of_make_and_extras_of_pip_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for place, line in COMMANDS.items():
        for found in words(line, "make"):
            target = next(word for word in found if "=" not in word)
            assert re.search(rf"^{re.escape(target)}:", makefile, flags=re.MULTILINE), place
    for page in PAGES:
        for found in re.findall(r"primecast\[([\w,-]+)\]", page.read_text(encoding="utf-8")):
            for extra in found.split(","):
                assert extra in extras, f"{page.name} names the extra {extra!r}; there are {', '.join(extras)}"


# ---------------------------------------------------------------- the pages


def test_links_lead_to_files_that_are_there() -> None:
    for page in (*PAGES, ROOT / "RESULTS.md"):
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            if not target.startswith(("http://", "https://", "#")):
                assert (page.parent / target.partition("#")[0]).exists(), f"{page.name} links to {target}"


def test_the_tables_of_results_are_those_the_studies_have_written() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "results_page.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_the_readme_links_to_every_page() -> None:
    linked = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    for page in PAGES[1:]:
        assert page.relative_to(ROOT).as_posix() in linked


def test_the_readme_is_short_and_shows_the_demo_the_code_and_the_picture() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = readme[: readme.index("```python")]
    assert first.count("\n") < 25 and readme.count("\n") <= 120
    assert "make demo" in first
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", readme)
    assert len(pictures) == 2
    for picture in pictures:
        image = (ROOT / picture).read_bytes()
        assert image.startswith(b"\x89PNG") and len(image) < 150_000
