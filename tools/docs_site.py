"""Hooks of the documentation site: pages from outside docs/, links between them, and the API reference.

The site mirrors the repository: docs/ becomes its root, README.md its home page; RESULTS.md, CHANGELOG.md,
CONTRIBUTING.md and results/ keep their places. Links in the sources are those of the repository, so that they work
there too; here they are translated. The pages of the API reference list the modules of each folder of the package and
are generated, so that no module can be forgotten. MkDocs calls the functions `on_...`; griffe, which reads the
docstrings, calls `Docstrings`.
"""

import ast
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from griffe import Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "primecast"
OUTSIDE = (
    "README.md",
    "RESULTS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CITATION.cff",
    "LICENSE",
    "results/*.*",
)
FOLDERS = (
    "nn",
    "models",
    "data",
    "frames",
    "training",
    "forecasting",
    "analysis",
    "experiments",
    "plotting",
    "reporting",
    "integrations",
)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
ARGUMENT = re.compile(r"^(?!Letters|Example)(\w+(?:, \w+)*): +(?=\S)")
ARGUMENTS = re.compile(r"(?<=\n\n)(?:^(?!Letters|Example)\w+(?:, \w+)*: +\S.*\n?(?:^ +\S.*\n?)*)+", flags=re.MULTILINE)
"""Lines `name: meaning`, continued by indented ones, after an empty line."""
DOCTEST = re.compile(r"(?:^>>> .*\n?(?:^(?!>>> )\S.*\n?|^ {2,}.*\n?)*)+", flags=re.MULTILINE)
FENCE = re.compile(r"(^```.*?^```$)", flags=re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and those of the API reference."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = site_path(path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, name, abs_src_path=str(path)))
    files.append(File.generated(config, "api/index.md", content=public_names()))
    for folder in FOLDERS:
        files.append(File.generated(config, f"api/{folder}.md", content=reference(folder)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Translate the links of a page; code blocks keep theirs."""
    here = page.file.src_uri
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda found: found[1] + translate(found[2], here) + found[3], part) for part in parts[::2]]
    return "".join(parts)


def site_path(repository_path: str) -> str:
    """Return where a file of the repository stands in the site."""
    return "index.md" if repository_path == "README.md" else repository_path.removeprefix("docs/")


def repository_path(site_path: str) -> str:
    if site_path == "index.md":
        return "README.md"
    outside = any(PurePosixPath(site_path).match(pattern) for pattern in OUTSIDE)
    return site_path if outside and (ROOT / site_path).exists() else f"docs/{site_path}"


def translate(link: str, here: str) -> str:
    """Return a link of the repository as a link of the site, from the page `here`; other links as they are."""
    target, anchor, name = link.partition("#")
    if not target or "://" in target or here.startswith("api/"):
        return link
    found = os.path.normpath(PurePosixPath(repository_path(here)).parent / target)
    return os.path.relpath(site_path(found), PurePosixPath(here).parent) + anchor + name


def public_names() -> str:
    """Return the page of the names that `from primecast import ...` knows, each with a link to its definition."""
    lines = ["# Public names", "", "`from primecast import ...`", "", "| name | defined in |", "|---|---|"]
    homes = next(
        ast.literal_eval(node.value)
        for node in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOME"
    )
    for name, home in sorted(homes.items(), key=lambda item: item[0].lower()):
        lines.append(f"| [`{name}`][primecast.{home}.{name}] | `primecast.{home}` |")
    lines += [
        "",
        "::: primecast.errors",
        "",
        "## All modules",
        "",
        "The other public names are imported from their modules, listed folder by folder:",
        "",
    ]
    lines += [f"- [`primecast.{folder}`]({folder}.md): {summary(folder)}" for folder in FOLDERS]
    return "\n".join(lines)


def reference(folder: str) -> str:
    """Return the page of one folder: its own names, then its modules, then those of the folders inside it."""
    modules = sorted((PACKAGE / folder).rglob("*.py"), key=lambda path: (len(path.parts), path.as_posix()))
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in modules]
    names = sorted({name.removesuffix(".__init__") for name in names}, key=lambda name: (name.count("."), name))
    return "\n\n".join([f"# primecast.{folder}", *(f"::: {name}" for name in names)])


def summary(folder: str) -> str:
    text = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return text.partition("\n\n")[0].replace("\n", " ")


class Docstrings(Extension):
    """Show the doctests of a docstring as code, and its lines `name: meaning` as a list."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value)
            obj.docstring.value = ARGUMENTS.sub(as_list, text)


def as_list(found: re.Match[str]) -> str:
    lines = [ARGUMENT.sub(r"- **\1**: ", line) for line in found[0].splitlines()]
    return "\n".join(line if line.startswith("- ") else f"  {line.strip()}" for line in lines) + "\n"
