"""The demonstration: the main job, once, on data that comes with the package.

Train an iTransformer with prime attention on hourly weather of three airports, forecast the next day, and say how it
compares with the same model with standard attention and with yesterday's weather repeated.
"""

from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from primecast.data.nyc import nyc_weather, unit_of
from primecast.forecasting.forecaster import Forecaster
from primecast.frames.read import describe_gaps
from primecast.models import default_attention
from primecast.storage.atomic import write_bytes_atomically

HORIZON, LOOKBACK = 24, 48
SHOWN = ("EWR temp", "JFK wind_speed", "LGA pressure")
EPOCHS = 2
SETTINGS = {"d_model": 64, "n_heads": 4, "n_layers": 1}


def run_demo(folder: Path) -> None:
    """Print the story, write forecast.csv and forecast.png into `folder`."""
    console = Console()
    folder.mkdir(parents=True, exist_ok=True)
    df = nyc_weather()
    console.print(
        f"[bold]nyc-weather[/bold]: {len(df)} hours of 2013 at EWR, JFK and LGA, {df.shape[1]} channels.\n"
        f"Gap policy: {describe_gaps(df, missing='interpolate')}."
    )

    prime = _train(df, default_attention("itransformer"), console)
    forecast = prime.predict()
    _show(forecast, console)
    csv = folder / "forecast.csv"
    write_bytes_atomically(csv, forecast.round(3).to_csv(index_label="time").encode())

    standard = _train(df, "standard", console)
    _compare(prime, standard, console)
    picture = folder / "forecast.png"
    _draw(df, forecast, picture)
    console.print(f"\nWritten: {csv} (all {df.shape[1]} channels) and {picture}.")


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
        "yesterday repeated (seasonal naive)": prime.naive_scores_,
        "iTransformer, standard attention": standard.scores_,
        f"iTransformer, {default_attention('itransformer')} attention": prime.scores_,
    }
    table = Table(
        "forecast",
        "MSE",
        "MAE",
        title=f"Last fifth of the hours: {prime.scores_.windows} forecasts",
    )
    for name, scores in rows.items():
        table.add_row(name, f"{scores.mse:.4f}", f"{scores.mae:.4f}")
    console.print()
    console.print(table)
    console.print(
        "Errors in scaled units, one seed each: a difference in the third digit is within the spread of seeds."
    )


def _draw(df: pd.DataFrame, forecast: pd.DataFrame, path: Path) -> None:
    from io import BytesIO

    from primecast.plotting.figures import forecast_figure

    recent = df.iloc[-4 * HORIZON :].interpolate(method="time")
    units = {name: unit_of(name) for name in SHOWN}
    image = BytesIO()
    forecast_figure(recent, forecast, channels=SHOWN, units=units).savefig(image, format="png", dpi=130)
    write_bytes_atomically(path, image.getvalue())
