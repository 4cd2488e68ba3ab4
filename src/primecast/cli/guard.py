"""What all commands have in common: how they end when they are interrupted, or when the machine refuses something."""

import errno
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from inspect import signature
from io import TextIOBase, TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from primecast.errors import InputError

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes after Ctrl-C and after SIGTERM: 128 and the number of the signal."""


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with one line and an exit code for signals, full disks, closed streams and lack of memory."""

    @wraps(command)
    def run(**given: object) -> None:
        with _interruptible(given), _speaking_of_options(command), refusals():
            command(**given)
            flush()

    return run


# ---------------------------------------------------------------- words


@contextmanager
def _speaking_of_options(command: Callable[..., None]) -> Iterator[None]:
    """Turn the arguments that an error speaks of into the options of this command."""
    try:
        yield
    except InputError as error:
        text = with_options(str(error), command)
        if text == str(error):
            raise
        raise InputError(text) from error


def with_options(text: str, command: Callable[..., None]) -> str:
    """Return a sentence about arguments of Python as one about options: missing='mask' is --missing mask.

    >>> def command(missing: str, time_limit: float, settings: list[str]): ...
    >>> with_options("lr is 0; missing='mask' or batch_size=1 may help", command)
    'lr is 0; --missing mask or --set batch_size=1 may help'
    >>> with_options("time_limit is -1; it must be a finite number above 0", command)
    '--time-limit is -1; it must be a finite number above 0'
    """
    text = text.replace("dayfirst=True", "--dayfirst").replace("dayfirst=False", "--monthfirst")
    text = text.replace("header=None", "--no-header").replace("header=0", "--header")
    text = text.replace("matrix=True", "--matrix").replace("matrix=False", "--no-matrix")
    options = {name: f"--{name.replace('_', '-')}" for name in signature(command).parameters}
    if "settings" in options:
        options |= {name: f"--set {name}=" for name in SETTINGS if name not in options}
    for name, option in options.items():
        joined = option if option.endswith("=") else f"{option} "
        text = re.sub(rf"(?<![-\w.(]){name}=(?:'([^']*)'|(-?[\w.]+)|\[\.\.\.\])", partial(_option, joined), text)
        if not option.endswith("="):
            text = re.sub(rf"^{name} is ", f"{option} is ", text)
    return text


def _option(option: str, found: "re.Match[str]") -> str:
    """Return an option with the value that was found; that of a flag is its name."""
    value = found[1] if found[1] is not None else found[2]
    if value is None:  # columns=[...]
        return f"{option}a,b"
    if value in ("True", "False") and option.endswith(" "):
        return f"--no-{option[2:-1]}" if value == "False" else option[:-1]
    return f'{option}"{value}"' if " " in value else option + value


SETTINGS = ("model", "attention", "batch_size", "epochs", "lr", "season", "refit")
"""Arguments that messages advise, and that --set takes."""

# ---------------------------------------------------------------- signals


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM."""


LONGEST_IMPORT = 30.0
"""Seconds that a signal waits for an import at most."""
AGAIN = 0.05
"""Seconds after which a signal that could have no effect comes again."""


class _Interruption:
    """Raises an exception for Ctrl-C and SIGTERM, once no import is under way: half a module breaks what comes after.

    An exception that is lost, because it was raised where Python ignores exceptions, such as in the destructor of an
    object, is raised again.
    """

    def __init__(self) -> None:
        self.first: float | None = None
        self.last = signal.SIGINT
        self.hook = sys.unraisablehook
        self.handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for one in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(one)
            if handler is not signal.SIG_IGN:  # ignored, as under nohup: it stays so
                self.handlers[one] = handler
                signal.signal(one, self._receive)
        sys.unraisablehook = self._ignored

    def __exit__(self, *_: object) -> None:
        for one, handler in self.handlers.items():
            signal.signal(one, handler)
        if self.handlers:
            sys.unraisablehook = self.hook

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        self.first, self.last = self.first or now, signal.Signals(number)
        if now - self.first < LONGEST_IMPORT and _imports(frame):
            self._send_again()
        else:
            raise _TerminatedError if number == signal.SIGTERM else KeyboardInterrupt

    def _ignored(self, ignored: "sys.UnraisableHookArgs") -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            self._send_again()
        else:
            self.hook(ignored)

    def _send_again(self) -> None:
        again = threading.Timer(AGAIN, self._send)
        again.daemon = True
        again.start()

    def _send(self) -> None:
        if signal.getsignal(self.last) not in (signal.SIG_DFL, signal.SIG_IGN):  # the command has ended meanwhile
            os.kill(os.getpid(), self.last)


def _imports(frame: FrameType | None) -> bool:
    """Return whether an import is under way in this frame or in one that called it."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


