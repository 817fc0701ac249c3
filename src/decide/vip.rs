//! Virtual addresses: which interface, what to change, what would go along.

use crate::types::draw::Draw;
use crate::types::link::{Address, AddressFlags, Link};
use crate::types::net::Prefix;
use crate::types::time::Tick;
use std::net::IpAddr;
use std::time::Duration;

/// Why no single interface can be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoLink {
    /// None is called so, or none has a network that the address fits.
    None,
    /// Several fit; they are listed and none is guessed.
    Several(Vec<String>),
}

/// The interface called `name`, by its name or an alternative name.
pub(crate) fn link_called<'a>(links: &'a [Link], name: &str) -> Option<&'a Link> {
    links.iter().find(|link| link.name == name).or_else(|| links.iter().find(|link| link.is_called(name)))
}

/// The one interface whose network the address fits, where the user named none.
pub(crate) fn link_for<'a>(links: &'a [Link], addresses: &[Address], prefix: Prefix) -> Result<&'a Link, NoLink> {
    let fits = |link: &&Link| {
        !link.loopback
            && addresses.iter().any(|address| {
                address.ifindex == link.index
                    && address.prefix.addr != prefix.addr
                    && address.prefix.len < crate::types::net::width(address.prefix.addr)
                    && address.prefix.contains(prefix.addr)
            })
    };
    one(&links.iter().filter(fits).collect::<Vec<_>>())
}

/// The one interface that carries exactly this address.
pub(crate) fn link_with<'a>(links: &'a [Link], addresses: &[Address], prefix: Prefix) -> Result<&'a Link, NoLink> {
    let carries =
        |link: &&Link| addresses.iter().any(|address| address.ifindex == link.index && address.prefix == prefix);
    one(&links.iter().filter(carries).collect::<Vec<_>>())
}

/// The host's own address on an interface beside a virtual one: no other virtual one, in the network that
/// has it where there is such, and the lowest of those.
pub(crate) fn own_address(addresses: &[Address], ifindex: u32, vip: Prefix) -> Option<IpAddr> {
    let fits = |address: &&Address| {
        address.ifindex == ifindex
            && !address.is_ours()
            && address.prefix.addr != vip.addr
            && address.prefix.addr.is_ipv4() == vip.addr.is_ipv4()
    };
    let nearest = |address: &&Address| (!address.prefix.contains(vip.addr), address.prefix.addr);
    addresses.iter().filter(fits).min_by_key(nearest).map(|address| address.prefix.addr)
}

fn one<'a>(fitting: &[&'a Link]) -> Result<&'a Link, NoLink> {
    match fitting {
        [] => Err(NoLink::None),
        [link] => Ok(*link),
        several => Err(NoLink::Several(several.iter().map(|link| link.name.clone()).collect())),
    }
}

/// What `add` has to do about one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddStep {
    /// It is there, as wanted.
    Keep,
    /// It is there and ours; its lifetime starts anew.
    Renew,
    /// It is there and ours, with attributes that the kernel lets us change.
    Change,
    Add,
    /// It is there, with attributes that cannot be changed, or it is not ours to change.
    Differs(&'static str),
}

/// Compares what is there with what is wanted.
///
/// An address that somebody else put there with the attributes wanted is kept and stays theirs:
/// `del --mine` must never take a host's own address.
pub(crate) fn add_step(present: Option<&Address>, wanted: &Address) -> AddStep {
    const CHANGEABLE: u32 = AddressFlags::NOPREFIXROUTE;
    let Some(present) = present else { return AddStep::Add };
    if present.peer != wanted.peer {
        return AddStep::Differs("another peer");
    }
    if wanted.label.is_some() && present.label != wanted.label {
        return AddStep::Differs("another label");
    }
    let deprecated = |address: &Address| address.flags.has(AddressFlags::DEPRECATED) || address.preferred_s == Some(0);
    let same_flags = present.flags.0 & CHANGEABLE == wanted.flags.0 & CHANGEABLE;
    let same = same_flags
        && deprecated(present) == deprecated(wanted)
        && present.valid_s.is_some() == wanted.valid_s.is_some();
    match (same, present.is_ours()) {
        (true, true) if wanted.valid_s.is_some() => AddStep::Renew,
        (true, _) if wanted.valid_s.is_none() => AddStep::Keep,
        (_, false) => AddStep::Differs("other attributes, and it is not ours"),
        // IPv4 keeps the flag that it was added with.
        (false, true) if !same_flags && present.prefix.addr.is_ipv4() => AddStep::Differs("another noprefixroute"),
        (_, true) => AddStep::Change,
    }
}

