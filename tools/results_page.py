"""Copy tables of results/*.md into RESULTS.md, so that every number there is the one a study has written.

In RESULTS.md a line `<!-- results/controls.md, table 2 -->` stands before a copy of the second table of that file;
`only: Weather, ETTm1` after the number keeps the rows of these data sets; `changes by data set` turns a table of errors
into one with a line per variant and a column per data set. Run it after `primecast study NAME --table`:

    python tools/results_page.py            # rewrites RESULTS.md
    python tools/results_page.py --check    # says whether it is up to date; exit code 1 if not
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = re.compile(
    r"^<!-- (?P<file>results/\w+\.md), table (?P<number>\d+)(?:, (?P<how>[^>]*?))? -->\n+(?:^\|.*\n)*\n*",
    flags=re.MULTILINE,
)
TABLE = re.compile(r"(?:^\|.*\n)+", flags=re.MULTILINE)


def filled(page: str, root: Path = ROOT) -> str:
    """Return the page with the table after each place replaced by the one it names."""
    return PLACE.sub(lambda place: copy_of(place, root), page)


def copy_of(place: re.Match[str], root: Path) -> str:
    tables = TABLE.findall((root / place["file"]).read_text(encoding="utf-8"))
    number = int(place["number"])
    if not 1 <= number <= len(tables):
        raise SystemExit(f"{place['file']} has {len(tables)} tables, RESULTS.md asks for table {number}")
    table = tables[number - 1]
    how = place["how"] or ""
    if how.startswith("only: "):
        table = rows_of(table, how.removeprefix("only: ").split(", "))
    elif how == "changes by data set":
        table = changes(table)
    elif how:
        raise SystemExit(f"RESULTS.md asks for {how!r} of a table; allowed: 'only: NAME, ...', 'changes by data set'")
    comment = place[0].partition("\n")[0]
    return f"{comment}\n\n{table}\n"


def rows_of(table: str, names: list[str]) -> str:
    """Return the rows whose first cell is one of the names."""
    head, rule, *rows = table.splitlines(keepends=True)
    return "".join([head, rule, *(row for row in rows if row.split("|")[1].strip() in names)])


def changes(table: str) -> str:
    """Return a line per variant with its change of MSE on each data set; the baseline has its MSE there.

    Bold: the 95 % interval of the change does not contain 0.
    """
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        field = dict(zip(head, row, strict=True))
        text = field["change of MSE"] or field["MSE"]
        bold = "**" if field["verdict"] in ("better", "worse") else ""
        cells.setdefault(field["variant"], {})[field["data set"]] = f"{bold}{text}{bold}"
    sets = list(dict.fromkeys(row[0] for row in rows))
    lines = [["variant", *sets], ["---"] * (len(sets) + 1)]
    lines += [[variant, *(found.get(name, "") for name in sets)] for variant, found in cells.items()]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main() -> int:
    path = ROOT / "RESULTS.md"
    before = path.read_text(encoding="utf-8")
    after = filled(before)
    if "--check" in sys.argv:
        print("RESULTS.md is up to date" if before == after else "RESULTS.md differs: run tools/results_page.py")
        return int(before != after)
    path.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
