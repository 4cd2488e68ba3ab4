"""Synthetic systems with known leaders and lags: are they found by primers, by maps, by cross-correlation?

Pairs of channels ranked by the score of each source, all averaged over the same test windows. *Average precision* of
the ranking, beside the fraction of pairs that are related, which is the value of a random ranking. *Precision* and
*recall* of the pairs whose score stands out from the median by three robust standard deviations. *Leader*: fraction
of lagged pairs whose leader is identified correctly; *lag error*: of those pairs, mean, in steps. An untrained primer
has random weights: what it finds is in the features a primer is given, not learned. Mean ± standard deviation over
seeds.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from primecast.data.synthetic import SYSTEMS
from primecast.experiments.studies.grid import grid
from primecast.experiments.studies.probed import ATTENTIONS, mean_map, measurements
from primecast.experiments.studies.tables import READING, comparison_table, groups, legend, ordered, over_seeds, table
from primecast.plotting.figures import relation_figure

TITLE = "Synthetic systems: do maps and primers find the true leaders and lags"

SOURCES = (
    ("cross-correlation", "prime", "correlation"),
    ("standard attention map", "standard", "attention"),
    ("prime attention map", "prime", "attention"),
    ("prime-table attention map", "prime-table", "attention"),
    ("primer, trained", "prime", "primer"),
    ("primer, untrained", "prime", "untrained"),
    ("primer of prime-table, trained", "prime-table", "primer"),
)
"""What is scored: its name, the runs it is taken from, and what the probe calls it."""


SPECS = grid(ATTENTIONS, SYSTEMS, seeds=range(3), horizons=[12], probes=("relations",))
"""Horizon 12: the lags are 2 to 7 steps, and leaders tell of no more."""
QUICK = grid(ATTENTIONS, list(SYSTEMS)[:1], horizons=[12], probes=("relations",), settings={"epochs": 2})


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    lines = []
    for dataset, runs in groups(measurements(frame, "relations"), "dataset"):
        for name, attention, source in SOURCES:
            part = runs[runs["attention"] == attention]
            if part.empty or f"{source}_average_precision" not in part:
                continue
            lines.append(
                {
                    "system": dataset,
                    "source": name,
                    "average precision": over_seeds(part[f"{source}_average_precision"], 2),
                    "chance": f"{part['related_share'].iloc[0]:.2f}",
                    "precision": over_seeds(part[f"{source}_precision"], 2),
                    "recall": over_seeds(part[f"{source}_recall"], 2),
                    "leader": over_seeds(part[f"{source}_direction"], 2),
                    "lag error": over_seeds(part[f"{source}_lag_error"], 1),
                }
            )
    errors = comparison_table(ordered(frame, ATTENTIONS), blocks, baseline="standard")
    return f"{errors}\n{READING}\n\n{table(lines)}\n{legend(__doc__)}\n"


def figure(frame: pd.DataFrame) -> Figure:
    """The first system: what each source says of every pair, the related ones framed; means over seeds."""
    runs = measurements(frame, "relations")
    runs = runs[runs["dataset"] == runs["dataset"].iloc[0]]
    panels = {}
    for name, attention, source in SOURCES:
        part = runs[runs["attention"] == attention]
        if len(part) and f"{source}_score" in part:
            panels[name] = mean_map(part, f"{source}_score")
    return relation_figure(panels, np.array(runs["related"].iloc[0], dtype=float), list(runs["channels"].iloc[0]))
