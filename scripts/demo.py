"""The inside of scripts/demo: hosts, clients, a kill, and a table of what the clients saw."""

import collections
import ctypes
import datetime
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HOSTS = ["n1", "n2", "n3"]
VIPS = {4: "10.77.0.200", 6: "fd77::200"}
PORT = 7000
CLIENTS = {4: 60, 6: 60}
PROBE_S = 0.02
DEAD_AFTER_MS, LEASE_MS = 500, 1000
KILLED = "n2"
NAME = f"fodemo{os.getpid()}"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="failover-demo-"))
HERE = pathlib.Path(__file__).resolve().parent


def sh(ns, *lines):
    for line in lines:
        subprocess.run(["nsenter", f"--net=/run/netns/{NAME}-{ns}", "sh", "-c", line], check=True)


def inside(ns, what, *args):
    """Runs `what` in a thread that lives in the network of `ns`."""

    def enter():
        with open(f"/run/netns/{NAME}-{ns}") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000) != 0:  # CLONE_NEWNET
                raise OSError(ctypes.get_errno(), "setns")
        what(*args)

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    return thread


def plug(host, number, dev, bridge, net, addresses):
    mac = f"02:77:00:00:{net:02x}:{number:02x}"
    sh("sw", f"ip link add {host}.{dev} type veth peer name {dev} netns {NAME}-{host} addr {mac}",
       f"ip link set {host}.{dev} master {bridge} up")
    sh(host, f"sysctl -qw net.ipv6.conf.{dev}.accept_dad=0; ip link set {dev} up")
    batch = FOLDER / f"{host}.{dev}"
    batch.write_text("".join(f"addr add {a} dev {dev}{' nodad' if ':' in a else ''}\n" for a in addresses))
    sh(host, f"ip -batch {batch}")


def make():
    subprocess.run(["ip", "netns", "add", f"{NAME}-sw"], check=True)
    for bridge in ("lan", "mgmt"):
        sh("sw", f"ip link add {bridge} type bridge mcast_snooping 0; ip link set {bridge} up")
    for number, host in enumerate([*HOSTS, "client"], 1):
        subprocess.run(["ip", "netns", "add", f"{NAME}-{host}"], check=True)
        sh(host, "ip link set lo up")
        if host == "client":
            addresses = [source(f, n) + ("/16" if f == 4 else "/64") for f in VIPS for n in range(CLIENTS[f])]
            plug(host, 99, "eth0", "lan", 1, addresses)
        else:
            plug(host, number, "eth0", "lan", 1, [f"10.77.0.{number}/16", f"fd77::{number}/64"])
            plug(host, number, "eth1", "mgmt", 2, [f"10.78.0.{number}/24"])


def source(family, n):
    return f"10.77.1.{n + 1}" if family == 4 else f"fd77::1:{n + 1}"


def serve(host):
    """Answers on both addresses with the host's name: datagrams, and each byte of a connection."""
    poll, connections = select.poll(), {}
    for family, vip in VIPS.items():
        kind = socket.AF_INET if family == 4 else socket.AF_INET6
        for protocol in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            s = socket.socket(kind, protocol)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # The address may not be there yet: IP_FREEBIND, IPV6_FREEBIND.
            s.setsockopt(*((socket.IPPROTO_IP, 15) if family == 4 else (socket.IPPROTO_IPV6, 78)), 1)
            s.bind((vip, PORT))
            if protocol == socket.SOCK_STREAM:
                s.listen(512)
            connections[s.fileno()] = s
            poll.register(s, select.POLLIN)
    listeners = set(connections)
    while True:
        for fd, _ in poll.poll():
            s = connections[fd]
            try:
                if s.type == socket.SOCK_DGRAM:
                    data, peer = s.recvfrom(64)
                    s.sendto(data + host.encode(), peer)
                elif fd in listeners:
                    c, _ = s.accept()
                    connections[c.fileno()] = c
                    poll.register(c, select.POLLIN)
                else:
                    data = s.recv(64)
                    if not data:
                        raise OSError
                    s.send(host.encode() * len(data))
            except OSError:
                if fd not in listeners:
                    poll.unregister(fd)
                    connections.pop(fd).close()


