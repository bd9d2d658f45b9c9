"""Banks of shared memory: which lanes of a warp are served together, and the clocks that addresses take.

Shared memory serves a warp in phases. In one clock each bank gives one word: lanes that want the same word share it,
and two words of one bank take two clocks. Phases are facts of the vendor's `banks.yaml`, by target, kind and width.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from constrint.errors import HardwareModelError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels.files import read_yaml

if TYPE_CHECKING:
    from constrint.hwmodels.schema import GpuModel

Kind = Literal["read", "write"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: Bits that one lane accesses in one instruction; the narrow ones are served as those of 32.
WIDTHS = (8, 16, 32, 64, 96, 128)
#: Widths for which the vendors' files have entries.
STATED_WIDTHS = (32, 64, 96, 128)
#: The entry for every GPU of a vendor.
ANY = "any"
_LANES = re.compile(r"(\d{1,3})-(\d{1,3})")


class StatedPhases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of a vendor's `banks.yaml`.

    Args:
        phases: Lanes of each phase: `0-3 20-23`.
        source: Its grade and text.
        banks: Banks that such an access sees, where it is not the number of the GPU's file.
    """

    phases: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    source: Annotated[str, msgspec.Meta(min_length=1)]
    banks: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None


@dataclass(frozen=True)
class BankAccess:
    """How shared memory serves one kind of access of a GPU.

    Args:
        kind: "read" or "write".
        width_bits: Bits of a lane.
        phases: Lanes that are served together, phase by phase.
        banks: Banks that the access sees.
        bank_width_bytes: Bytes of a bank's word.
        source: Where the phases come from.
    """

    kind: Kind
    width_bits: int
    phases: tuple[tuple[int, ...], ...]
    banks: int
    bank_width_bytes: int
    source: str

    @property
    def lanes(self) -> int:
        """Lanes of a warp."""
        return sum(map(len, self.phases))

    @property
    def alignment_bytes(self) -> int:
        """Addresses are a multiple of it: the bytes of the access, and a word for 96 bits."""
        return self.width_bits // 8 if self.width_bits & (self.width_bits - 1) == 0 else self.bank_width_bytes


@dataclass(frozen=True)
class BankConflicts:
    """The clocks that accesses take.

    Args:
        clocks: Clocks of each phase: an array of the shape of the addresses, the lanes replaced by the phases.
        access: How the accesses are served.
    """

    clocks: NDArray[np.int64]
    access: BankAccess

    @property
    def beyond_least(self) -> NDArray[np.int64]:
        """Clocks of each phase beyond the one that it takes without a conflict."""
        return self.clocks - 1

    @property
    def degree(self) -> NDArray[np.int64]:
        """The worst phase of each access: 1 without a conflict, n for an n-way conflict."""
        return cast("NDArray[np.int64]", self.clocks.max(axis=-1))

    @property
    def is_free(self) -> bool:
        """Whether no phase of any access has a conflict."""
        return bool((self.clocks == 1).all())


@functools.cache
def read_banks(path: Path) -> Mapping[str, Mapping[str, StatedPhases | None]]:
    """The entries of a vendor's file: by target, family or `any`, then `read_128` and so on.

    Raises:
        HardwareModelError: When an entry breaks a rule; names the file, the key and the rule.
    """
    try:
        entries = msgspec.convert(read_yaml(path), dict[str, dict[str, StatedPhases | None]])
    except msgspec.ValidationError as error:
        raise HardwareModelError(f"{path}: {error}.") from None
    names = [f"{kind}_{width}" for kind in KINDS for width in STATED_WIDTHS]
    for key, accesses in entries.items():
        if set(accesses) != set(names):
            wrong = ", ".join(sorted(set(names) ^ set(accesses)))
            raise HardwareModelError(
                f"{path}: {key}: an entry has exactly read and write of 32 to 128 bits; see {wrong}."
            )
        for name, stated in accesses.items():
            lanes = sorted(lane for phase in stated.phases for lane in _lanes_of(phase)) if stated else [0]
            if not lanes or lanes != list(range(len(lanes))):
                raise HardwareModelError(f"{path}: {key}.{name}: the phases hold every lane of a warp exactly once.")
    return entries


def _lanes_of(text: str) -> tuple[int, ...]:
    """The lanes of `0-3 20-23`; no lanes, which no warp has, where the text has another form."""
    ranges = [_LANES.fullmatch(part) for part in text.split()]
    if not all(ranges):
        return ()
    return tuple(lane for hit in ranges if hit for lane in range(int(hit[1]), int(hit[2]) + 1))


