"""A training run as a thing that can be killed: where it stands, and its way to the disk and back.

Everything that changes while a run goes on is in `Run`: weights, the best weights so far, Adam's moments, the two
random generators, and a `Position` of plain numbers. It is written as one safetensors file with the numbers in its
header: a kill between two writes cannot mix two moments, because there is only one write.

Letters: w windows.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.files import load_tensors, load_weights, save_tensors


@dataclass(frozen=True)
class EpochRow:
    """One epoch: mean loss of its training batches, then the validation scores after it."""

    epoch: int
    lr: float
    train_loss: float
    val_mse: float
    val_mae: float
    seconds: float


@dataclass
class Position:
    """How far a run is: all of it that is not a tensor."""

    epoch: int = 1  # the one under way
    step: int = 0  # steps done in it
    loss_sum: float = 0.0  # over these steps
    seconds: float = 0.0  # spent on them
    steps: int = 0  # done in all
    failures: int = 0  # epochs since the best one
    best_epoch: int = 0
    finished: bool = False
    rows: list[EpochRow] = field(default_factory=list)


class Run:
    """Everything that changes while a run goes on, and its way to the disk and back."""

    FILE = "state.safetensors"

    def __init__(
        self,
        *,
        model: nn.Module,
        trained: Mapping[str, nn.Parameter],
        settings: Mapping[str, object],
        seed: int,
    ) -> None:
        self.model = model
        self.trained = trained
        self.settings = settings
        # Fused: one pass over each parameter instead of a dozen.
        self.optimizer = torch.optim.Adam(trained.values(), fused=True)
        self.shuffle = torch.Generator().manual_seed(seed)
        self.drawn_from = self.shuffle.get_state()  # the state that gives the order of the epoch under way
        self.position = Position()
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
        at.epoch, at.step, at.loss_sum, at.seconds = row.epoch + 1, 0, 0.0, 0.0
        self.drawn_from = self.shuffle.get_state()

    def save(self, folder: Path) -> None:
        """One file, so that a kill between two writes cannot mix two moments."""
        tensors = {f"weights/{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best.items()}
        for name, parameter in self.trained.items():
            moments = self.optimizer.state.get(parameter, {})  # empty where no gradient has arrived yet
            tensors |= {f"moments/{name}/{kind}": moment for kind, moment in moments.items()}
        tensors |= {"generators/dropout": torch.get_rng_state(), "generators/shuffle": self.drawn_from}
        metadata = {"settings": json.dumps(self.settings), "position": json.dumps(asdict(self.position))}
        save_tensors(folder / self.FILE, tensors, metadata)

    def resume(self, folder: Path) -> bool:
        """Take up what the folder holds; False if it holds nothing, an error if it is another run's."""
        for stale in folder.glob(f".{self.FILE}.*.tmp"):  # of a process killed while it wrote
            stale.unlink()
        path = folder / self.FILE
        if not path.exists():
            return False
        tensors, metadata = load_tensors(path)
        try:
            theirs = dict(json.loads(metadata["settings"]))
            position = json.loads(metadata["position"])
            self.position = Position(**position | {"rows": [EpochRow(**row) for row in position["rows"]]})
            generators = tensors["generators/dropout"], tensors["generators/shuffle"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not the state of a training run; give another folder") from error
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
            parameter_name, _, kind = name.rpartition("/")
            parameter = self.trained[parameter_name]
            self.optimizer.state[parameter][kind] = tensor.to(parameter.device)
        torch.set_rng_state(generators[0])
        self.shuffle.set_state(generators[1])
        return True


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
