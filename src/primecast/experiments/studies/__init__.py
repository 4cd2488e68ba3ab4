"""The studies: each table and figure is one short file here.

A study has a TITLE, SPECS (what to run, most wanted first), QUICK (the specs of a small version, on data of the
package), `render(frame, blocks)` (the table, as Markdown, from one line per run and the block sums of their errors)
and, where there is something to see, `figure(frame)`. The docstring of a study, after its first line, says how to read
its table, and is printed with it.

    SPECS ─> run_all ─> store ─> results/<study>.csv, results/<study>_blocks.csv ─> render ─> results/<study>.md

Tables and figures are made from the two CSV files alone, so that everybody can rebuild them from the repository.
"""

from importlib import import_module
from typing import Any

from primecast.errors import check_known

STUDIES = (
    "controls",
    "dropout",
    "primer_design",
    "main_table",
    "relational_table",
    "lookback",
    "heads",
    "kv",
    "sparsity",
    "primer_init",
    "stability",
    "complexity",
    "attention_maps",
    "sensor_ablation",
    "forecasts",
    "synthetic_recovery",
    "many_channels",
    "systems",
)
"""Names of the modules in this folder that are studies, in the order in which they answer questions."""


def load_study(name: str) -> Any:
    """Return the module of a study."""
    check_known("study", name, STUDIES)
    return import_module(f"primecast.experiments.studies.{name}")
