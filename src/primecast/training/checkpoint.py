"""A training run that can be killed at any moment: what changes in it, and how that is saved and resumed.

Everything that changes during training is in `TrainingRun`: weights, the best weights so far, Adam's moments, the
random generators, and a `TrainingProgress` of plain numbers. It is saved as one safetensors file with the numbers in
its header: a kill between two writes cannot mix two moments in time, because there is only one write. The state before
it is kept beside it, and is used when the newest is damaged.

Letters: w windows.
"""

import json
import math
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.storage.tensors import checksum, describe_tensor, load_tensors, load_weights, save_tensors
from primecast.training.distributed import ProcessGroup
from primecast.training.optimizer import Adam
from primecast.training.settings import TrainingSettings

STATE_FILE, PREVIOUS_FILE = "state.safetensors", "state.previous.safetensors"
STATE_FORMAT = "3"
"""Of what is written; states of other formats are refused."""

WAY_OUT = "give another folder, or delete that file to begin anew"


class DamagedStateError(InputError):
    """A state that is not whole; the one before it may be."""


@dataclass(frozen=True)
class EpochRow:
    """One epoch: mean loss over its training windows, then the validation scores after it."""

    epoch: int
    lr: float
    train_loss: float
    val_mse: float
    val_mae: float
    seconds: float


@dataclass
class TrainingProgress:
    """How far a run is: everything in its state that is not a tensor."""

    epoch: int = 1  # the current one
    step: int = 0  # steps done in it
    windows: int = 0  # seen in these steps
    loss_sum: float = 0.0  # over these windows
    seconds: float = 0.0  # spent on them
    steps: int = 0  # done in all
    failures: int = 0  # epochs since the best one
    best_epoch: int = 0
    finished: bool = False
    rows: list[EpochRow] = field(default_factory=list)

    def end_step(self, loss: float, *, windows: int) -> None:
        self.step += 1
        self.steps += 1
        self.windows += windows
        self.loss_sum += loss * windows

    def end_epoch(self, row: EpochRow, *, epochs: int, patience: int) -> None:
        """Count the epoch as the best one or as a failure; a tie is an improvement."""
        if self.best_epoch == 0 or row.val_mse <= self.rows[self.best_epoch - 1].val_mse:
            self.best_epoch, self.failures = row.epoch, 0
        else:
            self.failures += 1
        self.rows.append(row)
        self.finished = row.epoch == epochs or self.failures >= patience
        self.epoch, self.step, self.windows, self.loss_sum, self.seconds = row.epoch + 1, 0, 0, 0.0, 0.0

    @classmethod
    def from_json(cls, text: str) -> "TrainingProgress":
        values = json.loads(text)
        return cls(**values | {"rows": [EpochRow(**row) for row in values["rows"]]})

    def is_consistent(self, settings: TrainingSettings, *, steps: int) -> bool:
        """Return whether a run with these settings, of so many steps per epoch, can be at this point."""
        done = len(self.rows)
        numbers = [self.loss_sum, self.seconds, *(value for row in self.rows for value in asdict(row).values())]
        return (
            all(math.isfinite(number) for number in numbers)
            and [row.epoch for row in self.rows] == list(range(1, done + 1))
            and self.epoch == done + 1 <= settings.epochs + 1
            and 0 <= self.step < steps
            and self.steps == done * steps + self.step
            and (self.windows > 0) == (self.step > 0)
            and min(done, 1) <= self.best_epoch <= done
            and self.failures == done - self.best_epoch
            and self.finished == (done == settings.epochs or self.failures >= settings.patience)
        )


