"""Images of compiled kernels: on disk by their digest, and loaded once on each device."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

import torch

from constrint import cache
from constrint.core import compiled
from constrint.errors import DoesNotFitError
from constrint.kernels.launch.plan.driver import driver
from constrint.kernels.launch.plan.errors import NotPlannedError
from constrint.kernels.launch.plan.resident import check_shape
from constrint.kernels.launch.plan.shape import LaunchShape

#: What images are kept as.
IMAGES = "kernels"
#: Handles of loaded kernels by device, image and name.
_HANDLES: dict[tuple[int, str, str], int] = {}
#: The most threads of a block of kernels that were loaded here, by handle.
_MOST_THREADS: dict[int, int] = {}
#: Images that this process has put on disk, by digest and folder.
_STORED: set[tuple[str, str]] = set()
#: Digests of the images of Triton's compiled kernels.
_DIGESTS: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def keep_triton(kernel: Any) -> str:
    """The digest of one of Triton's compiled kernels, once its image is on disk and its handle is known."""
    digest = _DIGESTS.get(kernel)
    if digest is None:
        digest = _DIGESTS[kernel] = _digest(bytes(kernel.kernel))
    _keep(digest, bytes(kernel.kernel), kernel.metadata.name, int(kernel.function))
    return digest


def keep_image(image: bytes, name: str, handle: int) -> str:
    """The digest of an image, once it is on disk and the handle of its kernel on the current device is known."""
    digest = _digest(image)
    _keep(digest, image, name, handle)
    return digest


def load_image(image: str, name: str, shape: LaunchShape) -> int:
    """The handle of a kernel of a kept image on the current device, ready to be launched in this shape.

    Raises:
        NotPlannedError: When the image is not at hand, or this device cannot launch it.
    """
    key = torch.cuda.current_device(), image, name
    assert compiled is not None
    try:
        if key not in _HANDLES:
            data = cache.load(IMAGES, image.encode())
            if data is None:
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
