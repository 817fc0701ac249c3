//! `gw doctor`: what is set on this host so that gateways will seem dead, or flows go another way.

use super::Gateways;
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::decide::doctor::{self, Finding, GatewayLink, Settings, Severity};
use crate::record::Head;
use crate::record::doctor::{DOCTOR_COLUMNS, DOCTOR_SCHEMA, Found};
use crate::sys::clock::Deadline;
use crate::sys::netlink::Netlink;
use crate::sys::nft::Nft;
use crate::sys::privilege::{self, Capability};
use crate::sys::{self, process, state, sysctl};
use crate::types::gateway::{Gateway, Marks};
use crate::types::link::Link;
use crate::types::route::MAIN;
use crate::wire::iptables::overlap as overlap_of_iptables;
use crate::wire::nft::marks::overlap;
use crate::wire::{networkd, nft_conf};
use clap::{ArgMatches, Args};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "doctor",
    about: "Look for what is set so that a gateway seems dead or flows go past the split, and say what mends it",
    examples: "gw doctor --gateways gateways.jsonl --table\n\
               gw doctor --gateway 192.0.2.1 --gateway 198.51.100.1,dev=eth2 | jq -r .mend",
    args: flags::<Flags>,
    schemas: &[DOCTOR_SCHEMA],
    columns: DOCTOR_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    #[command(flatten)]
    gateways: Gateways,

    /// The bits of a mark that are ours
    #[arg(long, value_name = "MASK", default_value_t = Marks::USUAL)]
    mark_mask: Marks,
}

/// The protocol of a route that a router advertisement brought (`RTPROT_RA`).
const ADVERTISED: u8 = 9;
/// How long `nft` may take.
const LIST: Duration = Duration::from_secs(10);

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let gateways = flags.gateways.all()?;
    let rule_set = read_rules(process);
    let mut report = Report { found: 0, looked: 0, process };
    report.privileges()?;
    report.tell("nft", of_rules(&rule_set, flags.mark_mask))?;
    report.tell("mark-collision", of_legacy_rules(report.process.deadline(LIST), flags.mark_mask))?;
    report.routing(&gateways, rule_set.as_deref().unwrap_or_default(), flags.mark_mask)?;
    let networkd = read_networkd();
    report.tell("networkd", networkd.map(|files| of_networkd(&files)))?;
    report.tell("flush-ruleset", of_nft_conf())?;
    Ok(match report {
        Report { found: 1.., .. } => Exit::No,
        Report { looked: 0, .. } => Exit::Undecided,
        _ => Exit::Yes,
    })
}

/// What was found so far.
struct Report<'a> {
    process: &'a mut Process,
    found: usize,
    /// How many looks could be taken.
    looked: usize,
}

