"""Compiled kernels on the current device: loaded once from images on disk, and checked to be resident.

Blocks that wait for each other, in a grid barrier or a cluster, have to be resident at the same time. The driver states
their number before the launch, because part of a GPU (a MIG slice, a share of MPS) holds fewer blocks than its model
says.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from constrint import cache
from constrint.core import compiled
from constrint.errors import RESIDENT, DoesNotFitError
from constrint.kernels.launch.plan.driver import driver
from constrint.kernels.launch.plan.shape import LaunchShape, NotPlannedError

#: The kind under which the cache stores images.
IMAGES = "kernels"
#: Handles of loaded kernels by device, image and name.
_HANDLES: dict[tuple[int, str, str], int] = {}
#: Most threads of a block, by handle, of kernels that this process loaded from images.
_MOST_THREADS: dict[int, int] = {}
#: Images that this process has put on disk, by digest and folder.
_STORED: set[tuple[str, str]] = set()
#: Digests of the images of Triton's compiled kernels. They are kept: Triton 3.8 and later unload a kernel's module, and
#: with it the handle that plans launch, when nothing refers to the kernel any more.
_DIGESTS: dict[Any, str] = {}


def resident_blocks(launch: Any) -> int | None:
    """Blocks of a `CudaLaunch` that the device of its tensors holds at once; None where no driver tells.

    Raises:
        DoesNotFitError: When the device cannot run one block of it.
    """
    with torch.cuda.device(launch.device):
        return resident_of(LaunchShape.of_cuda(launch), int(launch.handle()))


def check_resident(launch: Any) -> None:
    """Check that blocks of a `CudaLaunch` that wait for each other are resident at the same time.

    Raises:
        DoesNotFitError: When they are not, or the device cannot run one block of it.
    """
    with torch.cuda.device(launch.device):
        check_shape(LaunchShape.of_cuda(launch), int(launch.handle()), launch.source.name)


def check_shape(shape: LaunchShape, handle: int, name: str) -> None:
    """Check that blocks of a loaded kernel that wait for each other are resident on the current device.

    Raises:
        DoesNotFitError: When they are not, or the device cannot run one block.
    """
    needed = shape.num_together
    if needed == 1:
        return
    there = resident_of(shape, handle)
    if there is None or needed <= there:
        return
    what = f"the {needed} blocks of its grid" if shape.is_cooperative else f"the {needed} blocks of a cluster"
    raise DoesNotFitError(
        f"{name}: {what} wait for each other, and {torch.cuda.get_device_name()} "
        f"({_num_sms()} SMs here) holds {there} of them at the same time ({shape.threads} threads and "
        f"{shape.shared_bytes} bytes of dynamic shared memory each). Choose fewer blocks.",
        name=RESIDENT,
        required=needed,
        limit=there,
    )


def resident_of(shape: LaunchShape, handle: int) -> int | None:
    """Blocks of a loaded kernel that the current device holds at once; None where no driver tells."""
    if compiled is None or driver() is None:
        return None
    blocks: int | None = compiled.resident_blocks(driver(), handle, *shape[1:4], _num_sms())
    return blocks


def _num_sms() -> int:
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


def keep_triton(kernel: Any) -> str:
    """Store the image of one of Triton's compiled kernels on disk, remember its handle, and return its digest."""
    digest = _DIGESTS.get(kernel)
    if digest is None:
        digest = _DIGESTS[kernel] = _digest(bytes(kernel.kernel))
    _keep(digest, bytes(kernel.kernel), kernel.metadata.name, int(kernel.function))
    return digest


def keep_image(image: bytes, name: str, handle: int) -> str:
    """Store an image on disk, remember its kernel's handle on the current device, and return its digest."""
    digest = _digest(image)
    _keep(digest, image, name, handle)
    return digest


def load_image(image: str, name: str, shape: LaunchShape) -> int:
    """Load a kernel of a stored image on the current device and return its handle, ready for a launch of this shape.

    Raises:
        NotPlannedError: When the image is not on disk, or this device cannot launch it.
    """
    key = torch.cuda.current_device(), image, name
    assert compiled is not None
    try:
        if key not in _HANDLES:
            data = cache.load(IMAGES, image.encode())
            if data is None or _digest(data) != image:
                raise NotPlannedError("the kernel's image is not on disk")
            handle, _, _, most_threads = compiled.load_kernel(driver(), data, name)
            _HANDLES[key], _MOST_THREADS[handle] = handle, most_threads
        handle = _HANDLES[key]
        if shape.threads > _MOST_THREADS.get(handle, shape.threads):
            raise NotPlannedError("the kernel takes more registers than this device has")
        compiled.allow_kernel(driver(), handle, shape.shared_bytes, shape.cluster)
        check_shape(shape, handle, name)
    except (DoesNotFitError, RuntimeError) as error:
        raise NotPlannedError(str(error)) from error
    return handle


def _keep(digest: str, image: bytes, name: str, handle: int) -> None:
    where = str(cache.folder())
    if (digest, where) not in _STORED:
        _STORED.add((digest, where))
        cache.store_soon(IMAGES, digest.encode(), image)
    _HANDLES[torch.cuda.current_device(), digest, name] = handle


def _digest(image: bytes) -> str:
    return hashlib.blake2b(image, digest_size=20).hexdigest()
