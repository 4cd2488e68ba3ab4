"""Studies: their specs can be run, their tables are what their rows give, and what is committed is whole."""

import json
import math
import os
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from primecast.analysis.statistics import block_sums
from primecast.data.catalog import CATALOG
from primecast.data.synthetic import SYSTEMS
from primecast.errors import InputError
from primecast.experiments.run import run
from primecast.experiments.spec import Spec, identity, key, key_of, resolve
from primecast.experiments.store import Row, Store, StoreError
from primecast.experiments.studies import STUDIES, load_study, results
from primecast.experiments.studies.grid import grid
from primecast.experiments.studies.published import printed
from primecast.experiments.studies.runner import describe_plan, plan_study
from primecast.experiments.studies.tables import changes, ordered, paired

ROOT = Path(__file__).parents[1]
NOWHERE = Path("no folder of results")
COMMITTED = [name for name in STUDIES if (ROOT / "results" / f"{name}.csv").exists()]


# ---------------------------------------------------------------- specs


@pytest.mark.parametrize("name", STUDIES)
def test_every_spec_of_a_study_can_be_resolved_and_is_there_once(name: str) -> None:
    study = load_study(name)
    assert study.TITLE and study.render
    for quick, specs in ((False, study.SPECS), (True, study.QUICK)):
        keys = [key(spec, spec.dataset) for spec in specs]
        assert specs and len(set(keys)) == len(keys)
        assert {spec.dataset for spec in specs} <= CATALOG.keys()
        assert not quick or {spec.dataset for spec in specs} <= {"nyc-weather", *SYSTEMS}  # nothing to download


def test_the_controls_are_those_of_the_plan_in_its_order() -> None:
    specs = load_study("controls").SPECS
    few = ("ETTh1", "ETTh2", "Exchange")
    size = len(load_study("controls").VARIANTS)
    parts = [specs[: 9 * size], specs[9 * size : 13 * size], specs[13 * size :]]
    for part, sets, seeds in zip(parts, (few, ("Weather", "ETTm1"), few), ({0, 1, 2}, {0, 1}, {3, 4}), strict=True):
        assert {spec.dataset for spec in part} == set(sets) and {spec.seed for spec in part} == seeds
        assert len(part) == size * len(sets) * len(seeds)
    assert {spec.horizon for spec in specs} == {96} and {spec.lookback for spec in specs} == {96}
    weather = [spec for spec in specs if spec.dataset == "Weather"]
    assert {spec.preset for spec in weather} == {"paper"} and {spec.settings["dropout"] for spec in weather} == {0.1}
    assert {spec.preset for spec in specs if spec.dataset != "Weather"} == {"official"}


def test_studies_share_the_runs_they_have_in_common() -> None:
    keys = {
        name: {key(spec, spec.dataset) for spec in load_study(name).SPECS}
        for name in ("controls", "dropout", "primer_design", "kv", "main_table")
    }
    for other in ("dropout", "primer_design", "kv", "main_table"):
        assert keys["controls"] & keys[other], other


def test_a_grid_keeps_pairs_together_and_names_their_variants() -> None:
    variants: dict[str, dict[str, Any]] = {
        "a": {"attention": "standard"},
        "b": {"attention": "prime"},
        "c": {"attention": "prime", "settings": {"primer.base": "identity"}},
    }
    specs = grid(variants, ["ETTh1", "Weather"], seeds=[0, 1], settings={"epochs": 2})
    assert [spec.variant for spec in specs] == list("abc") * 4
    assert all(one.seed <= other.seed for one, other in pairwise(specs[:6]))
    assert specs[-1].settings == {"dropout": 0.1, "epochs": 2, "primer.base": "identity"}
    own = grid({"t": {"model": "timer_xl"}, "f": {"preset": "fredf"}}, ["Weather"])
    assert own[0].settings == {} and own[1].preset == "fredf"  # Weather's settings are of iTransformer


def test_an_unknown_study_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown study 'control' \(did you mean 'controls'\?\)"):
        load_study("control")


