"""Attention maps of standard and prime attention, and how concentrated they are on one channel.

Attention among channels, mean over layers, heads and test windows; mean ± standard deviation over seeds. *Most
attended*: fraction of attention that the most attended channel receives, beside that of a uniform map. *Evenness*:
entropy of the received fractions over its maximum (1: uniform, 0: one channel receives all). *Self*: fraction that
channels give to themselves. *Calendar*: fraction of all attention that goes to calendar tokens. *Primer*: root mean
square of F_ij, which is 1 where nothing is primed; *apart*: the same of its difference from the mean F of all pairs.
"""

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.studies.probed import (
    ATTENTIONS,
    PROBED_QUICK,
    PROBED_SPECS,
    mean_map,
    measurements,
    most_common,
    need_two,
)
from primecast.experiments.studies.tables import groups, legend, over_seeds, table
from primecast.plotting.figures import MapRow, map_figure

TITLE = "Attention maps of standard and prime attention, and how concentrated they are"
READS = ("maps",)
SPECS, QUICK = PROBED_SPECS, PROBED_QUICK


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    lines = [
        {
            "data set": dataset,
            "attention": attention,
            "seeds": len(runs),
            "most attended": over_seeds(runs["top_share"], 1, percent=True),
            "uniform": f"{100 / runs['channel_count'].iloc[0]:.1f} %",
            "which": most_common(runs["top_channel"]),
            "evenness": over_seeds(runs["entropy"], 4),
            "self": over_seeds(runs["diagonal"], 1, percent=True),
            "calendar": over_seeds(runs["calendar"], 1, percent=True),
            "primer": over_seeds(runs.get("strength_mean", pd.Series()), 2),
            "primer, apart": over_seeds(runs.get("distinct_mean", pd.Series()), 2),
        }
        for (dataset, attention), runs in groups(measurements(frame, "maps"), ["dataset", "attention"])
    ]
    return f"{table(lines)}\n{legend(__doc__)}\n"


def figure(frame: pd.DataFrame) -> Figure:
    """Per data set the maps of all, on one colour scale, and how they differ from standard's; means over seeds."""
    rows = []
    measured = measurements(frame, "maps")
    need_two(measured)
    for dataset, runs in groups(measured, "dataset"):
        by = dict(groups(runs, "attention"))
        maps = {attention: mean_map(by[attention], "map") for attention in ATTENTIONS if attention in by}
        if "standard" in maps and len(maps) > 1:
            rows.append(MapRow(dataset, list(runs["tokens"].iloc[0]), maps))
    return map_figure(rows)
