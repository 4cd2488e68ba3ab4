"""What others printed, to stand beside what we measure: MSE/MAE on scaled data at look-back 96.

The tables are in published.txt; a dash is an empty cell. `main`, `relational`, `heads`, `kv` and `stability` are of the
prime attention paper: Lee & Clark, "Dynamic Relational Priming Improves Transformer in Multivariate Time Series", ICML
2026. `backbone` is the main table of Liu et al., "iTransformer", ICLR 2024, as quoted in many papers; `others` has
what the authors of other systems print.
"""

from collections.abc import Mapping
from pathlib import Path

from primecast.experiments.studies.tables import Cell

FILE = Path(__file__).with_name("published.txt")


def printed(table: str, names: Mapping[str, str] | None = None) -> dict[Cell, str]:
    """Return a table by data set, horizon and variant; names: its column -> our variant, where that is another.

    >>> printed("main")["ETTh1", 96, "iTransformer"]
    '.387/.403'
    """
    _, _, text = FILE.read_text(encoding="utf-8").partition(f"[{table}]\n")
    head, *lines = text.partition("\n\n")[0].splitlines()
    variants = [(names or {}).get(column, column) for column in head.split()[2:]]
    cells: dict[Cell, str] = {}
    for line in lines:
        dataset, horizon, *values = line.split()
        row = zip(variants, values, strict=True)
        cells |= {(dataset, int(horizon), variant): value for variant, value in row if value != "-"}
    return cells
