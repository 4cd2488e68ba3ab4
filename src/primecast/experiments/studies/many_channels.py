"""The wide case with real data: 177 load profiles, standard and primed."""

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import Variants, grid
from primecast.experiments.studies.probed import ATTENTIONS, answers, need_two, over_seeds, table
from primecast.experiments.studies.tables import READING, comparison_table, ordered
from primecast.plotting.figures import bar_figure

TITLE = "SimBench: 177 load profiles, standard and primed, with their cost"

KNOWS_CHANNELS = "standard, channel embeddings"
VARIANTS: Variants = {**ATTENTIONS, KNOWS_CHANNELS: {"attention": "standard", "settings": {"channel_embeddings": True}}}
"""The attentions, and what is to be had by knowing the channels without any primer: the best control."""

LEGEND = """\
Horizon 96, look-back 96, settings of our own (nothing is published for this data set), three epochs. Cost at 32 windows
on one thread: processor time of a training step, in multiples of standard attention's (each measured beside a
yardstick, in turns) and as it was; memory that autograd keeps for the backward pass. Mean ± standard deviation over
seeds."""


def specs(quick: bool = False) -> list[Spec]:
    """One seed of each, then a second; three epochs, because one takes 8 to 14 minutes of a core."""
    if quick:
        return grid(VARIANTS, ["nyc-weather"], seeds=[0], horizons=[24], probes=("cost",))
    return grid(VARIANTS, ["simbench"], seeds=range(2), probes=("cost",), settings={"epochs": 3})


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    named = ordered(frame, VARIANTS)
    told = answers(named, "cost")
    usual = told[told["variant"] == "standard"]["step_ratio"].mean()  # NaN, shown as none, where it has not been run
    lines = [
        {
            "data set": dataset,
            "variant": variant,
            "seeds": len(runs),
            "training step": over_seeds(runs["step_ratio"] / usual, 2),
            "training step (ms)": over_seeds(runs["step_ms"], 0),
            "forecast (ms)": over_seeds(runs["forward_ms"], 0),
            "kept (MiB)": over_seeds(runs["kept_mib"], 0),
            "parameters": f"{int(runs['parameters'].iloc[0]):,}",
        }
        for (dataset, variant), runs in told.groupby(["dataset", "variant"], sort=False)
    ]
    errors = comparison_table(named, blocks, baseline="standard")
    _, *primed = ATTENTIONS
    against = dict.fromkeys(primed, KNOWS_CHANNELS)
    beside = comparison_table(named[named["variant"] != "standard"], blocks, baseline=against)
    return (
        f"{errors}\nThe primed ones against standard attention with a vector for each channel:\n\n{beside}\n{READING}"
        f"\n\n{table(lines)}\n{LEGEND}\n"
    )


def figure(frame: pd.DataFrame) -> Figure:
    """Error, time and memory of each, relative to standard."""
    told = answers(ordered(frame, VARIANTS), "cost")
    need_two(told)
    runs = told.groupby("variant", sort=False)[["mse", "step_ratio", "kept_mib"]].mean()
    shares = (runs / runs.loc["standard"]).T
    shares.index = pd.Index(["error", "training step", "memory kept"])
    return bar_figure({"relative to standard": shares}, label="times standard")
