"""Ctrl-C and SIGTERM held back until a training step has ended and its state is written.

A signal may arrive between the update of the weights and the count of the step; a state written there would not be
that of any moment of an unbroken run.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ProcessEnd(BaseException):
    """Leaves the training for a signal that then ends the process, so that its folder is unlocked first."""


@dataclass
class HeldSignals:
    """The first signal waits for `deliver`; a second one takes effect at once."""

    pending: signal.Signals | None = None
    handlers: dict[signal.Signals, Any] = field(default_factory=dict)  # to be restored

    def hold(self) -> None:
        for one in SIGNALS:
            handler = signal.getsignal(one)
            if handler not in (signal.SIG_IGN, None):  # ignored, as under nohup: it stays so
                self.handlers[one] = handler
                signal.signal(one, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.pending = signal.Signals(number)
        self.restore()

    def restore(self) -> None:
        while self.handlers:
            signal.signal(*self.handlers.popitem())

    def deliver(self) -> None:
        """Let a signal that waits have its usual effect: an exception, or the end of the process (see `ProcessEnd`)."""
        if self.pending is not None and signal.getsignal(self.pending) is signal.SIG_DFL:
            raise ProcessEnd
        self.raise_pending()

    def raise_pending(self) -> None:
        if self.pending is not None:
            number, self.pending = self.pending, None
            signal.raise_signal(number)


@contextmanager
def hold_signals(active: bool) -> Iterator[HeldSignals]:
    """Hold signals back inside; one that still waits at the end is delivered then. Only the main thread can."""
    held = HeldSignals()
    if active and threading.current_thread() is threading.main_thread():
        held.hold()
    try:
        yield held
    finally:
        held.restore()
        held.raise_pending()
