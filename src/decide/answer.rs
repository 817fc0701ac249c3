//! Which addresses a name has, by the health of the sites behind it.
//!
//! A site that nobody has measured is neither up nor down: it is taken where no other is known to be up, and
//! before the fallback for sites that are all down.

use crate::types::status::Status;
use std::net::IpAddr;

/// How sites are chosen among those that serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// All of them; or one, the next at each conclusion.
    RoundRobin,
    /// The first in the order given.
    Priority,
    /// One, the more often the higher its weight: an even rotation, not chance.
    Weighted,
    /// One by the hash of a key, so that a site's death moves its own share alone.
    Hash,
    /// The first in the order of the view.
    Nearest,
}

impl Policy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Policy::RoundRobin => "round-robin",
            Policy::Priority => "priority",
            Policy::Weighted => "weighted",
            Policy::Hash => "hash",
            Policy::Nearest => "nearest",
        }
    }
}

/// What is answered when no site serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AllDown {
    /// Every address: one may be right.
    All,
    /// None: the name is there and has no address.
    Empty,
    Backup(Vec<IpAddr>),
    /// Every address of the first tier.
    FirstTier,
    /// The last answer.
    Keep,
}

impl AllDown {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            AllDown::All => "all",
            AllDown::Empty => "empty",
            AllDown::Backup(_) => "backup",
            AllDown::FirstTier => "first-tier",
            AllDown::Keep => "keep",
        }
    }
}

/// What a site counts as that nothing is known of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// As it did when it was known last.
    Hold,
    Down,
    Up,
}

/// A site as the decision sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    pub(crate) name: String,
    /// Those of the type that is asked for; a site without one is no member.
    pub(crate) addresses: Vec<IpAddr>,
    /// Finite, and above 0.
    pub(crate) weight: f64,
    /// Sites of the lowest tier that serves are used.
    pub(crate) tier: u32,
    pub(crate) status: Status,
    /// What it was when that was known last.
    pub(crate) before: Option<Status>,
    /// It is to drain.
    pub(crate) rests: bool,
}

/// Why there is no address of this type: sites serve by the other one.
pub(crate) const OTHER_TYPE: &str = "other-type";

/// How it is decided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    /// Of round robin one alone.
    pub(crate) one: bool,
    /// The part of a tier's weight that must be up for it to serve, from 0 to 1.
    pub(crate) threshold: f64,
    pub(crate) all_down: AllDown,
    pub(crate) unknown: Unknown,
    /// What is hashed, without the site's name.
    pub(crate) key: String,
    /// Names of sites, the nearest first; those that are not named come after them.
    pub(crate) order: Vec<String>,
}

/// What goes from one conclusion to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Turn {
    /// The site that was chosen last.
    pub(crate) last: Option<String>,
    /// How much each site is owed, by name: of the even rotation by weight.
    pub(crate) owed: Vec<(String, f64)>,
    /// The last answer, for `keep`.
    pub(crate) answer: Option<Vec<IpAddr>>,
}

/// What a site was taken as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Up,
    Down,
    /// Neither: it was never measured.
    Unmeasured,
    /// Up, and to be drained.
    Standby,
}

impl Counted {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Counted::Up => "up",
            Counted::Down => "down",
            Counted::Unmeasured => "unmeasured",
            Counted::Standby => "standby",
        }
    }
}

/// One site in the answer, or not, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) counted_as: Counted,
    pub(crate) chosen: bool,
    pub(crate) why: String,
}

/// The conclusion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// In the order of the sites, each once; `None` where nothing can be concluded.
    pub(crate) addresses: Option<Vec<IpAddr>>,
    /// Why it is not the choice of the policy.
    pub(crate) fallback: Option<&'static str>,
    /// By position of the sites.
    pub(crate) members: Vec<Member>,
}

fn counted(site: &Site, unknown: Unknown) -> Counted {
    let known = match (site.status, unknown) {
        (Status::Unknown, Unknown::Hold) => site.before,
        (Status::Unknown, Unknown::Up) => Some(Status::Up),
        (Status::Unknown, Unknown::Down) => Some(Status::Down),
        (known, _) => Some(known),
    };
    match known {
        Some(Status::Up) if site.rests => Counted::Standby,
        Some(Status::Up) => Counted::Up,
        Some(Status::Down) => Counted::Down,
        Some(Status::Unknown) | None => Counted::Unmeasured,
    }
}