def test_published_values_are_read_cell_by_cell() -> None:
    main, backbone = printed("main"), printed("backbone")
    assert len(main) == 10 * 4 * 6 - 2 * 4 * 2 and main["Weather", 720, "Timer-XL"] == ".375/.371"
    assert ("PEMS03", 12, "Timer-XL") not in main
    assert printed("relational", {"Autoformer": "ours"})["Exchange", 720, "ours"] == "1.447/.941"
    assert backbone["PEMS08", 48, "iTransformer"] == ".186/.235" and len(backbone) == 44


# ---------------------------------------------------------------- from rows to tables

WINDOWS = {"nyc-weather": 300, "ETTh1": 700, "Weather": 900}


def pretended(spec: Spec) -> Row:
    """A row as a run would leave it, with errors drawn from its spec; prime attention is a little better."""
    plan = resolve(spec)
    generator = np.random.default_rng([spec.seed, len(spec.to_json()), spec.horizon])
    level = 0.4 - 0.02 * (plan.model.get("primer") is not None) + 0.001 * generator.standard_normal()
    shared = 0.05 * np.sin(np.arange(WINDOWS.get(spec.dataset, 500)) / 40)
    errors = (level + shared + 0.01 * generator.standard_normal(len(shared))).astype(np.float32)
    arrays = {"window_mse": errors, "window_mae": np.sqrt(errors)}
    told = identity(spec, plan, f"fingerprint of {spec.dataset}")
    fields = {
        "key": key_of(told),
        **told,
        "mse": float(errors.mean(dtype=float)),
        "mae": float(arrays["window_mae"].mean(dtype=float)),
        "val_mse": level,
        "val_mae": level,
        "windows": len(errors),
        "epochs": 3,
        "best_epoch": 2,
        "steps": 30,
        "parameters": 1000 + 10 * (plan.model.get("primer") is not None),
        "overhead": 0.01,
        "overhead_of_attention": 0.02,
        "seconds": 36.0,
        "seconds_per_epoch": 12.0,
        "peak_mib": 400.0,
        "hardware": "none",
        "versions": {"primecast": "0"},
        "channel_mse": [level] * 3,
        "channel_mae": [level] * 3,
        "step_mse": [level] * spec.horizon,
        "step_mae": [level] * spec.horizon,
    }
    if spec.probes:
        fields["probes"] = {
            "cost": {"step_ms": 7.0 + spec.seed, "step_ratio": 3.0 + spec.seed, "forward_ms": 3.0, "kept_mib": 11.0}
        }
    return Row(fields, arrays)


