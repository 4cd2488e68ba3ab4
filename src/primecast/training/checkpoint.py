"""A training run that can be killed at any moment: what changes in it, and how that is saved and resumed.

Everything that changes during training is in `TrainingRun`: weights, the best weights so far, Adam's moments, the
random generators, and a `TrainingProgress` of plain numbers. It is saved as one safetensors file with the numbers in
its header: a kill between two writes cannot mix two moments in time, because there is only one write.

Letters: w windows.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.storage.tensors import load_tensors, load_weights, save_tensors
from primecast.training.distributed import ProcessGroup
from primecast.training.optimizer import Adam
from primecast.training.settings import TrainingSettings

STATE_FILE = "state.safetensors"
STATE_FORMAT = "3"
"""Of what is written; states of other formats are refused."""


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


class TrainingRun:
    """Everything that changes during training.

    All processes of a group hold the same, except the generator of dropout; all read the state, the main one writes it.

    description: names and texts by which a state recognizes its run.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Adam,
        description: Mapping[str, str],
        settings: TrainingSettings,
        *,
        device: torch.device,
        group: ProcessGroup,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.description = description
        self.settings = settings
        self.device = device
        self.group = group
        group.broadcast_weights(model)
        torch.manual_seed(group.own_seed(settings.seed))  # of dropout
        self.shuffle = torch.Generator().manual_seed(settings.seed)
        self.epoch_shuffle = self.shuffle.get_state()  # the state that gives the order of the current epoch
        self.progress = TrainingProgress()
        self.best_weights = _copy_weights(model)

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
        save_tensors(self.settings.state / STATE_FILE, tensors, {"format": STATE_FORMAT, **texts})

    def resume(self) -> bool:
        """Continue the state in the folder; False if there is none, an error if it is another run's."""
        if self.settings.state is None:
            return False
        path = self.settings.state / STATE_FILE
        found = path.exists()
        self.group.check_equal({f"view of the folder {self.settings.state}": found})
        if not found:
            return False
        tensors, metadata = load_tensors(path)
        self.progress = self._read_metadata(path, metadata)
        load_weights(self.model, _under("best/", tensors), source=str(path))
        self.best_weights = _copy_weights(self.model)
        load_weights(self.model, _under("weights/", tensors), source=str(path))
        for name, tensor in _under("moments/", tensors).items():
            parameter, _, kind = name.rpartition("/")
            self.optimizer.moments.setdefault(parameter, {})[kind] = tensor.to(self.device)
        for name, state in _under("generators/dropout/", tensors).items():
            kind, _, rank = name.rpartition("/")
            if rank == str(self.group.rank):
                _set_dropout_generator(kind, state, self.device)
        self.shuffle.set_state(tensors["generators/shuffle"])
        return True

    def _read_metadata(self, path: Path, metadata: Mapping[str, str]) -> TrainingProgress:
        """Return the progress of the state, once it is certain that the state is this run's."""
        way_out = "give another folder, or delete that file to begin anew"
        if "settings" in metadata and metadata.get("format") != STATE_FORMAT:
            raise InputError(f"{path} was written by another version of primecast and cannot be resumed; {way_out}")
        try:
            saved = dict(json.loads(metadata["settings"]))
            progress = json.loads(metadata["progress"])
            read = TrainingProgress(**progress | {"rows": [EpochRow(**row) for row in progress["rows"]]})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not the state of a training run; {way_out}") from error
        for name in [*self.description, *saved]:
            theirs, ours = saved.get(name, "missing"), self.description.get(name, "missing")
            if theirs != ours:
                raise InputError(
                    f"{path} holds the state of another run: its {name} is {theirs}, here it is {ours}; {way_out}"
                )
        return read


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


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