/// The addresses that the kernel would remove together with `victim`.
///
/// With `promote_secondaries` off, deleting the first IPv4 address of a subnet takes all its
/// secondaries along (Linux `__inet_del_ifa`: same mask, same subnet, secondary).
pub(crate) fn taken_along<'a>(
    addresses: &'a [Address],
    victim: &Address,
    promote_secondaries: bool,
) -> Vec<&'a Address> {
    if promote_secondaries || !victim.prefix.addr.is_ipv4() || victim.flags.has(AddressFlags::SECONDARY) {
        return Vec::new();
    }
    addresses
        .iter()
        .filter(|other| {
            other.ifindex == victim.ifindex
                && other.prefix != victim.prefix
                && other.flags.has(AddressFlags::SECONDARY)
                && other.prefix.len == victim.prefix.len
                && victim.prefix.contains(other.prefix.addr)
        })
        .collect()
}

/// Whether a new IPv4 address would be the first of its subnet, on which later ones depend.
pub(crate) fn would_be_primary(addresses: &[Address], wanted: &Address) -> bool {
    wanted.prefix.addr.is_ipv4()
        && wanted.prefix.len < 32
        && !addresses.iter().any(|other| {
            other.ifindex == wanted.ifindex
                && other.prefix.len == wanted.prefix.len
                && other.prefix.addr != wanted.prefix.addr
                && !other.flags.has(AddressFlags::SECONDARY)
                && other.prefix.contains(wanted.prefix.addr)
        })
}

/// What an election says of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) vip: Prefix,
    /// The interface, where the election names it.
    pub(crate) dev: Option<String>,
    pub(crate) vrid: Option<u8>,
    pub(crate) mine: bool,
    /// Undecided: what stands is left.
    pub(crate) held: bool,
    /// The master's own address.
    pub(crate) master: Option<IpAddr>,
    /// The own addresses of those that could be master, as far as the election tells them.
    pub(crate) members: Vec<IpAddr>,
    /// The master's name, and the number of its election.
    pub(crate) elected: Option<String>,
    pub(crate) epoch: Option<u64>,
    /// Why this node does not stand.
    pub(crate) standby: Option<String>,
    /// The same said again.
    pub(crate) renewal: bool,
    /// When it was said.
    pub(crate) said: Tick,
    /// When it must have been said again.
    pub(crate) until: Option<Tick>,
    /// The interval of the adverts by whose absence others take over.
    pub(crate) adverts: Option<Duration>,
    pub(crate) why: Option<String>,
}

/// What a node does with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Carries it and answers for it.
    Serve,
    /// Does not carry it.
    Leave,
}

impl Order {
    /// Where a backup sends on what reaches it for the address: the master's own address, where that is known,
    /// is another's and can be a way there.
    pub(crate) fn way(&self, addresses: &[Address], now: Tick) -> Option<IpAddr> {
        let vip = self.vip.addr;
        let is_possible = |master: &IpAddr| {
            let is_own = addresses.iter().any(|address| address.prefix.addr == *master);
            !is_own && *master != vip && master.is_ipv4() == vip.is_ipv4()
        };
        // No router sends on what is for the link alone.
        let stays = matches!(vip, IpAddr::V6(vip) if vip.is_unicast_link_local());
        let is_known = !stays && !self.mine && self.until.is_none_or(|until| now < until);
        self.master.filter(|_| is_known).filter(is_possible)
    }

    /// What is to be done; `None`: nothing, what stands is left.
    ///
    /// An election that was not said again in time makes nobody master: whoever made it is frozen.
    pub(crate) fn role(&self, now: Tick) -> Option<Role> {
        let expired = self.until.is_some_and(|until| now >= until);
        match (self.mine, self.held) {
            (true, _) if expired => Some(Role::Leave),
            (_, true) => None,
            (true, false) => Some(Role::Serve),
            (false, false) => Some(Role::Leave),
        }
    }

    /// How long others wait at the least, from this word on, before they take over.
    ///
    /// Three intervals after the last advert (RFC 9568 §6.1), which may have been one interval before it.
    pub(crate) fn takers_wait(&self) -> Option<Duration> {
        self.adverts.map(|interval| interval * 2)
    }
}

