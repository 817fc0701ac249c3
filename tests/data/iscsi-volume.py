"""A volume that several hosts reach, each over a path of its own, through one server.

    iscsi-volume.py serve SOCKET FOLDER LOG [--trusting]
    iscsi-volume.py opener FIFO

The server keeps the volumes as files in FOLDER. It refuses what would write with an older token than the newest that
came for a volume (--trusting: nothing), and logs a line of JSON for each open, read and write: when, on which path,
whether it was refused. An opener runs on each host, as a kernel has its drivers at hand: for each line SOCKET, VOLUME,
HOST, TOKEN, MOUNTPOINT and LOG in FIFO, tabs between, it opens a path, a file MOUNTPOINT/volume (FUSE).
"""

import errno
import json
import os
import selectors
import socket
import stat
import struct
import sys
import time

ASKED = struct.Struct("!cQI")
ANSWERED = struct.Struct("!iQ")


def serve(place, folder, log, *more):
    trusting = "--trusting" in more
    newest, waiting = {}, {}
    selector = selectors.DefaultSelector()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{place}.new")
    listener.listen(64)
    os.rename(f"{place}.new", place)
    selector.register(listener, selectors.EVENT_READ)
    log = open(log, "a", buffering=1)

    def note(path, verb, offset=0, length=0, refused=False):
        log.write(json.dumps({"at": time.clock_gettime(time.CLOCK_BOOTTIME), **path, "verb": verb, "offset": offset,
                              "length": length, "refused": refused}) + "\n")

    def step(connection, buffer, path):
        """One request out of the buffer: what is left, and the path."""
        if path is None:
            line, found, rest = buffer.partition(b"\n")
            if not found:
                return None
            path = json.loads(line)
            volume = path["volume"]
            old = path["token"] < newest.get(volume, 0)
            if not old:
                newest[volume] = path["token"]
            note(path, "open", refused=old and not trusting)
            refused = old and not trusting
            size = os.stat(os.path.join(folder, volume)).st_size
            connection.sendall(ANSWERED.pack(errno.ESTALE if refused else 0, size))
            return rest, path
        if len(buffer) < ASKED.size:
            return None
        verb, offset, length = ASKED.unpack_from(buffer)
        file = os.path.join(folder, path["volume"])
        if verb == b"R":
            note(path, "read", offset, length)
            with open(file, "rb") as volume:
                data = os.pread(volume.fileno(), length, offset)
            connection.sendall(ANSWERED.pack(0, len(data)) + data)
            return buffer[ASKED.size:], path
        end = ASKED.size + length
        if len(buffer) < end:
            return None
        refused = path["token"] < newest[path["volume"]] and not trusting
        note(path, "write", offset, length, refused)
        if not refused:
            with open(file, "r+b") as volume:
                os.pwrite(volume.fileno(), buffer[ASKED.size:end], offset)
        connection.sendall(ANSWERED.pack(errno.ESTALE if refused else 0, length))
        return buffer[end:], path

    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                waiting[connection] = (b"", None)
                selector.register(connection, selectors.EVENT_READ)
                continue
            connection = key.fileobj
            buffer, path = waiting[connection]
            try:
                data = connection.recv(1 << 20)
                buffer += data
                while data and (done := step(connection, buffer, path)):
                    buffer, path = done
            except OSError:
                data = b""
            if data:
                waiting[connection] = (buffer, path)
            else:
                selector.unregister(connection)
                del waiting[connection]
                connection.close()


def opener(fifo):
    sys.path.append("/usr/lib/python3/dist-packages")
    import ctypes
    import fusepy
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.mkfifo(fifo, 0o600)
    # Open for writing too: it never ends.
    for line in open(os.open(fifo, os.O_RDWR)):
        *words, log = line.rstrip("\n").split("\t")
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
            PR_SET_NAME = 15
            ctypes.CDLL(None).prctl(PR_SET_NAME, b"path", 0, 0, 0)
            path(fusepy, *words)
            os._exit(0)


def path(fusepy, place, volume, host, token, mountpoint):
    server = socket.socket(socket.AF_UNIX)
    server.connect(place)

    def exactly(count):
        data = b""
        while len(data) < count:
            more = server.recv(count - len(data))
            if not more:
                raise fusepy.FuseOSError(errno.EIO)
            data += more
        return data

    def answer():
        code, number = ANSWERED.unpack(exactly(ANSWERED.size))
        if code:
            raise fusepy.FuseOSError(code)
        return number

    server.sendall(json.dumps({"volume": volume, "host": host, "token": int(token)}).encode() + b"\n")
    try:
        size = answer()
    except fusepy.FuseOSError:
        print(f"the token {token} is older than another's", file=sys.stderr, flush=True)
        os._exit(1)

    class Path(fusepy.Operations):
        def getattr(self, name, fh=None):
            if name == "/":
                return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
            if name == "/volume":
                return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": size}
            raise fusepy.FuseOSError(errno.ENOENT)

        def read(self, name, length, offset, fh):
            server.sendall(ASKED.pack(b"R", offset, length))
            return exactly(answer())

        def write(self, name, data, offset, fh):
            server.sendall(ASKED.pack(b"W", offset, len(data)) + data)
            return answer()

        def fsync(self, name, datasync, fh):
            return 0

    fusepy.FUSE(Path(), mountpoint, foreground=True, nothreads=True, direct_io=True, big_writes=True)


{"serve": serve, "opener": opener}[sys.argv[1]](*sys.argv[2:])