/// Decides; `turn` is carried on.
pub(crate) fn answer(sites: &[Site], settings: &Settings, turn: &mut Turn) -> Answer {
    let mut members: Vec<Member> = sites
        .iter()
        .map(|site| Member { counted_as: counted(site, settings.unknown), chosen: false, why: String::new() })
        .collect();
    for (site, member) in sites.iter().zip(&mut members) {
        member.why = own_reason(site, member.counted_as);
    }
    // Who is asked to drain serves where no other does, and who was never measured after those.
    for (kind, fallback) in
        [(Counted::Up, None), (Counted::Standby, Some("standby")), (Counted::Unmeasured, Some("unmeasured"))]
    {
        let serving = |at: usize| members[at].counted_as == kind && !sites[at].addresses.is_empty();
        let Some((tier, candidates)) = lowest_tier(sites, settings.threshold, serving) else { continue };
        if kind == Counted::Unmeasured && members.iter().all(|member| member.counted_as == Counted::Unmeasured) {
            // Nobody has looked yet: that is no word about any.
            break;
        }
        for (at, member) in members.iter_mut().enumerate() {
            if member.counted_as == kind && sites[at].tier != tier {
                member.why = format!("a site of tier {tier} serves");
            }
        }
        let chosen = choose(sites, &candidates, settings, turn);
        for at in &candidates {
            members[*at].chosen = chosen.contains(at);
            members[*at].why = match (members[*at].chosen, fallback) {
                (true, None) => chosen_by(settings, &chosen),
                (true, Some("standby")) => "it is to drain, and no other is up".to_owned(),
                (true, _) => "it was never measured, and no other is up".to_owned(),
                (false, _) => "another was chosen".to_owned(),
            };
        }
        let addresses: Vec<IpAddr> = gather(sites, |at| chosen.contains(&at));
        turn.answer = Some(addresses.clone());
        return Answer { addresses: Some(addresses), fallback, members };
    }
    let is_other = |(site, member): (&Site, &Member)| {
        site.addresses.is_empty() && matches!(member.counted_as, Counted::Up | Counted::Standby)
    };
    if sites.iter().zip(&members).any(is_other) {
        // Who serves has addresses of the other type alone: those of this type are of the dead, and lead nowhere.
        return Answer { addresses: Some(Vec::new()), fallback: Some(OTHER_TYPE), members };
    }
    if members.iter().all(|member| member.counted_as == Counted::Unmeasured) {
        let addresses = last_answer(sites, turn);
        let fallback = addresses.is_some().then_some("keep");
        return Answer { addresses, fallback, members };
    }
    fall_back(sites, settings, members, turn)
}

fn own_reason(site: &Site, counted_as: Counted) -> String {
    match (counted_as, site.status) {
        _ if site.addresses.is_empty() => "it has no address of this type".to_owned(),
        (Counted::Up, Status::Unknown) => "not known now; up when it was known last, or by choice".to_owned(),
        (Counted::Down, Status::Unknown) => "not known now; down when it was known last, or by choice".to_owned(),
        (Counted::Up, _) => "up".to_owned(),
        (Counted::Down, _) => "down".to_owned(),
        (Counted::Standby, _) => "it is to drain".to_owned(),
        (Counted::Unmeasured, _) => "never measured".to_owned(),
    }
}

fn chosen_by(settings: &Settings, chosen: &[usize]) -> String {
    match settings.policy {
        Policy::RoundRobin if settings.one => "up, and its turn".to_owned(),
        Policy::RoundRobin => format!("up, one of {}", chosen.len()),
        Policy::Priority => "up, the first in order".to_owned(),
        Policy::Weighted => "up, and its turn by weight".to_owned(),
        Policy::Hash => "up, by the hash of the key".to_owned(),
        Policy::Nearest => "up, the nearest".to_owned(),
    }
}

