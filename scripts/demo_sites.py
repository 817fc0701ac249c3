"""The inside of scripts/demo site-failover: two sites, real name servers, faults at one site, and what was seen where.

Four names have a TTL of 5 s and a site that falls silent, one a TTL of 30 s, and one a site that resets connections.
The faults happen side by side, each just before the next probe, so that the time to notice is the same. The fault of a
last name is mended as soon as it is noticed: what it takes to come back.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import demo
from demo import FOLDER, HERE, NAME, plug, sh

ZONE = "gslb.test"
PARIS, ROME = "192.0.2.81", "192.0.2.82"
RESOLVERS = {
    "r1": ("plain", ""),
    "r2": ("cache-min-ttl 60", "cache-min-ttl: 60"),
    "r3": ("serve-expired", "serve-expired: yes"),
    "r4": ("serve-original-ttl", "serve-original-ttl: yes"),
}
ADDRESSES = {"ns1": "192.0.2.53", "ns2": "192.0.2.54", "r1": "192.0.2.61", "r2": "192.0.2.62", "r3": "192.0.2.63",
             "r4": "192.0.2.64", "paris": PARIS, "rome": ROME, "monitor": "192.0.2.10", "client": "192.0.2.100"}
# Name: TTL, how its site fails.
RUNS = {"app1": (5, "silent"), "app2": (5, "silent"), "app3": (5, "silent"), "app4": (5, "silent"),
        "slow": (30, "silent"), "reset": (5, "resetting")}
BRIEF = "brief"
NAMES = {**RUNS, BRIEF: (5, "silent")}
PORTS = {name: 8001 + n for n, name in enumerate(NAMES)}
INTERVAL_S, JAVA_S, DOWN_S = 5, 30, 30
PHASES = ("detection", "authority", "resolver", "os", "application", "connection")

children = []


def start(host, *words, stdin=None, out=None):
    """Starts a program on a host; it is ended with the demo."""
    environment = {**os.environ, "FAILOVER_NODE": host, "FAILOVER_STATE_DIR": str(FOLDER / host / "run")}
    log = open(out or FOLDER / f"{host}.log", "a")
    child = subprocess.Popen(["nsenter", f"--net=/run/netns/{NAME}-{host}", *map(str, words)], env=environment,
                             stdin=stdin or subprocess.DEVNULL, stdout=log,
                             stderr=open(FOLDER / f"{host}.err", "a"), process_group=0)
    children.append(child)
    return child


def make():
    subprocess.run(["ip", "netns", "add", f"{NAME}-sw"], check=True)
    sh("sw", "ip link add lan type bridge mcast_snooping 0; ip link set lan up")
    for number, (host, address) in enumerate(ADDRESSES.items(), 1):
        subprocess.run(["ip", "netns", "add", f"{NAME}-{host}"], check=True)
        (FOLDER / host).mkdir()
        sh(host, "ip link set lo up")
        plug(host, number, "eth0", "lan", 1, [f"{address}/24"])


def write(host, name, text, mode=0o644):
    path = FOLDER / host / name
    path.write_text(text)
    path.chmod(mode)
    return path


def name_servers():
    key = subprocess.run(["tsig-keygen", "-a", "hmac-sha256", "failover"], capture_output=True, text=True, check=True).stdout
    records = "".join(f"{name} {ttl} A {PARIS}\n" for name, (ttl, _) in NAMES.items())
    zone = write("ns1", "zone", f"$ORIGIN {ZONE}.\n$TTL 30\n@ SOA ns1 host 1 3600 600 86400 15\n@ NS ns1\n@ NS ns2\n"
                 f"ns1 A {ADDRESSES['ns1']}\nns2 A {ADDRESSES['ns2']}\n{records}")
    zones = {
        "ns1": f"{key}\nzone \"{ZONE}\" {{ type primary; file \"{zone}\"; allow-update {{ key failover; }}; "
               f"notify explicit; also-notify {{ {ADDRESSES['ns2']}; }}; }};",
        "ns2": f"zone \"{ZONE}\" {{ type secondary; primaries {{ {ADDRESSES['ns1']}; }}; }};",
    }
    for host, text in zones.items():
        conf = write(host, "named.conf", f"options {{ directory \"{FOLDER / host}\"; pid-file none; session-keyfile none; "
                     "listen-on { any; }; listen-on-v6 { none; }; recursion no; dnssec-validation no; notify-delay 0; "
                     f"minimal-responses no; allow-transfer {{ any; }}; }};\ncontrols {{ }};\n{text}\n", 0o600)
        start(host, "named", "-g", "-n", "1", "-c", conf)
    for host, (_, setting) in RESOLVERS.items():
        conf = write(host, "unbound.conf", f"server:\n interface: {ADDRESSES[host]}\n access-control: 0.0.0.0/0 allow_snoop\n"
                     f" do-daemonize: no\n chroot: \"\"\n username: \"\"\n pidfile: \"\"\n directory: \"{FOLDER / host}\"\n"
                     " use-syslog: no\n module-config: \"iterator\"\n num-threads: 1\n local-zone: \"test.\" nodefault\n"
                     f" {setting}\nremote-control:\n control-enable: no\nstub-zone:\n name: \"{ZONE}\"\n"
                     f" stub-addr: {ADDRESSES['ns1']}\n")
        start(host, "unbound", "-d", "-c", conf)
    return write("monitor", "key", key, 0o600)


def sites():
    listens = "".join(f"listen {port};" for port in PORTS.values())
    for host in ("paris", "rome"):
        conf = write(host, "nginx.conf", f"daemon off;\npid {FOLDER / host}/pid;\nerror_log {FOLDER / host}/error;\n"
                     "events { }\nhttp { access_log off; client_header_timeout 1h; server { "
                     f"{listens} location / {{ return 200 {host}; }} }} }}\n")
        start(host, "nginx", "-c", conf)


def recipes(key):
    site = write("monitor", "sites", f"paris {PARIS}\nrome {ROME}\n")
    for name, (ttl, _) in NAMES.items():
        port = PORTS[name]
        conf = write("monitor", f"{name}.conf", f"name={name}.{ZONE}\nserver={ADDRESSES['ns1']}\ntsig_key={key}\nttl={ttl}\n"
                     f"sites={site}\nchecks='paris=http://{PARIS}:{port}/ rome=http://{ROME}:{port}/'\n"
                     f"policy=priority\ninterval={INTERVAL_S}s\nresponse_timeout=2s\nretries=3\ndown_time={DOWN_S}s\n"
                     f"log={FOLDER}/{name}.verdicts\n")
        start("monitor", "sh", HERE / "recipes/site-failover", conf)
        # So that their probes, and their faults, do not come at once.
        time.sleep(0.6)


def wait_for(what, holds, limit=30):
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            errors = "".join(path.read_text(errors="replace")[-800:] for path in sorted(FOLDER.glob("*.err")))
            sys.exit(f"demo: {what} did not come:\n{errors}")
        time.sleep(0.05)


def verdicts(name):
    path = FOLDER / f"{name}.verdicts"
    return [r for r in demo.records(path) if r.get("subject") == "paris"] if path.exists() else []


def trace(name, until, what, *more):
    """Starts a trace that reads the verdicts of the recipe's own checks."""
    # On the way back the first verdict is that the site is down.
    lines = "+1" if what == "trace" else "0"
    tail = subprocess.Popen(["tail", "-n", lines, "-F", str(FOLDER / f"{name}.verdicts")], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)
    children.append(tail)
    servers = ",".join(ADDRESSES[host] for host in RESOLVERS)
    conf = FOLDER / "client" / "resolv.conf"
    conf.write_text(f"nameserver {ADDRESSES['r1']}\n")
    line = (f"mount --bind {conf} /etc/resolv.conf && exec dns trace {name}.{ZONE} --until {until} "
            f"--authority {ADDRESSES['ns1']},{ADDRESSES['ns2']} --resolver {servers} --os --node monitor --timeout 150s {' '.join(more)} -")
    return start("client", "unshare", "-m", "sh", "-c", line, stdin=tail.stdout, out=FOLDER / f"{name}.{what}")


