"""What all drawings share: colors, names that fit, axes without a frame, a legend above. Nothing here imports torch."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAST, AHEAD = "#4a4a4a", "#d1495b"
COLORS = {
    "standard": "#2f6690",
    "prime": AHEAD,
    "prime-table": "#e09f3e",
    "standard, channel embeddings": "#81a4cd",
    "random": "#4a4a4a",
    "lead-lag": "#e09f3e",
    "instantaneous": "#55a630",
    "full": AHEAD,
}
"""One color for each attention and for the features of a primer in all figures; others take matplotlib's own."""


def readable(name: str) -> str:
    """Return a channel name with the units that the published Weather file holds as replacement characters restored.

    The names themselves stay as published: they are part of the data set's fingerprint.

    >>> readable("SWDR (W/m\ufffd)"), readable("PAR (\ufffdmol/m\ufffd/s)")
    ('SWDR (W/m²)', 'PAR (µmol/m²/s)')
    """
    return name.replace("\ufffdmol", "µmol").replace("/m\ufffd", "/m²").replace("\ufffd", "")


def short(name: str, most: int = 20) -> str:
    """Return a name of at most so many letters, cut in the middle: names of sensors differ at their ends.

    >>> short("wind speed station 028"), short("wind speed station 28")
    ('wind speed…ation 028', 'wind speed…tation 28')
    """
    name = readable(name)
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - (most - 1) // 2 :]}"


def finish(axis: Axes, *, grid: bool = False, **labels: str) -> None:
    """Set the labels of the axes by matplotlib's names, such as xlabel, and leave out the frame above and right."""
    axis.set(**labels)
    axis.spines[["top", "right"]].set_visible(False)
    if grid:
        axis.grid(alpha=0.25)


def legend_above(figure: Figure, axis: Axes, *, columns: int = 4) -> None:
    """Put the legend of one of the axes above all of them."""
    handles, names = axis.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=min(columns, len(names)), frameon=False, fontsize=8)
