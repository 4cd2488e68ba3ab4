"""The studies that probe trained models: what they run, and what they make of the rows."""

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from primecast import models
from primecast.analysis import probes
from primecast.analysis.statistics import block_record
from primecast.data import load_dataset, split
from primecast.data.synthetic import SYSTEMS
from primecast.errors import InputError
from primecast.experiments.spec import Spec, resolve
from primecast.experiments.studies import (
    attention_maps,
    complexity,
    forecasts,
    many_channels,
    sensor_ablation,
    synthetic_recovery,
)
from primecast.experiments.studies.probed import ATTENTIONS, measurements, most_common
from primecast.experiments.studies.results import read_results, write_results
from primecast.experiments.studies.tables import over_seeds, table
from primecast.models import create_model

STUDIES = [complexity, attention_maps, forecasts, sensor_ablation, synthetic_recovery, many_channels]
NAMES = [study.__name__.rpartition(".")[2] for study in STUDIES]


# ---------------------------------------------------------------- what is run


@pytest.mark.parametrize("study", STUDIES, ids=NAMES)
@pytest.mark.parametrize("quick", [True, False])
def test_specs_resolve_and_measure_what_the_study_reads(study: Any, quick: bool) -> None:
    specs = study.QUICK if quick else study.SPECS
    assert study.TITLE and specs
    assert len({spec.to_json() for spec in specs}) == len(specs)
    for spec in specs:
        assert resolve(spec).probes == tuple(sorted(spec.probes)) != ()


@pytest.mark.parametrize("study", [study for study in STUDIES if study is not many_channels])
@pytest.mark.parametrize("quick", [True, False])
def test_specs_come_with_all_attentions_in_turn(study: Any, quick: bool) -> None:
    specs = study.QUICK if quick else study.SPECS
    for first, *others in zip(*(specs[place :: len(ATTENTIONS)] for place in range(len(ATTENTIONS))), strict=True):
        assert [spec.attention for spec in (first, *others)] == list(ATTENTIONS)
        for other in others:
            assert replace(first, attention=None, variant="") == replace(other, attention=None, variant="")


def test_each_set_of_many_channels_has_standard_attention_its_control_and_primers_with_the_same_seeds() -> None:
    seeds: dict[str, dict[str, list[int]]] = {}
    for spec in many_channels.SPECS:
        seeds.setdefault(spec.dataset, {}).setdefault(spec.variant, []).append(spec.seed)
    assert seeds.pop("simbench") == {name: [0, 1] for name in many_channels.VARIANTS}
    assert sorted(seeds) == sorted(many_channels.STAND_INS)
    for found in seeds.values():
        assert found == {name: [0, 1] for name in many_channels.CHOSEN}


@pytest.mark.parametrize("study", STUDIES, ids=NAMES)
def test_a_quick_study_needs_no_download(study: Any) -> None:
    assert {spec.dataset for spec in study.QUICK} <= {"nyc-weather", *SYSTEMS}


def test_one_training_serves_three_studies() -> None:
    assert attention_maps.SPECS == forecasts.SPECS == sensor_ablation.SPECS


def test_complexity_starts_with_full_graphs_and_draws_a_graph_for_each_seed() -> None:
    graphs = complexity.SPECS
    assert [spec.settings["density"] for spec in graphs[: 5 * len(ATTENTIONS) : len(ATTENTIONS)]] == [
        1.0,
        0.8,
        0.6,
        0.4,
        0.2,
    ]
    assert all(spec.settings["graph_seed"] == spec.seed for spec in graphs)


# ---------------------------------------------------------------- what is made of it


PRIMERS = {name: attention.options["primer"] for name, attention in models.ATTENTIONS.items()}


@cache
def row(text: str) -> dict[str, Any]:
    """A row as a run leaves it, of a small model that was not trained; runs that studies share are made once."""
    spec = Spec.from_json(text)
    dataset = load_dataset(spec.dataset)
    splits = split(dataset, lookback=41, horizon=5)
    options = {"density": spec.settings["density"]} if spec.model == "gat" else {}
    model = create_model(
        spec.model,
        lookback=41,
        horizon=5,
        channels=splits.test.channels,
        n_time_features=splits.test.n_time_features,
        d_model=6,
        n_heads=2,
        n_layers=1,
        primer=PRIMERS[spec.attention or ""],
        seed=spec.seed,
        **options,
    ).eval()
    measured = {probe: probes.PROBES[probe](model, splits, dataset) for probe in spec.probes}
    return {
        "key": hashlib.sha256(text.encode()).hexdigest()[:16],
        "variant": spec.variant,
        "spec": text,
        "fingerprint": dataset.fingerprint,
        **{name: getattr(spec, name) for name in ("dataset", "model", "attention", "horizon", "lookback", "seed")},
        "mse": 0.3 + spec.seed / 100,
        "mae": 0.4,
        "parameters": sum(p.numel() for p in model.parameters()),
        "settings": {"model": options},
        "versions": {},
        **{name: [0.3] for name in ("channel_mse", "channel_mae", "step_mse", "step_mae")},
        "probes": {
            probe: {name: value for name, value in answer.items() if not isinstance(value, np.ndarray)}
            for probe, answer in measured.items()
        },
    }


