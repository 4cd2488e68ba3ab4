"""A hostile or damaged model folder runs no code, takes no memory and is refused in one sentence.

That no module unpickles or evaluates anything is checked in test_architecture.py.
"""

import hashlib
import json
import os
import random
import signal
import struct
import time
import warnings
from collections.abc import Callable
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from dateutil.tz import gettz, tzoffset, tzutc
from safetensors.torch import load_file, save_file

from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster
from primecast.storage.atomic import write_bytes_atomically
from primecast.storage.folder import CONFIG, WEIGHTS, with_checksum
from tests.test_forecaster import SMALL, waves

# ---------------------------------------------------------------- hostile folders


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster(**{**SMALL, "epochs": 1}).fit(waves())


@pytest.fixture
def folder(fitted: Forecaster, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / CONFIG).read_text())
    change(config)
    (folder / CONFIG).write_text(json.dumps(with_checksum(config)))


def test_a_flipped_bit_of_the_configuration_is_refused_or_harmless(fitted: Forecaster, folder: Path) -> None:
    whole = (folder / CONFIG).read_bytes()
    assert json.loads(whole) == with_checksum(json.loads(whole))
    refused = 0
    for place in range(0, 8 * len(whole), 17):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        (folder / CONFIG).write_bytes(damaged)
        try:
            loaded = Forecaster.load(folder)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)
        else:  # white space is still white space, an e of a number an E
            assert loaded.facts_ == fitted.facts_ and loaded.state_.columns == fitted.state_.columns
    assert refused > len(whole) // 8


def put_weights(folder: Path, data: bytes) -> None:
    """With the digest a careful attacker would write."""
    (folder / WEIGHTS).write_bytes(data)
    edit_config(folder, lambda config: config.update(sha256=hashlib.sha256(data).hexdigest()))


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)
    put_weights(folder, (folder / WEIGHTS).read_bytes())


WEIGHT_ATTACKS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "nan": (lambda t: t["model.head.weight"].fill_(float("nan")), "model.head.weight holds values that are not finite"),
    "infinite scaler": (lambda t: t["scaler.mean"].fill_(float("inf")), "scaler.mean holds values that are not finite"),
    "no spread": (lambda t: t["scaler.std"].fill_(0.0), "a standard deviation of its scaler is not above 0"),
    "dtype": (
        lambda t: t.update({"model.head.weight": t["model.head.weight"].double()}),
        r"model.head.weight is float64\[7, 8\] there and float32\[7, 8\] in the model",
    ),
    "shape": (lambda t: t.update({"model.head.bias": torch.zeros(8)}), r"model.head.bias is float32\[8\] there"),
    "missing": (lambda t: t.pop("model.head.bias"), "model.head.bias is missing there"),
    "path": (lambda t: t.update({"../../etc/passwd": torch.zeros(1)}), r"../../etc/passwd is float32\[1\] there"),
    "negative scale": (lambda t: t["naive_mae"].neg_(), "its naive_mae holds absolute errors below 0"),
    "far rows": (lambda t: t["recent.values"].fill_(1e300), "holds 1e.300 at .*, too far from its other values"),
    "windows": (lambda t: t.update({"calibration": torch.zeros(3, 7, 3)}), r"calibration is float32\[3, 7, 3\] there"),
}


