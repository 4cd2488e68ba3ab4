"""The progress of a sweep, for people."""

import sys
import time
from collections.abc import Iterable
from typing import Any

from primecast.experiments.engines import Job
from primecast.experiments.store import Store
from primecast.training.progress import choose_display


class SweepDisplay:
    """Show on stderr the runs that are done, the time left, and the progress of those under way: a table or lines."""

    def __init__(self, progress: str, *, total: int, there: int) -> None:
        self.mode = choose_display(progress)
        self.total = total
        self.ready = there
        self.ended = 0
        self.began = time.monotonic()
        self.seen: dict[str, int] = {}
        self.looked = 0.0

    def __enter__(self) -> "SweepDisplay":
        if self.mode == "bar":
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(stderr=True), auto_refresh=False)
            self.live.start()
        if self.ready:
            self.write(f"{self.ready} of {self.total} runs are there already")
        return self

    def __exit__(self, *_: object) -> None:
        if self.mode == "bar":
            self.live.stop()

    def started(self, job: Job) -> None:
        if self.mode == "lines":
            self.write(f"started  {job.label}")

    def done(self, job: Job, store: Store) -> None:
        self.ready += 1
        self.ended += 1
        fields = store.fields(job.key)
        self.write(
            f"{self.ready}/{self.total}  {job.label}  mse {fields['mse']:.4f}  mae {fields['mae']:.4f}  "
            f"{fields['epochs']} epochs  {fields['seconds']:.0f} s{self._left()}"
        )

    def failed(self, job: Job, error: str) -> None:
        self.ended += 1
        self.write(f"FAILED  {job.label}: {error}")

    def write(self, text: str) -> None:
        if self.mode == "lines":
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        elif self.mode == "bar":
            self.live.console.print(text, highlight=False)

    def show(self, running: Iterable[Job], waiting: int, store: Store) -> None:
        """Show the progress of the runs under way, read from their states at most once per second."""
        if self.mode == "off" or time.monotonic() - self.looked < 1:
            return
        self.looked = time.monotonic()
        from rich.table import Table

        title = f"{self.ready} of {self.total} runs, {waiting} waiting{self._left()}"
        table = Table("under way", "progress", title=title, title_justify="left")
        for job in running:
            epoch, text = describe_progress(store.position(job.key))
            table.add_row(job.label, text)
            if self.mode == "lines" and epoch > self.seen.get(job.key, 0):
                self.seen[job.key] = epoch
                self.write(f"         {job.label}  {text}")
        if self.mode == "bar":
            self.live.update(table, refresh=True)

    def _left(self) -> str:
        """Return the time left by the pace so far, a rough estimate: runs differ in size."""
        if not self.ended or self.ready >= self.total:
            return ""
        seconds = (time.monotonic() - self.began) / self.ended * (self.total - self.ready)
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"  about {hours} h {minutes:02d} min left" if hours else f"  about {max(1, minutes)} min left"


def describe_progress(position: dict[str, Any] | None) -> tuple[int, str]:
    """Return epochs done, and a text: the running loss, and the validation error of the last epoch and of the best."""
    if position is None:
        return 0, "starting"
    rows = position["rows"]
    text = f"epoch {len(rows)} done"
    if position["step"]:
        loss = position["loss_sum"] / position["windows"]
        text = f"epoch {position['epoch']} step {position['step']}  loss {loss:.4f}"
    if rows:
        best = min(row["val_mse"] for row in rows)
        text += f"  loss of epoch {rows[-1]['train_loss']:.4f}  val mse {rows[-1]['val_mse']:.4f}  best {best:.4f}"
    return len(rows), text
