"""The demonstration: forecast, compare and draw on data that comes with the package.

Train an iTransformer with prime attention on the hourly weather of three airports, forecast the next day, and compare
with the same model with standard attention and with the seasonal naive forecast.
"""

from pathlib import Path

import pandas as pd
import typer

from primecast.cli.tables import print_table, write_picture
from primecast.data.nyc import nyc_weather, unit_of
from primecast.forecasting.forecaster import Forecaster
from primecast.frames.validate import describe_gaps
from primecast.models import default_attention
from primecast.storage.atomic import write_bytes_atomically

HORIZON, LOOKBACK = 24, 48
SHOWN = ["EWR temp", "JFK wind_speed", "LGA pressure"]
EPOCHS = 2
LEVEL = 80
"""Percent of the drawn and written prediction intervals."""
SETTINGS = {"d_model": 64, "n_heads": 4, "n_layers": 1}


def run_demo(folder: Path) -> None:
    """Print forecasts and scores; write forecast.csv and forecast.png into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    df = nyc_weather()
    typer.echo(
        f"nyc-weather: {len(df)} hours of 2013 at EWR, JFK and LGA, {df.shape[1]} channels.\n"
        f"Missing values: {describe_gaps(df, missing='interpolate')}."
    )
    prime = _train(df, default_attention("itransformer"))
    forecast = prime.predict(level=[LEVEL])
    shown = forecast[SHOWN].iloc[::3].rename(columns=lambda name: f"{name} ({unit_of(name)})")
    print_table(shown, title="\nThe next day, every third hour", name="time (UTC)")
    csv, picture = folder / "forecast.csv", folder / "forecast.png"
    write_bytes_atomically(csv, forecast.round(3).to_csv(index_label="time").encode())

    standard = _train(df, "standard")
    rows = {
        "seasonal naive (yesterday repeated)": prime.naive_scores_,
        "iTransformer, standard attention": standard.scores_,
        f"iTransformer, {prime.attention} attention": prime.scores_,
    }
    scores = pd.DataFrame({name: {"MSE": one.mse, "MAE": one.mae} for name, one in rows.items()}).T
    print_table(scores, title=f"\nLast fifth of the hours: {prime.scores_.windows} forecasts", name="forecast")
    typer.echo("Standardized units, one seed each: a difference in the third digit is within the spread of seeds.")
    write_picture(prime.plot(df.iloc[:-HORIZON], truth=df, channels=SHOWN, level=[LEVEL]), picture)
    typer.echo(
        f"\nWritten:\n  {csv}: the next day of all {df.shape[1]} channels with {LEVEL} % intervals\n"
        f"  {picture}: the last recorded day, held out of training: forecast, interval and truth"
    )


def _train(df: pd.DataFrame, attention: str) -> Forecaster:
    typer.echo(f"\nTraining an iTransformer with {attention} attention, {LOOKBACK} h -> {HORIZON} h:")
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