def summary(name, what):
    """The last record of each vantage point, by phase."""
    found = {}
    for record in demo.records(FOLDER / f"{name}.{what}"):
        if record.get("kind") == "dns.trace" and record.get("renewal"):
            found.setdefault(record["phase"], []).append(record)
    return found


def faults():
    """What makes the site stop answering for a name: an nft that is started already, since a moment counts."""
    nft = subprocess.Popen(["nsenter", f"--net=/run/netns/{NAME}-paris", "nft", "-i"], stdin=subprocess.PIPE,
                           stdout=subprocess.DEVNULL, text=True)
    children.append(nft)

    def fault(name):
        nft.stdin.write(f"add element ip off {NAMES[name][1]} {{ {PORTS[name]} }}\n")
        nft.stdin.flush()

    return fault


def main():
    svg = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    print("two sites, seven names, two name servers, four resolvers; the first site fails for each name "
          "(about two minutes)", file=sys.stderr)
    make()
    key = name_servers()
    sites()
    sh("paris", "nft 'add table ip off; add chain ip off in { type filter hook input priority 0; }; "
       "add set ip off silent { type inet_service; }; add set ip off resetting { type inet_service; }; "
       "add rule ip off in tcp dport @silent drop; add rule ip off in tcp dport @resetting reject with tcp reset'")
    wait_for("an answer of the name servers", lambda: all(subprocess.run(
        ["nsenter", f"--net=/run/netns/{NAME}-client", "dig", "+short", "+time=1", "+tries=1", f"@{ADDRESSES[host]}",
         f"app1.{ZONE}"], capture_output=True, text=True).stdout.strip() == PARIS for host in ("ns1", "ns2", *RESOLVERS)))
    recipes(key)
    wait_for("the first verdict on each name", lambda: all(verdicts(name) for name in NAMES))
    picture = FOLDER / "app1.svg"
    traces = {name: trace(name, ROME, "trace", f"--connect {PORTS[name]}", f"--application {JAVA_S}s,forever",
                          *([f"--svg {picture}"] if name == "app1" else [])) for name in RUNS}
    left, fault = set(NAMES), faults()
    time.sleep(1)
    while left:
        for name in list(left):
            # Just before the next probe.
            if time.time() - demo.seconds(verdicts(name)[-1]) > INTERVAL_S - 0.04:
                fault(name)
                left.discard(name)
        time.sleep(0.005)
    wait_for("a verdict on the brief fault", lambda: verdicts(BRIEF)[-1]["status"] == "down")
    sh("paris", f"nft delete element ip off silent {{ {PORTS[BRIEF]} }}")
    back = trace(BRIEF, PARIS, "return", f"--fault-at {verdicts(BRIEF)[-1]['time']}")
    wait_for("the new answer everywhere", lambda: all(t.poll() is not None for t in (*traces.values(), back)), 150)
    table({name: summary(name, "trace") for name in RUNS}, summary(BRIEF, "return"))
    if svg:
        svg.write_text(picture.read_text())
        print(f"\nthe picture of the first name is in {svg}")
    wrong = [name for name, t in traces.items() if t.returncode != 0]
    return 1 if wrong or back.returncode else 0


