"""Borders, scaler, calendar features, and windows gathered by index."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from primecast.data.windows import Cuts, Dataset, Fixed, Ratio, Scaler, calendar_features, is_subhourly, split
from primecast.errors import InputError


def counting(rows: int = 211, channels: int = 3, **changes: object) -> Dataset:
    """A series whose every value tells its row and channel: 1000 * channel + row."""
    values = np.arange(rows, dtype=np.float64)[:, None] + 1000.0 * np.arange(channels)
    settings: dict[str, object] = {
        "name": "counting",
        "values": values,
        "index": pd.date_range("2021-02-03 04:00", periods=rows, freq="h"),
        "names": tuple(f"channel {number}" for number in range(channels)),
        "borders": Ratio(),
        "season": 24,
    }
    return Dataset(**settings | changes)  # type: ignore[arg-type]


# ---------------------------------------------------------------- borders


def test_ett_borders_are_months_of_thirty_days_and_leave_the_rest_unused() -> None:
    ranges = Fixed(train=8640, val=2880, test=2880).ranges(rows=17420, lookback=96)
    assert ranges == (range(8640), range(8640 - 96, 11520), range(11520 - 96, 14400))


def test_ratio_gives_the_rounding_remainder_to_val() -> None:
    train, val, test = Ratio(train=0.7, test=0.2).ranges(rows=7588, lookback=96)
    assert (len(train), len(val) - 96, len(test) - 96) == (5311, 760, 1517)


def test_pems_windows_do_not_reach_into_the_split_before() -> None:
    ranges = Cuts(first=0.6, second=0.8).ranges(rows=17856, lookback=96)
    assert ranges == (range(10713), range(10713, 14284), range(14284, 17856))


@given(rows=st.integers(50, 2000), lookback=st.integers(1, 30))
def test_targets_of_a_ratio_split_cover_every_row_after_the_first_look_back_once(rows: int, lookback: int) -> None:
    ranges = Ratio().ranges(rows=rows, lookback=lookback)
    targets = [row for span in ranges for row in range(span.start + lookback, span.stop)]
    assert targets == list(range(lookback, rows))


# ---------------------------------------------------------------- windows


@given(lookback=st.integers(1, 13), horizon=st.integers(1, 7), data=st.data())
def test_a_window_is_its_rows(lookback: int, horizon: int, data: st.DataObject) -> None:
    dataset = counting()
    splits = split(dataset, lookback=lookback, horizon=horizon)
    windows = data.draw(st.sampled_from([splits.train, splits.val, splits.test]))
    number = data.draw(st.integers(0, len(windows) - 1))

    batch = windows.batch(torch.tensor([number]))

    first = windows.start + number
    x = splits.scaler.inverse(batch.x[0].double().numpy())
    y = splits.scaler.inverse(batch.y[0].double().numpy())
    np.testing.assert_allclose(x, dataset.values[first : first + lookback], rtol=0, atol=1e-3)
    np.testing.assert_allclose(y, dataset.values[first + lookback : first + lookback + horizon], rtol=0, atol=1e-3)
    assert batch.time_features is not None
    assert isinstance(dataset.index, pd.DatetimeIndex)
    assert torch.equal(batch.time_features[0], calendar_features(dataset.index[first : first + lookback + horizon]))


def test_a_batch_has_its_windows_in_the_order_asked_for() -> None:
    windows = split(counting(), lookback=7, horizon=5).train
    together = windows.batch(torch.tensor([11, 2, 2]))
    for place, number in enumerate([11, 2, 2]):
        alone = windows.batch(torch.tensor([number]))
        assert torch.equal(together.x[place], alone.x[0])
        assert torch.equal(together.y[place], alone.y[0])
    assert not torch.equal(together.x[0], together.x[1])


def test_the_last_window_ends_with_its_split() -> None:
    windows = split(counting(), lookback=7, horizon=5).test
    assert windows.start + len(windows) - 1 + 7 + 5 == 211
    with pytest.raises(IndexError):
        windows.batch(torch.tensor([len(windows)]))


def test_the_three_splits_share_one_tensor() -> None:
    splits = split(counting(), lookback=7, horizon=5)
    storages = {windows.series.untyped_storage().data_ptr() for windows in (splits.train, splits.val, splits.test)}
    assert len(storages) == 1
    assert splits.train.series.dtype == torch.float32


def test_windows_know_their_sizes() -> None:
    windows = split(counting(), lookback=7, horizon=5).val
    assert (windows.channels, windows.n_time_features, windows.lookback, windows.horizon) == (3, 4, 7, 5)
    assert len(windows.series) == len(windows) + 7 + 5 - 1


# ---------------------------------------------------------------- time features


def test_there_are_time_features_with_dates_unless_the_data_set_or_the_caller_declines() -> None:
    def count(dataset: Dataset, time_features: bool | None = None) -> int:
        return split(dataset, lookback=7, horizon=5, time_features=time_features).train.n_time_features

    assert count(counting()) == 4
    assert count(counting(), time_features=False) == 0
    assert count(counting(time_features=False)) == 0
    assert count(counting(time_features=False), time_features=True) == 4
    assert count(counting(index=None)) == 0
    with pytest.raises(InputError, match=r"'counting' has no dates .* give time_features=False"):
        count(counting(index=None), time_features=True)


def test_the_minute_of_the_hour_is_a_fifth_feature_of_subhourly_data() -> None:
    index = pd.date_range("2021-03-17 06:45", periods=9, freq="15min")
    features = calendar_features(index, minute=True)
    assert torch.equal(features[:, :4], calendar_features(index))
    np.testing.assert_allclose(features[:5, 4], np.array([45, 0, 15, 30, 45]) / 59 - 0.5, atol=1e-7)
    assert is_subhourly(index) and is_subhourly(index.delete([3, 4, 5]))
    assert not any(is_subhourly(pd.date_range("2021", periods=5, freq=freq)) for freq in ("h", "D", "MS"))
    assert not is_subhourly(index[:1])


def test_time_features_follow_the_formula_and_stay_within_a_half() -> None:
    features = calendar_features(pd.DatetimeIndex(["2020-12-31 23:50", "2021-01-01 00:00", "2021-03-17 06:00"]))
    expected = [
        [0.5, 3 / 6 - 0.5, 0.5, 0.5],  # the last hour of a Thursday, day 31 and day 366
        [-0.5, 4 / 6 - 0.5, -0.5, -0.5],
        [6 / 23 - 0.5, 2 / 6 - 0.5, 16 / 30 - 0.5, 75 / 365 - 0.5],
    ]
    torch.testing.assert_close(features, torch.tensor(expected), rtol=0, atol=1e-7)


# ---------------------------------------------------------------- scaling and gaps


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=2, max_size=19).map(np.array))
def test_scaling_can_be_undone(values: np.ndarray) -> None:
    scaler = Scaler.fit(values)
    np.testing.assert_allclose(scaler.inverse(scaler.transform(values)), values, atol=1e-9)


@pytest.mark.parametrize("size", [1e-155, 2.5e-200, 2.5e-281, 5e-324])
def test_a_spread_too_small_to_square_is_scaled_like_any_other(size: float) -> None:
    values = size * np.array([[0.0, 7.0], [2.0, 11.0], [4.0, 5.0]])
    scaler = Scaler.fit(values)
    assert (scaler.std > 0).all() and (np.abs(scaler.transform(values)) < 3).all()
    np.testing.assert_allclose(scaler.inverse(scaler.transform(values)), values, rtol=1e-12, atol=1e-12 * size)
    if size > 1e-300:
        np.testing.assert_allclose(scaler.transform(values), Scaler.fit(values / size).transform(values / size))


def test_the_scaler_uses_the_population_deviation() -> None:
    scaler = Scaler.fit(np.array([[1.0], [2.0], [6.0]]))
    assert scaler.mean[0] == 3.0
    assert scaler.std[0] == pytest.approx(np.sqrt((4 + 1 + 9) / 3))


def test_a_constant_channel_is_scaled_to_exactly_zero_and_comes_back() -> None:
    values = np.column_stack([np.arange(7.0), np.full(7, 0.1)])
    scaler = Scaler.fit(values)
    assert scaler.std[1] == 1.0
    assert (scaler.transform(values)[:, 1] == 0).all()
    assert (scaler.inverse(np.zeros((3, 2)))[:, 1] == 0.1).all()


def test_the_scaler_sees_train_rows_only() -> None:
    dataset = counting()
    changed = dataset.values.copy()
    changed[147] += 1e6  # the first row after train
    before = split(dataset, lookback=7, horizon=5)
    after = split(counting(values=changed), lookback=7, horizon=5)
    assert np.array_equal(before.scaler.mean, after.scaler.mean)
    assert torch.equal(before.train.series, after.train.series)
    changed[146] += 1e6
    assert not np.array_equal(split(counting(values=changed), lookback=7, horizon=5).scaler.mean, before.scaler.mean)


def test_pems_gaps_are_filled_forward_then_backward_within_their_split() -> None:
    dataset = counting(rows=100, channels=2)
    values = dataset.values.copy()
    values[60:62, 0] = np.nan  # the first rows of val: nothing before them in their split
    values[70, 0] = np.nan
    splits = split(
        counting(values=values, names=("a", "b"), borders=Cuts(), fill_gaps=True, index=None), lookback=7, horizon=5
    )
    val = splits.scaler.inverse(splits.val.series.double().numpy())
    np.testing.assert_allclose(val[[0, 1, 10], 0], [62.0, 62.0, 69.0], atol=1e-3)


def test_gaps_are_refused_unless_the_data_set_has_them_filled() -> None:
    values = counting().values.copy()
    values[19, 1] = np.nan
    with pytest.raises(InputError, match=r"1 values that are no finite number.*'channel 1' at row 19.*interpolate"):
        split(counting(values=values), lookback=7, horizon=5)
    values[:, 1] = np.nan
    with pytest.raises(InputError, match="no value in its train split for channel 1; drop them"):
        split(counting(values=values, fill_gaps=True), lookback=7, horizon=5)
    values[:, 1] = np.inf
    with pytest.raises(InputError, match="no finite number"):
        split(counting(values=values, fill_gaps=True), lookback=7, horizon=5)


# ---------------------------------------------------------------- too little, and identity


def test_too_few_rows_are_refused_with_the_rows_needed() -> None:
    with pytest.raises(InputError, match=r"'counting' has 11 rows, but look-back 7 \+ horizon 5 need 12"):
        split(counting(rows=11), lookback=7, horizon=5)
    with pytest.raises(
        InputError,
        match=r"the validation split of data set 'counting' has 10 rows \(the 7 before it included\).* need 12",
    ):
        split(counting(rows=19), lookback=7, horizon=5)
    with pytest.raises(InputError, match=r"the test split of data set 'counting' has 10 rows, but .* need 12"):
        split(counting(rows=50, borders=Cuts(first=0.5, second=0.8)), lookback=7, horizon=5)
    with pytest.raises(InputError, match=r"'counting' has 211 rows, but its borders end at 240"):
        split(counting(borders=Fixed(train=150, val=40, test=50)), lookback=7, horizon=5)


@pytest.mark.parametrize(("lookback", "horizon", "named"), [(0, 5, "lookback"), (7, -1, "horizon")])
def test_steps_must_be_positive(lookback: int, horizon: int, named: str) -> None:
    with pytest.raises(InputError, match=f"{named} is -?[01]; it must be a whole number of at least 1"):
        split(counting(), lookback=lookback, horizon=horizon)


def test_a_split_of_just_enough_rows_has_one_window() -> None:
    splits = split(counting(rows=50, borders=Cuts(first=0.5, second=0.75)), lookback=7, horizon=5)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (14, 1, 2)


def test_a_data_set_whose_parts_do_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="3 channels but 2 names"):
        counting(names=("a", "b"))
    with pytest.raises(InputError, match="211 rows but 7 time stamps"):
        counting(index=pd.date_range("2021", periods=7, freq="h"))


def test_the_fingerprint_is_that_of_values_stamps_and_names() -> None:
    dataset = counting()
    same = counting(values=np.asfortranarray(dataset.values), name="another name")
    assert same.fingerprint == dataset.fingerprint
    changed = dataset.values.copy()
    changed[0, 0] = np.nextafter(changed[0, 0], 1)
    others = [
        counting(values=changed),
        counting(names=("channel 0", "channel 1", "x")),
        counting(index=pd.date_range("2021-02-03 05:00", periods=211, freq="h")),
        counting(index=pd.date_range("2021-02-03 04:00", periods=211, freq="h", tz="UTC")),
        counting(index=None),
    ]
    assert len({dataset.fingerprint, *(other.fingerprint for other in others)}) == 6