@pytest.mark.parametrize(("change", "message"), WEIGHT_ATTACKS.values(), ids=WEIGHT_ATTACKS.keys())
def test_hostile_weights_are_refused_in_one_sentence(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    edit_weights(folder, change)
    with pytest.raises(InputError, match=message) as refusal:
        Forecaster.load(folder)
    assert str(folder) in str(refusal.value) and "\n" not in str(refusal.value)


def test_weights_that_overflow_give_a_sentence_and_no_forecast(folder: Path) -> None:
    edit_weights(folder, lambda tensors: tensors["model.head.weight"].mul_(3e38).clamp_(-3e38, 3e38))
    loaded = Forecaster.load(folder)
    calls: list[Callable[[], object]] = [
        loaded.predict,
        lambda: loaded.update(waves(340).iloc[-9:]),
        lambda: loaded.backtest(waves(), windows=2),
    ]
    for call in calls:
        with pytest.raises(InputError, match="the forecast of lead.* is not a finite number: the weights") as refusal:
            call()
        assert "\n" not in str(refusal.value)


def test_bounds_that_overflow_give_a_sentence(folder: Path) -> None:
    edit_weights(folder, lambda tensors: (tensors["calibration"].fill_(3e38), tensors["scaler.std"].fill_(1e300)))
    with pytest.raises(InputError, match="is not a finite number"):
        Forecaster.load(folder).predict(level=[80])


def header(entries: dict[str, object]) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("<Q", 2**62),
        struct.pack("<Q", 200_000_000) + b"{" * 1000,
        header({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}),
        header({"a": {"dtype": "F32", "shape": [2**32, 2**32], "data_offsets": [0, 4]}}) + b"\0" * 4,
    ],
    ids=["empty", "header of 2^62", "header of 200 MB", "a terabyte", "overflow"],
)
def test_hostile_headers_are_refused_without_taking_memory(folder: Path, data: bytes) -> None:
    put_weights(folder, data)
    with pytest.raises(InputError, match=r"model\.safetensors is not a whole safetensors file"):
        Forecaster.load(folder)


