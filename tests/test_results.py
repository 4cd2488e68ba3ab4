"""Pages: every number they show is one that the committed rows give."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def cells_of(page: str) -> set[str]:
    """All cells of the tables of a page."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    return {cell.strip() for line in lines if line.startswith("|") for cell in line.strip("|").split("|")}


def test_every_measured_number_of_the_readme_is_in_the_findings() -> None:
    readme = {cell for cell in cells_of("README.md") if " ± " in cell or " % [" in cell}
    assert len(readme) > 5 and readme <= cells_of("RESULTS.md")


def test_the_accuracy_in_the_readme_is_that_of_the_committed_rows() -> None:
    readme = {cell for cell in cells_of("README.md") if " to " in cell}
    assert len(readme) == 4 and readme <= cells_of("benchmarks/results/accuracy.md")