/// The lowest tier that serves, and who does; it serves where so much of its weight is up as the threshold asks.
fn lowest_tier(sites: &[Site], threshold: f64, serving: impl Fn(usize) -> bool) -> Option<(u32, Vec<usize>)> {
    let mut tiers: Vec<u32> = sites.iter().map(|site| site.tier).collect();
    tiers.sort_unstable();
    tiers.dedup();
    tiers.into_iter().find_map(|tier| {
        let of_tier = || (0..sites.len()).filter(|at| sites[*at].tier == tier && !sites[*at].addresses.is_empty());
        let candidates: Vec<usize> = of_tier().filter(|at| serving(*at)).collect();
        let weight = |all: &mut dyn Iterator<Item = usize>| -> f64 { all.map(|at| sites[at].weight).sum() };
        let (up, whole) = (weight(&mut candidates.iter().copied()), weight(&mut of_tier()));
        (!candidates.is_empty() && up >= threshold * whole).then_some((tier, candidates))
    })
}

fn choose(sites: &[Site], candidates: &[usize], settings: &Settings, turn: &mut Turn) -> Vec<usize> {
    let one = match settings.policy {
        Policy::RoundRobin if !settings.one => return candidates.to_vec(),
        Policy::RoundRobin => {
            let last = turn.last.as_ref().and_then(|last| sites.iter().position(|site| site.name == *last));
            let next = candidates.iter().find(|at| last.is_some_and(|last| **at > last));
            next.or(candidates.first()).copied()
        }
        Policy::Priority => candidates.first().copied(),
        Policy::Weighted => by_weight(sites, candidates, turn),
        Policy::Hash => {
            let score = |at: &&usize| rendezvous(&settings.key, &sites[**at].name, sites[**at].weight);
            candidates.iter().max_by(|a, b| score(a).total_cmp(&score(b))).copied()
        }
        Policy::Nearest => {
            let far = settings.order.len();
            let distance =
                |at: &&usize| settings.order.iter().position(|name| *name == sites[**at].name).unwrap_or(far);
            candidates.iter().min_by_key(distance).copied()
        }
    };
    turn.last = one.map(|at| sites[at].name.clone());
    one.into_iter().collect()
}

/// Each candidate is owed its weight at each turn; who is owed most is chosen and pays for all.
fn by_weight(sites: &[Site], candidates: &[usize], turn: &mut Turn) -> Option<usize> {
    let known =
        |turn: &Turn, name: &str| turn.owed.iter().find(|(other, _)| other == name).map_or(0.0, |(_, owed)| *owed);
    let whole: f64 = candidates.iter().map(|at| sites[*at].weight).sum();
    let mut owed: Vec<(usize, f64)> =
        candidates.iter().map(|at| (*at, known(turn, &sites[*at].name) + sites[*at].weight / whole)).collect();
    // Of equals the earlier.
    let most = owed.iter().map(|(_, owed)| *owed).fold(f64::NEG_INFINITY, f64::max);
    let chosen = owed.iter_mut().find(|(_, owed)| *owed >= most)?;
    chosen.1 -= 1.0;
    let at = chosen.0;
    turn.owed = owed.into_iter().map(|(at, owed)| (sites[at].name.clone(), owed)).collect();
    Some(at)
}

/// How much a site wants a key: the highest has it, by weight, and keeps it whoever else comes or goes.
fn rendezvous(key: &str, site: &str, weight: f64) -> f64 {
    // FNV-1a over both with a byte between that neither has, and a finish that spreads it.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in key.bytes().chain([0]).chain(site.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    #[allow(clippy::cast_precision_loss)] // 53 bits of it
    let uniform = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    // The logarithm of a uniform number, by weight (weighted rendezvous hashing).
    -weight / uniform.ln()
}

fn gather(sites: &[Site], takes: impl Fn(usize) -> bool) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (at, site) in sites.iter().enumerate() {
        if takes(at) {
            for address in &site.addresses {
                if !addresses.contains(address) {
                    addresses.push(*address);
                }
            }
        }
    }
    addresses
}

/// What was answered last, of what the sites have still; none where nothing of it is left.
fn last_answer(sites: &[Site], turn: &Turn) -> Option<Vec<IpAddr>> {
    let known = gather(sites, |_| true);
    let kept = turn.answer.iter().flatten().copied().filter(|address| known.contains(address));
    Some(kept.collect()).filter(|kept: &Vec<IpAddr>| !kept.is_empty())
}

