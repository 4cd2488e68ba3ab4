"""Show the progress of training: a bar on a terminal, else one line per epoch."""

import sys

from primecast.errors import check_known
from primecast.training.checkpoint import EpochRow, TrainingProgress

PROGRESS = ("auto", "bar", "lines", "off")


def choose_display(progress: str) -> str:
    """Return "bar", "lines" or "off" as given; for "auto" a bar on a terminal, else lines."""
    check_known("progress", progress, PROGRESS)
    return progress if progress != "auto" else "bar" if sys.stderr.isatty() else "lines"


class Display:
    """Show progress on stderr, so that stdout stays clean for results."""

    def __init__(self, progress: str, *, shown: bool, epochs: int, steps: int) -> None:
        chosen = choose_display(progress)
        self.mode = chosen if shown else "off"
        self.epochs = epochs
        self.steps = steps

    def __enter__(self) -> "Display":
        if self.mode == "bar":
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            text = TextColumn("epoch {task.fields[epoch]}  step {task.fields[step]}  loss {task.fields[loss]}")
            val = TextColumn("val {task.fields[val]}")
            self.bar = Progress(text, val, BarColumn(), TimeRemainingColumn(), console=Console(stderr=True))
            self.task = self.bar.add_task("", total=self.epochs * self.steps, epoch="1", step="0", loss="-", val="-")
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.mode == "bar":
            self.bar.stop()

    def resumed(self, progress: TrainingProgress) -> None:
        place = f"continuing at epoch {progress.epoch}, step {progress.step + 1}"
        self._line("finished before" if progress.finished else place)

    def step(self, progress: TrainingProgress) -> None:
        if self.mode == "bar":
            self.bar.update(
                self.task,
                completed=progress.steps,
                epoch=f"{progress.epoch}/{self.epochs}",
                step=f"{progress.step}/{self.steps}",
                loss=f"{progress.loss_sum / progress.windows:.4f}",
            )

    def row(self, row: EpochRow) -> None:
        if self.mode == "bar":
            self.bar.update(self.task, val=f"{row.val_mse:.4f}")
        self._line(
            f"epoch {row.epoch}/{self.epochs}  lr {row.lr:.3g}  loss {row.train_loss:.4f}  "
            f"val mse {row.val_mse:.4f}  mae {row.val_mae:.4f}  {row.seconds:.1f} s"
        )

    def _line(self, text: str) -> None:
        if self.mode == "lines":
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
