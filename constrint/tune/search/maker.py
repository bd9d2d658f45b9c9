"""Make searches ahead: another process solves and prices the space, so that this one stays free for devices.

A search returns as pickled bytes between processes of one program. Kernels and the GPU's model are pickled as names, so
that the copy refers to the objects of this process. A search that cannot be pickled is made here, in a thread.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from constrint.hwmodels import GpuModel
from constrint.select import KernelSpec
from constrint.tune.processes import PRELOAD, end_with_parent
from constrint.tune.search.interface import Search, SearchTask
from constrint.tune.store.record import TuningRecord
from constrint.tune.trial import Load

Make = Callable[[SearchTask], Search]
#: Persistent id of the GPU's model in pickled bytes.
_GPU = 0


class PendingSearch:
    """A search under construction, in another process or in a thread of this one."""

    def __init__(
        self,
        away: Future[bytes | None] | None,
        here: Callable[[], Future[Search]],
        read: Callable[[bytes], Search],
    ) -> None:
        self._away, self._start, self._read = away, here, read
        self._here = here() if away is None else None

    def done(self) -> bool:
        """Whether the search is ready."""
        if self._here is None and self._away is not None and self._away.done():
            self._here = self._arrived(self._away)
        return self._here is not None and self._here.done()

    def result(self) -> Search:
        """Wait for the search.

        Raises:
            ConstrintError: When it cannot be made.
        """
        if self._here is None:
            assert self._away is not None
            self._here = self._arrived(self._away)
        return self._here.result()

    def _arrived(self, away: Future[bytes | None]) -> Future[Search]:
        """The search of the other process; if it failed there, this process makes it again and raises the reason."""
        written = away.result()
        with suppress(*_CANNOT_TRAVEL):
            if written is not None:
                here: Future[Search] = Future()
                here.set_result(self._read(written))
                return here
        return self._start()


class SearchMaker:
    """Makes searches, in other processes where possible.

    Args:
        make: Makes a search.
        gpu: The GPU's model, of all tasks.
        known: Records by operation, for a warm start.
        load: Finds a kernel by its name in other processes; None to make all searches here.
        name_of: A kernel's name in other processes, by its full name.
        num_processes: Number of other processes.
    """

    def __init__(
        self,
        make: Make,
        gpu: GpuModel,
        records: Mapping[str, Sequence[TuningRecord]],
        *,
        load: Load | None = None,
        name_of: Callable[[str], str] = str,
        num_processes: int = 1,
    ) -> None:
        self._make, self._gpu, self._records, self._load, self._name_of = make, gpu, records, load, name_of
        self._num_processes = num_processes
        self._thread = ThreadPoolExecutor(1, "constrint-search")
        #: Starts the processes, which takes as long as their imports.
        self._starter = ThreadPoolExecutor(1, "constrint-search-start")
        self._pool: ProcessPoolExecutor | None = None
        self._is_closed = False

    def submit(self, task: SearchTask, *, is_away: bool) -> PendingSearch:
        """Begin to make a search.

        Args:
            task: The workload and the GPU, without records.
            is_away: Whether another process makes it.
        """
        kernels = {self._name_of(spec.full_name): spec for spec in task.operation.implementations}
        away = self._submit_away(task, kernels, self._load) if is_away and self._load is not None else None

        def here() -> Future[Search]:
            return self._thread.submit(lambda: self._make(_informed(task, self._records[task.workload.operation])))

        return PendingSearch(away, here, lambda written: _read(written, self._gpu, kernels.__getitem__))

    def close(self) -> None:
        """Drop unfinished searches, and end the processes."""
        self._is_closed = True
        for executor in (self._thread, self._starter, self._pool):
            if executor is not None:
                executor.shutdown(wait=False, cancel_futures=True)

    def _submit_away(
        self, task: SearchTask, kernels: Mapping[str, KernelSpec], load: Load
    ) -> Future[bytes | None] | None:
        """The search as bytes, or None where the other process fails; None for a task that cannot be pickled."""
        names = {id(spec): name for name, spec in kernels.items()}
        try:
            request = _written((self._make, task), self._gpu, names)
        except _CANNOT_TRAVEL:
            return None
        away: Future[bytes | None] = Future()

        def arrived(future: Future[bytes | None]) -> None:
            away.set_result(None if future.cancelled() or future.exception() else future.result())

        def post() -> None:
            try:
                self._started(load).submit(_make_search, request).add_done_callback(arrived)
            except (BrokenProcessPool, RuntimeError):  # the processes died, or were ended
                away.set_result(None)

        self._starter.submit(post)
        return away

    def _started(self, load: Load) -> ProcessPoolExecutor:
        """The other processes."""
        if self._pool is None:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(PRELOAD)
            records_json = {name: msgspec.json.encode(records) for name, records in self._records.items()}
            begin = partial(_begin, load, self._gpu, records_json)
            self._pool = ProcessPoolExecutor(self._num_processes, context, begin)
        if self._is_closed:
            self._pool.shutdown(wait=False, cancel_futures=True)
        return self._pool


#: Exceptions of objects that cannot be pickled or unpickled.
_CANNOT_TRAVEL = (pickle.PicklingError, TypeError, AttributeError, ImportError, KeyError)


def _informed(task: SearchTask, records: Iterable[TuningRecord]) -> SearchTask:
    """A task with the records of other workloads."""
    return replace(task, records=[record for record in records if record.workload != task.workload])


def _written(value: object, gpu: GpuModel, names: dict[int, str]) -> bytes:
    """Pickle an object, with kernels and the GPU's model as names."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, part: Any) -> Any:
            if isinstance(part, KernelSpec):
                return names[id(part)]
            return _GPU if part is gpu else None

    file = io.BytesIO()
    Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def _read(written: bytes, gpu: GpuModel, kernel: Callable[[str], KernelSpec]) -> Any:
    """Unpickle the bytes of `_written`."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, name: Any) -> Any:
            return gpu if name == _GPU else kernel(name)

    return Unpickler(io.BytesIO(written)).load()


class _Place:
    """State of a process that makes searches: the GPU's model, kernels by name, records by operation."""

    def __init__(self, load: Load, gpu: GpuModel, records_json: Mapping[str, bytes]) -> None:
        self.gpu, self._load, self._records_json = gpu, load, records_json
        self._kernels: dict[str, KernelSpec] = {}
        self._records: dict[str, list[TuningRecord]] = {}

    @property
    def names(self) -> dict[int, str]:
        """Names of the loaded kernels, by identity."""
        return {id(spec): name for name, spec in self._kernels.items()}

    def kernel(self, name: str) -> KernelSpec:
        """A kernel, the same object at every call."""
        if name not in self._kernels:
            self._kernels[name] = self._load(name)
        return self._kernels[name]

    def records(self, operation: str) -> list[TuningRecord]:
        """The records of an operation."""
        if operation not in self._records:
            self._records[operation] = msgspec.json.decode(self._records_json[operation], type=list[TuningRecord])
        return self._records[operation]


_places: list[_Place] = []


def _begin(load: Load, gpu: GpuModel, records_json: Mapping[str, bytes]) -> None:
    """Set up a process that makes searches."""
    end_with_parent()
    os.nice(5)  # devices come first, and compilers last
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    _places.append(_Place(load, gpu, records_json))


def _make_search(request: bytes) -> bytes | None:
    """A search as bytes; None where it cannot be made or pickled."""
    place = _places[0]
    try:
        make, task = _read(request, place.gpu, place.kernel)
        search = make(_informed(task, place.records(task.workload.operation)))
        return _written(search, place.gpu, place.names)
    except BaseException:  # noqa: BLE001 - it is made again in the parent, which raises the reason
        return None