/// How thoroughly duplicates are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Three questions within 0.3 s; a verdict after 0.45 s. RFC 5227 §2.1 wants the long form on
    /// links of unknown delay; this is for a LAN whose delay is known.
    Fast,
    /// RFC 5227 §1.1: three questions 1 to 2 s apart after up to 1 s, and 2 s for the last answer.
    Full,
}

/// When to ask, counted from the start, and when the answer is final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) asks: Vec<Duration>,
    pub(crate) end: Duration,
}

/// The times of a search for duplicates; chance is handed in.
pub(crate) fn schedule(profile: Profile, draw: &mut Draw) -> Schedule {
    let ms = Duration::from_millis;
    match profile {
        Profile::Fast => Schedule { asks: vec![ms(0), ms(150), ms(300)], end: ms(450) },
        Profile::Full => {
            // PROBE_WAIT, PROBE_NUM 3, PROBE_MIN to PROBE_MAX, ANNOUNCE_WAIT.
            let first = ms(draw.below(1000));
            let second = first + ms(1000 + draw.below(1000));
            let third = second + ms(1000 + draw.below(1000));
            Schedule { asks: vec![first, second, third], end: third + ms(2000) }
        }
    }
}

/// `count` questions, `interval` apart, and `rest` for the last answer.
pub(crate) fn evenly(count: u32, interval: Duration, rest: Duration) -> Schedule {
    let asks: Vec<Duration> = (0..count).map(|n| interval * n).collect();
    let end = asks.last().copied().unwrap_or_default() + rest;
    Schedule { asks, end }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::types::link::{OUR_PROTO, Scope};

    fn link(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.to_owned(),
            altnames: vec![format!("alt-{name}")],
            up: true,
            carrier: true,
            ..Link::default()
        }
    }

    fn address(prefix: &str, ifindex: u32, flags: u32) -> Address {
        Address {
            prefix: prefix.parse().unwrap(),
            peer: None,
            ifindex,
            label: None,
            scope: Scope::GLOBAL,
            flags: AddressFlags(flags),
            valid_s: None,
            preferred_s: None,
            proto: OUR_PROTO,
        }
    }

    #[test]
    fn an_interface_is_found_by_either_name() {
        let links = [link(1, "eth0"), link(2, "eth1")];
        assert_eq!(link_called(&links, "alt-eth1").unwrap().index, 2);
        assert_eq!(link_called(&links, "eth"), None);
    }

    #[test]
    fn several_fitting_interfaces_are_listed_and_none_is_guessed() {
        let links = [link(1, "eth0"), link(2, "eth1"), link(3, "eth2")];
        let addresses =
            [address("192.0.2.1/24", 1, 0), address("192.0.2.2/24", 2, 0), address("198.51.100.1/24", 3, 0)];
        let fits = |text: &str| link_for(&links, &addresses, text.parse().unwrap());
        assert_eq!(fits("198.51.100.9/32").unwrap().name, "eth2");
        assert_eq!(fits("192.0.2.9/24").unwrap_err(), NoLink::Several(vec!["eth0".to_owned(), "eth1".to_owned()]));
        assert_eq!(fits("203.0.113.9/24").unwrap_err(), NoLink::None);
    }

    #[test]
    fn adding_twice_changes_nothing() {
        let wanted = address("192.0.2.9/24", 1, 0);
        assert_eq!(add_step(None, &wanted), AddStep::Add);
        let present = address("192.0.2.9/24", 1, AddressFlags::PERMANENT | AddressFlags::SECONDARY);
        assert_eq!(add_step(Some(&present), &wanted), AddStep::Keep);
    }

    #[test]
    fn somebody_elses_address_is_kept_and_never_changed() {
        let wanted = address("192.0.2.9/24", 1, 0);
        let foreign = Address { proto: 0, ..wanted.clone() };
        assert_eq!(add_step(Some(&foreign), &wanted), AddStep::Keep);
        let mortal = Address { valid_s: Some(5), ..wanted.clone() };
        assert!(matches!(add_step(Some(&foreign), &mortal), AddStep::Differs(_)));
        assert_eq!(add_step(Some(&wanted), &mortal), AddStep::Change);
        assert_eq!(add_step(Some(&mortal), &mortal), AddStep::Renew);
        assert_eq!(add_step(Some(&mortal), &wanted), AddStep::Change);
    }

    #[test]
    fn a_label_cannot_be_changed_in_place() {
        let present = address("192.0.2.9/24", 1, 0);
        let wanted = Address { label: Some("eth0:vip".to_owned()), ..present.clone() };
        assert!(matches!(add_step(Some(&present), &wanted), AddStep::Differs(_)));
    }

    #[test]
    fn the_first_address_of_a_subnet_takes_its_secondaries_along() {
        // known-faults 3: (a) a /32 beside the host's /24; (b) the first of two.
        let addresses = [
            address("192.0.2.10/24", 1, AddressFlags::PERMANENT),
            address("192.0.2.100/24", 1, AddressFlags::PERMANENT | AddressFlags::SECONDARY),
            address("192.0.2.7/32", 1, AddressFlags::PERMANENT),
            address("192.0.2.101/24", 2, AddressFlags::PERMANENT | AddressFlags::SECONDARY),
        ];
        let along = |idx: usize, promote| -> Vec<String> {
            taken_along(&addresses, &addresses[idx], promote).iter().map(|a| a.prefix.to_string()).collect()
        };
        assert_eq!(along(0, false), ["192.0.2.100/24"]);
        assert!(along(0, true).is_empty());
        assert!(along(1, false).is_empty());
        assert!(along(2, false).is_empty());
    }

    #[test]
    fn a_way_to_the_master_is_anothers_address_of_the_same_family() {
        let addresses = [address("192.0.2.2/24", 1, 0), address("2001:db8::2/64", 1, 0)];
        let way = |vip: &str, master: Option<&str>, mine: bool| {
            let order = Order {
                vip: vip.parse().unwrap(),
                dev: None,
                vrid: None,
                mine,
                held: false,
                master: master.map(|master| master.parse().unwrap()),
                members: Vec::new(),
                elected: None,
                epoch: None,
                standby: None,
                renewal: false,
                said: Tick::default(),
                adverts: None,
                until: Some(Tick(Duration::from_secs(9))),
                why: None,
            };
            let at = |seconds| order.way(&addresses, Tick(Duration::from_secs(seconds)));
            assert_eq!(at(9), None, "by then it was not said again");
            at(8).map(|way| way.to_string())
        };
        assert_eq!(way("192.0.2.10/24", Some("192.0.2.1"), false).as_deref(), Some("192.0.2.1"));
        assert_eq!(way("2001:db8::10/64", Some("fe80::1"), false).as_deref(), Some("fe80::1"));
        for (vip, master, mine) in [
            ("192.0.2.10/24", None, false),
            ("192.0.2.10/24", Some("192.0.2.1"), true),
            ("192.0.2.10/24", Some("192.0.2.2"), false),
            ("192.0.2.10/24", Some("192.0.2.10"), false),
            ("192.0.2.10/24", Some("2001:db8::1"), false),
            ("fe80::10/64", Some("fe80::1"), false),
        ] {
            assert_eq!(way(vip, master, mine), None, "{vip} {master:?}");
        }
    }

    #[test]
    fn a_full_search_takes_as_long_as_rfc_5227_says() {
        let ms = Duration::from_millis;
        for seed in 0..1000 {
            let Schedule { asks, end } = schedule(Profile::Full, &mut Draw::new(seed));
            assert_eq!(asks.len(), 3);
            assert!(asks[0] < ms(1000));
            assert!(asks.windows(2).all(|pair| (ms(1000)..ms(2000)).contains(&pair[1].checked_sub(pair[0]).unwrap())));
            assert_eq!(end.checked_sub(asks[2]).unwrap(), ms(2000));
        }
        assert_eq!(evenly(3, ms(200), ms(500)), Schedule { asks: vec![ms(0), ms(200), ms(400)], end: ms(900) });
    }

    #[test]
    fn a_host_address_depends_on_nobody() {
        let addresses = [address("192.0.2.10/24", 1, 0)];
        assert!(!would_be_primary(&addresses, &address("192.0.2.7/32", 1, 0)));
        assert!(!would_be_primary(&addresses, &address("192.0.2.7/24", 1, 0)));
        assert!(would_be_primary(&addresses, &address("192.0.2.7/25", 1, 0)));
        assert!(would_be_primary(&addresses, &address("192.0.2.7/24", 2, 0)));
    }
}