impl Report<'_> {
    /// What one look brought; a look that could not be taken is told as `slug`.
    fn tell(&mut self, slug: &'static str, looked: Result<Vec<Finding>, Failure>) -> Result<(), Failure> {
        match looked {
            Ok(findings) => {
                self.looked += 1;
                self.found += findings.len();
                for finding in &findings {
                    self.process.out.record(&Head::new("gw.doctor").about(finding.slug), &Found::new(finding, true))?;
                }
            }
            Err(failure) => {
                self.process.complain(&failure.sentence);
                let finding = Finding {
                    slug,
                    severity: Severity::Warning,
                    object: "this host".to_owned(),
                    got: "it could not be looked at".to_owned(),
                    want: String::new(),
                    mend: String::new(),
                };
                let mut head = Head::new("gw.doctor").about(slug);
                head.error = Some(failure.body());
                self.process.out.record(&head, &Found::new(&finding, false))?;
            }
        }
        Ok(())
    }

    fn privileges(&mut self) -> Result<(), Failure> {
        let lacks = |capability: Capability| privilege::need(capability, "use", "gateways").is_err();
        let mut findings = Vec::new();
        if lacks(Capability::NetAdmin) {
            findings.push(missing(
                "capability",
                Capability::NetAdmin.name(),
                "probe and apply make rules and routes",
                "run it as root; a systemd unit: AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW",
            ));
        }
        if lacks(Capability::NetRaw) {
            let range = sysctl::read("ipv4/ping_group_range")?.unwrap_or_default();
            if !doctor::ping_is_open(&range, nix::unistd::getegid().as_raw()) {
                findings.push(Finding {
                    slug: "ping-group-range",
                    severity: Severity::Error,
                    object: "net.ipv4.ping_group_range".to_owned(),
                    got: range.replace('\t', " "),
                    want: "this user's group within it, or CAP_NET_RAW".to_owned(),
                    mend: "sysctl -w net/ipv4/ping_group_range='0 2147483647'".to_owned(),
                });
            }
        }
        self.tell("capability", Ok(findings))
    }

    /// Rules, links and settings.
    fn routing(&mut self, gateways: &[Gateway], rule_set: &str, marks: Marks) -> Result<(), Failure> {
        let mut netlink = Netlink::open()?;
        let rules = [netlink.rules(false)?, netlink.rules(true)?].concat();
        self.tell("mark-collision", Ok(doctor::of_rules(&rules, marks)))?;
        self.tell("rule-before", Ok(doctor::before_ours(&rules, marks)))?;
        let stands = rule_set.lines().any(|line| line.starts_with("table inet failover_gw"));
        self.tell("split-gone", Ok(doctor::split_gone(&rules, stands).into_iter().collect()))?;
        let links = netlink.links()?;
        let (ways, astray) = ways(&mut netlink, gateways, &links)?;
        self.tell("gateway-astray", Ok(astray))?;
        let devs: Vec<&str> = ways.iter().map(|link| link.dev.as_str()).collect();
        let settings = settings_of(&devs)?;
        self.tell("conntrack", Ok(doctor::of_host(&settings)))?;
        let restores = rule_set.lines().any(|line| line == "table inet failover_gw {");
        let translates = rule_set.split_whitespace().any(|word| matches!(word, "masquerade" | "snat"));
        let mut findings: Vec<Finding> = Vec::new();
        for link in &ways {
            let of_link = doctor::of_link(link, &settings, restores);
            let one_way = (!translates).then(|| doctor::one_way(link, &settings)).flatten();
            for finding in of_link.into_iter().chain(one_way) {
                // What is set for the host is told once.
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
        self.tell("link", Ok(findings))
    }
}

/// What the kernel's settings are for these links, and for the host.
pub(super) fn settings_of(devs: &[&str]) -> Result<Settings, Failure> {
    let of_host = ["ipv4/ip_forward", "netfilter/nf_conntrack_count", "netfilter/nf_conntrack_max"].map(str::to_owned);
    let mut settings = Settings::new();
    for name in devs.iter().copied().chain(["all"]).flat_map(doctor::asked_of).chain(of_host) {
        if let Some(value) = sysctl::read(&name)? {
            settings.insert(name, value);
        }
    }
    Ok(settings)
}

/// The rules of nft; empty where the program is missing.
fn read_rules(process: &Process) -> Result<String, Failure> {
    match Nft::find("look at", "the rules of this host", process.deadline(LIST)) {
        Ok(nft) => Ok(nft.rule_set()?.unwrap_or_default()),
        Err(error) => Err(error.into()),
    }
}

fn of_rules(rule_set: &Result<String, Failure>, marks: Marks) -> Result<Vec<Finding>, Failure> {
    match rule_set {
        Ok(rule_set) => Ok(overlap(rule_set, marks).map(|rule| doctor::of_foreign(&rule, marks)).into_iter().collect()),
        Err(failure) if failure.reason == Reason::NoSuchProgram => {
            Ok(vec![missing("nft", "nft", "apply writes rules with it", "apt-get install nftables")])
        }
        Err(failure) => Err(failure.clone()),
    }
}

/// The rules of iptables that nft does not show, where there are some and the program that tells them.
fn of_legacy_rules(deadline: Deadline, marks: Marks) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for (names, program) in [("ip_tables_names", "iptables-legacy-save"), ("ip6_tables_names", "ip6tables-legacy-save")]
    {
        let Some(loaded) = state::read(&Path::new("/proc/net").join(names))? else { continue };
        // To ask for a table loads it.
        if !loaded.split(|byte| *byte == b'\n').any(|name| name == b"mangle") {
            continue;
        }
        let Ok(path) = process::find(program, "iptables", "look at", "the rules of iptables") else { continue };
        let done = process::run(&path, &["-t", "mangle"], b"", deadline)?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let why = said.lines().next().unwrap_or("it did not say why");
            let why = format!("cannot look at the rules of iptables: {program}: {why}");
            return Err(Failure::new(Exit::Refused, Reason::Refused, why));
        }
        let rule = overlap_of_iptables(&String::from_utf8_lossy(&done.stdout), marks);
        findings.extend(rule.map(|rule| doctor::of_foreign(&rule, marks)));
    }
    Ok(findings)
}