CONFIG_ATTACKS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "unknown field": (lambda c: c.update(hook="os.system"), "unknown field in .*config.json 'hook'"),
    "missing field": (lambda c: c.pop("columns"), "config.json has no field 'columns'"),
    "wrong type": (lambda c: c.update(rows="many"), "field 'rows' of .* must be of type int, but is 'many'"),
    "unknown class": (lambda c: c["params"].update(model="os.system"), "unknown model 'os.system'"),
    "unknown argument": (lambda c: c["params"].update(shell=1), "unknown field in params of .* 'shell'"),
    "unknown model argument": (lambda c: c["params"]["model_args"].update(d=1), "unknown argument of model .* 'd'"),
    "huge model": (lambda c: c["params"]["model_args"].update(d_model=2**40), "holds the size 1099511627776"),
    "wide model": (lambda c: c["params"]["model_args"].update(d_model=2**12), "holds the weights of another model"),
    "large model": (lambda c: c["params"]["model_args"].update(d_model=2**15), "has more than 2048 MiB of weights"),
    "large graph": (
        lambda c: c["params"].update(model="gat", model_args={"d_model": 65536}),
        "the model is too large: it has more than 2048 MiB of weights",
    ),
    "attention of many channels": (
        lambda c: (
            c["params"].update(attention="standard", model_args={"d_model": 64, "n_heads": 64}),
            c.update(columns=[str(name) for name in range(65536)]),
        ),
        "a forecast of 65536 channels by itransformer takes 1100 GB of memory, and this machine has",
    ),
    "lags of many steps": (
        lambda c: (
            c["params"].update(model="lagts-reconstruction", lookback=60000, model_args={"d_model": 4}),
            c["index"].update(rows=60007),
        ),
        "look-back 60000 and max_lag 15000 make .* numbers of each window, and at most 268435456 are computed",
    ),
    "graph of many nodes": (
        lambda c: (c["params"].update(model="gat"), c.update(columns=[str(name) for name in range(65536)])),
        "a graph of 65540 channels and time features is too large; it may have 8192",
    ),
    "layers": (lambda c: c["params"]["model_args"].update(n_layers=2**16), "has more than 10000 weights and buffers"),
    "many layers": (lambda c: c["params"]["model_args"].update(n_layers=10**9), "holds the size 1000000000"),
    "huge horizon": (lambda c: c["params"].update(horizon=10**12), "holds the size 1000000000000"),
    "another form": (lambda c: c.update(form="sklearn.Pipeline"), "is not of a primecast.Forecaster but of 'sklearn"),
    "another version": (lambda c: c.update(version=99), "is of version 99, this primecast reads version 1"),
    "index": (lambda c: c["index"].update(freq="never"), "config.json cannot be used: .*never"),
    "zone": (lambda c: c["index"].update(zone="../../etc/passwd"), "config.json cannot be used"),
    "many rows": (lambda c: c["index"].update(rows=10**15), "says 1000000000000000 rows"),
    "too few time_features": (
        lambda c: c.update(time_features=0),
        "it has 0 time features, but its other fields need 4",
    ),
    "columns": (lambda c: c.update(columns=["a", "b"]), "holds the weights of another model"),
    "a list": (lambda c: c.update(params=[]), "field 'params' of .* must be of type dict"),
    "names of numbers": (lambda c: c["layout"].update(whole=["lead"]), "calls 'lead' a whole number that names one of"),
    "numbers of nothing": (lambda c: c["layout"].update(whole=["17"]), "calls '17' a whole number that names one of"),
    "reading": (lambda c: c["layout"].update(dayfirst="x"), r"field 'dayfirst' of .* must be of type bool \| None"),
    "no columns": (lambda c: c.update(columns=[]), "its columns are not between 1 and 65536 names"),
    "a column twice": (lambda c: c.update(columns=["lead", "lead", "other"]), "has several columns 'lead'"),
    "kind": (lambda c: c["layout"].update(kind="os"), "unknown kind of table 'os'"),
    "long without time": (lambda c: c["layout"].update(id="id", value="y"), "columns of its own for id, time and valu"),
    "time of a channel": (lambda c: c["layout"].update(time="lead"), "has no column 'lead' beside its channels"),
    "facts": (lambda c: c["facts"]["scores"].update(mse="low"), "it has no usable facts.scores.mse"),
    "endless facts": (lambda c: c["facts"]["scores"].update(mae=1e999), "Infinity is no number"),
    "members": (lambda c: c["facts"].update(members=[{"name": 5}]), r"it has no usable members\[0\].name"),
    "no facts": (lambda c: c.update(facts={}), "it has no usable facts.data"),
    "period": (lambda c: c["periods"].update(test=["soon", "later"]), "config.json cannot be used: .*soon"),
    "half a period": (lambda c: c["periods"].update(val=["2024-01-01"]), "it has no usable periods.val"),
    "no date": (lambda c: c["periods"].update(val=["NaT", "NaT"]), "its period 'val' has no date"),
    "season": (lambda c: c.update(season=0), "its season is 0; it must lie between 1 and"),
    "stride": (lambda c: c.update(stride=0), "its stride is 0; it must lie between 1 and"),
    "rows": (lambda c: c.update(rows=1 << 63), "its rows is 9223372036854775808; it must lie between 0 and"),
    "half a character": (lambda c: c["params"].update(device="\ud800"), "config.json is not valid JSON: .*surrogates"),
    "name of the index": (lambda c: c["index"].update(name=True), "names its index True, which is no name"),
    "end of time": (lambda c: c["index"].update(start="2262-04-11T20:00:00", unit="ns"), "config.json cannot be used"),
    "backward": (lambda c: c["index"].update(freq="-1h"), "rows that are not in the order of time, with freq '-1h'"),
    "unit": (lambda c: c["index"].update(unit="eon"), "unknown unit of time 'eon'"),
    "digest": (lambda c: c.update(sha256="0" * 64), "is not what .*config.json was saved with"),
}


@pytest.mark.parametrize(("change", "message"), CONFIG_ATTACKS.values(), ids=CONFIG_ATTACKS.keys())
def test_hostile_configurations_are_refused_in_one_sentence(
    folder: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit_config(folder, change)
    with pytest.raises(InputError, match=message) as refusal:
        Forecaster.load(folder)
    assert str(folder) in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_folder_whose_layout_says_less_still_loads(fitted: Forecaster, folder: Path) -> None:
    def forget(config: dict[str, Any]) -> None:
        config["layout"] = {name: config["layout"][name] for name in ("kind", "time", "id", "value")}
        config["layout"]["file_time"] = None

    edit_config(folder, forget)
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), fitted.predict())


