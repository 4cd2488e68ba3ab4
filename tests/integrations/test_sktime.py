"""primecast behind sktime's interface, checked by sktime's own suite."""

import warnings

import numpy as np
import pandas as pd
import pytest

package = pytest.importorskip("sktime", reason="run by `make test-all`, in an environment with sktime")

from sktime.forecasting.base import ForecastingHorizon  # noqa: E402
from sktime.utils.estimator_checks import check_estimator  # noqa: E402

from primecast.errors import InputError  # noqa: E402
from primecast.forecasting.forecaster import Forecaster  # noqa: E402
from primecast.integrations.sktime import PrimecastForecaster, held_out, sizes  # noqa: E402

SMALL = {"d_model": 8, "n_heads": 2, "n_layers": 1}


def waves(rows: int, index: pd.Index) -> pd.DataFrame:
    steps = np.arange(rows)
    return pd.DataFrame({"a": np.sin(steps / 3), "b": np.cos(steps / 3) + 5}, index=index)


def test_it_passes_all_of_sktimes_checks() -> None:
    results = check_estimator(PrimecastForecaster, raise_exceptions=False, verbose=False)
    failed = [f"{name}: {result}" for name, result in results.items() if result != "PASSED"]
    assert len(results) > 500 and not failed, "\n".join(failed)


def test_it_forecasts_what_the_forecaster_inside_forecasts() -> None:
    y = waves(101, pd.period_range("2024-01-01", periods=101, freq="D"))
    ours = PrimecastForecaster(lookback=13, epochs=2, model_args=SMALL).fit(y, fh=[2, 5]).predict()
    frame = y.set_axis(["0", "1"], axis="columns").to_timestamp()
    forecaster = Forecaster(lookback=13, horizon=5, epochs=2, model_args=SMALL, progress="off").fit(frame)
    np.testing.assert_allclose(ours.to_numpy(), forecaster.predict().to_numpy()[[1, 4]])
    assert list(ours.columns) == ["a", "b"] and list(ours.index.astype(str)) == ["2024-04-12", "2024-04-15"]


