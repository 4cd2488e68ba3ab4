"""Cost of prime attention in training, and of the training loop compared with other libraries.

    python benchmarks/training.py                                   # all parts
    python benchmarks/training.py --part steps --dataset Weather    # one of them, at one shape

steps     whole training steps of iTransformer (forward, squared error, backward, fused Adam), standard and prime
          with full features and one or two units per head, 96 -> 96, at the shapes and settings of the presets (see
          primecast.models.presets), on random walks with time features where the data set has dates.
original  one step at the width and batch of iTransformer's own Traffic script (862 channels, width 512, batch 16), in
          fresh processes: peak memory of the whole process, and seconds.
growth    time and memory of a step by number of channels, at the paper's Traffic settings, batch 1, no time features.
loop      windows per second of a training loop, see loops.py; peers in environments made by `install.py --prepare`.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from torch import Tensor

import measure
from measure import HERE, Others, Rows, time_interleaved
from primecast.data.catalog import CATALOG
from primecast.data.windows import calendar_features
from primecast.experiments.spec import Spec, resolve
from primecast.models import create_model
from primecast.nn.losses import create_loss

LOOKBACK, HORIZON, HEADS = 96, 96, 8
PRIMES = {
    "prime, 1 unit per head": ("prime", 1),
    "prime, 2 units per head": ("prime", 2),
    "learned, 1 unit per head": ("prime-learned", 1),
    "learned, 2 units per head": ("prime-learned", 2),
}
"""Contender -> attention and hidden units per head."""
CONTENDERS = ("standard", *PRIMES)

CASES = {
    "paper": ("ETTh1", "Weather", "Solar-Energy", "ECL", "PEMS03", "Traffic"),
    "official": ("ETTh1", "Weather", "ECL"),  # of the other three, Traffic is the part "original"
}
GROWTH = (137, 321, 862, 1300, 2048)

LOOPS = {
    "primecast": None,
    "dataloader": None,
    "dataloader-fused": None,
    "darts": "darts",
    "neuralforecast": "neuralforecast",
}
"""Loop of loops.py -> the environment it runs in; None is this one."""


# ---------------------------------------------------------------- a training step


def make_step(
    dataset: str,
    preset: str,
    what: str,
    *,
    channels: int | None = None,
    batch: int | None = None,
    time_features: bool = True,
) -> Callable[[], float]:
    """Return a function that makes one training step of a new model on one batch."""
    attention, units = PRIMES.get(what, ("standard", 0))
    settings = {"primer.hidden": HEADS * units, "primer.grouped": True} if units else {}
    plan = resolve(Spec(dataset=dataset, attention=attention, preset=preset, horizon=HORIZON, settings=settings))
    batch = batch or int(plan.training["batch_size"])
    channels = channels or CATALOG[dataset].channels
    generator = torch.Generator().manual_seed(0)
    walks = torch.randn(batch, LOOKBACK + HORIZON, channels, generator=generator).cumsum(1)
    calendar = time_features_of(dataset, batch) if time_features and CATALOG[dataset].time_features else None
    model = create_model(
        "itransformer",
        lookback=LOOKBACK,
        horizon=HORIZON,
        channels=channels,
        n_time_features=0 if calendar is None else calendar.shape[-1],
        seed=0,
        **plan.model,
    ).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=float(plan.training["lr"]), fused=True)
    loss = create_loss("mse")
    x, y = walks[:, :LOOKBACK], walks[:, LOOKBACK:]

    def step() -> float:
        value = loss(model(x, calendar), y)
        number = value.item()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return number

    return step


def time_features_of(dataset: str, batch: int) -> Tensor:
    """Return the time features of windows that start a week and an hour apart."""
    steps = LOOKBACK + HORIZON
    starts = pd.date_range("2016-07-01", periods=batch, freq="169h")
    return torch.stack(
        [calendar_features(pd.date_range(start, periods=steps, freq=CATALOG[dataset].frequency)) for start in starts]
    )


def check() -> None:
    """Check that what is timed trains: a few steps on one batch reduce the loss."""
    for what in CONTENDERS:
        step = make_step("ETTh1", "official", what, batch=4)
        first = step()
        for _ in range(8):
            last = step()
        if not last < first:
            raise AssertionError(f"{what}: the loss went from {first:.4f} to {last:.4f} in eight steps on one batch")


def steps(rows: Rows, arguments: argparse.Namespace) -> None:
    for preset, datasets in CASES.items():
        for dataset in datasets:
            if dataset not in arguments.dataset or (arguments.quick and preset != "paper"):
                continue
            case = {"dataset": dataset, "preset": preset}
            if arguments.resume and rows.settled(*(f"{measure.case_id(case)} {what}" for what in CONTENDERS)):
                continue
            calls = {what: make_step(dataset, preset, what) for what in CONTENDERS}
            with Others() as others:
                timings = time_interleaved(calls, seconds=arguments.seconds)
            rows.put_timings(timings, others, against="standard", **case)
            measure.show_timings(f"step, {dataset}, {preset} preset; others {others.cores}", timings, "standard")


# ---------------------------------------------------------------- original width, and growth


def step_job(steps: int, **case: Any) -> dict[str, object]:
    """Run in a process of its own: a small step that loads the libraries, then the steps of the case."""
    make_step("ETTh1", "official", case["what"], batch=2)()
    step = make_step(**case)
    seconds = [measure.sample(step) for _ in range(steps)]
    return {"peak": measure.peak_bytes(), "seconds": seconds}


def original(rows: Rows, arguments: argparse.Namespace) -> None:
    for what in ("prime, 2 units per head", "standard"):
        case = {"dataset": "Traffic", "preset": "official", "what": what}
        name = measure.case_id(case)
        if arguments.resume and rows.settled(name):
            continue
        with Others() as others:
            found = measure.run_fresh(HERE / "training.py", {**case, "steps": 1})
        seconds = round(found["seconds"][0], 3)
        rows.put(name, others, **case, bytes=found["peak"], of="resident memory of the whole process", seconds=seconds)
    measure.show(
        "Traffic at its original width: 862 channels, width 512, batch 16, one step",
        ("attention", "GiB", "s"),
        [(row["what"], row["bytes"] / 2**30, row["seconds"]) for row in rows.rows.values()],
    )


def growth(rows: Rows, arguments: argparse.Namespace) -> None:
    contenders = ("standard", "prime, 2 units per head")
    sizes = [n for n in GROWTH if not arguments.quick or n in (137, 321, 862)]
    for channels in sizes:
        case = {"dataset": "Traffic", "preset": "paper", "channels": channels, "batch": 1, "time_features": False}
        identity = {"channels": channels}
        names = [f"{measure.case_id(identity)} {what}" for what in contenders]
        if not (arguments.resume and rows.settled(*names)):
            calls = {what: make_step(what=what, **case) for what in contenders}  # type: ignore[arg-type]
            with Others() as others:
                timings = time_interleaved(calls, seconds=arguments.seconds / 2)
            rows.put_timings(timings, others, against="standard", **identity)
            measure.show_timings(f"step, {channels} channels; others {others.cores}", timings, "standard")
        for what in contenders:
            name = f"{measure.case_id(identity)} memory {what}"
            if arguments.resume and rows.settled(name):
                continue
            with Others() as others:
                job = {**case, "what": what}
                idle, busy = (
                    measure.run_fresh(HERE / "training.py", {**job, "steps": count})["peak"] for count in (0, 2)
                )
            of = "resident memory of a fresh process, model and batch not counted"
            rows.put(name, others, **identity, what=what, bytes=busy - idle, of=of)
    measure.show(
        "growth of a step with the number of channels",
        ("channels", "attention", "ms", "MiB"),
        [
            (n, what, 1e3 * timed["seconds"], rows.rows[f"channels={n} memory {what}"]["bytes"] / 2**20)
            for n in sizes
            for what in contenders
            for timed in (rows.rows[f"channels={n} {what}"],)
        ],
    )


# ---------------------------------------------------------------- the training loop compared with others


def loop(rows: Rows, arguments: argparse.Namespace) -> None:
    """Interleave the processes, so that a slow minute of the machine affects all loops."""
    chosen = {name: env for name, env in LOOPS.items() if env is None or not arguments.quick}
    if arguments.resume and rows.settled(*chosen):
        return
    job = {"steps": 120, "skip": 20} if arguments.quick else {"steps": 220, "skip": 40}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    with Others() as others:
        for turn in range(2 if arguments.quick else 5):
            for name, env in list(chosen.items())[:: 1 if turn % 2 == 0 else -1]:
                python = sys.executable if env is None else measure.peer_python(env)
                found[name].append(measure.run_fresh(HERE / "loops.py", {"loop": name, **job}, python=python))
    rates = {
        name: measure.summarize([answer["windows_per_second"] for answer in answers]) for name, answers in found.items()
    }
    for name, rate in rates.items():
        rows.put(
            name,
            others,
            what=name,
            windows_per_second=round(rate.seconds, 2),
            low=round(rate.low, 2),
            high=round(rate.high, 2),
            samples=rate.samples,
            ratio=round(rates["primecast"].seconds / rate.seconds, 4),
            parameters=found[name][0]["parameters"],
            dtype=found[name][0]["dtype"],
            peer_versions=found[name][0]["versions"],
            **job,
        )
    table = [(name, rate.seconds, rates["primecast"].seconds / rate.seconds) for name, rate in rates.items()]
    measure.show(f"training loop; others {others.cores}", ("loop", "windows / s", "primecast is faster by"), table)


# ---------------------------------------------------------------- the command

PARTS = {"steps": steps, "original": original, "growth": growth, "loop": loop}


def main() -> None:
    parser = measure.parser(__doc__, list(PARTS))
    parser.add_argument("--dataset", nargs="+", choices=CASES["paper"])
    parser.add_argument("--seconds", type=float, help="of sampling per case")
    arguments = parser.parse_args()
    measure.prepare_process()
    if arguments.job:
        print(json.dumps(step_job(**json.loads(arguments.job))))
        return
    arguments.dataset = arguments.dataset or (("ETTh1", "Weather", "Traffic") if arguments.quick else CASES["paper"])
    arguments.seconds = arguments.seconds or (5.0 if arguments.quick else 12.0)
    check()
    for part in arguments.parts:
        if part != "original" or not arguments.quick:
            PARTS[part](Rows.open(measure.folder(arguments), part), arguments)


if __name__ == "__main__":
    main()
