"""Long tables: series of different starts and lengths, covariates of each series, static features."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from primecast import Forecaster
from primecast.errors import InputError
from primecast.frames.read import open_table

START = pd.Timestamp("2024-03-04")
SPANS = {"Aarhus": (0, 331), "Bergen": (17, 331), "Cork": (5, 313)}
"""Store -> first row and row after its last one."""


def stores(rows: int = 331) -> pd.DataFrame:
    """Hourly sales of three stores: a price and a promotion of each, a holiday of all, a region that never changes."""
    parts = []
    for number, (store, (first, after)) in enumerate(SPANS.items()):
        time = np.arange(first, after + rows - 331)
        price = 10 + number + (time // 7 % 3)
        parts.append(
            pd.DataFrame(
                {
                    "unique_id": store,
                    "ds": START + pd.to_timedelta(time, unit="h"),
                    "y": 100 - 3 * price + 5 * np.sin(time / 24 * 2 * np.pi) + number,
                    "price": price,
                    "promotion": np.where((time + number) % 11 < 3, "leaflet", "none"),
                    "holiday": (time // 24 % 7 == 6).astype(int),
                    "region": ["north", "north", "south"][number],
                    "area": [120.5, 340.0, 88.0][number],
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def forecaster(**arguments: Any) -> Forecaster:
    settings: dict[str, Any] = {"horizon": 5, "lookback": 24, "model": "ridge", "missing": "interpolate"}
    return Forecaster(**(settings | arguments))


def test_static_features_of_a_long_table_are_left_out_and_the_reason_is_said() -> None:
    table = open_table(stores())
    assert list(table.frame.columns) == list(SPANS) and len(table.frame) == 331
    said = table.describe(missing="interpolate")
    assert "region, area (constant in each series, tells no more than the name of the series)" in said
    assert "price, promotion, holiday (not named as a covariate)" in said


def test_a_covariate_of_a_long_table_becomes_a_column_for_each_series() -> None:
    long = stores()
    table = open_table(long, covariates=["price", "holiday", "promotion"])
    texts = [f"promotion | {store}={value}" for store in SPANS for value in ("leaflet", "none")]
    prices = [f"price | {store}" for store in SPANS]
    assert set(table.frame.columns) == {*SPANS, *prices, "holiday", *texts}
    for store, rows in long.groupby("unique_id"):
        stamps = pd.DatetimeIndex(rows["ds"])
        np.testing.assert_array_equal(table.frame.loc[stamps, f"price | {store}"], rows["price"])
        np.testing.assert_array_equal(
            table.frame.loc[stamps, f"promotion | {store}=leaflet"], rows["promotion"] == "leaflet"
        )
        assert table.frame[f"price | {store}"].notna().sum() == len(rows)
    assert table.frame["holiday"].notna().all()  # one column: all stores have the same


def test_a_covariate_of_one_series_alone_keeps_its_name() -> None:
    long = stores().query("unique_id == 'Cork'")
    assert list(open_table(long, covariates=["price"]).frame.columns) == ["Cork", "price"]


def test_covariates_of_series_that_are_not_kept_are_left_out() -> None:
    choices: list[dict[str, Any]] = [{"columns": ["Bergen"]}, {"drop": ["Aarhus", "Cork"]}]
    for choice in choices:
        table = open_table(stores(), covariates=["price", "promotion"], **choice)
        texts = ["promotion | Bergen=leaflet", "promotion | Bergen=none"]
        assert list(table.frame.columns) == ["Bergen", "price | Bergen", *texts]


@pytest.mark.parametrize("name", ["region", "area"])
def test_a_static_feature_that_is_named_as_a_covariate_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"covariate '{name}' is constant in each series: .*; leave it out"):
        forecaster(past=[name]).fit(stores())


def test_cells_that_cannot_be_compared_are_left_out() -> None:
    long = stores()
    long["tags"] = [["a"] for _ in range(len(long))]
    assert "tags" in open_table(long).layout.left_out


@pytest.mark.parametrize("kind", ["frame", "file"])
def test_covariates_of_series_are_used_by_fit_save_load_and_predict(kind: str, tmp_path: Path) -> None:
    long, later = stores(), stores(336).query("ds >= '2024-03-17 19:00'").drop(columns=["y"])
    data: Any = long
    future: Any = later
    if kind == "file":
        data, future = tmp_path / "sales.csv", tmp_path / "later.csv"
        long.to_csv(data, index=False)
        later.to_csv(future, index=False)
    fitted = forecaster(past=["promotion"], future=["price", "holiday"])
    fitted.fit(data)
    assert fitted.state_.roles.targets == tuple(SPANS)
    assert fitted.state_.roles.future == (*(f"price | {store}" for store in SPANS), "holiday")
    fitted.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    with pytest.warns(UserWarning, match="future values of price"):  # Cork's table ends before
        forecast = fitted.predict(data, future=future)
    with pytest.warns(UserWarning, match="future values of price"):
        pd.testing.assert_frame_equal(loaded.predict(data, future=future), forecast)
    expected = (15, 3) if kind == "frame" else (5, 3)
    assert forecast.shape == expected


def test_a_covariate_that_all_series_shared_must_be_shared_later() -> None:
    long = stores()
    fitted = forecaster(future=["holiday"])
    fitted.fit(long)
    later = long.assign(holiday=long["holiday"].where(long["unique_id"] != "Bergen", 1))
    with pytest.raises(InputError, match="covariate 'holiday' was the same for all series in the table of fit"):
        fitted.predict(later)
