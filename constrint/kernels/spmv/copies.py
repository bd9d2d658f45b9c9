"""Products by a kernel that has copied the values of a matrix: right after writes, too. Needs torch.

As long as torch's counters tell of every write (`writes.py`) a product reads the copy alone. Where they do not, and in
captured graphs, which run again without the host, a product compares the matrix's values with a hash of those that were
copied, and computes from the matrix where they differ. When counters tell of every write again, a comparison that found
no difference ends this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.spmv.planned import Run, planned
from constrint.kernels.spmv.structure import Known
from constrint.select.candidate import Config

#: Products with comparisons between looks at what they found.
LOOK_EVERY = 16


class CopiedProducts:
    """Products by a copy.

    Args:
        known: The matrix.
        kernel, config: The kernel, and its configuration.
        frozen: True: the caller promises that nothing writes values; False: every product compares them; None: where
            writes may go uncounted.
        give_up: Called when values turn out to have changed: what runs from then on. Without it, products go on
            comparing.
    """

    def __init__(
        self, known: Known, kernel: str, config: Config, frozen: bool | None, give_up: Callable[[], Run] | None = None
    ) -> None:
        self.known, self.frozen, self.give_up = known, frozen, give_up
        self.writes, self.number = known.writes, known.writes.number
        if known.copies.get("number", self.number) != self.number:
            known.copies.clear()
        known.copies["number"] = self.number
        is_new = known.copies.setdefault("calls", known.calls) == known.calls
        # First, since it makes the hash of the values that are copied.
        self.checked = planned(known, kernel, config, is_checked=True)
        self.flag: Tensor = known.copies["guard"][1]
        self.plain = planned(known, kernel, config, is_checked=False)
        # A copy that was made in an earlier call, for products of another kind, may be older than an uncounted write.
        self.compares = frozen is False or (frozen is None and not (is_new and self.writes.are_counted()))
        self.count = 0
        self.seen: Tensor | None = None
        self.event: Any = None
        self.is_counted_since = False

    def __call__(self, x: Tensor, source: Tensor | None, alpha: float, beta: float) -> Tensor:
        """alpha * A @ x + beta * source."""
        if self.frozen:
            return self.plain(x, source, alpha, beta)
        if self.frozen is None:
            if self.writes.number != self.number:
                return self._stale()(x, source, alpha, beta)
            is_counted = self.writes.are_counted()
            if not is_counted:
                self.compares, self.is_counted_since = True, False
            elif not self.compares and not _is_captured():
                return self.plain(x, source, alpha, beta)
        out = self.checked(x, source, alpha, beta)
        self.count += 1
        if self.compares and self.count % LOOK_EVERY == 0 and not _is_captured():
            self._look()
        return out

    def _stale(self) -> Run:
        """Return what runs after a write: what the caller gives, or comparisons for good."""
        if self.give_up is not None:
            return self.give_up()
        self.frozen, self.compares = False, True
        return self.checked

    def _look(self) -> None:
        """See what comparisons found up to the last look; begin another look."""
        if self.event is not None and not self.event.query():
            return
        if self.event is not None and self.seen is not None:
            if int(self.seen[0]):
                # Every product since was computed from the matrix itself.
                if self.give_up is not None:
                    self.give_up()
                return
            if self.frozen is None and self.is_counted_since:
                self.compares, self.event = False, None
                return
        if self.seen is None:
            self.seen = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self.seen.copy_(self.flag, non_blocking=True)
        self.is_counted_since = self.writes.are_counted()
        make: Any = torch.cuda.Event
        self.event = make()
        self.event.record()


def _is_captured() -> bool:
    return torch.cuda.is_current_stream_capturing()