@pytest.fixture
def known_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fingerprints without the files; Traffic is not on this machine."""

    def fingerprint(dataset: str, root: object = None) -> str:
        if dataset == "Traffic":
            raise InputError("data set 'Traffic' needs the file traffic.csv")
        return f"fingerprint of {dataset}"

    monkeypatch.setattr("primecast.experiments.spec.fingerprint", fingerprint)


def filled(store: Store, name: str, *, quick: bool = False, most: int = 10_000) -> list[Spec]:
    """A store with pretended rows of a study; what is too large to be pretended is left out."""
    study = load_study(name)
    specs: list[Spec] = [spec for spec in (study.QUICK if quick else study.SPECS) if spec.dataset != "Traffic"][:most]
    for spec in specs:
        store.add(pretended(spec))
    return specs


def text_of(spec: Spec) -> str:
    """As in the column `spec`: the variant has a column of its own."""
    return replace(spec, variant="").to_json()


def _probes(spec: Spec) -> tuple[str, ...]:
    return spec.probes


# Those that ask a trained model need its answers: tests/test_measuring_studies.py.
FROM_SCORES = [name for name in STUDIES if {*map(_probes, load_study(name).SPECS)} <= {(), ("cost",)}]


@pytest.mark.usefixtures("known_data")
@pytest.mark.parametrize("name", FROM_SCORES)
def test_every_study_renders_what_is_there_also_when_little_is(name: str, tmp_path: Path) -> None:
    study = load_study(name)
    for most in (1, 24):
        store = Store(tmp_path / f"store{most}")
        filled(store, name, most=most)
        frame, blocks = results.collect(study.SPECS, store, NOWHERE)
        text = study.render(frame, blocks)
        assert "nan" not in text.lower().replace("finance", "")
        for dataset in dict.fromkeys(frame["dataset"]):
            assert dataset in text
    if hasattr(study, "figure"):
        assert isinstance(study.figure(frame), Figure)


@pytest.mark.usefixtures("known_data")
def test_tables_are_rebuilt_from_the_files_alone(tmp_path: Path) -> None:
    store, out = Store(tmp_path / "store"), tmp_path / "results"
    specs = filled(store, "kv", quick=True)
    frame, blocks = results.collect(specs, store, NOWHERE)
    results.write_results("kv", out, frame, blocks)
    text = (out / "kv.md").read_text(encoding="utf-8")
    assert text == results.markdown("kv", *results.read_results("kv", out))
    assert "0 of 36 runs are there, and 4 of a quick or earlier version" in text
    again, sums = results.read_results("kv", out)
    assert list(again.columns) == list(frame.columns)
    for column in again.columns:  # older versions of pandas round the last bit of what they read
        numbers = pd.api.types.is_float_dtype(again[column])
        expected = list(frame[column])
        assert list(again[column]) == (pytest.approx(expected, rel=1e-15) if numbers else expected), column
    check_rows(again, sums)


@pytest.mark.usefixtures("known_data")
def test_a_table_keeps_the_committed_runs_that_a_store_lacks(tmp_path: Path) -> None:
    out, all_of = tmp_path / "results", Store(tmp_path / "all")
    specs = filled(all_of, "kv")
    results.write_results("kv", out, *results.collect(specs, all_of, NOWHERE))
    before = (out / "kv.md").read_bytes()

    few = Store(tmp_path / "few")  # begun anew on another machine, in the middle
    for spec in specs[7:12]:
        few.add(pretended(spec))
    for store in (few, Store(tmp_path / "none")):
        frame, blocks = results.collect(specs, store, out)
        assert list(frame["spec"]) == [text_of(spec) for spec in specs]
        check_rows(frame, blocks)
        results.write_results("kv", out, frame, blocks)
        assert (out / "kv.md").read_bytes() == before

    asked = specs[:5]
    frame, _ = results.collect(asked, few, out)
    assert list(frame["spec"]) == [text_of(spec) for spec in asked]


@pytest.mark.usefixtures("known_data")
def test_a_committed_run_that_disagrees_with_the_store_is_an_error_and_stays(tmp_path: Path) -> None:
    out, store = tmp_path / "results", Store(tmp_path / "store")
    specs = filled(store, "kv", most=3)
    results.write_results("kv", out, *results.collect(specs, store, NOWHERE))
    row = pretended(specs[1])
    other = Store(tmp_path / "other")
    other.add(Row({**row.fields, "mse": row.fields["mse"] * 1.001}, row.arrays))
    before = (out / "kv.csv").read_bytes()
    with pytest.raises(StoreError, match=r"kv\.csv with another score: mse"):
        results.collect(specs, other, out)
    assert (out / "kv.csv").read_bytes() == before


@pytest.mark.usefixtures("known_data")
def test_a_change_is_found_where_there_is_one_and_marked(tmp_path: Path) -> None:
    store = Store(tmp_path)
    study = load_study("kv")
    filled(store, "kv")
    frame, blocks = results.collect(study.SPECS, store, NOWHERE)
    named = ordered(frame, study.VARIANTS)
    found = paired(named, blocks, "keys and values", "standard", ("ETTh1", 96))
    assert found is not None and found.seeds == 3
    ours, theirs = (
        np.mean([store.fields(key)["mse"] for key in named[
            (named["variant"] == variant) & (named["dataset"] == "ETTh1")]["key"]])
        for variant in ("keys and values", "standard")
    )  # fmt: skip
    assert found.difference == pytest.approx(ours - theirs, rel=1e-5)
    assert paired(named, blocks, "keys only", "keys only", ("ETTh1", 96)).difference == 0  # type: ignore[union-attr]
    assert paired(named, blocks, "keys only", "standard", ("ETTh1", 192)) is None
    text = study.render(frame, blocks)
    assert "| keys and values | standard | 3 / 0 / 0 |" in text and ".387" in text


@pytest.mark.usefixtures("known_data")
def test_dropout_is_chosen_on_validation_alone(tmp_path: Path) -> None:
    study = load_study("dropout")
    store = Store(tmp_path)
    best_of = {"standard": 0.4, "prime": 0.2, "prime-table": 0.1, "prime (self-pair primed)": 0.2}
    for spec in study.SPECS[: 2 * len(study.VARIANTS)]:  # ETTh1
        row = pretended(spec)
        best = best_of[spec.variant.partition(", ")[0]]
        val = 0.5 + abs(spec.settings["dropout"] - best)
        store.add(Row({**row.fields, "val_mse": val, "mse": row.fields["mse"] + 1 / val}, row.arrays))
    frame, blocks = results.collect(study.SPECS, store, NOWHERE)
    named = ordered(frame, study.VARIANTS)
    found = {name: rate for (_, name), rate in study.chosen(named).items()}
    assert found == best_of
    assert "| ETTh1 | standard | 0.8000 | 0.7000 | **0.5000** | 0.9000 |" in study.render(frame, blocks)


@pytest.mark.usefixtures("known_data")
def test_a_plan_tells_what_is_there_what_is_missing_and_how_long_it_takes(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    specs = load_study("main_table").SPECS
    for spec in specs[:5]:
        store.add(pretended(spec))
    plan = plan_study(specs, store, out=tmp_path)
    assert plan["row"].value_counts().to_dict() == {"store": 5, "missing": len(specs) - 5}
    timer = [spec for spec in specs if spec.model == "timer_xl"]
    trainings = {spec.training for spec in timer}  # each is scored at four horizons
    assert plan["hours"].isna().sum() == len(trainings) == len(timer) / 4
    assert plan["hours"].sum() == pytest.approx((len(specs) - 5 - len(timer)) * 36 / 3600)
    assert f"{len(specs) - 5} are missing" in describe_plan(plan)
    assert describe_plan(plan).endswith("not on this machine: Traffic")
    few, blocks = results.collect(specs[:5], store, NOWHERE)
    results.write_results("main_table", tmp_path, few, blocks)
    plan = plan_study(specs[:9], Store(tmp_path / "empty"), out=tmp_path)
    assert plan["row"].value_counts().to_dict() == {"results": 5, "missing": 4}
    assert plan["hours"].to_list() == pytest.approx([36 / 3600] * 9)
    assert "of the missing, 5 are among the committed results" in describe_plan(plan)
    assert "4 runs, about 0.0 core-hours, are left then" in describe_plan(plan)
    plan = plan_study(specs[:9], store, out=tmp_path)  # what a store has is not counted as committed, too
    assert plan["row"].value_counts().to_dict() == {"store": 5, "missing": 4}


@pytest.mark.usefixtures("known_data")
def test_a_run_that_one_study_committed_serves_the_others_also_without_its_probes(tmp_path: Path) -> None:
    out, store, none = tmp_path / "results", Store(tmp_path / "store"), Store(tmp_path / "none")
    probed = filled(store, "primer_design", most=1)  # standard attention on ETTh1, with its cost
    results.write_results("primer_design", out, *results.collect(probed, store, NOWHERE))
    specs = load_study("kv").SPECS
    frame, blocks = results.collect(specs, none, out)
    check_rows(frame, blocks)
    assert list(frame["spec"]) == [text_of(specs[0])] and frame["probes"][0] == {} and probed[0].probes
    left = results.uncommitted(specs, out)
    assert left == specs[1:] and list(plan_study(specs, none, out=out)["row"][:2]) == ["results", "missing"]
    assert results.uncommitted(probed, out) == []


@pytest.mark.usefixtures("known_data")
def test_designs_are_ranked_on_the_sets_they_are_chosen_on_seed_by_seed(tmp_path: Path) -> None:
    study, store = load_study("primer_design"), Store(tmp_path)
    names = ("standard", "relu", "tanh", "silu")
    level = {"standard": 0.5, "relu": 0.4, "tanh": 0.45, "silu": 0.3}
    tested = {"standard": 0.1, "relu": 0.3, "tanh": 0.1, "silu": 0.2}  # by validation silu, relu, tanh
    store_specs: list[Spec] = []
    for dataset, name, seed in product((*study.CHOSEN_ON, "Weather"), names, (0, 1)):
        if (dataset, name) == ("ETTh2", "silu") or (name, seed) == ("tanh", 1):
            continue  # one design is not there on a set, one with a seed less
        [spec] = grid({name: study.VARIANTS[name]}, [dataset], seeds=[seed])
        row = pretended(spec)
        by = 2.0 if dataset == "Weather" and name == "relu" else 1.0
        errors = {"val_mse": by * level[name] * (1 + seed), "mse": tested[name]}
        store.add(Row({**row.fields, **errors}, row.arrays))
        store_specs.append(spec)
    frame, blocks = results.collect(store_specs, store, NOWHERE)
    found = changes(ordered(frame, study.VARIANTS), "val_mse", study.CHOSEN_ON)
    assert found["mean"].to_dict() == pytest.approx(
        {"standard": 0, "relu": -0.2, "tanh": -0.1, "silu": math.nan}, nan_ok=True
    )
    assert "over designs: ETTh1 -0.50." in study.render(frame, blocks)
    assert found.loc["relu", "Weather"] == pytest.approx(0.6) and found.loc["silu", "ETTh1"] == pytest.approx(-0.4)


@pytest.mark.usefixtures("known_data")
def test_the_default_is_the_candidate_with_the_lowest_mean_on_validation(tmp_path: Path) -> None:
    study, store = load_study("controls"), Store(tmp_path)
    level = {"standard": 1.0, "standard, channel embeddings": 0.5, **dict.fromkeys(study.CANDIDATES, 0.9)}
    level["prime-table"] = 0.8
    specs = [spec for spec in study.SPECS if spec.variant in level and spec.seed < 3]
    for spec in specs:
        row = pretended(spec)
        by = level[spec.variant] if spec.seed < 2 else 7.0  # seeds that not all have do not count
        store.add(Row({**row.fields, "val_mse": by}, row.arrays))
    text = study.render(*results.collect(specs, store, NOWHERE))
    assert "| prime-table | -20.00 % | -20.00 % | -20.00 % | -20.00 % | -20.00 % | **-20.00 %** |" in text
    assert text.count("**") == 2
    fewer = [s for s in specs if (s.dataset, s.variant) != ("ETTm1", study.CANDIDATES[-1])]
    unfinished = study.render(*results.collect(fewer, store, NOWHERE))
    assert "| prime-table | -20.00 %" in unfinished and "**" not in unfinished


@pytest.mark.usefixtures("known_data")
def test_a_comparison_over_fewer_seeds_than_its_cell_says_so(tmp_path: Path) -> None:
    study, store = load_study("kv"), Store(tmp_path)
    specs = [spec for spec in study.SPECS if spec.dataset == "ETTh1"]
    specs = [spec for spec in specs if spec.attention != "standard" or spec.seed == 0]
    for spec in specs:
        store.add(pretended(spec))
    text = study.render(*results.collect(specs, store, NOWHERE))
    assert "| 3, 1 compared |" in text


@pytest.mark.usefixtures("known_data")
def test_averages_are_of_the_seeds_that_all_horizons_have(tmp_path: Path) -> None:
    study, store = load_study("main_table"), Store(tmp_path)
    specs = [spec for spec in study.SPECS if spec.dataset == "ETTh1" and spec.variant.startswith("iTransformer")]
    specs = [spec for spec in specs if (spec.horizon, spec.seed) != (720, 2)]
    for spec in specs:
        store.add(pretended(spec))
    frame, blocks = results.collect(specs, store, NOWHERE)
    [line] = [line for line in study.render(frame, blocks).splitlines() if line.startswith("| ETTh1 | iTransformer |")]
    mean = frame[(frame["variant"] == "iTransformer") & (frame["seed"] < 2)].groupby("seed")["mse"].mean()
    assert f"| {mean.mean():.4f} ± {mean.std():.4f} |" in line and "| 2 |" in line and line.endswith("| .449/.443 |")


def test_timer_xl_is_trained_once_per_seed() -> None:
    specs = [spec for spec in load_study("main_table").SPECS if spec.model == "timer_xl"]
    assert {spec.horizon for spec in specs} == {96, 192, 336, 720}
    assert {resolve(spec).train_horizon for spec in specs} == {96}


def test_results_that_are_not_there_are_named_with_the_way_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no results of study 'kv' in .*: `primecast study kv --run --table`"):
        results.read_results("kv", tmp_path)


# ---------------------------------------------------------------- what is committed


def check_rows(frame: pd.DataFrame, blocks: pd.DataFrame) -> None:
    """Complete, without duplicates, every key that of its fields, and the block sums those of the scores."""
    expected = {"spec", *pretended(Spec(dataset="nyc-weather", horizon=24)).fields}
    assert expected <= set(frame.columns)
    assert frame["key"].is_unique and frame[list(expected)].notna().all().all()
    assert list(blocks["key"]) == list(frame["key"])
    for (_, row), (_, sums) in zip(frame.iterrows(), blocks.iterrows(), strict=True):
        fields: dict[str, Any] = {str(name): value for name, value in row.items()}
        assert key_of(fields) == row["key"], (
            f"the key of {row['spec']}: was a default changed? See tools/migrate_results.py"
        )
        spec = Spec.from_json(row["spec"])
        assert key(spec, row["fingerprint"]) == row["key"], f"{row['spec']} means another run today: its row is stale"
        assert (spec.dataset, spec.model, spec.horizon, spec.lookback, spec.seed) == tuple(
            row[name] for name in ("dataset", "model", "horizon", "lookback", "seed")
        )
        assert sums["windows"] == row["windows"]
        for score in ("mse", "mae"):
            assert math.isfinite(row[score]) and row[score] > 0
            assert sums[score].sum() / row["windows"] == pytest.approx(row[score], rel=2e-5)
            assert len(sums[score]) == len(block_sums(np.zeros(row["windows"]), int(sums["cell"])))


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_rows_are_whole_and_their_keys_match_their_fields(name: str) -> None:
    check_rows(*results.read_results(name, ROOT / "results"))


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_tables_are_what_the_rows_give(name: str) -> None:
    text = (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8")
    assert text == results.markdown(name, *results.read_results(name, ROOT / "results"))


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("place", [0, 1])
def test_a_committed_row_that_is_run_again_gives_the_same_score(place: int) -> None:
    """The two quickest runs of the controls."""
    if "controls" not in COMMITTED or not os.environ.get("PRIMECAST_DATA"):
        pytest.skip("needs results/controls.csv, and the benchmark files in the folder PRIMECAST_DATA")
    frame, _ = results.read_results("controls", ROOT / "results")
    row = frame.sort_values("seconds").iloc[place]
    again = run(Spec.from_json(row["spec"]), progress="off").fields
    assert again["key"] == row["key"]
    assert (again["mse"], again["mae"]) == pytest.approx((row["mse"], row["mae"]), rel=1e-5)


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*")), ids=lambda path: path.name)
def test_no_committed_result_is_larger_than_a_megabyte(path: Path) -> None:
    assert path.stat().st_size < 2**20


@pytest.mark.usefixtures("known_data")
def test_the_check_of_rows_finds_a_changed_score_setting_and_a_lost_column(tmp_path: Path) -> None:
    """A check that cannot fail checks nothing."""
    spec = Spec(dataset="nyc-weather", horizon=24)
    store = Store(tmp_path)
    row = pretended(spec)
    store.add(row)
    frame, blocks = results.collect([spec], store, NOWHERE)
    line = frame.iloc[0]
    check_rows(frame, blocks)
    settings = json.loads(json.dumps(line["settings"]))
    settings["training"]["lr"] = 0.5
    for broken in (
        frame.assign(mse=0.7),
        frame.assign(settings=pd.Series([settings], dtype=object)),
        frame.drop(columns="steps"),
        pd.concat([frame, frame]),
    ):
        with pytest.raises(AssertionError):
            check_rows(broken, blocks)