@pytest.mark.parametrize("zone", [gettz("Europe/Berlin"), tzutc(), tzoffset(None, 7200)], ids=str)
def test_zones_of_dateutil_survive_save_and_load(zone: tzinfo, tmp_path: Path) -> None:
    frame = waves(211)
    index = pd.date_range("2024-03-25", periods=211, freq="h", tz=zone)
    new = Forecaster(**{**SMALL, "epochs": 1}).fit(frame.set_axis(index, axis="index"))
    new.save(tmp_path / "model")
    forecast, again = new.predict(), Forecaster.load(tmp_path / "model").predict()
    assert list(map(str, again.index)) == list(map(str, forecast.index))
    assert (again.to_numpy() == forecast.to_numpy()).all()


def test_a_configuration_of_gigabytes_is_not_read(folder: Path) -> None:
    with (folder / CONFIG).open("r+b") as file:
        file.truncate(1 << 34)  # sparse: no disk is used
    with pytest.raises(InputError, match="config.json: it has 17179869184 bytes, and at most 16777216 are expected"):
        Forecaster.load(folder)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_no_regular_file_is_not_opened(folder: Path, name: str, kind: str) -> None:
    (folder / name).unlink()
    if kind == "fifo":
        os.mkfifo(folder / name)
    elif kind == "device":
        (folder / name).symlink_to("/dev/zero")
    else:
        (folder / name).mkdir()
    with pytest.raises(InputError, match=f"cannot read .*{name}: it is not a regular file"):
        Forecaster.load(folder)


@pytest.mark.parametrize("kind", ["fifo", "link to a device", "link to nowhere", "folder"])
def test_a_lock_that_is_no_regular_file_is_refused_and_no_link_is_followed(
    fitted: Forecaster, folder: Path, tmp_path: Path, kind: str
) -> None:
    lock, elsewhere = folder / ".lock", tmp_path / "elsewhere"
    if kind == "fifo":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    else:
        lock.symlink_to("/dev/zero" if kind == "link to a device" else elsewhere)
    with pytest.raises(InputError, match="cannot (lock|write into) "):
        fitted.save(folder)
    assert not elsewhere.exists()


def test_folders_under_the_names_of_files_lose_nothing(fitted: Forecaster, folder: Path) -> None:
    (folder / f".{CONFIG}.0.tmp").mkdir()
    fitted.save(folder)
    (folder / "README.md").unlink()
    (folder / "README.md").mkdir()
    before = (folder / CONFIG).stat().st_ino, (folder / WEIGHTS).stat().st_ino
    with pytest.raises(InputError, match="cannot write .*README.md: it is a folder"):
        fitted.save(folder)
    assert ((folder / CONFIG).stat().st_ino, (folder / WEIGHTS).stat().st_ino) == before


def test_a_configuration_of_very_many_columns_is_checked_at_once(folder: Path) -> None:
    names = [str(number) for number in range(65536)]
    began = time.monotonic()
    for columns, message in ((names, "tokens is 65540; it must be"), ([*names[1:], "9"], "several columns '9'")):
        edit_config(folder, lambda c, columns=columns: (c.update(columns=columns), c["layout"].update(whole=names)))  # type: ignore[misc]
        with pytest.raises(InputError, match=message):
            Forecaster.load(folder)
    assert time.monotonic() - began < 30  # each took minutes when names were sought one by one


def test_weights_larger_than_any_model_are_not_read(folder: Path) -> None:
    with (folder / WEIGHTS).open("r+b") as file:
        file.truncate(1 << 42)  # sparse: no disk is used
    with pytest.raises(InputError, match="model.safetensors: it has 4398046511104 bytes, and at most 2147483648 are"):
        Forecaster.load(folder)


