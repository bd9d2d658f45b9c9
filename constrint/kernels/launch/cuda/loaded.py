"""A compiled CUDA kernel on the current device: loaded once, granted the resources of its launches, and enqueued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from constrint.errors import RESIDENT, DoesNotFitError, UsageError
from constrint.kernels.launch.cuda.nvrtc import CudaBinary, nvrtc_version
from constrint.kernels.launch.plan.shape import PORTABLE_CLUSTER

#: Dynamic shared memory that every kernel may use; more has to be allowed first.
FREE_SMEM_BYTES = 48 * 1024
#: The driver's errors for launches that this device cannot run, and the resource that is short.
REFUSALS = {
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": RESIDENT,
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": RESIDENT,
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "registers or shared memory",
}


@lru_cache(maxsize=1)
def obstacle() -> str:
    """Return why this machine cannot compile and launch kernels in CUDA C++; empty where it can."""
    try:
        compiler = nvrtc_version()
        from cuda.bindings import driver

        version = int(_called(driver.cuDriverGetVersion()))
    except (UsageError, RuntimeError) as error:
        return str(error).partition("\n")[0]
    needed = int(compiler.rpartition(" ")[2].partition(".")[0])
    if version // 1000 < needed:
        return (
            f"the driver is one of CUDA {version // 1000}.{version % 1000 // 10}, which loads nothing that {compiler} "
            f"compiles. Install a driver of CUDA {needed}."
        )
    return ""


class LoadedKernel:
    """A kernel in the context that is current.

    Args:
        binary: The compiled kernel.
        constants: Tensors whose values `__constant__` variables get, by their names.
    """

    def __init__(self, binary: CudaBinary, constants: Mapping[str, Any]) -> None:
        from cuda.bindings import driver

        self._binary = binary
        self._smem_bytes, self._cluster = FREE_SMEM_BYTES, PORTABLE_CLUSTER
        module = _called(driver.cuModuleLoadData(binary.cubin))
        self.function = _called(driver.cuModuleGetFunction(module, binary.symbol.encode()))
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        self._most_threads = int(_called(driver.cuFuncGetAttribute(most, self.function)))
        if constants:
            _set_constants(module, constants)

    def allow(self, num_threads: int, smem_bytes: int, cluster: int) -> None:
        """Allow launches with these threads and this dynamic shared memory per block, and this many blocks per cluster.

        Raises:
            DoesNotFitError: When the device has less.
        """
        if num_threads > self._most_threads:
            what = f"a block of {num_threads} threads of {self._binary.registers} registers"
            raise self._refusal(what, "threads", num_threads, self._most_threads)
        if smem_bytes > self._smem_bytes:
            self._allow_smem(smem_bytes)
        if cluster > self._cluster:
            from cuda.bindings import driver

            name = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            _called(driver.cuFuncSetAttribute(self.function, name, 1))
            self._cluster = cluster

    def _allow_smem(self, smem_bytes: int) -> None:
        from cuda.bindings import driver

        device = _called(driver.cuCtxGetDevice())
        opt_in = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        limit = int(_called(driver.cuDeviceGetAttribute(opt_in, device)))
        needed = smem_bytes + self._binary.smem_bytes
        if needed > limit:
            raise self._refusal(f"a block with {needed} bytes of shared memory", "shared memory", needed, limit)
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._smem_bytes = limit - self._binary.smem_bytes
        _called(driver.cuFuncSetAttribute(self.function, most, self._smem_bytes))

    def _refusal(self, what: str, name: str, required: int, limit: int) -> DoesNotFitError:
        return DoesNotFitError(
            f"{self._binary.symbol}: {what} does not fit this device, whose limit is {limit}. Choose a smaller one.",
            name=name,
            required=required,
            limit=limit,
        )

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[np.ndarray[Any, Any]],
        *,
        smem_bytes: int,
        cluster: int,
        is_cooperative: bool,
        stream: int,
    ) -> None:
        """Enqueue the kernel; arguments as of `CudaLaunch`, but as arrays of one element.

        Raises:
            DoesNotFitError: When the driver says that the device cannot hold its blocks.
        """
        from cuda.bindings import driver

        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = _three(grid)
        config.blockDimX, config.blockDimY, config.blockDimZ = _three(block)
        config.sharedMemBytes, config.hStream = smem_bytes, stream
        config.attrs = _attributes(cluster, is_cooperative)
        config.numAttrs = len(config.attrs)
        places = np.array([argument.ctypes.data for argument in arguments], dtype=np.uint64)
        _called(driver.cuLaunchKernelEx(config, self.function, places.ctypes.data, 0))


@lru_cache(maxsize=4096)
def load_shared(binary: CudaBinary, index: int) -> LoadedKernel:
    """Load a kernel without constants for all launches on the current device, whose index is `index`."""
    return LoadedKernel(binary, {})


def make_current() -> None:
    """Let the driver find the context that torch uses, in a thread where torch has not used it yet."""
    from cuda.bindings import driver

    if not int(_called(driver.cuCtxGetCurrent())):
        _wait()


def _attributes(cluster: int, is_cooperative: bool) -> list[Any]:
    """Return the launch attributes, the same ones that `constrint.core` sets."""
    from cuda.bindings import driver

    attributes = []

    def add(kind: Any) -> Any:
        attribute = driver.CUlaunchAttribute()
        attribute.id = kind
        attributes.append(attribute)
        return attribute.value

    kinds = driver.CUlaunchAttributeID
    if is_cooperative:
        add(kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1
    if cluster > 1:
        size = add(kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim
        size.x, size.y, size.z = cluster, 1, 1
        spread = driver.CUclusterSchedulingPolicy.CU_CLUSTER_SCHEDULING_POLICY_SPREAD
        add(kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE).clusterSchedulingPolicyPreference = spread
    return attributes


def _set_constants(module: Any, constants: Mapping[str, Any]) -> None:
    from cuda.bindings import driver

    _wait()
    for name, tensor in constants.items():
        address, size = _called(driver.cuModuleGetGlobal(module, name.encode()))
        taken = tensor.numel() * tensor.element_size()
        if taken > size:
            raise UsageError(f"the constant {name} has {size} bytes in the source, and {taken} were given.")
        whole = tensor.contiguous()
        _called(driver.cuMemcpyDtoD(address, whole.data_ptr(), taken))
        _wait()


def _three(sizes: Sequence[int]) -> tuple[int, ...]:
    return (*(int(size) for size in sizes), 1, 1)[:3]


def _wait() -> None:
    """Wait for the current device."""
    import torch

    torch.cuda.synchronize()


def _called(answer: tuple[Any, ...]) -> Any:
    """Return the results of one of the driver's functions after checking its status.

    Raises:
        DoesNotFitError: Where the device is too small for a launch.
        RuntimeError: Where it failed for another reason; names the error.
    """
    status, *values = answer
    if status.value:
        refused = f"the driver refuses the launch: {status.name}"
        if status.name in REFUSALS:
            raise DoesNotFitError(refused, name=REFUSALS[status.name], required=0, limit=0)
        raise RuntimeError(refused)
    return values[0] if len(values) == 1 else values