def bank_access(gpu: GpuModel, width: int, kind: Kind) -> BankAccess:
    """How a GPU serves accesses of `width` bits a lane.

    Raises:
        UsageError: When there is no such width or kind.
        UnsupportedError: When no source states it for this GPU.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise UnknownNameError("kind of access", str(kind), KINDS)
    if isinstance(width, bool) or not isinstance(width, int | np.integer) or width not in WIDTHS:
        raise UsageError(f"width: a lane accesses {', '.join(map(str, WIDTHS))} bits; got {width!r}.")
    stated = _stated(gpu, f"{kind}_{max(32, int(width))}")
    banks = None if stated is None else stated.banks or gpu.sm.smem_banks
    if stated is None or banks is None or gpu.sm.smem_bank_width_bytes is None:
        missing = "which lanes are served together" if stated is None else "how many banks there are, and their width,"
        raise UnsupportedError(
            f"{gpu.name}: no source states {missing} in a {kind} of {max(32, int(width))} bits a lane on "
            f"{gpu.arch.target}; its conflicts are unknown. `constrint banks --gpu {gpu.name}` lists what is known."
        )
    phases = tuple(map(_lanes_of, stated.phases))
    return BankAccess(kind, int(width), phases, banks, gpu.sm.smem_bank_width_bytes, stated.source)


def _stated(gpu: GpuModel, name: str) -> StatedPhases | None:
    entries = gpu.maker.banks()
    keys = (gpu.arch.target, gpu.arch.family, ANY)
    return next((entries[key][name] for key in keys if key in entries), None)


def known_accesses(gpu: GpuModel) -> list[tuple[Kind, int, BankAccess | None]]:
    """Every kind and width with how it is served, None where no source states it."""
    found: list[tuple[Kind, int, BankAccess | None]] = []
    for kind in KINDS:
        for width in STATED_WIDTHS:
            try:
                found.append((kind, width, bank_access(gpu, width, kind)))
            except UnsupportedError:
                found.append((kind, width, None))
    return found


def bank_conflicts(gpu: GpuModel, addresses: ArrayLike, width: int, kind: Kind) -> BankConflicts:
    """Count the clocks that a warp's accesses of shared memory take, phase by phase.

    Args:
        gpu: The GPU.
        addresses: Byte addresses in shared memory, one for each lane in the last axis; any axes before it.
        width: Bits that each lane accesses, of `WIDTHS`.
        kind: "read" or "write".

    Raises:
        UsageError: When addresses are no whole numbers, of another number of lanes, negative, not aligned to the
            access, or beyond the memory that a block can have.
        UnsupportedError: When no source states how the GPU serves such accesses.
    """
    access = bank_access(gpu, width, kind)
    lanes = _checked(gpu, addresses, access)
    patterns = lanes.reshape(-1, access.lanes)
    words = max(1, access.width_bits // (8 * access.bank_width_bytes))
    first = patterns // access.bank_width_bytes
    clocks = np.stack([_clocks(first[:, list(phase)], words, access.banks) for phase in access.phases], axis=-1)
    return BankConflicts(clocks.reshape(*lanes.shape[:-1], len(access.phases)), access)


def _clocks(first: NDArray[np.int64], words: int, banks: int) -> NDArray[np.int64]:
    """Most different words in one bank, for each row of first words."""
    every = np.sort((first[:, :, None] + np.arange(words)).reshape(len(first), words * first.shape[1]), axis=1)
    is_new = np.ones(every.shape, bool)
    is_new[:, 1:] = every[:, 1:] != every[:, :-1]
    places = np.arange(len(first))[:, None] * banks + every % banks
    counted = np.bincount(places[is_new], minlength=len(first) * banks)
    return cast("NDArray[np.int64]", counted.reshape(len(first), banks).max(axis=1, initial=0).astype(np.int64))


def _checked(gpu: GpuModel, addresses: ArrayLike, access: BankAccess) -> NDArray[np.int64]:
    """The addresses as an array, after every check."""
    what = f"addresses of a {access.kind} of {access.width_bits} bits on {gpu.name}"
    try:
        raw: NDArray[Any] = np.asarray(addresses)
    except (ValueError, TypeError, OverflowError):
        raise UsageError(f"{what}: give an array of byte addresses with one length in each axis.") from None
    if raw.dtype.kind not in "iu":
        raise UsageError(f"{what}: give whole numbers of bytes that fit 64 bits; got {raw.dtype}.")
    if raw.ndim == 0 or raw.shape[-1] != access.lanes:
        raise UsageError(f"{what}: the last axis has one address for each of {access.lanes} lanes; got {raw.shape}.")
    num_bytes, most = -(-access.width_bits // 8), gpu.sm.max_smem_bytes_per_block
    if raw.size and raw.min() < 0:
        raise UsageError(f"{what}: an address is not negative; got {raw.min()}.")
    if raw.size and raw.max() > most - num_bytes:
        smem = gpu.terms.smem
        raise UsageError(f"{what}: a {gpu.terms.block} has {most:,} bytes of {smem}; byte {raw.max():,} is too far.")
    if (raw % access.alignment_bytes).any():
        wrong = int(raw[raw % access.alignment_bytes != 0].flat[0])
        raise UsageError(f"{what}: an address is a multiple of {access.alignment_bytes}; got {wrong}.")
    return raw.astype(np.int64)
