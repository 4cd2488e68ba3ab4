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
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.storage.atomic import clear_temporaries, lock_folder, refuse_os_errors
from primecast.storage.tensors import (
    LARGEST_HEADER,
    checksum,
    count_bytes,
    describe_tensor,
    describe_tensors,
    load_tensors,
    save_tensors,
)
from primecast.training.distributed import ProcessGroup
from primecast.training.optimizer import Adam
from primecast.training.settings import TrainingSettings

STATE_FILE, PREVIOUS_FILE = "state.safetensors", "state.previous.safetensors"
STATE_FORMAT = "4"
"""Of what is written."""
FORMATS = ("3", STATE_FORMAT)
"""Of states that can be resumed; 3 lacks the moments of parameters that have had no gradient, and the environment."""

WAY_OUT = "give another folder, or delete that file to begin anew"


class FolderInUseError(InputError):
    """Another process trains with this folder."""


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

    def is_possible(self, settings: TrainingSettings, *, steps: int) -> bool:
        """Return whether a run with so many steps in each epoch can have come to these numbers."""
        counts = [self.epoch, self.step, self.windows, self.steps, self.failures, self.best_epoch]
        counts += [row.epoch for row in self.rows]
        others = [self.loss_sum, self.seconds]
        others += [number for row in self.rows for name, number in vars(row).items() if name != "epoch"]
        if not all(type(count) is int for count in counts):
            return False
        if not all(isinstance(number, float) and math.isfinite(number) for number in others):
            return False
        again = TrainingProgress()
        for row in self.rows:
            if again.finished or row.epoch != again.epoch:
                return False
            again.end_epoch(row, epochs=settings.epochs, patience=settings.patience)
        return (
            all(getattr(self, name) == getattr(again, name) for name in ("epoch", "failures", "best_epoch"))
            and self.finished is again.finished
            and self.step in range(1 if self.finished else steps)
            and self.steps == len(self.rows) * steps + self.step
            and self.windows in range(self.step, self.step * settings.batch_size + 1)
        )