@pytest.fixture(scope="module")
def quick_rows() -> Mapping[str, pd.DataFrame]:
    """Of every study, with few windows."""
    with pytest.MonkeyPatch.context() as few:
        for name, count in {
            "maps.MAP_WINDOWS": 11, "sensor_ablation.ABLATION_WINDOWS": 7, "synthetic_recovery.RELATION_WINDOWS": 13,
            "cost.BATCH": 7, "cost.TIMED": 1,
        }.items():  # fmt: skip
            few.setattr(f"primecast.analysis.{name}", count)
        return {
            name: pd.DataFrame([row(spec.to_json()) for spec in study.QUICK])
            for name, study in zip(NAMES, STUDIES, strict=True)
        }


def blocks_of(frame: pd.DataFrame) -> pd.DataFrame:
    errors = {key: np.random.default_rng(number).random(997) for number, key in enumerate(frame["key"])}
    return pd.DataFrame(
        [block_record(key, {"window_mse": found, "window_mae": found}) for key, found in errors.items()]
    )


@pytest.mark.parametrize(("name", "study"), list(zip(NAMES, STUDIES, strict=True)), ids=NAMES)
def test_table_and_figure_are_made_from_the_committed_files(
    name: str, study: Any, quick_rows: Mapping[str, pd.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primecast.experiments.studies.STUDIES", NAMES)
    frame = quick_rows[name]
    write_results(name, tmp_path, frame, blocks_of(frame))
    read, blocks = read_results(name, tmp_path)
    text = study.render(read, blocks)
    assert text.strip() in (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\|$\n)+", text, flags=re.MULTILINE)
    assert tables
    for lines in tables:
        assert len({line.count("|") for line in lines.splitlines()}) == 1 and lines.count("\n") >= 4
    assert "nan" not in text
    figure = study.figure(read)
    assert isinstance(figure, Figure)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=30)
    assert len(file.getvalue()) > 2500


def test_concentration_stands_beside_an_even_share(quick_rows: Mapping[str, pd.DataFrame]) -> None:
    frame = quick_rows["attention_maps"]
    text = attention_maps.render(frame, blocks_of(frame))
    measured = measurements(frame, "maps")
    assert "| nyc-weather | standard | 2 |" in text and "| 4.2 % |" in text  # 24 channels
    standard = measured[measured["attention"] == "standard"]["top_share"]
    assert f"{100 * standard.mean():.1f} ± {100 * standard.std():.1f} %" in text


def test_every_source_of_relations_is_scored_once(quick_rows: Mapping[str, pd.DataFrame]) -> None:
    frame = quick_rows["synthetic_recovery"]
    text = synthetic_recovery.render(frame, blocks_of(frame))
    for name, _, _ in synthetic_recovery.SOURCES:
        assert len(re.findall(rf"\| {name} \|", text)) == 1
    alone = frame[frame["attention"] == "standard"]
    assert "primer, trained" not in synthetic_recovery.render(alone, blocks_of(alone))


def densities(prime: Mapping[float, float]) -> pd.DataFrame:
    lines = [("standard", density, 0.20 - density / 100) for density in (0.2, 0.6, 1.0)]
    lines += [("prime", density, mse) for density, mse in prime.items()]
    return pd.DataFrame(
        [
            {
                "attention": attention,
                "density": density,
                "seed": 0,
                "mse": mse,
                "step_ratio": 3 * density,
                "kept_mib": 7 * density,
            }
            for attention, density, mse in lines
        ]
    )


def test_the_density_at_which_prime_is_as_good_is_found() -> None:
    said, own = complexity.reached(densities({0.2: 0.21, 0.6: 0.189, 1.0: 0.18}))
    assert "attention prime is as good as standard at 100% (MSE 0.1900) from density 60% on: MSE 0.1890" in said
    assert said.endswith("(-0.5%), training step x 0.60, memory x 0.60. The paper: 60%, with less time and memory.")
    sooner, _ = complexity.reached(densities({0.2: 0.189, 0.6: 0.171, 1.0: 0.18}))
    assert "memory x 0.20. The paper: 60%, with less time and memory: MSE 0.1710 (-10.0%), training" in sooner
    assert own.endswith("standard attention has 0.1980 at 20% (+4.2%).")
    never, own_too = complexity.reached(densities({0.2: 0.18, 1.0: 0.22}))  # one that is as good below is chance
    assert "prime is not as good as standard at 100% (MSE 0.1900) at its highest density" in never
    assert "its best mean is 0.1800 at 20%." in never
    assert own_too == own
    assert "not both there" in complexity.reached(densities({}))[0]
    both = densities({0.2: 0.1, 1.0: 0.1})
    assert "not both there" in complexity.reached(both[(both["density"] < 1) | (both["attention"] == "prime")])[0]
    others = both.assign(attention=both["attention"].replace("prime", "prime-table"))
    first, second, _ = complexity.reached(pd.concat([both, others[others["attention"] == "prime-table"]]))
    assert "attention prime is" in first and "attention prime-table is" in second


@pytest.mark.parametrize(("name", "study"), list(zip(NAMES, STUDIES, strict=True)), ids=NAMES)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_study_of_which_one_side_is_there_says_so_or_shows_it(
    name: str, study: Any, attention: str, quick_rows: Mapping[str, pd.DataFrame]
) -> None:
    frame = quick_rows[name]
    frame = frame[frame["attention"] == attention].reset_index(drop=True)
    assert "nan" not in study.render(frame, blocks_of(frame))
    if study in (attention_maps, complexity, many_channels):
        with pytest.raises(
            InputError,
            match=f"needs runs of standard and of prime or prime-table, there are those of \\['{attention}'\\]",
        ):
            study.figure(frame)
    else:
        assert isinstance(study.figure(frame), Figure)


def test_a_forecast_stands_in_the_column_of_its_attention(quick_rows: Mapping[str, pd.DataFrame]) -> None:
    frame = quick_rows["forecasts"]
    alone = frame[frame["attention"] == "prime"].reset_index(drop=True)
    head, _, line, *_ = forecasts.render(alone, blocks_of(alone)).splitlines()
    cells = dict(zip(head.split("|"), line.split("|"), strict=True))
    assert cells[" standard "].strip() == "" and cells[" prime "].strip() != ""


def test_equal_error_is_marked_with_stars_and_the_gap_in_cost_with_triangles(
    quick_rows: Mapping[str, pd.DataFrame],
) -> None:
    def markers(prime: float) -> set[object]:
        frame = quick_rows["complexity"].copy()
        frame["mse"] = [prime if name == "prime" else 0.3 for name in frame["attention"]]
        return {line.get_marker() for axis in complexity.figure(frame).axes for line in axis.lines}

    assert "*" in markers(0.2) and markers(0.2) & {"v", "^"}
    assert not markers(0.4) & {"*", "v", "^"}


def test_a_file_holds_what_its_study_reads_and_the_others_have_the_rest(
    quick_rows: Mapping[str, pd.DataFrame], tmp_path: Path
) -> None:
    frame = quick_rows["forecasts"]
    for name in ("forecasts", "attention_maps"):
        write_results(name, tmp_path, frame, blocks_of(frame))
    read = read_results("forecasts", tmp_path)[0]["probes"][0]
    assert read["example_forecasts"] and read["maps"] == {} and read.keys() == frame["probes"][0].keys()
    assert read_results("attention_maps", tmp_path)[0]["probes"][0]["maps"] == frame["probes"][0]["maps"]


# ---------------------------------------------------------------- numbers as text


def test_a_spread_is_mean_and_deviation_over_seeds() -> None:
    assert over_seeds(pd.Series([0.1, 0.2, 0.3]), 2) == "0.20 ± 0.10"
    assert over_seeds(pd.Series([0.5]), 1, percent=True) == "50.0 %"
    assert over_seeds(pd.Series([0.25, 0.75]), 0, percent=True) == "50 ± 35 %"
    assert over_seeds(pd.Series([None, None])) == "none"


def test_the_most_common_name_says_how_common() -> None:
    assert most_common(pd.Series(["a", "a"])) == "a"
    assert most_common(pd.Series(["b", "a", "b"])) == "b (2 of 3)"


def test_a_table_has_the_columns_of_its_lines() -> None:
    assert table([{"a": 1, "b": "x"}, {"a": 2, "b": None}]) == "| a | b |\n| --- | --- |\n| 1 | x |\n| 2 | None |\n"


def test_measurements_are_those_of_the_runs_that_were_probed() -> None:
    base = dict.fromkeys(("dataset", "model", "attention", "horizon", "seed", "mse", "mae", "parameters"), 0)
    frame = pd.DataFrame(
        [{**base, "settings": {}, "probes": {"cost": {"step_ms": 3.0}}}, {**base, "settings": {}, "probes": {}}]
    )
    assert measurements(frame, "cost")["step_ms"].tolist() == [3.0]
