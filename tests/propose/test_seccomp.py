"""The filter of system calls refuses what it lists, on each architecture, and lets the rest through."""

from __future__ import annotations

import errno

import pytest

from constrint.propose import seccomp
from constrint.propose.seccomp import ALLOW, ANY_BIT, ARCHITECTURES, EQUAL, ERROR, GREATER, KILL, LOAD, RETURN, program


def verdict(machine: str, number: int, *arguments: int, uses_gpu: bool = False, architecture: int = 0) -> int:
    """The filter's answer to a call, as the kernel would run it."""
    words = {seccomp.NUMBER: number, seccomp.ARCHITECTURE: architecture or ARCHITECTURES[machine][0]}
    words |= {16 + 8 * place: value for place, value in enumerate(arguments)}
    lines, at, held = program(machine, uses_gpu=uses_gpu), 0, 0
    while True:
        code, if_true, if_false, value = lines[at]
        at += 1
        if code == RETURN:
            return value
        if code == LOAD:
            held = words.get(value, 0)
            continue
        is_true = {EQUAL: held == value, GREATER: held > value, ANY_BIT: held & value != 0}[code]
        at += if_true if is_true else if_false


REFUSED, MISSING, NO_FAMILY = (ERROR | number for number in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))


@pytest.mark.parametrize("machine", sorted(ARCHITECTURES))
def test_what_is_listed_is_refused_and_the_rest_is_not(machine: str) -> None:
    place = ARCHITECTURES[machine][1]
    listed = {numbers[place] for numbers in (*seccomp.REFUSED.values(), *seccomp.WITHOUT_GPU.values())} - {-1}
    by_arguments = {seccomp.CLONE[place], seccomp.CLONE3[place], seccomp.SOCKET[place], seccomp.IOCTL[place]}
    for number in set(range(seccomp.NEWEST + 1)) - by_arguments:
        assert verdict(machine, number) == (REFUSED if number in listed else ALLOW), number
    assert verdict(machine, seccomp.WITHOUT_GPU["memfd_create"][place], uses_gpu=True) == ALLOW
    for newer in (seccomp.NEWEST + 1, 0x40000000 + 39, 2**32 - 1):
        assert verdict(machine, newer) == MISSING
    assert verdict(machine, 39, architecture=0x40000003) == KILL


@pytest.mark.parametrize("machine", sorted(ARCHITECTURES))
def test_arguments_decide_about_threads_sockets_and_terminals(machine: str) -> None:
    place = ARCHITECTURES[machine][1]
    clone, socket, ioctl = seccomp.CLONE[place], seccomp.SOCKET[place], seccomp.IOCTL[place]
    assert verdict(machine, seccomp.CLONE3[place]) == MISSING
    # A thread, a child, and a child in each kind of namespace.
    assert verdict(machine, clone, 0x3D0F00) == verdict(machine, clone, 17) == ALLOW
    for flag in (0x20000, *(1 << bit for bit in range(25, 31))):
        assert verdict(machine, clone, flag | 17) == REFUSED, hex(flag)
    kept = {family for family in range(46) if verdict(machine, socket, family) == ALLOW}
    assert kept == {1, 2, 10, 16}
    assert verdict(machine, socket, 17) == NO_FAMILY
    assert verdict(machine, ioctl, 3, 0x5412) == verdict(machine, ioctl, 3, 0x541C) == REFUSED
    assert verdict(machine, ioctl, 3, 0x5413) == ALLOW