@dataclass(eq=False)
class TrainingRun:
    """Everything that changes during training.

    All processes of a group hold the same, except the generator of dropout; all read the state, the main one writes it.

    description: names and texts by which a state recognizes its run.
    steps:       in each epoch.
    """

    model: nn.Module
    optimizer: Adam
    description: Mapping[str, str]
    settings: TrainingSettings
    steps: int
    device: torch.device
    group: ProcessGroup
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    keeps_newest: bool = False  # as the previous one when a state is saved: only one that is known to be whole

    def __post_init__(self) -> None:
        self.group.broadcast_weights(self.model)
        torch.manual_seed(self.group.own_seed(self.settings.seed))  # of dropout
        self.shuffle = torch.Generator().manual_seed(self.settings.seed)
        self.epoch_shuffle = self.shuffle.get_state()  # the state that gives the order of the current epoch
        self.best_weights = _copy_weights(self.model)

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
        folder = self.settings.state
        if folder is None:
            return
        generators = {kind: self.group.gather(state) for kind, state in _dropout_generators(self.device).items()}
        if not self.group.is_main:
            return
        tensors = {**self._tensors(), "generators/shuffle": self.epoch_shuffle}
        for kind, states in generators.items():
            tensors |= {f"generators/dropout/{kind}/{rank}": state for rank, state in enumerate(states)}
        metadata = {
            "format": STATE_FORMAT,
            "settings": json.dumps(self.description),
            "progress": json.dumps(asdict(self.progress)),
            "environment": describe_environment(),
        }
        metadata["sha256"] = checksum(tensors, metadata)
        if self.keeps_newest:
            _keep(folder / STATE_FILE, folder / PREVIOUS_FILE)
        save_tensors(folder / STATE_FILE, tensors, metadata)
        self.keeps_newest = True

    def _tensors(self) -> dict[str, Tensor]:
        """Return the tensors that training changes, by their names in the state; not copies."""
        tensors = {f"weights/{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best_weights.items()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"moments/{name}/{kind}": moment for kind, moment in moments.items()}
        return tensors

    def resume(self) -> bool:
        """Continue the state in the folder; False if there is none, an error if it is damaged or another run's."""
        found = None if self.settings.state is None else self._read_newest(self.settings.state)
        if found is None:
            return False
        tensors, self.progress = found
        _set_dropout_generators(self.device, tensors, self.group.rank)
        self.shuffle.set_state(tensors["generators/shuffle"])
        own = self._tensors()
        for name in own.keys() & tensors.keys():
            own[name].copy_(tensors[name])
        return True

    def _read_newest(self, folder: Path) -> tuple[dict[str, Tensor], TrainingProgress] | None:
        """Return tensors and progress of the state; of the one before it where the newest is damaged."""
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
        return found

    def _read(self, path: Path) -> tuple[dict[str, Tensor], TrainingProgress]:
        """Return the tensors and the progress in a file, once it is certain that they are whole and this run's."""
        kinds = describe_tensors(self._tensors())
        try:
            tensors, metadata = load_tensors(path, largest=count_bytes(kinds.values()) + LARGEST_HEADER)
        except InputError as error:
            raise DamagedStateError(str(error)) from error
        digest = metadata.pop("sha256", None)
        if "settings" not in metadata:
            raise DamagedStateError(f"{path} is not the state of a training run")
        if digest not in (None, checksum(tensors, metadata)):
            raise DamagedStateError(f"{path} is damaged: its checksum does not match its content")
        if digest is None or metadata.get("format") not in FORMATS:
            raise InputError(f"{path} was written by another version of primecast and cannot be resumed; {WAY_OUT}")
        try:
            saved, progress = dict(json.loads(metadata["settings"])), TrainingProgress.from_json(metadata["progress"])
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise DamagedStateError(f"{path} is damaged: its settings or its progress cannot be read") from error
        for name in [*self.description, *saved]:
            theirs, ours = saved.get(name, "missing"), self.description.get(name, "missing")
            if theirs != ours:
                raise InputError(
                    f"{path} holds the state of another run: its {_one_line(name)} is {_one_line(theirs)}, here it "
                    f"is {ours}; {WAY_OUT}"
                )
        if not progress.is_possible(self.settings, steps=self.steps):
            raise DamagedStateError(f"{path} is damaged: no such run can have come to its progress")
        self._check_tensors(path, tensors, kinds, metadata)
        self._warn_of_environment(path, metadata)
        return tensors, progress

    def _check_tensors(
        self, path: Path, tensors: Mapping[str, Tensor], kinds: Mapping[str, str], metadata: Mapping[str, str]
    ) -> None:
        """Refuse names, types and shapes other than those of the run, and numbers that no run has there."""
        there = describe_tensors(tensors)
        generator = describe_tensor(self.epoch_shuffle)
        ranks = range(self.group.size)
        here = {**kinds, "generators/shuffle": generator}
        here |= {f"generators/dropout/cpu/{rank}": generator for rank in ranks}
        of_devices = {f"generators/dropout/{device}/{rank}" for device in ("cuda", "mps") for rank in ranks}
        if metadata["format"] == "3":
            missing = [name for name in self.optimizer.parameters if f"moments/{name}/step" not in there]
            here = {name: kind for name, kind in here.items() if name.rpartition("/")[0][8:] not in missing}
        for name in [*here, *(there.keys() - here.keys() - of_devices)]:
            if here.get(name) != there.get(name):
                raise DamagedStateError(
                    f"{path} is damaged: {name} is {there.get(name, 'missing')} there, {here.get(name, 'missing')} here"
                )
        for name, tensor in tensors.items():
            if name.startswith("moments/") and not tensor.isfinite().all():
                raise DamagedStateError(f"{path} is damaged: {name} holds values that are not finite numbers")
            if name.startswith("generators/") and name not in of_devices:
                try:
                    torch.Generator().set_state(tensor)
                except RuntimeError as error:
                    raise DamagedStateError(f"{path} is damaged: {name} is no state of a random generator") from error

    def _warn_of_environment(self, path: Path, metadata: Mapping[str, str]) -> None:
        here = describe_environment()
        there = metadata.get("environment", here)
        if there != here and self.group.is_main:
            warnings.warn(
                f"{path} was written with {there}, this run has {here}: it continues, but its result may differ in "
                "the last bits from that of a run in one environment",
                stacklevel=6,
            )


def _one_line(text: object) -> str:
    """Return text from a file on one line, cut to 200 characters, so that an error stays one sentence."""
    return " ".join(str(text)[:200].split())


def describe_environment() -> str:
    """Return what the last bits of a result depend on besides the arguments of a run: two runs of one seed may differ
    in them where it differs.
    """
    return f"torch {torch.__version__} and {torch.get_num_threads()} threads"


@contextmanager
def lock_state_dir(folder: Path | None, group: ProcessGroup) -> Iterator[None]:
    """Keep other runs out of the folder until the end, however it ends; see `lock_folder`."""
    with ExitStack() as stack:
        free = True
        if folder is not None and group.is_main:
            free = stack.enter_context(lock_folder(folder, wait=False))
        if group.sum(torch.tensor(int(not free))).item():  # known to all, or they would wait for the main process
            raise FolderInUseError(
                f"the state folder {folder} is in use by another process; give this run one of its own"
            )
        if folder is not None and group.is_main:
            clear_temporaries(folder, STATE_FILE)
        yield


def _dropout_generators(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def _set_dropout_generators(device: torch.device, tensors: Mapping[str, Tensor], rank: int) -> None:
    """Set the generators of this process; a run that was saved on another kind of device has none for this one."""
    torch.set_rng_state(tensors[f"generators/dropout/cpu/{rank}"])
    own = tensors.get(f"generators/dropout/{device.type}/{rank}")
    if own is not None and device.type == "cuda":
        torch.cuda.set_rng_state(own, device)
    elif own is not None and device.type == "mps":
        torch.mps.set_rng_state(own)


def _keep(newest: Path, previous: Path) -> None:
    """Give the newest state a second name, under which it stays when the next one takes the first; it is not copied."""
    with refuse_os_errors(f"write {previous}"):
        previous.unlink(missing_ok=True)
        try:
            previous.hardlink_to(newest)
        except OSError:  # not every file system has hard links
            shutil.copyfile(newest, previous)


def _copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
