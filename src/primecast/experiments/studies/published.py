"""What others printed, to stand beside what we measure: MSE/MAE on scaled data at look-back 96.

The prime attention paper: Lee & Clark, "Dynamic Relational Priming Improves Transformer in Multivariate Time Series",
ICML 2026; its main table, its table of relational baselines and its small tables. The backbone: Liu et al.,
"iTransformer", ICLR 2024, its main table, as quoted in many later papers. A dash is an empty cell.
The tables are in published.txt.
"""

import re
from collections.abc import Mapping
from pathlib import Path

_FILE = Path(__file__).with_name("published.txt").read_text(encoding="utf-8")
_TABLES = dict(re.findall(r"^\[(\w+)\]\n(.*?)(?=^\[|\Z)", _FILE, flags=re.MULTILINE | re.DOTALL))
PAPER_MAIN, PAPER_RELATIONAL, BACKBONE, PAPER_HEADS, PAPER_KV, PAPER_STABILITY = (
    _TABLES[name]
    for name in ("PAPER_MAIN", "PAPER_RELATIONAL", "BACKBONE", "PAPER_HEADS", "PAPER_KV", "PAPER_STABILITY")
)


def paper(table: str) -> dict[tuple[str, int], dict[str, str]]:
    """Return a table by data set and horizon: the text of each column; empty cells are left out.

    >>> paper(PAPER_MAIN)["ETTh1", 96]["iTransformer"]
    '.387/.403'
    """
    head, *lines = table.strip().splitlines()
    columns = head.removeprefix("data set horizon ").split()
    cells: dict[tuple[str, int], dict[str, str]] = {}
    for line in lines:
        dataset, horizon, *values = line.split()
        cells[dataset, int(horizon)] = {name: v for name, v in zip(columns, values, strict=True) if v != "-"}
    return cells


def printed(table: str, names: Mapping[str, str]) -> dict[tuple[str, int, str], str]:
    """Return a table of the paper by data set, horizon and our variant; names: its column -> our variant."""
    return {(*place, names[column]): text for place, row in paper(table).items() for column, text in row.items()}


def backbone() -> dict[tuple[str, int], str]:
    """Return the values that iTransformer's authors print, by data set and horizon.

    >>> backbone()["ETTh2", 192]
    '.380/.400'
    """
    cells: dict[tuple[str, int], str] = {}
    for line in BACKBONE.strip().splitlines()[1:]:
        dataset, *values = line.split()
        horizons = (12, 24, 48, 96) if dataset.startswith("PEMS") else (96, 192, 336, 720)
        cells |= {(dataset, horizon): value for horizon, value in zip(horizons, values, strict=True)}
    return cells