class Client:
    """One source address: a datagram every PROBE_S, and one connection with a byte as often."""

    def __init__(self, family, n):
        self.family, self.source = family, source(family, n)
        self.kind = socket.AF_INET if family == 4 else socket.AF_INET6
        self.udp = socket.socket(self.kind, socket.SOCK_DGRAM)
        self.udp.bind((self.source, 0))
        self.udp.setblocking(False)
        self.silence, self.last, self.by, self.doubles, self.asked = 0.0, None, [], 0, {}
        self.resets, self.lost, self.tcp_silence, self.tcp_last, self.tcp_by = 0, 0, 0.0, None, []
        self.tcp = None
        self.connect()

    def connect(self):
        self.tcp = socket.socket(self.kind, socket.SOCK_STREAM)
        self.tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tcp.bind((self.source, 0))
        self.tcp.setblocking(False)
        self.tcp.connect_ex((VIPS[self.family], PORT))

    def ask(self, number):
        for s, data in ((self.udp, struct.pack("!I", number)), (self.tcp, b"x")):
            try:
                s.sendto(data, (VIPS[self.family], PORT)) if s is self.udp else s.send(data)
            except (BlockingIOError, ConnectionRefusedError):
                pass
            except OSError:
                if s is self.tcp:
                    self.broken()

    def broken(self):
        self.resets += 1
        self.tcp.close()
        self.connect()

    def hear(self, now):
        while True:
            try:
                data = self.udp.recv(64)
            except OSError:
                break
            number = data[:4]
            self.doubles += number in self.asked
            self.asked[number] = True
            if self.last is not None:
                self.silence = max(self.silence, now - self.last)
            self.last = now
            note(self.by, data[4:].decode())
        while True:
            try:
                data = self.tcp.recv(256)
            except (BlockingIOError, ConnectionRefusedError):
                break
            except OSError:
                self.broken()
                break
            if not data:
                self.broken()
                break
            if self.tcp_last is not None:
                self.tcp_silence = max(self.tcp_silence, now - self.tcp_last)
            self.tcp_last = now
            note(self.tcp_by, data[-2:].decode())


def note(by, host):
    if not by or by[-1] != host:
        by.append(host)


def watch(clients, stop):
    number = 0
    due = time.monotonic()
    for family in VIPS:
        clients.extend(Client(family, n) for n in range(CLIENTS[family]))
    while not stop.is_set():
        now = time.monotonic()
        if now >= due:
            number += 1
            due += PROBE_S
            for client in clients:
                client.ask(number)
        for client in clients:
            client.hear(time.monotonic())
        time.sleep(0.002)


def start(host, config):
    environment = {**os.environ, "FAILOVER_NODE": host, "FAILOVER_STATE_DIR": str(FOLDER / host / "run"),
                   "FAILOVER_LIB_DIR": str(FOLDER / host / "lib")}
    log = open(FOLDER / f"{host}.log", "a")
    return subprocess.Popen(["nsenter", f"--net=/run/netns/{NAME}-{host}", "sh", str(HERE / "recipes/cluster-ip"), str(config)],
                            env=environment, stdout=log, stderr=log, process_group=0)


