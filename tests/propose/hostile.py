"""What a candidate may try against the machine that it runs on; each function tries one thing and says what came of it.

Reading the source refuses all of it. These go to a worker as they are, to see that the sandbox holds by itself.
"""

ATTEMPTS = """
import ctypes
import os
import socket
import sys

def say(what):
    raise RuntimeError(str(what))

def read_variable(y, x):
    say(os.environ.get("CONSTRINT_TEST_SECRET"))

def read_variables_of_others(y, x):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found.append(b"CONSTRINT_TEST_SECRET" in open(f"/proc/{name}/environ", "rb").read())
            except OSError:
                pass
    say(f"{len(found)} processes, {sum(found)} with the secret")

def read_file(y, x):
    say(open("SECRET_FILE").read())

def list_home(y, x):
    say(sorted(os.listdir("HOME_FOLDER")))

def open_socket(y, x):
    socket.create_connection(("127.0.0.1", PORT), timeout=5)
    say("connected")

def write_outside(y, x):
    refused = []
    places = ("/usr", "/etc", "/dev", "", "FOLDER", sys.prefix)
    for path in (f"{place}/constrint-test" for place in places):
        try:
            open(path, "w").write("x")
            say(f"wrote {path}")
        except OSError as error:
            refused.append(type(error).__name__)
    say(f"refused {len(refused)}")

def fork(y, x):
    count = 0
    try:
        while count < 2000:
            if os.fork() == 0:
                while True:
                    os.read(os.pipe()[0], 1)
            count += 1
    except OSError as error:
        say(f"{type(error).__name__} after {count} processes")
    say(f"{count} processes")

def fill_disk(y, x):
    written = 0
    try:
        for number in range(200):
            with open(f"{os.environ['TMPDIR']}/{number}", "wb") as file:
                written += file.write(bytes(32 << 20))
    except OSError as error:
        say(f"{error.strerror} after {written >> 20} MiB")
    say(f"{written >> 20} MiB")

def large_file(y, x):
    with open(f"{os.environ['TMPDIR']}/large", "wb") as file:
        for _ in range(64):
            file.write(bytes(16 << 20))
    say("wrote 1 GiB")

def take_memory(y, x):
    bytearray(64 << 30)
    say("took 64 GiB")

def print_much(y, x):
    for _ in range(2000):
        print("x" * 10_000)
    say("printed 20 MB")

def who(y, x):
    root = ctypes.CDLL(None).setuid(0)
    say(f"user {os.getuid()}, root again: {root == 0 and os.getuid() == 0}")

def raise_limits(y, x):
    import resource
    resource.setrlimit(resource.RLIMIT_NPROC, (10_000, 10_000))
    say("raised")

def make_namespaces(y, x):
    call = ctypes.CDLL(None, use_errno=True).syscall
    arguments = ctypes.create_string_buffer(bytes([0, 0, 0, 16]) + bytes(84), 88)
    calls = {
        "unshare user": (272, 0x10000000), "unshare mounts": (272, 0x20000), "clone user": (56, 0x10000011, 0, 0, 0, 0),
        "clone3": (435, arguments, 88), "setns": (308, os.open("/proc/self/ns/user", os.O_RDONLY), 0),
        "mount": (165, b"none", b"/tmp", b"tmpfs", 0, 0), "fsopen": (430, b"tmpfs", 0), "chroot": (161, b"/tmp"),
        "keyctl": (250, 0, -3, 1), "bpf": (321, 0, 0, 0), "ptrace": (101, 0, 0, 0, 0), "perf": (298, 0, 0, -1, -1, 0),
        "io_uring": (425, 8, ctypes.create_string_buffer(120)), "shmget": (29, 0, 4096, 0o1600),
        "memfd": (319, b"x", 0),
        "packets": (41, 17, 3, 0), "vsock": (41, 40, 1, 0), "crypto": (41, 38, 5, 0), "x32": (0x40000000 + 39,),
        "newer": (470, 0, 0, 0),
    }
    done = []
    for name, of_call in calls.items():
        got = call(*of_call)
        if name.startswith("clone") and got == 0:
            os._exit(0)
        if got >= 0:
            done.append(name)
    say(f"done: {done}")

def fill_everything(y, x):
    written = 0
    for place in (os.environ["TMPDIR"], "/dev/shm", "/dev", "/dev/mqueue", "/run", "/var/tmp"):
        try:
            for number in range(100):
                with open(f"{place}/{number}", "wb") as file:
                    for _ in range(32):
                        written += file.write(bytes(1 << 20))
                        file.flush()
        except OSError:
            pass
    try:
        kept = [os.memfd_create(str(number)) for number in range(100)]
        for file in kept:
            written += os.write(file, bytes(32 << 20))
    except OSError:
        pass
    say(f"{written >> 20} MiB")

def take_memory_together(y, x):
    for _ in range(10):
        if os.fork() == 0:
            kept = bytearray(os.urandom(1 << 20) * 150)
            while True:
                os.read(os.pipe()[0], 1)
    while True:
        os.read(os.pipe()[0], 1)

def fork_and_leave(y, x):
    import time
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            time.sleep(600)
    say("forked")

def last_words(y, x):
    sys.stderr.write("told before the end\\n")
    os._exit(3)

def forge(y, x):
    for number in range(3, 64):
        try:
            os.write(number, b"\\x05\\0\\0\\0\\0\\0\\0\\0hello")
        except OSError:
            pass
    say("forged")
"""
