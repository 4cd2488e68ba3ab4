"""A training run as a thing that can be killed: where it stands, and its way to the disk and back.

Everything that changes while a run goes on is in `Run`: weights, the best weights so far, Adam's moments, the random
generators, and a `TrainingProgress` of plain numbers. It is written as one safetensors file with the numbers in its header: a
kill between two writes cannot mix two moments, because there is only one write.

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
from torch.optim.adam import adam

from primecast.errors import InputError
from primecast.storage.tensors import load_tensors, load_weights, save_tensors
from primecast.training.distributed import ProcessGroup


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
    """How far a run is: all of it that is not a tensor."""

    epoch: int = 1  # the one under way
    step: int = 0  # steps done in it
    windows: int = 0  # seen in these steps
    loss_sum: float = 0.0  # over these windows
    seconds: float = 0.0  # spent on them
    steps: int = 0  # done in all
    failures: int = 0  # epochs since the best one
    best_epoch: int = 0
    finished: bool = False
    rows: list[EpochRow] = field(default_factory=list)


class Adam:
    """Adam with torch's defaults, its numbers by name; `factors` multiply the learning rate.

    The arithmetic is torch's fused one, which passes over each parameter once instead of a dozen times.
    torch.optim.Adam, which would do the same, imports torch's compiler when it is first used: seconds in each process.
    """

    def __init__(self, trained: Mapping[str, nn.Parameter], factors: Mapping[str, float]) -> None:
        self.trained = trained
        self.groups = {f: [name for name in trained if factors[name] == f] for f in dict.fromkeys(factors.values())}
        self.moments: dict[str, dict[str, Tensor]] = {}  # of the parameters that have had a gradient

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Move every parameter that has a gradient, and forget the gradients."""
        for factor, group in self.groups.items():
            names = [name for name in group if self.trained[name].grad is not None]
            self.moments |= {n: self._start(self.trained[n]) for n in names if n not in self.moments}
            moments = [self.moments[name] for name in names]
            adam(
                [self.trained[name] for name in names],
                [grad for name in names if (grad := self.trained[name].grad) is not None],
                [moment["exp_avg"] for moment in moments],
                [moment["exp_avg_sq"] for moment in moments],
                [],
                [moment["step"] for moment in moments],
                fused=True,
                lr=lr * factor,
                beta1=0.9,
                beta2=0.999,
                eps=1e-8,
                weight_decay=0.0,
                amsgrad=False,
                maximize=False,
            )
        for parameter in self.trained.values():
            parameter.grad = None

    @staticmethod
    def _start(parameter: nn.Parameter) -> dict[str, Tensor]:
        zero = torch.zeros((), device=parameter.device)
        return {"step": zero, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}