def test_bytes_that_are_no_truth_values_are_refused(folder: Path) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    entry = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["recent.gaps"]
    data[8 + int.from_bytes(data[:8], "little") + entry["data_offsets"][0]] = 7
    put_weights(folder, bytes(data))
    with pytest.raises(InputError, match="recent.gaps holds values that are neither true nor false"):
        Forecaster.load(folder)


def test_swapped_and_damaged_weights_are_refused(fitted: Forecaster, folder: Path, tmp_path: Path) -> None:
    other = Forecaster(**{**SMALL, "epochs": 1}, seed=1).fit(waves())
    other.save(tmp_path / "other")
    whole = (folder / WEIGHTS).read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    for data in ((tmp_path / "other" / WEIGHTS).read_bytes(), whole[:-1], bytes(flipped)):
        (folder / WEIGHTS).write_bytes(data)
        with pytest.raises(InputError, match="it is truncated, damaged or of another model"):
            Forecaster.load(folder)
    (folder / WEIGHTS).write_bytes(whole)
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), fitted.predict())


def test_a_folder_of_somebody_else_is_not_overwritten(fitted: Forecaster, tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text('{"architectures": ["BertModel"]}')
    with pytest.raises(InputError, match="was not written by primecast .* save into a folder of its own"):
        fitted.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [CONFIG]


@pytest.mark.parametrize("name", ["README.md", WEIGHTS])
def test_a_project_is_no_folder_to_save_into(fitted: Forecaster, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"{name} was not written by primecast .* save into a folder of its own"):
        fitted.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == "mine"


def test_what_is_no_regular_file_is_never_replaced(fitted: Forecaster, folder: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "null").symlink_to("/dev/null")
    for path in (tmp_path / "fifo", tmp_path / "null"):
        with pytest.raises(InputError, match=f"cannot write {path}: it is no regular file"):
            write_bytes_atomically(path, b"x")
    before = (folder / CONFIG).read_bytes()
    (folder / "README.md").unlink()
    os.mkfifo(folder / "README.md")
    with pytest.raises(InputError, match="cannot write .*README.md: it is no regular file"):
        fitted.save(folder)
    assert (folder / CONFIG).read_bytes() == before


def test_names_that_no_file_can_have_are_refused_in_a_sentence(fitted: Forecaster) -> None:
    for use in (fitted.save, Forecaster.load, fitted.export):
        with pytest.raises(InputError, match="path is ''; it must be a path"):
            use("")
        with pytest.raises(InputError, match="File name too long"):
            use("x" * 300)
    with pytest.raises(InputError, match="there is no folder 'x|the Hugging Face Hub needs"):
        Forecaster.from_pretrained("x" * 300)


# ---------------------------------------------------------------- killed while saving


def forked(work: Callable[[], None]) -> int:
    """Run it in a child of this process; returns the child's id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads when they fork
        child = os.fork()
    if child:
        return child
    try:
        work()
    finally:
        os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_at_any_step_of_save_leaves_the_old_or_the_new(fitted: Forecaster, tmp_path: Path) -> None:
    new = Forecaster(**{**SMALL, "epochs": 1}, seed=1).fit(waves())
    forecasts = {"old": fitted.predict(), "new": new.predict()}
    fitted.save(tmp_path / "start")
    seen = []
    for steps in range(1, 40):
        folder = tmp_path / str(steps)
        folder.mkdir()
        for path in (tmp_path / "start").iterdir():
            (folder / path.name).write_bytes(path.read_bytes())

        def save_and_die(folder: Path = folder, steps: int = steps) -> None:
            left = steps

            def count(real: Callable[..., Any]) -> Callable[..., Any]:
                def counted(*args: Any, **kwargs: Any) -> Any:
                    nonlocal left
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return real(*args, **kwargs)

                return counted

            os.fsync = count(os.fsync)
            Path.open = count(Path.open)  # type: ignore[method-assign]
            Path.replace = count(Path.replace)  # type: ignore[method-assign]
            new.save(folder)

        _, status = os.waitpid(forked(save_and_die), 0)
        loaded = Forecaster.load(folder).predict()
        (which,) = [name for name, forecast in forecasts.items() if forecast.equals(loaded)]
        seen.append(which)
        if not os.WIFSIGNALED(status):
            break
        new.save(folder)  # what a kill leaves behind is no hindrance
        pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), forecasts["new"])
    assert len(seen) > 12 and seen == sorted(seen, reverse=True)  # old ..., then new ..., and never back
    assert set(seen) == {"old", "new"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_at_any_step_of_the_first_save_is_no_hindrance_to_the_next(fitted: Forecaster, tmp_path: Path) -> None:
    for steps in range(1, 4):
        folder = tmp_path / str(steps)

        def save_and_die(folder: Path = folder, steps: int = steps) -> None:
            replace, left = Path.replace, steps

            def counted(self: Path, target: Path) -> Path:
                nonlocal left
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                return replace(self, target)

            Path.replace = counted  # type: ignore[method-assign,assignment]
            fitted.save(folder)

        _, status = os.waitpid(forked(save_and_die), 0)
        assert os.WIFSIGNALED(status)
        fitted.save(folder)
        pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), fitted.predict())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kills_at_random_moments_never_leave_an_unreadable_folder(fitted: Forecaster, tmp_path: Path) -> None:
    new = Forecaster(**{**SMALL, "epochs": 1}, seed=1).fit(waves())
    fitted.save(tmp_path)
    draw = random.Random(0)

    def save_for_ever() -> None:
        while True:
            new.save(tmp_path)
            fitted.save(tmp_path)

    for _ in range(17):
        child = forked(save_for_ever)
        time.sleep(draw.uniform(0.02, 0.25))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        forecast = Forecaster.load(tmp_path).predict()
        assert forecast.equals(fitted.predict()) or forecast.equals(new.predict())


# ---------------------------------------------------------------- several processes at once


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_folder_that_others_save_into_without_pause_is_loaded_as_one_of_their_models(
    fitted: Forecaster, tmp_path: Path
) -> None:
    wide = Forecaster(**{**SMALL, "epochs": 1, "model_args": {"d_model": 14, "n_heads": 2, "n_layers": 1}}).fit(waves())
    models = [fitted, wide]
    forecasts = [one.predict() for one in models]
    fitted.save(tmp_path)

    def save_for_ever(first: int) -> None:
        while True:
            for model in models[first:] + models[:first]:
                model.save(tmp_path)

    savers = [forked(partial(save_for_ever, first)) for first in (0, 1)]
    try:
        seen = []
        for _ in range(31):
            forecast = Forecaster.load(tmp_path).predict()
            seen.append([one.equals(forecast) for one in forecasts])
    finally:
        for child in savers:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert all(sum(which) == 1 for which in seen) and [True, False] in seen and [False, True] in seen
    Forecaster.load(tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_of_two_saves_at_once_one_is_left_whole(fitted: Forecaster, tmp_path: Path) -> None:
    other = Forecaster(**{**SMALL, "epochs": 1}, seed=1).fit(waves())
    forecasts = [one.predict() for one in (fitted, other)]
    for number in range(13):
        folder = tmp_path / str(number)
        for child in [forked(partial(one.save, folder)) for one in (fitted, other)]:
            os.waitpid(child, 0)
        loaded = Forecaster.load(folder).predict()
        assert any(one.equals(loaded) for one in forecasts)
        assert sorted(path.name for path in folder.iterdir()) == ["README.md", CONFIG, WEIGHTS]


def test_a_save_clears_what_killed_ones_have_left(fitted: Forecaster, folder: Path) -> None:
    (folder / f".{WEIGHTS}.0123abcd.tmp").write_bytes(b"half")
    (folder / f".{CONFIG}.0123abcd.tmp").write_bytes(b"half")
    (folder / "notes.tmp").write_bytes(b"of somebody else")
    fitted.save(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", CONFIG, WEIGHTS, "notes.tmp"]