/// Something without which nothing goes.
fn missing(slug: &'static str, object: &str, want: &str, mend: &str) -> Finding {
    Finding {
        slug,
        severity: Severity::Error,
        object: object.to_owned(),
        got: "missing".to_owned(),
        want: format!("there: {want}"),
        mend: mend.to_owned(),
    }
}

/// The links that the gateways are on, and the gateways that are on none.
fn ways(
    netlink: &mut Netlink,
    gateways: &[Gateway],
    links: &[Link],
) -> Result<(Vec<GatewayLink>, Vec<Finding>), Failure> {
    let mut found: Vec<(&Link, Vec<IpAddr>)> = Vec::new();
    let mut astray = Vec::new();
    for gateway in gateways {
        // Where the main table has it on a network of this host.
        let way = netlink.way_to(gateway.addr, 0)?.ok();
        let hop = way.as_ref().and_then(|way| way.hops.first()).filter(|hop| hop.via.is_none());
        let by_route = hop.and_then(|hop| links.iter().find(|link| link.index == hop.ifindex && !link.loopback));
        let link = match &gateway.dev {
            Some(dev) => links.iter().find(|link| link.is_called(dev)),
            None => by_route,
        };
        let is_link_local = matches!(gateway.addr, IpAddr::V6(addr) if addr.is_unicast_link_local());
        if let (Some(named), Some(found)) = (link, by_route)
            && named.index != found.index
            && !is_link_local
        {
            astray.push(Finding {
                slug: "gateway-astray",
                severity: Severity::Error,
                object: gateway.subject(),
                got: format!("named on {}, and on {} by its address", named.name, found.name),
                want: "on the link that its network is on".to_owned(),
                mend: format!("dev={} where the gateway is described", found.name),
            });
        }
        match link {
            Some(link) => match found.iter_mut().find(|(known, _)| known.index == link.index) {
                Some((_, on_it)) => on_it.push(gateway.addr),
                None => found.push((link, vec![gateway.addr])),
            },
            None => astray.push(Finding {
                slug: "gateway-astray",
                severity: Severity::Error,
                object: gateway.subject(),
                got: gateway.dev.as_ref().map_or_else(
                    || "not on a link of this host".to_owned(),
                    |dev| format!("on {dev}, which is not there"),
                ),
                want: "a gateway is one hop away".to_owned(),
                mend: "give this host an address in its network, or name the link: dev=".to_owned(),
            }),
        }
    }
    // Which links carry IPv4's default, and which one of IPv6 that was learnt.
    let (mut carrying, mut learning) = (BTreeSet::new(), BTreeSet::new());
    for ipv6 in [false, true] {
        let routes = if found.is_empty() { Vec::new() } else { netlink.routes(ipv6, MAIN, None)? };
        if !ipv6 {
            carrying.extend(doctor::carrying(&routes));
            continue;
        }
        for route in routes.iter().filter(|route| route.dst.len == 0 && route.proto == ADVERTISED) {
            learning.extend(route.hops.iter().map(|hop| hop.ifindex));
        }
    }
    let has_gateway = |link: &Link| found.iter().any(|(known, _)| known.index == link.index);
    let elsewhere = links.iter().any(|link| !link.loopback && link.up && !has_gateway(link));
    let of = |(link, on_it): (&Link, Vec<IpAddr>)| {
        let (ipv4, ipv6) = (on_it.iter().any(IpAddr::is_ipv4), on_it.iter().any(IpAddr::is_ipv6));
        GatewayLink {
            dev: link.name.clone(),
            ipv4,
            ipv6,
            carries_default: carrying.contains(&link.index),
            learns_default: learning.contains(&link.index),
            is_shared: !elsewhere,
            up: link.up,
            carrier: link.carrier,
        }
    };
    Ok((found.into_iter().map(of).collect(), astray))
}

