//! Name servers: BIND as primary and secondary with a key for updates, and Unbound as anybody wants it.

use super::{Host, Running, eventually};
use std::fs;
use std::time::Duration;

/// The zone that the servers have.
pub(crate) const ZONE: &str = "gslb.test";
/// Seconds that its SOA lets an answer without records be kept.
pub(crate) const NEGATIVE_TTL: u32 = 15;
const LIMIT: Duration = Duration::from_secs(10);

/// The file of a key as `tsig-keygen` writes it; `host` gets one of this name.
pub(crate) fn key(host: &Host, name: &str) -> String {
    let path = host.folder.join(format!("{name}.key"));
    fs::write(&path, host.sh(&format!("tsig-keygen -a hmac-sha256 {name}"))).unwrap();
    host.sh(&format!("chmod 600 {}", path.display()));
    path.display().to_string()
}

/// BIND with the zone, where the key in the file `key` may change everything; `secondary` is told of each
/// change. `records` are lines of a zone file: `app 5 A 192.0.2.81`.
pub(crate) fn primary(host: &Host, addr: &str, secondary: Option<&str>, key: &str, records: &str) -> Running {
    fs::write(
        host.folder.join("zone"),
        format!(
            "$ORIGIN {ZONE}.\n$TTL 30\n@ SOA ns1 host 1 3600 600 86400 {NEGATIVE_TTL}\n@ NS ns1\nns1 A {addr}\n{}{records}\n",
            secondary.map_or(String::new(), |addr| format!("@ NS ns2\nns2 A {addr}\n")),
        ),
    )
    .unwrap();
    let text = fs::read_to_string(key).unwrap();
    let name = text.split('"').nth(1).unwrap();
    let notify =
        secondary.map_or("notify no;".to_owned(), |addr| format!("notify explicit; also-notify {{ {addr}; }};"));
    let zone = format!(
        "{text}\nzone \"{ZONE}\" {{ type primary; file \"{}\"; allow-update {{ key {name}; }}; {notify} }};",
        host.folder.join("zone").display()
    );
    named(host, addr, &zone)
}

/// BIND with a copy of the zone.
pub(crate) fn secondary(host: &Host, addr: &str, primary: &str) -> Running {
    let copy = host.folder.join("copy");
    let zone =
        format!("zone \"{ZONE}\" {{ type secondary; file \"{}\"; primaries {{ {primary}; }}; }};", copy.display());
    named(host, addr, &zone)
}

/// BIND with this configuration of zones, once it answers for [`ZONE`].
pub(crate) fn named(host: &Host, addr: &str, zones: &str) -> Running {
    let conf = host.folder.join("named.conf");
    let folder = host.folder.display();
    fs::write(
        &conf,
        format!(
            "options {{ directory \"{folder}\"; pid-file none; session-keyfile none; listen-on {{ any; }}; \
             listen-on-v6 {{ any; }}; recursion no; dnssec-validation no; notify-delay 0; notify-rate 1000; \
             serial-query-rate 1000; minimal-responses no; check-names primary ignore; max-records-per-type 0; allow-transfer {{ any; }}; }};\ncontrols {{ }};\n{zones}\n"
        ),
    )
    .unwrap();
    let server = host.start_shell(&format!("exec named -g -n 1 -c {}", conf.display()));
    eventually("named answers", LIMIT, || {
        host.try_sh(&format!("dig +short +tries=1 +time=1 @{addr} {ZONE} SOA")).1.contains("host")
    });
    server
}

/// Unbound that asks `authority` for the zone; `settings` are lines of its `server:` clause, and `access` is
/// what its clients may: `allow_snoop`, or `allow`, which refuses a question without recursion. The zone's name
/// servers are asked for (`stub-prime`): otherwise a question without recursion would be passed on.
pub(crate) fn unbound(host: &Host, addr: &str, authority: &str, access: &str, settings: &str) -> Running {
    let conf = host.folder.join("unbound.conf");
    fs::write(
        &conf,
        format!(
            "server:\n  interface: {addr}\n  access-control: 0.0.0.0/0 {access}\n  access-control: ::/0 {access}\n  \
             do-daemonize: no\n  chroot: \"\"\n  username: \"\"\n  pidfile: \"\"\n  directory: \"{}\"\n  \
             use-syslog: no\n  module-config: \"iterator\"\n  num-threads: 1\n  local-zone: \"test.\" nodefault\n\
             {settings}\nremote-control:\n  control-enable: no\nstub-zone:\n  name: \"{ZONE}\"\n  stub-addr: {authority}\n  \
             stub-prime: yes\n",
            host.folder.display()
        ),
    )
    .unwrap();
    let server = host.start_shell(&format!("exec unbound -d -c {}", conf.display()));
    eventually("unbound listens", LIMIT, || host.sh("ss -Hlnu").contains(":53"));
    server
}
