"""Committed results: complete, without duplicates, and the tables are what the rows give."""

import csv
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def systems() -> ModuleType:
    spec = importlib.util.spec_from_file_location("systems", ROOT / "tools" / "systems.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["systems"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def rows() -> list[dict[str, str]]:
    with (ROOT / "results" / "systems.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_table_of_systems_is_what_the_rows_give(systems: ModuleType) -> None:
    assert systems.markdown() == (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")


def test_every_row_is_of_a_known_system_and_there_once(systems: ModuleType) -> None:
    keys = [(row["system"], row["dataset"]) for row in rows()]
    assert len(keys) == len(set(keys))
    assert set(keys) <= {(system.name, dataset) for system in systems.SYSTEMS for dataset in system.datasets}


def test_rows_hold_what_was_run_and_plausible_scores() -> None:
    for row in rows():
        assert 0.2 < float(row["mse"]) < 0.6 and 0.2 < float(row["mae"]) < 0.6
        assert int(row["parameters"]) > 0 and int(row["seed"]) == 0
        assert (row["horizon"], row["lookback"]) == ("96", "96")
        assert set(json.loads(row["settings"])) >= {"model", "training", "loss"}
        assert "torch" in json.loads(row["versions"])


def test_every_system_with_a_band_lands_in_it(systems: ModuleType) -> None:
    scores = {row["system"]: float(row["mse"]) for row in rows() if row["dataset"] == "ETTh1"}
    for system in systems.SYSTEMS:
        if system.band is not None and system.name in scores:
            assert scores[system.name] <= system.band, system.name


def cells_of(page: str) -> set[str]:
    """All cells of the tables of a page."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    return {cell.strip() for line in lines if line.startswith("|") for cell in line.strip("|").split("|")}


def test_every_table_line_of_the_findings_is_one_that_the_rows_give() -> None:
    rendered = {
        line
        for page in sorted((ROOT / "results").glob("*.md"))
        for line in page.read_text(encoding="utf-8").splitlines()
    }
    told = [line for line in (ROOT / "RESULTS.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert len(told) > 20 and set(told) <= rendered


def test_every_measured_number_of_the_readme_is_in_the_findings() -> None:
    readme = {cell for cell in cells_of("README.md") if " ± " in cell or " % [" in cell}
    assert len(readme) > 5 and readme <= cells_of("RESULTS.md")