/// The configuration of a networkd that runs here, in the order in which it is read; `None` without one.
fn read_networkd() -> Result<Vec<String>, Failure> {
    let folders = ["/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd"];
    let mut files = Vec::new();
    // The folder is there without it, too; this it writes.
    if !Path::new("/run/systemd/netif/state").exists() {
        return Ok(files);
    }
    let main = folders.iter().map(|folder| Path::new(folder).join("networkd.conf")).find(|path| path.exists());
    // Of several files of one name the first folder's counts; all of them are read in the order of their names.
    let mut more: Vec<PathBuf> = Vec::new();
    for folder in folders {
        for path in entries(&Path::new(folder).join("networkd.conf.d"))? {
            let is_conf = path.extension().is_some_and(|extension| extension == "conf");
            if is_conf && !more.iter().any(|known| known.file_name() == path.file_name()) {
                more.push(path);
            }
        }
    }
    more.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    files.push(String::new());
    for path in main.into_iter().chain(more) {
        files.extend(state::read(&path)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
    }
    Ok(files)
}

/// What networkd does with rules and routes that are not its own; nothing is read where none runs.
fn of_networkd(files: &[String]) -> Vec<Finding> {
    let (rules, routes) = networkd::removes_foreign(files.iter().map(String::as_str));
    let what = match (rules, routes) {
        _ if files.is_empty() => return Vec::new(),
        (true, true) => "rules and routes",
        (true, false) => "rules",
        (false, true) => "routes",
        (false, false) => return Vec::new(),
    };
    vec![Finding {
        slug: "networkd",
        severity: Severity::Error,
        object: "systemd-networkd".to_owned(),
        got: format!("it removes {what} that are not its own"),
        want: "ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no".to_owned(),
        mend: "mkdir -p /etc/systemd/networkd.conf.d && printf '[Network]\\nManageForeignRoutingPolicyRules=no\\n\
               ManageForeignRoutes=no\\n' >/etc/systemd/networkd.conf.d/zz-failover.conf; \
               systemctl try-restart systemd-networkd"
            .to_owned(),
    }]
}

/// Whether the service that loads the host's rules flushes those of others.
fn of_nft_conf() -> Result<Vec<Finding>, Failure> {
    let is_on = entries(Path::new("/etc/systemd/system"))?.into_iter().any(|folder| {
        folder.extension().is_some_and(|end| end == "wants") && folder.join("nftables.service").is_symlink()
    });
    let mut findings = Vec::new();
    for file in ["/etc/nftables.conf", "/etc/sysconfig/nftables.conf"] {
        let text = if is_on { state::read(Path::new(file))? } else { None };
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let Some(tables) = text.as_deref().and_then(nft_conf::flushes_all) else { continue };
        let instead: Vec<String> =
            tables.iter().map(|table| format!("add table {table}; delete table {table}")).collect();
        findings.push(Finding {
            slug: "flush-ruleset",
            severity: Severity::Warning,
            object: file.to_owned(),
            got: "flush ruleset: when nftables.service reloads, the split is gone until the next run".to_owned(),
            want: "a flush of its own tables alone".to_owned(),
            mend: format!("sed -i 's/^[[:space:]]*flush ruleset/{}/' {file}", instead.join("; ")),
        });
    }
    Ok(findings)
}

/// What is in a folder; nothing where there is none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    match std::fs::read_dir(folder) {
        Ok(entries) => Ok(entries.flatten().map(|entry| entry.path()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(sys::Error::io("look into", folder.display().to_string(), &error).into()),
    }
}