@contextmanager
def _interruptible(given: dict[str, object]) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into a line that says how to go on. given: the arguments of the command."""
    start = time.time()
    try:
        with _Interruption():
            yield
    except KeyboardInterrupt as stop:
        typer.echo(f"primecast: {stop if stop.args else _how_to_go_on(given, start)}", err=True)
        causes = (stop, stop.__cause__, stop.__context__)
        terminated = any(isinstance(one, _TerminatedError) for one in causes)
        raise typer.Exit(TERMINATED if terminated else INTERRUPTED) from stop


def _how_to_go_on(given: dict[str, object], start: float) -> str:
    """Return what was kept since the start, and how the command can go on."""
    written = [str(path) for path in (given.get(name) for name in TARGETS) if path and _is_newer(str(path), start)]
    there = f"; written: {', '.join(written)}" if written else ""
    if given.get("state") is not None:
        force = " with --force" if written else ""
        return f"interrupted{there}; the same command{force} goes on from the state in {given['state']}"
    if written:
        return f"interrupted{there}"
    if "state" in given:
        return "interrupted; nothing was kept: with --state FOLDER the same command can go on where it was interrupted"
    return "interrupted"


TARGETS = ("save", "out", "report", "plot")
"""Options of the files and folders that a command writes."""


def _is_newer(path: str, start: float) -> bool:
    try:
        return Path(path).stat().st_mtime >= start - 0.01  # file systems count in steps
    except OSError:
        return False


# ---------------------------------------------------------------- what the machine refuses


@contextmanager
def refusals() -> Iterator[None]:
    """Raise an InputError for what the operating system refuses and nobody below has said in a sentence."""
    try:
        yield
    except BrokenPipeError:  # `primecast list | head`: typer ends the command without a word
        raise
    except OSError as error:
        action = "write to stdout" if error.filename is None else f"read or write {error.filename}"
        raise InputError(f"cannot {action}: {error.strerror or error}") from error
    except MemoryError as error:
        raise InputError(f"{error or 'out of memory'}; {_SMALLER}") from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        raise InputError(f"out of memory ({str(error).rpartition('] ')[2].strip()}); {_SMALLER}") from error


class _ClosedStream(TextIOBase):
    """Stdout where it is closed: Python itself would write to it without a word."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed")


class _Messages(TextIOWrapper):
    """Stderr whose messages get lost where they cannot be written: no training ends because its log does."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def prepare_streams() -> None:
    """Make stdout and stderr do what they can, whatever they are connected to."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:  # a file must not get the number of a closed stream
        pass
    os.close(handle)
    if sys.stdout is None:
        sys.stdout = _ClosedStream()
    elif isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that has ASCII alone shows "\xb0F"
    if isinstance(sys.stderr, TextIOWrapper) and sys.stderr is sys.__stderr__:  # not one that somebody else put there
        encoding = sys.stderr.encoding
        sys.stderr = _Messages(sys.stderr.detach(), encoding, errors="backslashreplace", line_buffering=True)


_SMALLER = "take fewer channels, or a smaller batch_size or d_model"


def flush() -> None:
    """Write what waits in stdout now: at the end of the process an error would be a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # What could not be written would be tried again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise InputError(f"cannot write to stdout: {error.strerror}") from error