class TrainingRun:
    """Everything that changes during training.

    All processes of a group hold the same, except the generator of dropout; all read the state, the main one writes it.

    description: names and texts by which a state recognizes its run.
    steps:       in each epoch.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Adam,
        description: Mapping[str, str],
        settings: TrainingSettings,
        *,
        steps: int,
        device: torch.device,
        group: ProcessGroup,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.description = description
        self.settings = settings
        self.steps = steps
        self.device = device
        self.group = group
        group.broadcast_weights(model)
        torch.manual_seed(group.own_seed(settings.seed))  # of dropout
        self.shuffle = torch.Generator().manual_seed(settings.seed)
        self.epoch_shuffle = self.shuffle.get_state()  # the state that gives the order of the current epoch
        self.progress = TrainingProgress()
        self.best_weights = _copy_weights(model)
        self.keeps_newest = False  # as the previous one when a state is saved: only one that is known to be whole

    def draw_order(self, windows: int) -> Int64[Tensor, "w"]:
        """Return the order of windows of the epoch that begins, or that is resumed."""
        self.epoch_shuffle = self.shuffle.get_state()
        return torch.randperm(windows, generator=self.shuffle)

    def end_epoch(self, row: EpochRow) -> None:
        """Count the epoch, and keep its weights if they are the best so far."""
        self.progress.end_epoch(row, epochs=self.settings.epochs, patience=self.settings.patience)
        if self.progress.best_epoch == row.epoch:
            self.best_weights = _copy_weights(self.model)
        self.epoch_shuffle = self.shuffle.get_state()

    def restore_best(self) -> None:
        """Give the model the weights of its best epoch, its first weights where no epoch has ended; in eval mode."""
        self.model.load_state_dict(self.best_weights)
        self.model.eval()

    def save(self) -> None:
        """Write the state, if there is a folder for it, as one file."""
        if self.settings.state is None:
            return
        generators = {kind: self.group.gather(state) for kind, state in _dropout_generators(self.device).items()}
        if not self.group.is_main:
            return
        tensors = {f"weights/{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best_weights.items()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"moments/{name}/{kind}": moment for kind, moment in moments.items()}
        for kind, states in generators.items():
            tensors |= {f"generators/dropout/{kind}/{rank}": state for rank, state in enumerate(states)}
        tensors["generators/shuffle"] = self.epoch_shuffle
        texts = {"settings": json.dumps(self.description), "progress": json.dumps(asdict(self.progress))}
        metadata = {"format": STATE_FORMAT, **texts}
        metadata["sha256"] = checksum(tensors, metadata)
        if self.keeps_newest:
            _keep(self.settings.state / STATE_FILE, self.settings.state / PREVIOUS_FILE)
        save_tensors(self.settings.state / STATE_FILE, tensors, metadata)
        self.keeps_newest = True

    def resume(self) -> bool:
        """Continue the state in the folder; False if there is none, an error if it is damaged or another run's."""
        if self.settings.state is None:
            return False
        found = self._read_newest(self.settings.state)
        if found is None:
            return False
        path, tensors, self.progress = found
        try:
            for name, state in _under("generators/dropout/", tensors).items():
                kind, _, rank = name.rpartition("/")
                if rank == str(self.group.rank):
                    _set_dropout_generator(kind, state, self.device)
            self.shuffle.set_state(tensors["generators/shuffle"])
        except (RuntimeError, TypeError) as error:
            raise InputError(f"{path} is damaged: a random generator refuses its state; {WAY_OUT}") from error
        load_weights(self.model, _under("best/", tensors), source=str(path))
        self.best_weights = _copy_weights(self.model)
        load_weights(self.model, _under("weights/", tensors), source=str(path))
        for name, tensor in _under("moments/", tensors).items():
            parameter, _, kind = name.rpartition("/")
            self.optimizer.moments.setdefault(parameter, {})[kind] = tensor.to(self.device)
        return True

    def _read_newest(self, folder: Path) -> tuple[Path, dict[str, Tensor], TrainingProgress] | None:
        """Return path, tensors and progress of the state; of the one before it where the newest is damaged."""
        path = folder / STATE_FILE
        found, damage = None, None
        if path.exists():
            try:
                found = self._read(path)
            except DamagedStateError as error:
                path, damage = folder / PREVIOUS_FILE, error
                with suppress(InputError):  # what counts is what is wrong with the newest
                    found = self._read(path)
        self.group.check_equal({f"view of the folder {folder}": [path.name, found is None]})
        if found is None:
            if damage is not None:
                raise InputError(f"{damage}; {WAY_OUT}") from damage
            return None
        if damage is not None and self.group.is_main:
            warnings.warn(f"{damage}; continuing with the state before it, {path}", stacklevel=4)
        self.keeps_newest = damage is None
        return path, *found

    def _read(self, path: Path) -> tuple[dict[str, Tensor], TrainingProgress]:
        """Return the tensors and the progress in a file, once it is certain that they are whole and this run's."""
        try:
            tensors, metadata = load_tensors(path)
        except InputError as error:
            raise DamagedStateError(str(error)) from error
        digest = metadata.pop("sha256", None)
        if "settings" not in metadata:
            raise DamagedStateError(f"{path} is not the state of a training run")
        if digest is None:
            raise InputError(f"{path} was written by another version of primecast and cannot be resumed; {WAY_OUT}")
        if digest != checksum(tensors, metadata):
            raise DamagedStateError(f"{path} is damaged: its checksum does not match its content")
        if metadata.get("format") != STATE_FORMAT:
            raise InputError(f"{path} was written by another version of primecast and cannot be resumed; {WAY_OUT}")
        try:
            saved = dict(json.loads(metadata["settings"]))
            progress = TrainingProgress.from_json(metadata["progress"])
            consistent = progress.is_consistent(self.settings, steps=self.steps)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise DamagedStateError(f"{path} is damaged: its settings or its progress cannot be read") from error
        for name in [*self.description, *saved]:
            theirs, ours = saved.get(name, "missing"), self.description.get(name, "missing")
            if theirs != ours:
                raise InputError(
                    f"{path} holds the state of another run: its {name} is {theirs}, here it is {ours}; {WAY_OUT}"
                )
        if not consistent:
            raise DamagedStateError(f"{path} is damaged: its progress contradicts itself")
        self._check_tensors(path, tensors)
        return tensors, progress

    def _check_tensors(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Refuse tensors of other names, dtypes or shapes than this run has: fused Adam would write out of bounds."""
        expected: dict[str, Tensor] = {"generators/shuffle": self.epoch_shuffle}
        for name, tensor in self.model.state_dict().items():
            expected |= {f"weights/{name}": tensor, f"best/{name}": tensor}
        for rank in range(self.group.size):
            expected[f"generators/dropout/cpu/{rank}"] = torch.get_rng_state()
        with_moments = {name.rpartition("/")[0] for name in _under("moments/", tensors)}
        for name in with_moments & self.optimizer.parameters.keys():
            moments = self.optimizer.initial_moments(name)
            expected |= {f"moments/{name}/{kind}": moment for kind, moment in moments.items()}
        # Generators of other devices are not needed: a run may be resumed on another kind of device.
        others = ("generators/dropout/cuda/", "generators/dropout/mps/")
        found = {name: describe_tensor(tensor) for name, tensor in tensors.items() if not name.startswith(others)}
        for name in sorted(expected.keys() | found.keys()):
            wanted = describe_tensor(expected[name]) if name in expected else "nothing"
            given = found.get(name, "missing")
            if given != wanted:
                raise DamagedStateError(f"{path} is damaged: {name} is {given}, where the run has {wanted}")


@contextmanager
def lock_state_dir(folder: Path | None, group: ProcessGroup) -> Iterator[None]:
    """Keep other runs out of the folder until the end, however it ends: the system frees locks of dead processes."""
    if folder is None:
        yield
        return
    with ExitStack() as stack:
        taken = group.is_main and not stack.enter_context(_locked(folder))
        if group.sum(torch.tensor(int(taken))).item():  # known to all, or they would wait for the main process
            raise InputError(f"the state folder {folder} is in use by another process; give this run one of its own")
        if group.is_main:
            for stale in folder.glob(f".{STATE_FILE}.*.tmp"):  # of a process killed while it wrote
                stale.unlink()
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Yield False if another process has the lock. Windows has no such lock: there it is always True."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a")
    except OSError as error:
        raise InputError(f"cannot write into {folder}: {error.strerror or error}") from error
    with file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
        yield True


def _dropout_generators(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def _set_dropout_generator(kind: str, state: Tensor, device: torch.device) -> None:
    """Set the generator of this kind of device, unless the run is resumed on another kind, which has no use for it."""
    if kind == "cpu":
        torch.set_rng_state(state)
    elif kind == device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif kind == device.type == "mps":
        torch.mps.set_rng_state(state)


def _keep(newest: Path, previous: Path) -> None:
    """Give the newest state a second name, under which it stays when the next one takes the first; it is not copied."""
    try:
        previous.unlink(missing_ok=True)
        try:
            previous.hardlink_to(newest)
        except OSError:  # not every file system has hard links
            shutil.copyfile(newest, previous)
    except OSError as error:
        raise InputError(f"cannot write {previous}: {error.strerror or error}") from error


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
