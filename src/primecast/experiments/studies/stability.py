"""How much the error of prime attention moves from seed to seed."""

import pandas as pd

from primecast.analysis.statistics import cells
from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.published import PAPER_STABILITY, paper
from primecast.experiments.studies.tables import markdown_table, spread

TITLE = "Stability: the spread of prime attention over five seeds"

VARIANTS: Variants = {"prime": {"attention": "prime"}}
LONG = [96, 192, 336, 720]


def specs(quick: bool = False) -> list[Spec]:
    """Horizon 96 first; the wide sets last."""
    if quick:
        return quick_grid(VARIANTS, seeds=range(2))
    narrow = ["ETTh1", "ETTh2", "Weather"]
    return [
        *grid(VARIANTS, narrow, seeds=range(5)),
        *grid(VARIANTS, narrow, seeds=range(5), horizons=LONG[1:]),
        *grid(VARIANTS, ["ECL", "Traffic"], seeds=range(5), horizons=LONG),
    ]


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Mean, standard deviation and range over seeds, beside the paper's; the sums over windows are not needed."""
    printed = paper(PAPER_STABILITY)
    table = cells(frame, ["dataset", "horizon"])
    lines = []
    for _, cell in table.iterrows():
        place = (str(cell["dataset"]), int(cell["horizon"]))
        here = frame[(frame["dataset"] == place[0]) & (frame["horizon"] == place[1])]["mse"]
        paper_cell = printed.get(place, {})
        lines.append(
            [
                place[0],
                str(place[1]),
                spread(float(cell["mean"]), float(cell["sd"])),
                f"{here.min():.4f} to {here.max():.4f}",
                str(cell["n"]),
                f"{paper_cell['prime']} ± {paper_cell['spread']}" if paper_cell else "",
            ]
        )
    head = ["data set", "horizon", "MSE", "range", "seeds", "paper"]
    return "Prime attention on iTransformer: mean ± standard deviation of MSE over seeds.\n\n" + markdown_table(
        head, lines
    )
