"""Prime attention inside neuralforecast: its training, cross-validation, intervals and files; and its iTransformer."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

package = pytest.importorskip("neuralforecast", reason="run by `make test-all`, in an environment with neuralforecast")

from neuralforecast import NeuralForecast  # noqa: E402
from neuralforecast.losses.pytorch import MQLoss  # noqa: E402
from neuralforecast.models import iTransformer  # noqa: E402
from neuralforecast.utils import PredictionIntervals  # noqa: E402

from primecast.errors import InputError  # noqa: E402
from primecast.integrations.neuralforecast import PrimeITransformer  # noqa: E402
from primecast.models.registry import create_model, default_attention  # noqa: E402
from primecast.nn.swap import swap_attention  # noqa: E402
from primecast.nn.swap_adapters import Adapter, HeadsForward  # noqa: E402
from tests.integrations.foreign import is_unchanged_until_it_is_trained  # noqa: E402

H, L, N, T = 5, 17, 3, 173
QUICK: dict[str, Any] = {
    "h": H,
    "input_size": L,
    "n_series": N,
    "hidden_size": 14,
    "n_heads": 2,
    "e_layers": 1,
    "max_steps": 7,
    "windows_batch_size": 8,
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def panel() -> pd.DataFrame:
    """Three series of which each follows the one before, and two exogenous columns."""
    steps = np.arange(T)
    noise = np.random.default_rng(0).normal(size=T + 11).cumsum()
    stamps = pd.date_range("2024-01-01", periods=T, freq="h")
    parts = [
        pd.DataFrame(
            {
                "unique_id": f"s{k}",
                "ds": stamps,
                "y": noise[11 - 3 * k : 11 - 3 * k + T] + k,
                "plan": np.sin(steps / 5 + k),
                "seen": np.cos(steps / 7 + k),
            }
        )
        for k in range(N)
    ]
    return pd.concat(parts, ignore_index=True)


def fitted(df: pd.DataFrame | None = None, **options: Any) -> NeuralForecast:
    nf = NeuralForecast(models=[PrimeITransformer(**{**QUICK, **options})], freq="h")
    columns = ["unique_id", "ds", "y", *options.get("futr_exog_list", []), *options.get("hist_exog_list", [])]
    nf.fit((panel() if df is None else df)[columns])
    return nf


def test_it_forecasts_and_prime_and_standard_attention_differ() -> None:
    prime, standard = (fitted(attention=attention).predict() for attention in ("prime", "standard"))
    assert list(prime.columns) == ["unique_id", "ds", "PrimeITransformer"] and len(prime) == N * H
    assert np.isfinite(prime["PrimeITransformer"]).all()
    assert not np.allclose(prime["PrimeITransformer"], standard["PrimeITransformer"])


def test_its_default_is_the_packages_default_design() -> None:
    model = PrimeITransformer(**QUICK)
    own = create_model("itransformer", lookback=L, horizon=H, channels=N, d_model=14, n_heads=2, n_layers=1)
    assert model.network.state_dict().keys() == own.state_dict().keys()
    assert model.hparams["attention"] == default_attention("itransformer")  # a file names what it was made with


def test_the_same_seed_gives_the_same_forecast() -> None:
    pd.testing.assert_frame_equal(fitted().predict(), fitted().predict())


def test_exogenous_columns_of_past_and_future_are_used() -> None:
    nf = fitted(futr_exog_list=["plan"], hist_exog_list=["seen"])
    future = nf.make_future_dataframe().assign(plan=0.5)
    one, other = nf.predict(futr_df=future), nf.predict(futr_df=future.assign(plan=-3.0))
    assert not np.allclose(one["PrimeITransformer"], other["PrimeITransformer"])
    df = panel()[["unique_id", "ds", "y", "plan", "seen"]]
    changed = nf.predict(df=df.assign(seen=df["seen"] * (1 + df.index % 2)), futr_df=future)
    assert not np.allclose(one["PrimeITransformer"], changed["PrimeITransformer"])


def test_cross_validation_has_every_window() -> None:
    nf = NeuralForecast(models=[PrimeITransformer(**QUICK)], freq="h")
    cv = nf.cross_validation(panel()[["unique_id", "ds", "y"]], n_windows=2, step_size=H)
    assert cv.groupby(["unique_id", "cutoff"]).size().tolist() == [H] * (2 * N)
    assert np.isfinite(cv["PrimeITransformer"]).all()


def test_conformal_intervals_surround_the_forecast() -> None:
    nf = NeuralForecast(models=[PrimeITransformer(**QUICK)], freq="h")
    nf.fit(panel()[["unique_id", "ds", "y"]], prediction_intervals=PredictionIntervals(n_windows=3))
    forecast = nf.predict(level=[80])
    low, mid, high = (forecast[f"PrimeITransformer{side}"] for side in ("-lo-80", "", "-hi-80"))
    assert (low <= mid).all() and (mid <= high).all() and (low < high).any()


def test_a_loss_of_several_quantiles_gets_several_outputs() -> None:
    forecast = fitted(loss=MQLoss(level=[80])).predict()
    wanted = {"PrimeITransformer-median", "PrimeITransformer-lo-80", "PrimeITransformer-hi-80"}
    assert wanted <= set(forecast.columns)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    nf = fitted(primer={"kind": "lead_lag", "base": "identity"})
    nf.save(str(tmp_path / "saved"), overwrite=True, save_dataset=True)
    again = NeuralForecast.load(str(tmp_path / "saved"))
    assert isinstance(again.models[0], PrimeITransformer)
    pd.testing.assert_frame_equal(again.predict(), nf.predict())


def test_an_attention_that_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match="unknown attention of model itransformer 'prim'"):
        PrimeITransformer(**{**QUICK, "attention": "prim"})


ADAPTER = Adapter(
    target="AttentionLayer",
    at="inner_attention",
    shape=lambda module: (module.query_projection.out_features, module.n_heads),
    forward=HeadsForward(
        layout="b n h k",
        dropout="dropout",
        scale="scale",
        returns=lambda out, weights: (out.contiguous(), weights),
    ),
)


@pytest.mark.parametrize("exogenous", [0, 2])
def test_prime_attention_is_swapped_into_its_itransformer(exogenous: int) -> None:
    model = iTransformer(**{**QUICK, "d_ff": 13, "futr_exog_list": [f"e{k}" for k in range(exogenous)] or None})
    batch = {"insample_y": torch.randn(2, L, N, dtype=torch.float64)}
    if exogenous:
        batch["futr_exog"] = torch.randn(2, exogenous, L + H, N, dtype=torch.float64)
    report = is_unchanged_until_it_is_trained(
        lambda: model(dict(batch)),
        model,
        lambda: swap_attention(
            model,
            length=L,
            bare=(0, exogenous * N),  # covariates are tokens without a series
            adapters=[ADAPTER],
            series=lambda windows_batch: windows_batch["insample_y"].mT,
        ),
    )
    assert [(place.path, place.d_model, place.heads) for place in report.places] == [
        ("encoder.attn_layers.0.attention.inner_attention", 14, 2)
    ]