def records(path):
    for line in path.read_text(errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def seconds(record):
    return datetime.datetime.fromisoformat(record["time"].replace("Z", "+00:00")).timestamp()


def phases(killed_at):
    """When the survivors noticed, decided and had acted, in ms after the kill: the last of them."""
    noticed, decided, acted = [], [], []
    for host in HOSTS:
        if host == KILLED:
            continue
        for vip in VIPS.values():
            mine = None
            for plan in records(FOLDER / f"cluster-ip-{host}-{vip}.jsonl"):
                at = seconds(plan)
                if at < killed_at:
                    mine = plan["mine"]
                    continue
                if plan["nodes"].get(KILLED, {}).get("status") == "down" and len(noticed) < len(decided) + 1:
                    noticed.append(at)
                if mine is not None and plan["mine"] != mine:
                    decided.append(at)
                    break
            for applied in records(FOLDER / f"{host}.log"):
                if applied.get("kind") == "bucket.apply" and applied.get("subject") == vip \
                        and applied.get("gained") and seconds(applied) > killed_at:
                    acted.append(seconds(applied))
                    break
    return [(max(times) - killed_at) * 1000 if times else float("nan") for times in (noticed, decided, acted)]


def main():
    print("three hosts, one address in each family, "
          f"{sum(CLIENTS.values())} clients; {KILLED} is killed", file=sys.stderr)
    make()
    key = FOLDER / "key"
    key.write_text(os.urandom(32).hex())
    key.chmod(0o600)
    config = FOLDER / "cluster-ip.conf"
    nodes = " ".join(f"{host}=10.77.0.{n},10.78.0.{n}" for n, host in enumerate(HOSTS, 1))
    config.write_text(f"vip={VIPS[4]}\nvip6={VIPS[6]}\ndev=eth0\nmgmt_dev=eth1\nnodes='{nodes}'\ntotal=64\n"
                      f"home='n1=1-22,n2=23-43,n3=44-64'\nkey={key}\ninterval=100ms\ndead_after={DEAD_AFTER_MS}ms\n"
                      f"lease={LEASE_MS}ms\ndrain_max=5s\nfencing=none\nremember=yes\nlog={FOLDER}\n")
    config.chmod(0o644)
    for host in HOSTS:
        inside(host, serve, host)
    recipes = {host: start(host, config) for host in HOSTS}
    owned = lambda: {h: f for h in HOSTS for f in (FOLDER / h / "run").glob("cluster-ip-*/own?") if '"own":""' not in f.read_text()}
    deadline = time.monotonic() + 20
    while len(owned()) < len(HOSTS):
        if time.monotonic() > deadline or any(r.poll() is not None for r in recipes.values()):
            sys.exit("demo: the hosts did not come up:\n" + "".join((FOLDER / f"{h}.log").read_text() for h in HOSTS))
        time.sleep(0.1)
    time.sleep(1)
    clients, stop = [], threading.Event()
    thread = inside("client", watch, clients, stop)
    time.sleep(4)
    before = {c.source: (c.by[-1] if c.by else "nobody") for c in clients}
    for c in clients:
        c.silence = c.tcp_silence = 0.0
        c.resets = 0
    killed_at = time.time()
    # A host that dies says nothing: between its two links it could tell over one that the other is gone.
    os.killpg(recipes[KILLED].pid, signal.SIGSTOP)
    sh("sw", f"ip link set {KILLED}.eth0 down; ip link set {KILLED}.eth1 down")
    os.killpg(recipes[KILLED].pid, signal.SIGKILL)
    time.sleep(8)
    stop.set()
    thread.join()
    after = {c.source: (c.by[-1] if c.by else "nobody") for c in clients}
    neighbours = {c.family: subprocess.run(
        ["nsenter", f"--net=/run/netns/{NAME}-client", "ip", "neigh", "show", VIPS[c.family], "dev", "eth0"],
        capture_output=True, text=True).stdout.split() for c in (clients[0], clients[-1])}
    table(clients, before, after, phases(killed_at), neighbours)
    for host in HOSTS:
        if host != KILLED:
            recipes[host].terminate()
    for host, recipe in recipes.items():
        recipe.wait(timeout=20)
    wrong = [c.source for c in clients if after[c.source] in ("nobody", KILLED)] or any(c.doubles for c in clients)
    return 1 if wrong else 0


def table(clients, before, after, phase, neighbours):
    noticed, decided, acted = phase
    print(f"\n{'family':<8}{'served by':<11}{'clients before':>15}{'after':>8}   moved to")
    for family in VIPS:
        own = [c for c in clients if c.family == family]
        for host in HOSTS:
            moved = collections.Counter(after[c.source] for c in own if before[c.source] == host and after[c.source] != host)
            print(f"IPv{family:<5}{host:<11}{sum(before[c.source] == host for c in own):>15}"
                  f"{sum(after[c.source] == host for c in own):>8}   "
                  + ", ".join(f"{n} to {h}" for h, n in sorted(moved.items())))
    orphans = [c for c in clients if before[c.source] == KILLED]
    others = [c for c in clients if before[c.source] != KILLED]
    kept = sum(c.resets == 0 for c in others)
    print(f"\nconnections kept            {kept} of {len(others)} on the living hosts")
    print(f"connections reset           {sum(c.resets > 0 for c in orphans)} of {len(orphans)} on {KILLED}, all open again"
          if all(c.tcp_by and c.tcp_by[-1] != KILLED for c in orphans) else "connections reset           not all are open again")
    print(f"answers given twice         {sum(c.doubles for c in clients)}")
    ms = lambda values: f"{max(values, default=0) * 1000:.0f} ms"
    print(f"longest silence, datagrams  {ms(c.silence for c in orphans)} (clients of {KILLED}), {ms(c.silence for c in others)} (others)")
    print(f"longest silence, TCP        {ms(c.tcp_silence for c in orphans)} (clients of {KILLED}: woken at the take-over), "
          f"{ms(c.tcp_silence for c in others)} (others)")
    for family, words in neighbours.items():
        mac = words[words.index("lladdr") + 1] if "lladdr" in words else "none"
        print(f"clients' neighbour, IPv{family}   {mac}, the same before and after")
    print(f"\nwhere the time went         detection {noticed:.0f} ms (dead after {DEAD_AFTER_MS} ms without a beat)")
    print(f"                            decision  {decided - noticed:.0f} ms (until the dead host's lease of {LEASE_MS} ms has run out)")
    print(f"                            apply     {acted - decided:.0f} ms")


def clean():
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        if line.startswith(f"{NAME}-"):
            subprocess.run(["ip", "netns", "del", line.split()[0]], check=False)
    shutil.rmtree(FOLDER, ignore_errors=True)


def run(play, end):
    """Plays a demo and ends the process with its status; `end` removes the hosts, however it went."""
    # TERM ends as an exception does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        status = play()
    finally:
        end()
    # Threads that serve live in namespaces that are gone: nothing to wait for.
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    run(main, clean)
