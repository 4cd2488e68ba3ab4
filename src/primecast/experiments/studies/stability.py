"""How much the error of prime attention moves from seed to seed."""

import pandas as pd

from primecast.experiments.studies.grid import HORIZONS, Variants, grid, quick_grid
from primecast.experiments.studies.published import printed
from primecast.experiments.studies.tables import groups, over_seeds, table

TITLE = "Stability: the spread of prime attention over five seeds"

VARIANTS: Variants = {"prime": {"attention": "prime"}}
NARROW = ["ETTh1", "ETTh2", "Weather"]
SPECS = [
    *grid(VARIANTS, NARROW, seeds=range(5)),
    *grid(VARIANTS, NARROW, seeds=range(5), horizons=HORIZONS[1:]),
    *grid(VARIANTS, ["ECL", "Traffic"], seeds=range(5), horizons=HORIZONS),
]
QUICK = quick_grid(VARIANTS, seeds=range(2))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Mean, standard deviation and range over seeds, beside the paper's; the sums over windows are not needed."""
    paper = printed("stability")
    lines = [
        {
            "data set": dataset,
            "horizon": horizon,
            "MSE": over_seeds(runs["mse"], 4),
            "range": f"{runs['mse'].min():.4f} to {runs['mse'].max():.4f}",
            "seeds": len(runs),
            "paper": " ± ".join(
                paper[cell] for name in ("prime", "spread") if (cell := (dataset, horizon, name)) in paper
            ),
        }
        for (dataset, horizon), runs in groups(frame, ["dataset", "horizon"])
    ]
    return f"Prime attention on iTransformer: mean ± standard deviation of MSE over seeds.\n\n{table(lines)}"