def test_nothing_it_does_is_warned_of_by_sktime() -> None:
    y = waves(101, pd.period_range("2024-01-01", periods=101, freq="D"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        PrimecastForecaster(lookback=13, epochs=1, model_args=SMALL).fit(y, fh=[1]).predict()


def test_newer_rows_move_the_forecast_without_training() -> None:
    y = waves(120, pd.date_range("2024-01-01", periods=120, freq="h"))
    model = PrimecastForecaster(lookback=13, epochs=1, model_args=SMALL).fit(y.iloc[:100], fh=[1, 2, 3])
    inside = model.forecaster_
    before = model.predict()
    model.update(y.iloc[100:], update_params=False)
    after = model.predict()
    assert model.forecaster_ is inside
    model.update(y.iloc[-3:], update_params=True)
    assert model.forecaster_ is not inside and len(model.rows_) == 120  # rows that were known are not there twice
    assert after.index[0] == y.index[-1] + pd.Timedelta("1h") and not np.allclose(before, after)


def test_a_forecast_beyond_the_trained_horizon_is_continued_from_itself() -> None:
    y = waves(20, pd.RangeIndex(20))
    model = PrimecastForecaster(lookback=96, epochs=1, model_args=SMALL).fit(y, fh=ForecastingHorizon([1, 7]))
    assert (model.forecaster_.lookback, model.forecaster_.horizon) == sizes(20, lookback=96, horizon=7) == (6, 2)
    forecast = model.predict()
    assert list(forecast.index) == [20, 26] and np.isfinite(forecast.to_numpy()).all()


INDEXES: dict[str, pd.Index] = {
    "periods": pd.period_range("2024-01-01", periods=211, freq="D"),
    "dates": pd.date_range("2024-01-01", periods=211, freq="h"),
    "numbers": pd.RangeIndex(5, 216),
}


def planned(index: pd.Index) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two waves, of which the first is raised where a plan says so, and the plan."""
    steps = np.arange(len(index))
    plan = pd.DataFrame({"plan": (steps % 7 == 0) * 3.0}, index=index)
    return waves(len(index), index).assign(a=np.sin(steps / 3) + plan["plan"].to_numpy()), plan


@pytest.mark.parametrize("kind", INDEXES)
def test_exogenous_data_are_future_covariates(kind: str) -> None:
    y, X = planned(INDEXES[kind])
    model = PrimecastForecaster(lookback=13, epochs=1, model_args=SMALL).fit(y[:200], X=X[:200], fh=[1, 5])
    assert model.forecaster_.roles_.future == ("x0",)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = model.predict(X=X[200:])
        at_fh = model.predict(X=X.iloc[[200, 204]])  # sktime may hand over these rows alone
    assert list(one.index) == list(at_fh.index) == [y.index[200], y.index[204]]
    assert not np.allclose(one, model.predict(X=1 - X[200:]))
    with pytest.warns(UserWarning, match="future values of x0 are not known"):
        model.predict()
    model.update(y[200:203], X=X[200:203], update_params=False)
    assert model.predict(X=X[203:]).index[0] == y.index[203] and len(model.exogenous_) == 203


def test_a_continued_forecast_reads_the_covariates_of_its_own_rows() -> None:
    y, X = planned(INDEXES["numbers"])
    model = PrimecastForecaster(lookback=13, epochs=1, model_args=SMALL).fit(y[:40], X=X[:40], fh=[1, 11])
    assert model.forecaster_.horizon == 4
    changed = X[40:51].copy()
    changed.iloc[9] += 3.0  # seen by the third continuation alone
    one, other = model.predict(X=X[40:51]), model.predict(X=changed)
    np.testing.assert_array_equal(one.iloc[0], other.iloc[0])
    assert not np.allclose(one.iloc[1], other.iloc[1])


def test_a_model_that_reads_no_covariates_says_so() -> None:
    y, X = planned(INDEXES["dates"])
    with pytest.warns(UserWarning, match="model 'dlinear' reads no covariates: X is not used"):
        model = PrimecastForecaster(lookback=13, epochs=1, model="dlinear").fit(y, X=X, fh=[1])
    assert model.forecaster_.roles_.future == () and len(model.predict(X=X)) == 1


def test_intervals_are_those_of_the_forecaster_inside_and_quantiles_are_their_bounds() -> None:
    y = waves(211, INDEXES["dates"])
    model = PrimecastForecaster(lookback=13, epochs=1, model_args=SMALL).fit(y, fh=[2, 5])
    inside = model.forecaster_.predict(level=[80])
    found = model.predict_interval(coverage=[0.8])
    assert list(found.columns[:2]) == [("a", 0.8, "lower"), ("a", 0.8, "upper")]
    for side, short in (("lower", "lo"), ("upper", "hi")):
        np.testing.assert_allclose(found["b", 0.8, side], inside[f"1-{short}-80"].iloc[[1, 4]])
    quantiles = model.predict_quantiles(alpha=[0.1, 0.5])
    np.testing.assert_allclose(quantiles["a", 0.1], found["a", 0.8, "lower"])
    np.testing.assert_allclose(quantiles["a", 0.5], model.predict()["a"])


def test_few_held_out_windows_give_the_widest_interval_with_a_warning_and_a_continued_one_widens() -> None:
    y = waves(40, pd.RangeIndex(40))
    model = PrimecastForecaster(lookback=13, epochs=1, model_args=SMALL).fit(y, fh=[1, 4, 5, 12])
    with pytest.warns(UserWarning, match=r"an interval of 99 % needs more than the \d+ held-out windows there are"):
        wide = model.predict_interval(coverage=[0.99])
    width = wide["a", 0.99, "upper"] - wide["a", 0.99, "lower"]
    assert (width > 0).all() and width.iloc[2] > width.iloc[1] and width.iloc[3] > width.iloc[2]


@pytest.mark.parametrize("rows", [7, 9, 10, 20, 101, 2000])
def test_the_sizes_fit_what_is_held_out(rows: int) -> None:
    lookback, horizon = sizes(rows, lookback=96, horizon=24)
    train, val, test = held_out(rows)
    assert train + val + test == rows and 3 <= lookback <= 96 and 1 <= horizon <= min(24, val, test)
    assert lookback + horizon <= train


def test_a_series_that_cannot_be_split_is_refused() -> None:
    with pytest.raises(InputError, match="a series of 4 rows is too short"):
        PrimecastForecaster(model_args=SMALL).fit(waves(4, pd.RangeIndex(4)), fh=[1])
