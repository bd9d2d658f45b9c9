"""Ctrl-C and SIGTERM while a command searches: the search is asked to stop, so that it can tell what it knows.

Where it does not notice within `PATIENCE_S`, and at a second signal, the command is interrupted. Where not even that is
heard, because some library computes for long, the process ends.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Final

#: Seconds within which a search that was asked to stop has to notice, and then the interpreter that it is interrupted.
PATIENCE_S: Final = 0.25
HARD_S: Final = 0.2
#: What is said of a command that a signal ended, by its exit code.
ENDED_BY: Final = {128 + signal.SIGINT: "interrupted", 128 + signal.SIGTERM: "terminated"}


class Signals:
    """Hears signals between `begin` and `end`; those that the caller ignores or handles stay so.

    Attributes:
        number: The signal that came; 0 while none did.
    """

    def __init__(self) -> None:
        self.number = 0
        self._is_noticed, self._has_to_raise = False, False
        self._ended = threading.Event()
        self._before: dict[int, Any] = {}
        self._wakeup, self._wakeup_before, self._main = -1, -1, threading.get_ident()

    def begin(self) -> None:
        """Takes the signals over; only the main thread gets any."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) == usual:
                self._before[number] = signal.signal(number, self._on_signal)
        if os.name == "posix":
            # The descriptor is written to at once, while a handler waits for the main thread to come back to Python.
            reading, self._wakeup = os.pipe()
            os.set_blocking(self._wakeup, False)
            self._wakeup_before = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
            threading.Thread(target=self._watch, args=(reading,), daemon=True).start()

    def end(self) -> None:
        """Gives the signals back."""
        self._ended.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._wakeup >= 0:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._wakeup)
            self._wakeup = -1

    def noticed(self) -> bool:
        """Whether a signal came; who asks is expected to stop the search."""
        self._is_noticed = self._is_noticed or bool(self.number)
        return bool(self.number)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """The handler: the first signal asks, the second one interrupts."""
        if self._has_to_raise:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + number)
        self.number, self._has_to_raise = number, True

    def _watch(self, reading: int) -> None:
        """Sees to it that a signal is heeded; runs in a thread of its own until `end`."""
        while heard := os.read(reading, 1):
            number = heard[0]
            if number in self._before and not self._ended.is_set():
                self.number = self.number or number
                self._insist(number)
        os.close(reading)

    def _insist(self, number: int) -> None:
        if self._ended.wait(PATIENCE_S) or self._is_noticed:
            return
        self._has_to_raise = True
        # A signal of its own also ends a system call that waits.
        signal.pthread_kill(self._main, number)
        if not self._ended.wait(HARD_S):
            os.write(2, f"{ENDED_BY[128 + number]}\n".encode())
            os._exit(128 + number)
