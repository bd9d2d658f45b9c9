"""Whether blocks that wait for each other can be resident at the same time on the device that is there.

A grid barrier or a cluster needs that. The driver is asked before the launch, since part of a GPU (a MIG slice, a share
of MPS) holds fewer blocks than its model says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from constrint.core import compiled
from constrint.errors import RESIDENT, DoesNotFitError
from constrint.kernels.launch.plan.driver import driver
from constrint.kernels.launch.plan.shape import LaunchShape

if TYPE_CHECKING:
    from constrint.kernels.launch.cuda.source_spec import CudaLaunch


def resident_blocks(launch: CudaLaunch) -> int | None:
    """How many blocks of a launch the device of its tensors holds at the same time; None where nobody tells.

    Raises:
        DoesNotFitError: When the device cannot run one block of it.
    """
    with torch.cuda.device(launch.device):
        return resident_of(LaunchShape.of_cuda(launch), int(launch.handle()))


def check_resident(launch: CudaLaunch) -> None:
    """See that the blocks of a launch that wait for each other are resident at the same time.

    Raises:
        DoesNotFitError: When they are not, or the device cannot run one block of it.
    """
    with torch.cuda.device(launch.device):
        check_shape(LaunchShape.of_cuda(launch), int(launch.handle()), launch.source.name)


def check_shape(shape: LaunchShape, handle: int, name: str) -> None:
    """The same of a loaded kernel on the current device.

    Raises:
        DoesNotFitError: As `check_resident`.
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
    """How many blocks of a loaded kernel the current device holds at the same time; None where nobody tells."""
    if compiled is None or driver() is None:
        return None
    blocks: int | None = compiled.resident_blocks(driver(), handle, *shape[1:4], _num_sms())
    return blocks


def _num_sms() -> int:
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)
