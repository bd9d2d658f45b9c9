"""A call's launches as plain data: made once from its Triton launches, kept on disk, turned into a plan of the core.

A recipe names no address. Slots stand for them: first the call's tensors, then what it allocates (its results, then
one piece of scratch memory), then the stream's counters.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from constrint import cache
from constrint.core import compiled
from constrint.kernels.launch.plan.direct import DirectLaunch
from constrint.kernels.launch.plan.driver import driver, reads_tensors
from constrint.kernels.launch.plan.errors import NotPlannedError
from constrint.kernels.launch.plan.scratch import NotedScratch

#: Pieces of scratch memory start at multiples of this many bytes, as torch's own allocations do.
PIECE_BYTES = 512
#: Zeroed words are cleared by the driver, four bytes each.
WORD_BYTES = 4
#: The most blocks of a cluster that every GPU with clusters can have.
PORTABLE_CLUSTER = 8
IMAGES = "kernels"


class LaunchShape(NamedTuple):
    """How a compiled kernel is launched.

    Args:
        grid: Blocks along x, y and z; a cluster counts as its blocks.
        threads: Threads of a block.
        shared_bytes: Shared memory of a block.
        cluster: Blocks of a cluster.
        is_cooperative: Whether all blocks are to reside at the same time.
        is_dependent: Whether it may begin before the launch before it has ended.
    """

    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    cluster: int
    is_cooperative: bool
    is_dependent: bool

    @classmethod
    def of(cls, kernel: Any, grid: tuple[int, ...]) -> LaunchShape:
        """How Triton would launch one of its compiled kernels on a grid.

        Raises:
            NotPlannedError: When only Triton can.
        """
        meta = kernel.metadata
        cluster = int(getattr(meta, "num_ctas", 1) or 1)
        if getattr(meta, "global_scratch_size", 0) or getattr(meta, "profile_scratch_size", 0):
            raise NotPlannedError("the kernel wants scratch memory of Triton's")
        if cluster > PORTABLE_CLUSTER:
            raise NotPlannedError(f"a cluster of {cluster} blocks")
        whole = (*grid, 1, 1)[:3]
        return cls(
            grid=(whole[0] * cluster, whole[1], whole[2]),
            threads=int(meta.num_warps) * int(meta.target.warp_size),
            shared_bytes=int(meta.shared),
            cluster=cluster,
            is_cooperative=bool(getattr(meta, "launch_cooperative_grid", False)),
            is_dependent=bool(getattr(meta, "launch_pdl", False)),
        )

    def for_core(self) -> tuple[Any, ...]:
        """The same as plans of the core take it: numbers alone."""
        return *self[:4], int(self.is_cooperative), int(self.is_dependent)


class KernelStep(msgspec.Struct, frozen=True):
    """One kernel: its image by digest, how it is launched, and its arguments as `arguments.layout_of` gives them."""

    image: str
    name: str
    shape: LaunchShape
    arguments: list[Any]


class ZeroStep(msgspec.Struct, frozen=True):
    """Words that are cleared before the kernels run."""

    slot: int
    shift: int
    words: int


class Recipe(msgspec.Struct, frozen=True):
    """Everything a call of one signature does.

    Args:
        zeroed: What is cleared first.
        kernels: What is launched, in order.
        outputs: (shape, strides, name of the dtype) of everything that is allocated.
        num_results: How many of those are results; the others are scratch memory.
        num_counters: Counters of the stream that it needs; 0 for none.
        note: What was chosen, for people.
    """

    zeroed: list[ZeroStep]
    kernels: list[KernelStep]
    outputs: list[tuple[list[int], list[int], str]]
    num_results: int
    num_counters: int
    note: str = ""


class Made(NamedTuple):
    """A recipe; where the core does not launch, the launches themselves, and no kernels in the recipe."""

    recipe: Recipe
    direct: list[DirectLaunch]


class Regions:
    """Which slot an address belongs to, by the extents in memory of the tensors of the slots."""

    def __init__(self) -> None:
        self._of_slot: list[tuple[int, int, int, int]] = []

    def add(self, tensor: Tensor, slot: int, shift: int = 0) -> None:
        """Say that a tensor lies `shift` bytes into a slot."""
        start, end = extent(tensor)
        self._of_slot.append((start, end, slot, shift))

    def locate(self, address: int) -> tuple[int, int]:
        """The slot, and how many bytes into it.

        Raises:
            NotPlannedError: When no slot, or more than one, has the address.
        """
        found = [(slot, shift + address - start) for start, end, slot, shift in self._of_slot if start <= address < end]
        if len(found) != 1:
            raise NotPlannedError(f"an argument lies in {len(found)} tensors of the call")
        return found[0]


def extent(tensor: Tensor) -> tuple[int, int]:
    """The first address of a tensor and the one after its last."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


