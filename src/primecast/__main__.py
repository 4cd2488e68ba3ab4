"""The process of the command `primecast`, also `python -m primecast`: what signals do from its first line to its last.

What a command does when it is interrupted is said in `primecast.cli.guard`. Before that nothing is begun, and modules
are imported, which an exception would leave half imported: the process ends at once. Afterwards what is done is done.
"""

import os
import signal
import sys
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"primecast: interrupted\n") if sys.stderr is not None else None
    os._exit(128 + number)


def main() -> None:
    """Run the command `primecast`."""
    for one in SIGNALS:
        if signal.getsignal(one) is not signal.SIG_IGN:  # ignored, as under nohup: it stays so
            signal.signal(one, _end)
    from primecast.cli.app import main as run

    try:
        run()
    finally:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN)


if __name__ == "__main__":
    main()