class Run:
    """Everything that changes while a run goes on, and its way to the disk and back.

    All processes of a team hold the same, but for the generator of dropout; all read the state, the leader writes it.
    """

    FILE = "state.safetensors"
    FORM = "2"
    """Of what is written. States of form 1, which has no name there, did not tell all models and losses apart."""

    def __init__(
        self,
        *,
        model: nn.Module,
        trained: Mapping[str, nn.Parameter],
        factors: Mapping[str, float],
        settings: Mapping[str, object],
        seed: int,
        device: torch.device,
        team: ProcessGroup,
    ) -> None:
        self.model = model
        self.trained = trained
        self.settings = settings
        self.device = device
        self.team = team
        self.optimizer = Adam(trained, factors)
        torch.manual_seed(team.own_seed(seed))  # of dropout
        self.shuffle = torch.Generator().manual_seed(seed)
        self.drawn_from = self.shuffle.get_state()  # the state that gives the order of the epoch under way
        self.position = TrainingProgress()
        self.best = _copy(model)

    def draw_order(self, windows: int) -> Int64[Tensor, "w"]:
        """The order of windows of the epoch that begins, or that is taken up again."""
        self.drawn_from = self.shuffle.get_state()
        return torch.randperm(windows, generator=self.shuffle)

    def end_epoch(self, row: EpochRow, *, last: int, patience: int) -> None:
        at = self.position
        at.rows.append(row)
        if at.best_epoch == 0 or row.val_mse <= at.rows[at.best_epoch - 1].val_mse:
            at.best_epoch, at.failures, self.best = row.epoch, 0, _copy(self.model)
        else:
            at.failures += 1
        at.finished = row.epoch == last or at.failures >= patience
        at.epoch, at.step, at.windows, at.loss_sum, at.seconds = row.epoch + 1, 0, 0, 0.0, 0.0
        self.drawn_from = self.shuffle.get_state()

    def restore_best(self) -> None:
        """The model as its best epoch left it, or as it began where no epoch has ended; in eval mode."""
        self.model.load_state_dict(self.best)
        self.model.eval()

    def save(self, folder: Path) -> None:
        """One file, so that a kill between two writes cannot mix two moments."""
        generators = {kind: self.team.gather(state) for kind, state in _dropout_generators(self.device).items()}
        if not self.team.is_main:
            return
        tensors = {f"weights/{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best.items()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"moments/{name}/{kind}": moment for kind, moment in moments.items()}
        for kind, states in generators.items():
            tensors |= {f"generators/dropout/{kind}/{rank}": state for rank, state in enumerate(states)}
        tensors |= {"generators/shuffle": self.drawn_from}
        position = json.dumps(asdict(self.position))
        metadata = {"form": self.FORM, "settings": json.dumps(self.settings), "position": position}
        save_tensors(folder / self.FILE, tensors, metadata)

    def resume(self, folder: Path) -> bool:
        """Take up what the folder holds; False if it holds nothing, an error if it is another run's."""
        path = folder / self.FILE
        found = path.exists()
        self.team.check_equal({f"view of the folder {folder}": found})
        if not found:
            return False
        tensors, metadata = load_tensors(path)
        try:
            theirs = dict(json.loads(metadata["settings"]))
            position = json.loads(metadata["position"])
            self.position = TrainingProgress(**position | {"rows": [EpochRow(**row) for row in position["rows"]]})
            shuffle = tensors["generators/shuffle"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not the state of a training run; give another folder") from error
        if metadata.get("form") != self.FORM:
            raise InputError(
                f"{path} was written by another version of primecast, whose runs cannot be taken up by this one; give "
                "another folder, or delete that file to begin anew"
            )
        for name, ours in self.settings.items():
            if theirs.get(name) != ours:
                raise InputError(
                    f"{path} holds the state of another run: its {name} is {theirs.get(name)!r}, here it is {ours!r}; "
                    "give another folder, or delete that file to begin anew"
                )

        load_weights(self.model, _under("best/", tensors), source=str(path))
        self.best = _copy(self.model)
        load_weights(self.model, _under("weights/", tensors), source=str(path))
        for name, tensor in _under("moments/", tensors).items():
            parameter, _, kind = name.rpartition("/")
            self.optimizer.moments.setdefault(parameter, {})[kind] = tensor.to(self.device)
        for name, state in _under("generators/dropout/", tensors).items():
            kind, _, rank = name.rpartition("/")
            if rank == str(self.team.rank):
                _set_dropout_generator(kind, state, self.device)
        self.shuffle.set_state(shuffle)
        return True


@contextmanager
def lock_state_dir(folder: Path | None, team: ProcessGroup) -> Iterator[None]:
    """The folder is this run's alone until the end, whatever the end: the system frees what the dead had locked."""
    if folder is None:
        yield
        return
    with ExitStack() as stack:
        taken = team.is_main and not stack.enter_context(_locked(folder))
        if team.add_up(torch.tensor(int(taken))).item():  # told to all, or they would wait for the leader
            raise InputError(f"the state folder {folder} is in use by another process; give this run one of its own")
        if team.is_main:
            for stale in folder.glob(f".{Run.FILE}.*.tmp"):  # of a process killed while it wrote
                stale.unlink()
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """False if somebody else has the lock. Windows has none of this kind: there it is always True."""
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
    """A run that goes on elsewhere takes what there is: the generators of one kind of device say nothing to another."""
    if kind == "cpu":
        torch.set_rng_state(state)
    elif kind == device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif kind == device.type == "mps":
        torch.mps.set_rng_state(state)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