def budget(ttl, *more):
    out = subprocess.run(["dns", "budget", f"app1.{ZONE}", "--ttl", str(ttl), "--interval", f"{INTERVAL_S}s",
                          "--response-timeout", "2s", "--retries", "3", "--down-time", f"{DOWN_S}s", *more],
                         capture_output=True, text=True, check=True).stdout
    return json.loads(out)


def elapsed(record):
    return f"{record['elapsed_ms'] / 1000:.1f}" if "first_new" in record else "never"


def table(forward, back):
    def row(phase, vantage, cells, paper):
        print(f"{phase:<13}{vantage:<32}" + "".join(f"{cell:>7}" for cell in cells) + f"   {paper}")

    paper = {}
    for ttl in (5, 30):
        low = high = 0.0
        for part in budget(ttl, "--runtime", "java")["phases"]:
            if part["phase"] in ("connection", "return"):
                continue
            low += part["min_ms"] / 1000
            high += part["max_ms"] / 1000
            paper[ttl, part["phase"]] = f"{low:g} to {high:g}"
    named = {ADDRESSES[host]: what for host, (what, _) in RESOLVERS.items()}
    print("\nseconds after the fault, until the new answer")
    row("", "", list(RUNS), "on paper, TTL 5; 30")
    names = list(RUNS)
    for phase in PHASES:
        for n, record in enumerate(forward[names[0]].get(phase, [])):
            if phase == "detection" and record["vantage"] != "paris":
                continue
            cells = []
            for name in names:
                same = [r for r in forward[name].get(phase, []) if r["vantage"] == record["vantage"] or phase == "connection"]
                cells.append(elapsed(same[0]) if same else "-")
            vantage = record["vantage"] if phase != "resolver" else f"{record['vantage']} {named[record['vantage']]}"
            row(phase, vantage, cells, "; ".join(paper[ttl, phase] for ttl in (5, 30) if (ttl, phase) in paper) if n == 0 else "")
    print("\nlast old answer of the authority after the state change, seconds")
    for name in names:
        changed = next(r for r in forward[name]["detection"] if r["vantage"] == "paris")
        last = forward[name]["authority"][0]
        late = demo.seconds({"time": last["last_old"]}) - demo.seconds({"time": changed["first_new"]})
        print(f"  {name:<8}{late:>7.3f}")
    on_paper = next(part for part in budget(5)["phases"] if part["phase"] == "return")
    print(f"\nseconds from the state change, mended at once, until the way back (on paper {on_paper['min_ms'] / 1000:g} to "
          f"{on_paper['max_ms'] / 1000:g}: a site that went down is not asked for {DOWN_S} s)")
    for record in (*(r for r in back["detection"] if r["vantage"] == "paris"), *back["authority"], *back["resolver"]):
        print(f"  {record['phase']:<11}{record['vantage']:<16}{elapsed(record):>7}")


def end():
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM) if os.getpgid(child.pid) == child.pid else child.terminate()
    for child in children:
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
    demo.clean()


if __name__ == "__main__":
    demo.run(main, end)