def recipe_of(
    launches: Sequence[Any],
    tensors: Sequence[Tensor | None],
    results: Sequence[Tensor],
    scratch: NotedScratch,
    note: str = "",
    *,
    may_spill: bool = True,
) -> Made:
    """The recipe of launches that were stated for these tensors; compiles their kernels.

    Raises:
        NotPlannedError: When they have to go through Triton's launcher.
        SpilledError: When a kernel spills and may not.
        triton.runtime.errors.OutOfResources: When a kernel does not fit the device.
    """
    regions = Regions()
    for slot, tensor in enumerate((*tensors, *results)):
        if tensor is not None:
            regions.add(tensor, slot)
    slot = len(tensors) + len(results)
    scratch_bytes = 0
    zeroed = []
    for piece in (*scratch.fresh, *scratch.zeroed):
        regions.add(piece, slot, scratch_bytes)
        if any(piece is other for other in scratch.zeroed):
            zeroed.append(ZeroStep(slot, scratch_bytes, piece.numel()))
        start, end = extent(piece)
        scratch_bytes += -(-(end - start) // PIECE_BYTES) * PIECE_BYTES
    outputs = [(list(result.shape), list(result.stride()), _dtype_name(result.dtype)) for result in results]
    if scratch_bytes:
        outputs.append(([scratch_bytes], [1], "uint8"))
        slot += 1
    counters = 0
    for piece in scratch.counted:
        regions.add(piece, slot, counters * WORD_BYTES)
        counters += piece.numel()
    by_kernel = list(zip(launches, compile_all(launches), strict=True))
    if not may_spill:
        from constrint.kernels.launch.policy import check_spills

        check_spills(kernel for _, kernel in by_kernel)
    kernels, direct = [], []
    if compiled is not None and driver() is not None and reads_tensors():
        kernels = [_kernel_step(launch, kernel, regions) for launch, kernel in by_kernel]
    else:
        direct = [DirectLaunch.of(kernel, launch.grid, launch.values(), regions.locate) for launch, kernel in by_kernel]
    return Made(Recipe(zeroed, kernels, outputs, len(results), counters, note), direct)


def compile_all(launches: Sequence[Any]) -> list[Any]:
    """Triton's compiled kernels, those of different functions compiled at the same time.

    Raises:
        NotPlannedError: For what is no launch of Triton's.
        triton.runtime.errors.OutOfResources: When a kernel does not fit the device.
    """
    from constrint.kernels.launch.triton import TritonLaunch

    for launch in launches:
        if not isinstance(launch, TritonLaunch):
            raise NotPlannedError(f"{type(launch).__name__} is no launch of Triton's")
    first = {id(launch.function): launch for launch in reversed(launches)}
    if len(first) > 1:
        with ThreadPoolExecutor(len(first)) as threads:
            list(threads.map(lambda launch: launch.compiled(), first.values()))
    return [launch.compiled() for launch in launches]


def _kernel_step(launch: Any, kernel: Any, regions: Regions) -> KernelStep:
    from constrint.kernels.launch.plan.arguments import check_layout, layout_of

    shape = LaunchShape.of(kernel, launch.grid)
    laid = layout_of(kernel, launch.values(), regions.locate)
    assert compiled is not None
    check_layout(laid, compiled.parameter_bytes(driver(), kernel.function))
    return KernelStep(_keep_image(kernel), kernel.metadata.name, shape, laid)


#: Handles of loaded kernels by device, image and name.
_HANDLES: dict[tuple[int, str, str], int] = {}
#: Images that this process has put on disk, by digest and folder.
_STORED: set[tuple[str, str]] = set()
#: Digests of the images of Triton's compiled kernels.
_DIGESTS: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def _keep_image(kernel: Any) -> str:
    """The digest of a compiled kernel's image, once the image is on disk and its handle is known."""
    where = str(cache.folder())
    digest = _DIGESTS.get(kernel)
    if digest is None:
        digest = _DIGESTS[kernel] = hashlib.blake2b(bytes(kernel.kernel), digest_size=20).hexdigest()
    if (digest, where) not in _STORED:
        _STORED.add((digest, where))
        cache.store_soon(IMAGES, digest.encode(), bytes(kernel.kernel))
    _HANDLES[torch.cuda.current_device(), digest, kernel.metadata.name] = int(kernel.function)
    return digest


def _handle(step: KernelStep) -> int:
    key = torch.cuda.current_device(), step.image, step.name
    if key not in _HANDLES:
        image = cache.load(IMAGES, step.image.encode())
        if image is None or compiled is None:
            raise NotPlannedError("the kernel's image is not on disk")
        function, _, _, max_threads = compiled.load_kernel(driver(), image, step.name, step.shape.shared_bytes)
        if step.shape.threads > max_threads:
            raise NotPlannedError("the kernel takes more registers than this device has")
        _HANDLES[key] = function
    return _HANDLES[key]


def plan_of(recipe: Recipe, num_tensors: int) -> Any:
    """The core's plan on the current device.

    Raises:
        NotPlannedError: When a kernel of it is not at hand.
    """
    if compiled is None or driver() is None:
        raise NotPlannedError("there is no driver")
    steps: list[tuple[Any, ...]] = [("zero", step.slot, step.shift, step.words) for step in recipe.zeroed]
    steps += [("kernel", _handle(step), *step.shape.for_core(), step.arguments) for step in recipe.kernels]
    slots = num_tensors + len(recipe.outputs) + (1 if recipe.num_counters else 0)
    try:
        return compiled.plan(driver(), slots, steps, [])
    except (RuntimeError, TypeError) as error:
        raise NotPlannedError(str(error)) from error


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