/// No site serves.
fn fall_back(sites: &[Site], settings: &Settings, mut members: Vec<Member>, turn: &mut Turn) -> Answer {
    let first = sites.iter().map(|site| site.tier).min();
    let takes = |at: usize| match settings.all_down {
        AllDown::All => true,
        AllDown::FirstTier => Some(sites[at].tier) == first,
        _ => false,
    };
    for (at, member) in members.iter_mut().enumerate() {
        if takes(at) && !sites[at].addresses.is_empty() {
            member.chosen = true;
            member.why = format!("{}; no site serves, so {}", member.why, settings.all_down.as_str());
        }
    }
    let addresses = match &settings.all_down {
        AllDown::All | AllDown::FirstTier => Some(gather(sites, takes)),
        AllDown::Empty => Some(Vec::new()),
        AllDown::Backup(addresses) => Some(addresses.clone()),
        AllDown::Keep => last_answer(sites, turn),
    };
    // What was answered because nobody served is nothing to keep.
    Answer { addresses, fallback: Some(settings.all_down.as_str()), members }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn addr(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn site(number: u8, status: Status) -> Site {
        Site {
            name: format!("s{number}"),
            addresses: vec![addr(number)],
            weight: 1.0,
            tier: 1,
            status,
            before: None,
            rests: false,
        }
    }

    fn sites(all: &[Status]) -> Vec<Site> {
        (1..).zip(all).map(|(number, status)| site(number, *status)).collect()
    }

    fn settings(policy: Policy) -> Settings {
        Settings {
            policy,
            one: false,
            threshold: 0.0,
            all_down: AllDown::All,
            unknown: Unknown::Hold,
            key: String::new(),
            order: Vec::new(),
        }
    }

    fn of(sites: &[Site], settings: &Settings) -> (Option<Vec<IpAddr>>, Option<&'static str>) {
        let answer = answer(sites, settings, &mut Turn::default());
        (answer.addresses, answer.fallback)
    }

    use Status::{Down, Unknown as Un, Up};

    #[test]
    fn each_policy_chooses_among_those_that_are_up() {
        let all = sites(&[Down, Up, Up]);
        assert_eq!(of(&all, &settings(Policy::RoundRobin)), (Some(vec![addr(2), addr(3)]), None));
        assert_eq!(of(&all, &settings(Policy::Priority)), (Some(vec![addr(2)]), None));
        let near = Settings { order: ["s1", "s3", "s2"].map(str::to_owned).to_vec(), ..settings(Policy::Nearest) };
        assert_eq!(of(&all, &near), (Some(vec![addr(3)]), None));
        assert_eq!(
            of(&all, &settings(Policy::Nearest)),
            (Some(vec![addr(2)]), None),
            "a view of which nothing is said"
        );
        // A rotation of one, also when the last has died meanwhile.
        let one = Settings { one: true, ..settings(Policy::RoundRobin) };
        let mut turn = Turn::default();
        let mut next = |all: &[Site]| answer(all, &one, &mut turn).addresses.unwrap()[0];
        assert_eq!([next(&all), next(&all), next(&all)], [addr(2), addr(3), addr(2)]);
        assert_eq!(next(&sites(&[Up, Down, Up])), addr(3));
        assert_eq!(next(&sites(&[Up, Up, Down])), addr(1));
    }

    /// known-faults 11.
    #[test]
    fn with_all_sites_down_it_is_as_was_asked_for() {
        let all = sites(&[Down, Down]);
        let with = |all_down| Settings { all_down, ..settings(Policy::RoundRobin) };
        assert_eq!(of(&all, &with(AllDown::All)), (Some(vec![addr(1), addr(2)]), Some("all")));
        assert_eq!(of(&all, &with(AllDown::Empty)), (Some(vec![]), Some("empty")));
        assert_eq!(of(&all, &with(AllDown::Backup(vec![addr(9)]))), (Some(vec![addr(9)]), Some("backup")));
        let second = Site { tier: 2, ..site(2, Down) };
        assert_eq!(of(&[site(1, Down), second], &with(AllDown::FirstTier)), (Some(vec![addr(1)]), Some("first-tier")));
        // Nothing to keep is no answer; something is.
        assert_eq!(of(&all, &with(AllDown::Keep)), (None, Some("keep")));
        let mut turn = Turn::default();
        answer(&sites(&[Up, Down]), &with(AllDown::Keep), &mut turn);
        assert_eq!(answer(&all, &with(AllDown::Keep), &mut turn).addresses, Some(vec![addr(1)]));
        // One that was never measured is neither up nor down, and is told as that.
        let mut turn = Turn::default();
        let told = answer(&sites(&[Down, Un]), &with(AllDown::Empty), &mut turn);
        assert_eq!((told.addresses.clone(), told.fallback), (Some(vec![addr(2)]), Some("unmeasured")));
        assert_eq!((told.members[1].counted_as, told.members[0].chosen), (Counted::Unmeasured, false));
        assert!(told.members[1].why.contains("never measured"), "{told:?}");
        // While a site is up it is left out.
        assert_eq!(of(&sites(&[Up, Un]), &with(AllDown::All)), (Some(vec![addr(1)]), None));
        // Of all nothing is known: nothing is concluded, and what was is kept.
        assert_eq!(of(&sites(&[Un, Un]), &with(AllDown::Empty)), (None, None));
        assert_eq!(answer(&sites(&[Un, Un]), &with(AllDown::Empty), &mut turn).addresses, Some(vec![addr(2)]));
    }

    #[test]
    fn unknown_is_as_it_was_or_as_is_asked_for() {
        let was = |before| Site { before: Some(before), ..site(2, Un) };
        let with = |unknown| Settings { unknown, ..settings(Policy::RoundRobin) };
        assert_eq!(of(&[site(1, Up), was(Up)], &with(Unknown::Hold)).0, Some(vec![addr(1), addr(2)]));
        assert_eq!(of(&[site(1, Up), was(Down)], &with(Unknown::Hold)).0, Some(vec![addr(1)]));
        assert_eq!(of(&[site(1, Up), was(Down)], &with(Unknown::Up)).0, Some(vec![addr(1), addr(2)]));
        assert_eq!(of(&[site(1, Up), was(Up)], &with(Unknown::Down)).0, Some(vec![addr(1)]));
        assert_eq!(of(&[site(1, Down), site(2, Un)], &with(Unknown::Down)).1, Some("all"));
    }

    #[test]
    fn a_site_in_standby_drains_while_another_serves() {
        let rests = Site { rests: true, ..site(1, Up) };
        assert_eq!(of(&[rests.clone(), site(2, Up)], &settings(Policy::Priority)), (Some(vec![addr(2)]), None));
        assert_eq!(
            of(&[rests.clone(), site(2, Down)], &settings(Policy::Priority)),
            (Some(vec![addr(1)]), Some("standby"))
        );
        assert_eq!(of(&[rests, site(2, Un)], &settings(Policy::Priority)), (Some(vec![addr(1)]), Some("standby")));
    }

    #[test]
    fn a_tier_serves_while_enough_of_it_is_up() {
        let second = |number, status| Site { tier: 2, ..site(number, status) };
        let all = [site(1, Up), site(2, Down), site(3, Down), second(4, Up)];
        let with = |threshold| Settings { threshold, ..settings(Policy::RoundRobin) };
        assert_eq!(of(&all, &with(0.0)).0, Some(vec![addr(1)]));
        assert_eq!(of(&all, &with(0.5)).0, Some(vec![addr(4)]), "a third of it is less than half");
        // Nowhere enough: as if all were down.
        let all = [site(1, Up), site(2, Down), site(3, Down), second(4, Down)];
        assert_eq!(of(&all, &with(0.5)), (Some(vec![addr(1), addr(2), addr(3), addr(4)]), Some("all")));
    }

    #[test]
    fn a_site_without_an_address_of_the_type_is_no_member() {
        let none = Site { addresses: Vec::new(), ..site(1, Up) };
        let told = answer(&[none, site(2, Up)], &settings(Policy::Priority), &mut Turn::default());
        assert_eq!(told.addresses, Some(vec![addr(2)]));
        assert_eq!(told.members[0].why, "it has no address of this type");
    }

    #[test]
    fn weights_are_an_even_rotation() {
        let all: Vec<Site> = [5.0, 1.0, 1.0]
            .iter()
            .zip(1..)
            .map(|(weight, number)| Site { weight: *weight, ..site(number, Up) })
            .collect();
        let mut turn = Turn::default();
        let chosen: Vec<IpAddr> =
            (0..7).map(|_| answer(&all, &settings(Policy::Weighted), &mut turn).addresses.unwrap()[0]).collect();
        assert_eq!(chosen, [1, 1, 2, 1, 3, 1, 1].map(addr), "never many of one in a row");
    }

    #[test]
    fn a_hash_moves_the_dead_site_s_keys_alone() {
        let all: Vec<Site> = [1.0, 2.0, 3.0, 4.0]
            .iter()
            .zip(1..)
            .map(|(weight, number)| Site { weight: *weight, ..site(number, Up) })
            .collect();
        let mut without = all.clone();
        without[1].status = Down;
        let of = |sites: &[Site], key: usize| {
            let settings = Settings { key: format!("198.51.100.{key}"), ..settings(Policy::Hash) };
            answer(sites, &settings, &mut Turn::default()).addresses.unwrap()[0]
        };
        let mut counts: BTreeMap<IpAddr, u32> = BTreeMap::new();
        for key in 0..20_000 {
            let (before, after) = (of(&all, key), of(&without, key));
            *counts.entry(before).or_default() += 1;
            assert!(before == after || before == addr(2), "{key}: {before} to {after}");
        }
        // Four standard deviations of a binomial.
        for (number, weight) in [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4_f64)] {
            let (count, mean) = (f64::from(counts[&addr(number)]), 20_000.0 * weight);
            assert!((count - mean).abs() < 4.0 * (mean * (1.0 - weight)).sqrt(), "{number}: {count} of {mean}");
        }
    }

    fn any_site() -> impl Strategy<Value = Site> {
        let status = || prop_oneof![Just(Up), Just(Down), Just(Un)];
        (1u8..9, status(), prop::option::of(status()), 0.01..9.0f64, 1u32..3, any::<bool>(), any::<bool>()).prop_map(
            |(number, status, before, weight, tier, rests, has)| Site {
                name: format!("s{number}"),
                addresses: if has { vec![addr(number)] } else { Vec::new() },
                weight,
                tier,
                status,
                before,
                rests,
            },
        )
    }

    /// A client with both families must not be led to the dead site by one of them.
    #[test]
    fn the_dead_of_one_type_go_while_a_site_serves_by_the_other() {
        let mut both = sites(&[Down, Up]);
        both[1].addresses.clear();
        for all_down in [AllDown::All, AllDown::Empty, AllDown::Keep, AllDown::Backup(vec![addr(9)])] {
            let settings = Settings { all_down, ..settings(Policy::RoundRobin) };
            assert_eq!(of(&both, &settings), (Some(Vec::new()), Some("other-type")));
        }
        both[1].rests = true;
        assert_eq!(of(&both, &settings(Policy::RoundRobin)).1, Some("other-type"));
        both[1].status = Down;
        assert_eq!(of(&both, &settings(Policy::RoundRobin)), (Some(vec![addr(1)]), Some("all")));
    }

    #[test]
    fn what_is_kept_is_what_the_sites_still_have() {
        let dead = sites(&[Down, Down]);
        let settings = Settings { all_down: AllDown::Keep, ..settings(Policy::RoundRobin) };
        let mut turn = Turn { answer: Some(vec![addr(7), addr(2)]), ..Turn::default() };
        assert_eq!(answer(&dead, &settings, &mut turn).addresses, Some(vec![addr(2)]));
        turn.answer = Some(vec![addr(7)]);
        assert_eq!(answer(&dead, &settings, &mut turn).addresses, None);
    }

    proptest! {
        /// While a site is up that is not to drain, nothing but such sites is in the answer.
        #[test]
        fn no_dead_site_is_answered_while_one_is_up(all in prop::collection::vec(any_site(), 0..8), policy in 0usize..5, one in any::<bool>()) {
            let policy = [Policy::RoundRobin, Policy::Priority, Policy::Weighted, Policy::Hash, Policy::Nearest][policy];
            let settings = Settings { one, ..settings(policy) };
            let told = answer(&all, &settings, &mut Turn::default());
            prop_assert_eq!(told.members.len(), all.len());
            let serves = |at: usize| told.members[at].counted_as == Counted::Up && !all[at].addresses.is_empty();
            if (0..all.len()).any(serves) {
                prop_assert!(told.fallback.is_none());
                prop_assert!((0..all.len()).all(|at| !told.members[at].chosen || serves(at)));
            }
            let chosen = gather(&all, |at| told.members[at].chosen);
            if told.fallback.is_none_or(|fallback| fallback != "keep") {
                prop_assert_eq!(told.addresses.unwrap_or_default(), chosen);
            }
            prop_assert!(told.members.iter().all(|member| !member.why.is_empty()));
        }
    }
}
