"""The sandbox of a candidate's source: a process with a scrubbed environment, limits, and, on Linux, bubblewrap.

With bubblewrap the process sees a read-only file system that holds Python, the compilers and this package, and nothing
of the user; it has a small directory of its own in memory, no network, and its own process numbers. Without it there
are the environment, a directory of its own and the limits, and the user has to say that this is enough.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import constrint
from constrint.errors import UsageError
from constrint.propose.limits import num_tasks_of_user

#: Room for what a candidate and its compilers write, in memory, and the part of it that is in `/dev/shm`.
SCRATCH_BYTES, SHARED_BYTES = 512 << 20, 64 << 20
#: Limits of a worker. Address space cannot be limited where a GPU is used: its driver reserves far more than it takes.
LIMITS: Mapping[str, int] = {
    "cpu_s": 300,
    "memory_bytes": 16 << 30,
    "file_bytes": 64 << 20,
    "processes": 128,
    "files": 1024,
    "core_bytes": 0,
}
#: Limits of all processes of a worker together.
TOTALS: Mapping[str, int] = {"memory_bytes": 16 << 30, "processes": 128}
#: Variables that are kept: where libraries of the driver lie, and which GPUs are used.
KEPT_VARIABLES = ("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME")
#: Compilers of C, one of which Triton builds with what starts a kernel, and where a worker looks for programs.
COMPILERS, PROGRAMS = ("gcc", "clang", "cc"), ("/usr/local/bin", "/usr/bin", "/bin")
#: Directories and files of the system that programs need; none of them holds anything of the user.
SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    "/etc/alternatives",
)  # fmt: skip
#: Further paths of a process that uses a GPU; the driver finds the device in `/sys`.
GPU_DEVICES = (
    "nvidia[0-9]*",
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-uvm-tools",
    "nvidia-modeset",
    "nvidia-caps",
    "kfd",
    "dri",
)
#: Packages that a worker imports.
PACKAGES = ("torch", "triton", "numpy", "msgspec", "yaml", "platformdirs")
#: Option of bubblewrap by which the processes in it can make no namespaces; older ones lack it.
NO_NAMESPACES = "--disable-userns"
#: Writable folder inside bubblewrap.
SCRATCH = "/tmp"
#: Time limit of the trial of a sandbox, in seconds.
TRIAL_S = 30.0
_START = (
    "import json,sys;o=json.loads(sys.argv[1]);sys.path[:]=o['path'];"
    "from constrint.propose.worker import main;getattr(main,o['function'])(o)"
)


@dataclass(frozen=True)
class Sandbox:
    """A way to start a worker.

    Args:
        kind: `bubblewrap`, or `none` for a plain process.
        options: Options of bubblewrap that this system takes.
        drops_root: Whether the worker has to give up being root itself.
        note: The accesses that it cannot prevent on this system; empty if it prevents all.
        totals: Limits of all processes of a worker together.
    """

    kind: str
    options: tuple[str, ...] = ()
    drops_root: bool = False
    note: str = ""
    totals: Mapping[str, int] = field(default_factory=lambda: TOTALS)

    def command(
        self, *, uses_gpu: bool, tasks: Sequence[Path] = (), scratch: str = SCRATCH, function: str = "main"
    ) -> list[str]:
        """The command that starts a worker.

        Args:
            uses_gpu: Whether it needs the machine's GPU.
            tasks: Files of the user's own tasks that it reads.
            scratch: The directory in which it may write, where there is no bubblewrap.
            function: The function of `worker/main.py` that it runs.

        Raises:
            UsageError: When it needs the GPU and there is no C compiler, without which Triton starts no kernel.
        """
        if uses_gpu and compiler_here() is None:
            raise UsageError(
                "Triton starts a kernel through code that it has compiled on this machine, and there is no C compiler: "
                f"{', '.join(COMPILERS)} were looked for on PATH. Install one, or name it in the variable CC."
            )
        setup = {
            "function": function,
            "path": _module_path(),
            "limits": self._limits(uses_gpu),
            "drops_root": self.drops_root,
            "is_kept": self.kind == "none",
            "has_to_refuse": NO_NAMESPACES not in self.options,
            "uses_gpu": uses_gpu,
        }
        return [*self._around(uses_gpu, tasks, scratch), *_python(), _START, json.dumps(setup)]

    def environment(self, *, is_interpreted: bool, uses_gpu: bool, scratch: str = SCRATCH) -> dict[str, str]:
        """The whole environment of a worker: nothing of the user's but what a driver needs."""
        users = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        users |= {} if uses_gpu else {"CUDA_VISIBLE_DEVICES": ""}
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        own = {"HOME": scratch, "TMPDIR": scratch, "TRITON_CACHE_DIR": f"{scratch}/triton", "CONSTRINT_CACHE": "0"}
        own["LOGNAME"] = "candidate"
        if (compiler := compiler_here()) is not None:
            own["CC"] = str(compiler)
        # What is installed is not looked for in a process without `site`, so that it is told where NVRTC lies.
        libraries = [*filter(None, [users.get("LD_LIBRARY_PATH")]), *_nvrtc_folders()]
        users |= {"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {}
        words = {"PATH": ":".join(PROGRAMS), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        return {**words, **one_thread, **own, **users, **({"TRITON_INTERPRET": "1"} if is_interpreted else {})}

    def _limits(self, uses_gpu: bool) -> dict[str, int]:
        limits = dict(LIMITS)
        if uses_gpu:
            del limits["memory_bytes"]
        if not self.drops_root and (self.kind == "none" or not _counts_by_namespace()):
            # All that the user has running counts.
            limits["processes"] += num_tasks_of_user()
        return limits

    def _around(self, uses_gpu: bool, tasks: Sequence[Path], scratch: str) -> list[str]:
        if self.kind == "none":
            return []
        command = [_bubblewrap() or "bwrap", *self.options]
        for place, size in ((SCRATCH, SCRATCH_BYTES - SHARED_BYTES), ("/dev/shm", SHARED_BYTES)):
            command += ["--perms", "1777", "--size", str(size), "--tmpfs", place]
        places = (*SYSTEM, *_own_places(), *(str(task.absolute()) for task in tasks))
        for folder in _folders_above(places):
            # bubblewrap makes them for itself alone, and a worker may be another user.
            command += ["--perms", "0755", "--dir", folder]
        for path in places:
            command += ["--ro-bind-try", path, path]
        if uses_gpu:
            command += ["--ro-bind-try", "/sys", "/sys"]
            for device in sorted(str(path) for name in GPU_DEVICES for path in Path("/dev").glob(name)):
                command += ["--dev-bind-try", device, device]
        return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", scratch, "--"]


def compiler_here() -> Path | None:
    """The C compiler that the variable CC names, or else that is on PATH; None where there is none."""
    named = os.environ.get("CC")
    paths = (shutil.which(name) for name in ((named,) if named else COMPILERS))
    return next((Path(path).absolute() for path in paths if path), None)


#: The process alone: its environment and its limits.
PLAIN = Sandbox("none", note="no bubblewrap: the file system and the network are in reach")


@lru_cache(maxsize=1)
def find_sandbox() -> Sandbox | str:
    """The best way to start a worker that this machine permits, or why bubblewrap is of no use here."""
    if _bubblewrap() is None:
        return "bubblewrap is not installed (`bwrap`; Debian, Ubuntu, Fedora and Arch call the package bubblewrap)"
    refusals = []
    for sandbox in _candidates():
        command = sandbox.command(uses_gpu=False, function="try_out")
        environment = sandbox.environment(is_interpreted=False, uses_gpu=False)
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=TRIAL_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            refusals.append(str(error))
            continue
        # It can run, and read what it needs.
        if done.returncode == 0:
            return sandbox
        refusals.append((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return f"bubblewrap is installed, and this system does not let it work: {refusals[-1]}"


def sandbox_for(allow_unsandboxed: bool) -> Sandbox:
    """The sandbox of this machine; a plain process where there is none and the user has said that this is enough.

    Raises:
        UsageError: When there is none and the user has not said so.
    """
    sandbox = find_sandbox()
    if isinstance(sandbox, Sandbox):
        return sandbox
    if allow_unsandboxed:
        return PLAIN
    raise UsageError(
        f"a candidate's source runs in a sandbox only, and there is none: {sandbox}. Install it or permit user "
        "namespaces, or say --allow-unsandboxed: then only the environment is scrubbed and limits are set, and the "
        "source can read your files and use the network."
    )


def _candidates() -> list[Sandbox]:
    """Ways of bubblewrap, the better ones first; older ones lack an option, and some systems forbid namespaces."""
    common = (
        "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--new-session",
        "--die-with-parent", "--hostname", "sandbox", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev",
    )  # fmt: skip
    user = ("--unshare-user", *common)
    ways = [(NO_NAMESPACES, *user), user]
    if os.getuid() != 0:
        return [Sandbox("bubblewrap", options) for options in ways]
    # Root starts namespaces without a user namespace, and the worker becomes another user before it loads anything.
    rights = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    note = "it runs as root, whom the kernel holds to no limit of processes"
    as_root = [Sandbox("bubblewrap", options, note=note) for options in ways]
    return [Sandbox("bubblewrap", (*common, *rights), drops_root=True), *as_root]


def _counts_by_namespace() -> bool:
    """Whether the kernel counts a user's processes for each user namespace; Linux does since 5.14."""
    numbers = platform.release().split(".")[:2]
    return all(n.isdigit() for n in numbers) and tuple(map(int, numbers)) >= (5, 14)


def _bubblewrap() -> str | None:
    return shutil.which("bwrap") if sys.platform == "linux" else None


def _python() -> list[str]:
    """Python without the user's settings: no `PYTHON...` variables, no `site`, whose `.pth` files are code."""
    return [sys.executable, "-I", "-S", "-c"]


def _module_path() -> list[str]:
    """Folders of the standard library, of packages and of this one."""
    standard = [path for path in sys.path if path.startswith((sys.base_prefix, sys.base_exec_prefix))]
    return list(dict.fromkeys([str(_package().parent), *standard, *_package_folders()]))


def _package() -> Path:
    return Path(constrint.__path__[0])


def _package_folders() -> list[str]:
    """Folders in which the packages that a worker imports are installed."""
    specs = (find_spec(name) for name in PACKAGES)
    return list(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin))


@lru_cache(maxsize=1)
def _nvrtc_folders() -> tuple[str, ...]:
    """Folders beside the packages in which the libraries of NVRTC's wheel are."""
    libraries = (path for folder in _package_folders() for path in Path(folder).glob("nvidia/*/lib/libnvrtc.so*"))
    return tuple(sorted({str(path.parent) for path in libraries}))


def _folders_above(places: Sequence[str]) -> list[str]:
    """Folders in which the places lie, the outer ones first."""
    above = {str(folder) for place in places for folder in Path(place).parents}
    return sorted(above - {"/", SCRATCH})


def _own_places() -> list[str]:
    """Python, its packages and this one; of a checkout only the package. Never a folder that the home lies in."""
    home = Path.home()
    places = [Path(place) for place in (sys.prefix, sys.base_prefix, *_package_folders(), *_compiler_folders())]
    places = [place for place in places if not home.is_relative_to(place) and not place.is_relative_to("/usr")]
    return list(dict.fromkeys(map(str, [*places, _package()])))


def _compiler_folders() -> list[str]:
    """Installation folder of a C compiler outside the system's folders: `/opt/gcc` for `/opt/gcc/bin/gcc`."""
    compiler = compiler_here()
    if compiler is None:
        return []
    folders = {path.parent.parent for path in (compiler, compiler.resolve()) if path.parent.name == "bin"}
    return sorted(str(folder) for folder in folders if folder != Path("/") and not folder.is_relative_to("/usr"))
