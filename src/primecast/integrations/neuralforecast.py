"""Prime attention in neuralforecast: a model for `NeuralForecast(models=[...])`.

    nf = NeuralForecast(models=[PrimeITransformer(h=24, input_size=96, n_series=7)], freq="h")
    nf.fit(df, val_size=96); nf.predict()

It is the package's own iTransformer inside neuralforecast's own training, so that cross-validation, exogenous inputs,
conformal intervals, distribution losses, saving and its Ray and Spark machinery work as they do for every model there.

Exogenous columns become tokens: historic ones are channels that are read but not forecast; future ones are time
features, each once over the past and again shifted until every future value lies within the look-back.

To load a saved `NeuralForecast` that holds this model, import this module first: that registers its name.

Letters: b windows, l input size, h horizon, n series, x exogenous columns, c numbers the loss wants for each step.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from primecast.frames.roles import shift_future_covariates, shifts
from primecast.models import create_model
from primecast.models.registry import default_attention

try:
    from neuralforecast.common._base_model import BaseModel
    from neuralforecast.core import MODEL_FILENAME_DICT
    from neuralforecast.losses.pytorch import MAE
except ImportError as error:
    raise ImportError(
        "primecast.integrations.neuralforecast needs neuralforecast, which is not installed: "
        "pip install 'primecast[neuralforecast]'"
    ) from error


ATTENTION = default_attention("itransformer")
"""A name and not None: a saved model must not change with a later default."""
OWN_ARGUMENTS = {"attention", "primer", "hidden_size", "n_heads", "e_layers", "d_ff", "dropout", "norm"}
NOT_OF_BASE = OWN_ARGUMENTS | {"self", "__class__", "trainer_kwargs"}
"""Names in the constructor that are not passed on to neuralforecast's base class; all others are."""


class PrimeITransformer(BaseModel):
    """iTransformer with prime attention, or with any attention that primecast has.

    h, input_size, n_series: horizon, look-back and number of series.
    futr_exog_list, hist_exog_list: names of exogenous columns; static ones are not used.
    attention: a name of `primecast list`; the default is that of `create_model`. primer: arguments of `Primer`.
    hidden_size, n_heads, e_layers, d_ff, dropout, norm: of the iTransformer; d_ff is hidden_size when None.
    All others are neuralforecast's own.
    """

    EXOGENOUS_FUTR = True
    EXOGENOUS_HIST = True
    EXOGENOUS_STAT = False
    MULTIVARIATE = True
    RECURRENT = False

    def __init__(
        self,
        h: int,
        input_size: int,
        n_series: int,
        futr_exog_list: list[str] | None = None,
        hist_exog_list: list[str] | None = None,
        stat_exog_list: list[str] | None = None,
        exclude_insample_y: bool = False,
        attention: str = ATTENTION,
        primer: Mapping[str, object] | None = None,
        hidden_size: int = 128,
        n_heads: int = 8,
        e_layers: int = 2,
        d_ff: int | None = None,
        dropout: float = 0.1,
        norm: str = "instance",
        loss: Any = MAE(),  # noqa: B008 (as in every model there: it is copied before it is used)
        valid_loss: Any = None,
        max_steps: int = 1000,
        learning_rate: float = 1e-3,
        num_lr_decays: int = -1,
        early_stop_patience_steps: int = -1,
        val_monitor: str = "ptl/val_loss",
        val_check_steps: int = 100,
        batch_size: int = 32,
        valid_batch_size: int | None = None,
        windows_batch_size: int | None = 32,
        inference_windows_batch_size: int | None = 32,
        start_padding_enabled: bool = False,
        training_data_availability_threshold: float | list[float] = 0.0,
        step_size: int = 1,
        scaler_type: str = "identity",
        random_seed: int = 1,
        drop_last_loader: bool = False,
        alias: str | None = None,
        optimizer: Any = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        lr_scheduler: Any = None,
        lr_scheduler_kwargs: dict[str, Any] | None = None,
        dataloader_kwargs: dict[str, Any] | None = None,
        **trainer_kwargs: Any,
    ) -> None:
        super().__init__(**{k: v for k, v in locals().items() if k not in NOT_OF_BASE}, **trainer_kwargs)
        self.known = n_series * len(futr_exog_list or ())
        self.network = create_model(
            "itransformer",
            lookback=input_size,
            horizon=h * self.loss.outputsize_multiplier,
            channels=n_series * (1 + len(hist_exog_list or ())),
            n_time_features=self.known * len(shifts(lookback=input_size, horizon=h)),
            d_model=hidden_size,
            n_heads=n_heads,
            n_layers=e_layers,
            d_ff=d_ff,
            dropout=dropout,
            norm=norm,
            attention=attention,
            **_given(primer=primer),
        )

    def forward(self, windows_batch: Mapping[str, Tensor | None]) -> Tensor:
        """insample_y (b, l, n), hist_exog (b, x, l, n), futr_exog (b, x, l + h, n) -> (b, h, c n)."""
        y = windows_batch["insample_y"]
        assert y is not None
        past, future = windows_batch.get("hist_exog"), windows_batch.get("futr_exog")
        x = y if past is None else torch.cat([y, _columns(past)], dim=-1)
        time_features = None
        if future is not None:
            time_features = shift_future_covariates(_columns(future), known=self.known, lookback=y.shape[1])
        forecast = self.network(x, time_features)[..., : self.n_series]
        return forecast.reshape(len(y), self.h, -1)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _columns(exogenous: Tensor) -> Tensor:
    """Return (b, x, t, n) as (b, t, x n): each column of each series is a channel."""
    return exogenous.transpose(1, 2).flatten(2)


# neuralforecast saves and loads the models of this table alone.
MODEL_FILENAME_DICT[PrimeITransformer.__name__.lower()] = PrimeITransformer
