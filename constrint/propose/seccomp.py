"""Calls of the kernel that a worker gives up before it loads a candidate: namespaces, mounts, keys, tracing, and more.

A filter of seccomp, written as a program for the kernel's packet filter. It stays with the process and with all that it
starts. What it names is refused as the kernel refuses it to a user without rights, and so is every call that is newer
than this list. A capability that a namespace of its own would give is thereby out of reach, also where bubblewrap runs
as root, and so is memory that no limit of a process or a file system counts.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER_MODE = 22, 38, 2
#: Instructions: load a word of the call's data, compare, return.
LOAD, EQUAL, GREATER, ANY_BIT, RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
#: Offsets in the call's data: its number, the architecture, and the lower half of an argument.
NUMBER, ARCHITECTURE, ARGUMENT = 0, 4, (16, 24)

#: The kernel's name of an architecture, and the place of its numbers in the table below.
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
#: Numbers of refused calls, x86-64 and AArch64; -1 where there is none.
REFUSED = {
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    # keys
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # other processes, and the kernel itself
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "syslog": (103, 116), "personality": (135, 92), "modify_ldt": (154, -1),
    "iopl": (172, -1), "ioperm": (173, -1), "lookup_dcookie": (212, 18),
    # memory that belongs to no process
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "memfd_secret": (447, 447),
    # the machine
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    "vhangup": (153, 58),
}  # fmt: skip
#: Refused where no GPU is used: a driver may make memory with it.
WITHOUT_GPU = {"memfd_create": (319, 279)}
#: Calls that are refused by their arguments, and the newest call that is known (`listns` and later ones are refused).
CLONE, CLONE3, SOCKET, IOCTL, NEWEST = (56, 220), (435, 435), (41, 198), (16, 29), 466
#: Flags of `clone` for a namespace, families of sockets that stay (local, IPv4, IPv6, netlink), and requests that type
#: into a terminal.
NAMESPACES, FAMILIES, TYPING = 0x7E020000, (1, 2, 10, 16), (0x5412, 0x541C)

Instruction = tuple[int, int, int, int]


def program(machine: str, *, uses_gpu: bool) -> list[Instruction]:
    """The filter for an architecture: code, offsets where it is true and where it is not, and value.

    Raises:
        KeyError: When its numbers are not known.
    """
    architecture, place = ARCHITECTURES[machine]
    refused = REFUSED if uses_gpu else {**REFUSED, **WITHOUT_GPU}
    error = {name: (RETURN, 0, 0, ERROR | getattr(errno, name)) for name in ("EPERM", "ENOSYS", "EAFNOSUPPORT")}
    allow = (RETURN, 0, 0, ALLOW)
    lines = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    # Also the calls of x32, whose numbers are large.
    lines += [(GREATER, 0, 1, NEWEST), error["ENOSYS"]]
    for numbers in refused.values():
        if numbers[place] >= 0:
            lines += [(EQUAL, 0, 1, numbers[place]), error["EPERM"]]
    # Its flags lie in memory, which a filter cannot read; libraries fall back on `clone`.
    lines += [(EQUAL, 0, 1, CLONE3[place]), error["ENOSYS"]]
    lines += [
        (EQUAL, 0, 4, CLONE[place]),
        (LOAD, 0, 0, ARGUMENT[0]),
        (ANY_BIT, 0, 1, NAMESPACES),
        error["EPERM"],
        allow,
    ]
    lines += [(EQUAL, 0, 2 + 2 * len(FAMILIES), SOCKET[place]), (LOAD, 0, 0, ARGUMENT[0])]
    for family in FAMILIES:
        lines += [(EQUAL, 0, 1, family), allow]
    lines += [error["EAFNOSUPPORT"]]
    lines += [(EQUAL, 0, 1 + 2 * len(TYPING), IOCTL[place]), (LOAD, 0, 0, ARGUMENT[1])]
    for request in TYPING:
        lines += [(EQUAL, 0, 1, request), error["EPERM"]]
    return [*lines, allow]


class _Line(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("true", ctypes.c_uint8), ("false", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("lines", ctypes.POINTER(_Line)))


def refuse_calls(*, uses_gpu: bool) -> bool:
    """Give up the calls, for this thread and all that it starts; whether this system could do so."""
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        return False
    lines = [_Line(*line) for line in program(platform.machine(), uses_gpu=uses_gpu)]
    whole = _Program(len(lines), (_Line * len(lines))(*lines))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(PR_SET_SECCOMP, FILTER_MODE, ctypes.byref(whole), 0, 0) == 0)
