"""The demonstration: forecast, compare and draw on data that comes with the package.

Train an iTransformer with prime attention on the hourly weather of three airports, forecast the next day, and compare
with the same model with standard attention and with the seasonal naive forecast.
"""

from io import BytesIO
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from primecast.data.nyc import nyc_weather, unit_of
from primecast.forecasting.forecaster import Forecaster
from primecast.frames.validate import describe_gaps
from primecast.models import default_attention
from primecast.storage.atomic import write_bytes_atomically

HORIZON, LOOKBACK = 24, 48
SHOWN = ("EWR temp", "JFK wind_speed", "LGA pressure")
EPOCHS = 2
LEVEL = 80
"""Percent of the drawn and written prediction intervals."""
SETTINGS = {"d_model": 64, "n_heads": 4, "n_layers": 1}


def run_demo(folder: Path) -> None:
    """Print forecasts and scores; write forecast.csv and forecast.png into `folder`."""
    console = Console()
    folder.mkdir(parents=True, exist_ok=True)
    df = nyc_weather()
    console.print(
        f"[bold]nyc-weather[/bold]: {len(df)} hours of 2013 at EWR, JFK and LGA, {df.shape[1]} channels.\n"
        f"Missing values: {describe_gaps(df, missing='interpolate')}."
    )

    prime = _train(df, default_attention("itransformer"), console)
    forecast = prime.predict(level=[LEVEL])
    _show(forecast, console)
    csv, picture = folder / "forecast.csv", folder / "forecast.png"
    write_bytes_atomically(csv, forecast.round(3).to_csv(index_label="time").encode())

    standard = _train(df, "standard", console)
    _compare(prime, standard, console)
    _draw(prime, df, picture)
    console.print(
        f"\nWritten:\n  {csv}: the next day of all {df.shape[1]} channels with {LEVEL} % intervals\n"
        f"  {picture}: the last recorded day, held out of training: forecast, interval and truth"
    )


def _train(df: pd.DataFrame, attention: str, console: Console) -> Forecaster:
    console.print(f"\nTraining an iTransformer with [bold]{attention}[/bold] attention, {LOOKBACK} h -> {HORIZON} h:")
    return Forecaster(
        horizon=HORIZON,
        lookback=LOOKBACK,
        attention=attention,
        model_args=SETTINGS,
        lr=2e-3,
        batch_size=64,
        epochs=EPOCHS,
        missing="interpolate",
    ).fit(df)


def _show(forecast: pd.DataFrame, console: Console) -> None:
    table = Table(
        "time (UTC)", *(f"{name} ({unit_of(name)})" for name in SHOWN), title="The next day, every third hour"
    )
    for time, row in forecast.iloc[::3].iterrows():
        table.add_row(f"{time:%Y-%m-%d %H:%M}", *(f"{row[name]:.1f}" for name in SHOWN))
    console.print(table)


def _compare(prime: Forecaster, standard: Forecaster, console: Console) -> None:
    rows = {
        "seasonal naive (yesterday repeated)": prime.naive_scores_,
        "iTransformer, standard attention": standard.scores_,
        f"iTransformer, {prime.attention} attention": prime.scores_,
    }
    table = Table("forecast", "MSE", "MAE", title=f"Last fifth of the hours: {prime.scores_.windows} forecasts")
    for name, scores in rows.items():
        table.add_row(name, f"{scores.mse:.4f}", f"{scores.mae:.4f}")
    console.print("", table, sep="\n")
    console.print("Standardized units, one seed each: a difference in the third digit is within the spread of seeds.")


def _draw(fitted: Forecaster, df: pd.DataFrame, path: Path) -> None:
    """Draw a forecast from a past origin, a day before the last row, beside the values that followed."""
    from primecast.plotting.figures import forecast_figure

    past, truth = df.iloc[:-HORIZON], df.iloc[-HORIZON:]
    forecast = fitted.predict(past, level=[LEVEL])
    lower, upper = (
        forecast[[f"{name}-{side}-{LEVEL}" for name in SHOWN]].set_axis(SHOWN, axis="columns") for side in ("lo", "hi")
    )
    figure = forecast_figure(
        past.iloc[-3 * HORIZON :].interpolate(method="time"),
        forecast,
        lower,
        upper,
        truth,
        channels=SHOWN,
        units={name: unit_of(name) for name in SHOWN},
        level=LEVEL,
    )
    image = BytesIO()
    figure.savefig(image, format="png", dpi=130)
    write_bytes_atomically(path, image.getvalue())
