"""The ensemble: an average of members, and weights that follow from the products of their validation errors."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import Tensor, nn

from primecast import Forecaster
from primecast.data import nyc_weather
from primecast.errors import InputError, TrainingError
from primecast.forecasting.designs import DESIGNS
from primecast.forecasting.ensemble import (
    FEW,
    Ensemble,
    LastSteps,
    channel_weights,
    error_products,
    greedy_weights,
    parts_of,
    with_parts,
)
from primecast.forecasting.persistence import save_state
from primecast.frames.read import ColumnsLeftOutWarning
from primecast.storage.folder import with_checksum

B, L, H, N, M = 2, 11, 5, 3, 7


class Repeat(nn.Module):
    """Forecasts the first step it sees, plus a time feature of the last step it sees."""

    def forward(self, x: Tensor, time_features: Tensor | None = None) -> Tensor:
        calendar = 0.0 if time_features is None else time_features[:, x.shape[1] - 1, :1, None]
        return x[:, :1].expand(-1, H, -1) + calendar


def test_an_ensemble_is_the_weighted_average_of_members_that_read_their_own_look_back() -> None:
    torch.manual_seed(0)
    x, calendar = torch.randn(B, L, N), torch.randn(B, L + H, M)
    model = Ensemble([Repeat(), LastSteps(Repeat(), 7)])
    model.weights.copy_(torch.tensor([0.25, 0.75]))
    last = calendar[:, L - 1, :1, None]
    expected = 0.25 * (x[:, :1] + last) + 0.75 * (x[:, L - 7 : L - 6] + last)
    torch.testing.assert_close(model(x, calendar), expected.expand(B, H, N))
    torch.testing.assert_close(model(x), (0.25 * x[:, :1] + 0.75 * x[:, L - 7 : L - 6]).expand(B, H, N))


def test_weights_of_channels_average_each_channel_by_its_own() -> None:
    torch.manual_seed(0)
    x = torch.randn(B, L, N)
    model = Ensemble([Repeat(), LastSteps(Repeat(), 7)], channels=N)
    torch.testing.assert_close(model(x), Ensemble(list(model.members))(x))
    first = torch.rand(N)
    model.weights.copy_(torch.stack([first, 1 - first]))
    expected = first * x[:, :1] + (1 - first) * x[:, L - 7 : L - 6]
    torch.testing.assert_close(model(x), expected.expand(B, H, N))


def test_an_ensemble_without_members_is_refused() -> None:
    with pytest.raises(InputError, match="at least one member"):
        Ensemble([])


def test_the_error_of_the_average_follows_from_the_products_of_errors_of_members() -> None:
    torch.manual_seed(0)
    truth, forecasts = torch.randn(13, H, N).double(), [torch.randn(13, H, N).double() for _ in range(3)]
    truth[4, 2, 1] = torch.nan
    weights = np.array([0.2, 0.5, 0.3])
    average = sum(w * f for w, f in zip(weights, forecasts, strict=True))
    direct = (average - truth).square().nanmean().item()
    assert_allclose(weights @ error_products(forecasts, truth) @ weights, direct, rtol=1e-12)


def slow_greedy(errors: np.ndarray, rounds: int) -> np.ndarray:
    """The same choice by averaging the errors themselves."""
    taken: list[int] = []
    for _ in range(rounds):
        scores = [np.mean(np.mean([errors[i] for i in [*taken, k]], axis=0) ** 2) for k in range(len(errors))]
        taken.append(int(np.argmin(scores)))
    return np.bincount(taken, minlength=len(errors)) / rounds


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 5))
def test_greedy_weights_are_those_of_averaging_the_errors_themselves(seed: int, count: int) -> None:
    errors = np.random.default_rng(seed).standard_normal((count, 97)) * np.linspace(1, 2, count)[:, None]
    fast = greedy_weights(errors @ errors.T / 97, rounds=13)
    assert_allclose(fast, slow_greedy(errors, 13), atol=1e-12)


def test_weights_are_drawn_toward_equal_ones_the_more_so_the_fewer_windows_there_are() -> None:
    products = np.diag([1.0, 1.1, 40.0])
    none, half, most = (greedy_weights(products, windows=windows) for windows in (math.inf, FEW, 1.0))
    equal = np.array([0.5, 0.5, 0.0])
    assert_allclose(half, (none + equal) / 2)
    assert np.abs(most - equal).max() < np.abs(half - equal).max()
    for weights in (none, half, most):
        assert_allclose(weights.sum(), 1.0)
        assert (weights >= 0).all()


def test_a_worse_member_has_a_part_in_the_equal_weights_only_where_windows_are_few() -> None:
    products = np.diag([1.0, 1.6])
    assert greedy_weights(products, windows=100)[1] < greedy_weights(products, windows=5)[1]


def test_channels_share_their_weights_to_the_last_bit_unless_a_member_fails_on_one() -> None:
    weights = np.array([0.1, 0.3, 0.6])
    errors = np.array([[1.0, 2.0, np.nan, 1e-9], [9.9, 30.0, 1.0, 1e-5], [2.0, 3.0, 1.0, 0.0]])
    found = channel_weights(weights, errors)
    assert (found[:, [0, 2, 3]] == weights[:, None]).all()
    assert_allclose(found[:, 1], [1 / 7, 0.0, 6 / 7])
    assert_allclose(channel_weights(weights, errors, windows=2 * FEW)[:, 1], weights)  # 15 times: not yet a failure


def test_a_channel_on_which_all_members_with_a_weight_fail_is_left_to_the_best_of_the_others() -> None:
    found = channel_weights(np.array([0.0, 1.0]), np.array([[1.0, 1.0], [2.0, 11.0]]))
    assert_allclose(found, [[0.0, 1.0], [1.0, 0.0]])


# ---------------------------------------------------------------- in a Forecaster

TINY: dict[str, Any] = {"horizon": 5, "lookback": 14, "epochs": 1, "progress": "off", "batch_size": 128}


def weather() -> pd.DataFrame:
    return nyc_weather().iloc[-700:, [0, 1, 8]]


@pytest.fixture(scope="module")
def best() -> Forecaster:
    longer = {**TINY, "epochs": 3, "batch_size": 16, "lr": 2e-3}
    return Forecaster(**longer, quality="best", missing="interpolate").fit(weather())


def test_the_leaderboard_has_members_their_average_and_seasonal_naive(best: Forecaster) -> None:
    board = best.leaderboard().frame
    assert list(board.index)[-2:] == ["ensemble", "seasonal naive"]
    assert list(board.index[:-2]) == [name for name in DESIGNS if name != "last season"]  # longer than the look-back
    assert len(best.state_.members) == (board["weight"] > 0).sum() > 1
    assert_allclose(board["weight"].sum(), 1.0, rtol=1e-6)
    assert board["test_mse"].notna().all() and (board["seconds"][:-2] > 0).all()
    assert board.loc["ensemble", "test_mse"] == best.scores_.mse
    assert best.scores_.mse < board["test_mse"][:-2].max()


def metered() -> pd.DataFrame:
    """Return two noisy channels beside a meter that only rises, by 1 to 2 an hour."""
    generator, hours = np.random.default_rng(0), np.arange(1201)
    daily = np.sin(hours * 2 * np.pi / 24)
    noisy = {name: daily + generator.normal(size=len(hours)) for name in "ab"}
    meter = 5000 + (1.5 + 0.5 * daily).cumsum()
    return pd.DataFrame(noisy | {"meter": meter}, index=pd.date_range("2024-01-01", periods=1201, freq="h"))


def test_a_meter_that_only_rises_is_forecast_to_rise_beside_noisy_channels() -> None:
    table = metered()
    with pytest.warns(ColumnsLeftOutWarning, match="meter never falls"):
        forecaster = Forecaster(horizon=24, quality="fast", progress="off").fit(table)
    model = forecaster.state_.model
    assert isinstance(model, Ensemble)
    weights = model.weights
    assert (weights[:, 2] == 0).any() and (weights[:, 0] > 0).all()  # members that fail on the meter alone
    ahead, last = forecaster.predict()["meter"], table["meter"].iloc[-1]
    assert (ahead > last).all()
    assert abs(ahead.iloc[-1] - last - 36) < 9


def test_a_saved_ensemble_whose_channels_share_their_weights_still_loads(best: Forecaster, tmp_path: Path) -> None:
    state = best.state_
    assert isinstance(state.model, Ensemble) and state.final is not None
    shared = [with_parts(model, parts_of(model)) for model in (state.model, state.final)]
    for model in shared:
        model.weights = state.model.weights[:, 0].clone()
    save_state(replace(state, model=shared[0], final=shared[1]), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    assert not config.pop("weights_by_channel")  # which those folders do not know
    path.write_text(json.dumps(with_checksum(config)), encoding="utf-8")
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path).predict(), best.predict())


def test_an_ensemble_is_saved_and_loaded_with_its_members_and_weights(best: Forecaster, tmp_path: Path) -> None:
    best.save(tmp_path / "model")
    again = Forecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(level=[80]), best.predict(level=[80]))
    pd.testing.assert_frame_equal(again.leaderboard().frame, best.leaderboard().frame)
    assert again.quality == "best"
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["members"][0]["lookback"] = 15
    path.write_text(json.dumps(with_checksum(config)), encoding="utf-8")
    with pytest.raises(InputError, match="a member has look-back 15, its Forecaster 14"):
        Forecaster.load(tmp_path / "model")


def test_an_ensemble_is_analyzed_tested_and_updated_like_a_single_model(best: Forecaster) -> None:
    relations = best.relations()
    assert relations.attention is not None and relations.attention.shape == (3, 3)
    assert best.sensor_ablation().growth.shape == (3, 3)
    assert len(best.backtest(windows=2).scores) == 4
    fast = Forecaster(**TINY, quality="fast", missing="interpolate").fit(weather().iloc[:-10])
    before = fast.predict(level=[80])
    after = fast.update(weather().iloc[-10:]).predict(level=[80], adaptive=True)
    assert before.shape == after.shape == (5, 9)
    assert not before.equals(after)


def test_the_default_look_back_leaves_three_of_them_in_the_held_out_rows_of_a_short_table() -> None:
    made = Forecaster(horizon=5, epochs=1, progress="off", quality="fast", missing="interpolate").fit(weather())
    assert made.state_.lookback == 70 and made.lookback is None
    assert made.relations().lead.shape == (3, 3)
    assert {member.lookback for member in made.state_.members} == {70}


def test_the_last_season_repeated_is_a_member_that_is_saved(tmp_path: Path) -> None:
    draw, dates = np.random.default_rng(0), pd.date_range("2024-01-01", periods=211, freq="D")
    weeks = np.resize(draw.normal(size=(7, 3)), (211, 3)) + draw.normal(size=(31, 3)).cumsum(0).repeat(7, axis=0)[:211]
    made = Forecaster(**TINY, quality="fast").fit(pd.DataFrame(weeks, dates, ["a", "b", "c"]))
    assert made.season_ == 7
    board = made.leaderboard().frame
    assert board["weight"]["last season"] > 0
    assert_allclose(board["test_mse"]["last season"], board["test_mse"]["seasonal naive"])
    assert {one.model: one.model_args for one in made.state_.members}["seasonal-naive"] == {"season": 7}
    made.save(tmp_path / "model")
    again = Forecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(level=[80]), made.predict(level=[80]))


def test_the_last_season_alone_is_no_ensemble_where_nothing_else_can_be_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    designs = {"diverges": {"attention": "standard", "lr": 1e30}, "last season": DESIGNS["last season"]}
    monkeypatch.setattr("primecast.forecasting.arguments.DESIGNS", designs)
    with pytest.raises(TrainingError):
        Forecaster(**TINY, season=7, quality="good", missing="interpolate").fit(weather())


def test_a_seasonal_naive_model_that_is_given_keeps_its_season_in_an_ensemble() -> None:
    one = Forecaster(**TINY, model="seasonal-naive", model_args={"season": 7}, quality="good", missing="interpolate")
    made = one.fit(weather())
    assert made.state_.members and all(one.model_args == {"season": 7} for one in made.state_.members)


def test_members_are_built_on_a_model_that_is_given() -> None:
    made = Forecaster(**TINY, quality="good", model="dlinear", missing="interpolate").fit(weather())
    assert set(made.leaderboard().frame.index[:-2]) <= {"as given", "shrink", "seed + 1", "seed + 2"}
    assert {member.model for member in made.state_.members} == {"dlinear"}


def test_a_time_limit_leaves_out_members_and_a_diverged_one_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Forecaster(**TINY, quality="good", time_limit=1e-3, missing="interpolate").fit(weather())
    assert len(cut.state_.members) == 1
    designs = {"diverges": {"attention": "standard", "lr": 1e30}, "dlinear": {"model": "dlinear"}}
    monkeypatch.setattr("primecast.forecasting.arguments.DESIGNS", designs)
    whole = Forecaster(**{**TINY, "epochs": 3}, quality="good", missing="interpolate").fit(weather())
    assert list(whole.leaderboard().frame.index) == ["dlinear", "ensemble", "seasonal naive"]
    assert [member.model for member in whole.state_.members] == ["dlinear"]


def test_refit_trains_every_member_on_all_rows() -> None:
    plain, refitted = (
        Forecaster(**TINY, quality="good", missing="interpolate", refit=refit).fit(weather()) for refit in (False, True)
    )
    assert plain.leaderboard().frame["weight"].equals(refitted.leaderboard().frame["weight"])
    assert not plain.predict().equals(refitted.predict())
    assert plain.scores_.mse == refitted.scores_.mse
    for made, count in ((plain, 4), (refitted, len(refitted.state_.members))):
        assert isinstance(made.state_.final, Ensemble) and isinstance(made.state_.model, Ensemble)
        pairs = list(zip(made.state_.model.members, made.state_.final.members, strict=True))
        assert sum(one is not other for one, other in pairs) == count
        assert torch.equal(made.state_.model.weights, made.state_.final.weights)


def test_an_ensemble_is_saved_with_the_parts_of_its_final_model_that_differ(best: Forecaster, tmp_path: Path) -> None:
    best.save(tmp_path / "model")
    again = Forecaster.load(tmp_path / "model")
    for rows in (690, 700):  # in the rows of fit, and all of them
        pd.testing.assert_frame_equal(again.predict(weather().iloc[:rows]), best.predict(weather().iloc[:rows]))
    for made in (best, again):
        assert isinstance(made.state_.final, Ensemble) and isinstance(made.state_.model, Ensemble)
        pairs = zip(made.state_.members, made.state_.model.members, made.state_.final.members, strict=True)
        assert {(member.model == "ridge", one is other) for member, one, other in pairs} == {
            (True, False),
            (False, True),
        }


def test_members_that_read_no_time_features_are_left_out_where_covariates_are_known_beforehand() -> None:
    columns = list(weather().columns)
    made = Forecaster(**TINY, quality="best", future=columns[2:], missing="interpolate").fit(weather())
    board = made.leaderboard().frame
    assert "dlinear" not in board.index and {"ridge", "prime-learned, shrink", "standard"} <= set(board.index)
    assert {member.lookback for member in made.state_.members} == {TINY["lookback"]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quality": "great"}, "unknown quality 'great'.*allowed: best, fast, good"),
        ({"model": "dlinear", "time_limit": 3.0}, "time_limit is 3.0; it is for an ensemble, not one model"),
        ({"quality": "good", "time_limit": 0}, "time_limit is 0"),
    ],
)
def test_a_quality_or_time_limit_that_cannot_be_used_says_why(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Forecaster(**TINY, **options)
