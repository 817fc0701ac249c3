//! What to change at a name in the DNS, so that it has the addresses that it should have.

use crate::types::rrset::{AddressSet, Edit, Family, Prerequisite};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The TTL of addresses where neither the wish nor what stands tells one, in seconds: that of `dns answer`.
const USUAL_TTL: u32 = 5;

/// What stands at a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) a: AddressSet,
    pub(crate) aaaa: AddressSet,
    /// The text is there that keeps a name without addresses alive.
    pub(crate) marked: bool,
    /// The TTL of all its texts, where there is another than that one: they share it (RFC 2181 §5.2).
    pub(crate) texts_ttl_s: Option<u32>,
}

impl Standing {
    pub(crate) fn of(&self, family: Family) -> &AddressSet {
        match family {
            Family::A => &self.a,
            Family::Aaaa => &self.aaaa,
        }
    }

    fn of_mut(&mut self, family: Family) -> &mut AddressSet {
        match family {
            Family::A => &mut self.a,
            Family::Aaaa => &mut self.aaaa,
        }
    }

    /// Whether nobody can be reached by the name.
    fn is_bare(&self) -> bool {
        self.a.is_empty() && self.aaaa.is_empty()
    }
}

/// What is done with the addresses of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The name has these and no others.
    Set,
    Add,
    Remove,
}

/// What is wished of the records of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) family: Family,
    /// Of that family.
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// None: as it stands.
    pub(crate) ttl_s: Option<u32>,
}

/// What is wished of a name. A type without a part is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) how: How,
    /// At most one of each family.
    pub(crate) parts: Vec<Part>,
}

/// What is to be done, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What the name then has.
    pub(crate) after: Standing,
    /// The types whose records change.
    pub(crate) changed: Vec<Family>,
    pub(crate) prerequisites: Vec<Prerequisite>,
    /// In order; none: it stands as wished.
    pub(crate) edits: Vec<Edit>,
    /// The types that are wished for or change.
    about: Vec<Family>,
}

impl Plan {
    /// The types that it is about.
    pub(crate) fn about(&self) -> &[Family] {
        &self.about
    }

    /// The same for a name that only a wildcard answers for (RFC 4592 §2.2).
    ///
    /// With its first record of its own the name has nothing of the wildcard's any more. So all addresses that it
    /// shall have are added, those too that stood there already.
    pub(crate) fn of_its_own(self) -> Plan {
        let after = Standing { texts_ttl_s: None, ..self.after };
        let is_made = |family: &Family| !after.of(*family).is_empty();
        let mut edits: Vec<Edit> = Family::ALL.into_iter().flat_map(|family| added(after.of(family))).collect();
        edits.extend(self.edits.into_iter().filter(|edit| matches!(edit, Edit::Mark { .. })));
        Plan {
            changed: Family::ALL
                .into_iter()
                .filter(|family| is_made(family) || self.changed.contains(family))
                .collect(),
            about: Family::ALL.into_iter().filter(|family| is_made(family) || self.about.contains(family)).collect(),
            prerequisites: Family::ALL.into_iter().map(Prerequisite::Without).collect(),
            after,
            edits,
        }
    }

    /// Whether what stands is what it wants.
    pub(crate) fn holds(&self, standing: &Standing) -> bool {
        standing.marked == self.after.marked
            && self.about.iter().all(|family| standing.of(*family) == self.after.of(*family))
    }
}

/// What a wish makes of one type.
fn wished(before: &AddressSet, part: &Part, how: How) -> AddressSet {
    let addresses: BTreeSet<IpAddr> = match how {
        How::Set => part.addresses.clone(),
        How::Add => before.addresses.union(&part.addresses).copied().collect(),
        How::Remove => before.addresses.difference(&part.addresses).copied().collect(),
    };
    let kept = Some(before.ttl_s).filter(|_| !before.is_empty());
    let ttl_s = if addresses.is_empty() { 0 } else { part.ttl_s.or(kept).unwrap_or(USUAL_TTL) };
    AddressSet { addresses, ttl_s }
}

fn added(set: &AddressSet) -> impl Iterator<Item = Edit> {
    set.addresses.iter().map(|&address| Edit::Add { address, ttl_s: set.ttl_s })
}

/// Plans a change of what stands.
///
/// A TTL that differs is a change too. A name that would be left without any address is marked by a text, so that it
/// goes on to be there, and unmarked with its first address. What the plan rests on must still stand when it is
/// carried out: the sets that change, and those by which the name is seen to have an address or none. Where a name
/// gets its first records of a type beside those of the other, there must be some of the other: they may be a
/// wildcard's, which would no longer be seen.
pub(crate) fn plan(before: &Standing, wish: &Wish) -> Plan {
    let mut after = before.clone();
    for part in &wish.parts {
        *after.of_mut(part.family) = wished(before.of(part.family), part, wish.how);
    }
    let changed: Vec<Family> =
        Family::ALL.into_iter().filter(|family| before.of(*family) != after.of(*family)).collect();
    let mut edits = Vec::new();
    for &family in &changed {
        if !before.of(family).is_empty() {
            edits.push(Edit::Clear(family));
        }
        edits.extend(added(after.of(family)));
    }
    let bare = after.is_bare();
    // What is not there cannot be removed, and makes no name. A mark that stands is added once more with the last
    // address that goes: somebody else may take it away meanwhile.
    if bare && (!changed.is_empty() || (wish.how == How::Set && !before.marked)) {
        let ttl_s = wish.parts.iter().find_map(|part| part.ttl_s).unwrap_or(USUAL_TTL);
        edits.push(Edit::Mark { ttl_s: before.texts_ttl_s.unwrap_or(ttl_s) });
        after.marked = true;
    }
    if !bare && before.marked {
        edits.push(Edit::Unmark);
        after.marked = false;
    }
    let served = changed.iter().any(|family| !after.of(*family).is_empty());
    let emptied = changed.iter().any(|family| after.of(*family).is_empty());
    let needed = |family: &Family| !edits.is_empty() && (changed.contains(family) || emptied || !served);
    let mut prerequisites: Vec<Prerequisite> = Family::ALL
        .into_iter()
        .filter(needed)
        .map(|family| {
            let set = &before.of(family).addresses;
            if set.is_empty() { Prerequisite::Without(family) } else { Prerequisite::Exactly(family, set.clone()) }
        })
        .collect();
    if !edits.is_empty() && prerequisites.iter().all(|needed| matches!(needed, Prerequisite::Without(_))) {
        let others = Family::ALL.into_iter().filter(|family| !before.of(*family).is_empty());
        prerequisites.extend(others.map(Prerequisite::With));
    }
    let is_about = |family: &Family| changed.contains(family) || wish.parts.iter().any(|part| part.family == *family);
    Plan { prerequisites, about: Family::ALL.into_iter().filter(is_about).collect(), after, changed, edits }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(addresses: &[&str], ttl_s: u32) -> AddressSet {
        AddressSet { addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(), ttl_s }
    }

    fn part(family: Family, addresses: &[&str], ttl_s: Option<u32>) -> Part {
        Part { family, addresses: set(addresses, 0).addresses, ttl_s }
    }

    fn wish(how: How, parts: Vec<Part>) -> Wish {
        Wish { how, parts }
    }

    /// A server (RFC 2136 §3.2 and §3.4), as far as an update of ours goes.
    fn carried_out(at: &Standing, plan: &Plan) -> Option<Standing> {
        for needed in &plan.prerequisites {
            let fits = match needed {
                Prerequisite::Exactly(family, addresses) => at.of(*family).addresses == *addresses,
                Prerequisite::With(family) => !at.of(*family).is_empty(),
                Prerequisite::Without(family) => at.of(*family).is_empty(),
            };
            if !fits {
                return None;
            }
        }
        let mut at = at.clone();
        for edit in &plan.edits {
            match *edit {
                Edit::Clear(family) => *at.of_mut(family) = AddressSet::default(),
                Edit::Add { address, ttl_s } => {
                    let set = at.of_mut(Family::of(address));
                    set.addresses.insert(address);
                    set.ttl_s = ttl_s;
                }
                Edit::Mark { ttl_s } => {
                    at.marked = true;
                    at.texts_ttl_s = at.texts_ttl_s.map(|_| ttl_s);
                }
                Edit::Unmark => at.marked = false,
            }
        }
        Some(at)
    }

    #[test]
    fn what_stands_already_is_left_alone() {
        let before = Standing { a: set(&["192.0.2.1", "192.0.2.2"], 30), ..Standing::default() };
        for (how, addresses, ttl_s) in [
            (How::Set, vec!["192.0.2.2", "192.0.2.1"], None),
            (How::Set, vec!["192.0.2.2", "192.0.2.1"], Some(30)),
            (How::Add, vec!["192.0.2.1"], None),
            (How::Remove, vec!["192.0.2.3"], None),
        ] {
            let plan = plan(&before, &wish(how, vec![part(Family::A, &addresses, ttl_s)]));
            assert_eq!((plan.edits, plan.prerequisites, plan.after), (vec![], vec![], before.clone()));
        }
        let other = plan(&before, &wish(How::Add, vec![part(Family::A, &["192.0.2.1"], Some(5))]));
        assert_eq!((other.after.a.ttl_s, other.edits.len()), (5, 3));
        let nothing = plan(&Standing::default(), &wish(How::Remove, vec![part(Family::A, &["192.0.2.1"], None)]));
        assert_eq!(nothing.edits, []);
    }

    #[test]
    fn the_last_address_leaves_a_mark_that_the_first_takes_away() {
        let before = Standing { a: set(&["192.0.2.1"], 30), texts_ttl_s: Some(600), ..Standing::default() };
        let gone = plan(&before, &wish(How::Remove, vec![part(Family::A, &["192.0.2.1"], None)]));
        // Other texts keep their TTL, which they share with ours.
        assert_eq!(gone.edits, [Edit::Clear(Family::A), Edit::Mark { ttl_s: 600 }]);
        assert_eq!(gone.prerequisites.len(), 2, "an AAAA that comes meanwhile must not be beside the mark");
        let back = plan(&gone.after, &wish(How::Add, vec![part(Family::Aaaa, &["2001:db8::1"], None)]));
        let address = "2001:db8::1".parse().unwrap();
        assert_eq!(back.edits, [Edit::Add { address, ttl_s: 5 }, Edit::Unmark]);
        assert_eq!(back.prerequisites, [Prerequisite::Without(Family::Aaaa)]);
        // With an address of the other family there is nothing to mark.
        let both = Standing { aaaa: set(&["2001:db8::1"], 5), ..before };
        let one = plan(&both, &wish(How::Set, vec![part(Family::A, &[], None)]));
        assert_eq!(one.edits, [Edit::Clear(Family::A)]);
    }

    #[test]
    fn a_name_below_a_wildcard_keeps_what_is_not_to_change() {
        let before = Standing { a: set(&["192.0.2.81"], 30), texts_ttl_s: Some(600), ..Standing::default() };
        let six = plan(&before, &wish(How::Add, vec![part(Family::Aaaa, &["2001:db8::1"], None)]));
        assert_eq!(six.prerequisites, [Prerequisite::Without(Family::Aaaa), Prerequisite::With(Family::A)]);
        let own = six.of_its_own();
        assert_eq!((&own.after.a, own.edits.len(), own.about()), (&before.a, 2, &Family::ALL[..]));
        let gone = plan(&before, &wish(How::Remove, vec![part(Family::A, &["192.0.2.81"], None)])).of_its_own();
        assert_eq!((gone.edits, gone.after.marked), (vec![Edit::Mark { ttl_s: 600 }], true));
    }

    fn sets() -> impl Strategy<Value = AddressSet> {
        (prop::collection::btree_set(1..5_u8, 0..4), 0..3_u32).prop_map(|(last, ttl_s)| {
            let addresses: BTreeSet<IpAddr> = last.iter().map(|last| IpAddr::from([192, 0, 2, *last])).collect();
            AddressSet { ttl_s: if addresses.is_empty() { 0 } else { ttl_s }, addresses }
        })
    }

    fn to_v6(set: &AddressSet) -> AddressSet {
        let six = |address: &IpAddr| match address {
            IpAddr::V4(four) => IpAddr::V6(four.to_ipv6_mapped()),
            IpAddr::V6(_) => *address,
        };
        AddressSet { addresses: set.addresses.iter().map(six).collect(), ttl_s: set.ttl_s }
    }

    fn standings() -> impl Strategy<Value = Standing> {
        (sets(), sets(), any::<bool>(), prop::option::of(0..3_u32))
            .prop_map(|(a, aaaa, marked, texts_ttl_s)| Standing { a, aaaa: to_v6(&aaaa), marked, texts_ttl_s })
    }

    fn wishes() -> impl Strategy<Value = Wish> {
        let how = prop_oneof![Just(How::Set), Just(How::Add), Just(How::Remove)];
        let ttl = || prop::option::of(0..3_u32);
        (how, prop::option::of((sets(), ttl())), prop::option::of((sets(), ttl()))).prop_map(|(how, a, aaaa)| {
            let a = a.map(|(set, ttl_s)| Part { family: Family::A, addresses: set.addresses, ttl_s });
            let aaaa = aaaa.map(|(set, ttl_s)| Part { family: Family::Aaaa, addresses: to_v6(&set).addresses, ttl_s });
            Wish { how, parts: a.into_iter().chain(aaaa).collect() }
        })
    }

    proptest! {
        #[test]
        fn a_plan_leads_where_it_says_and_twice_is_once(before in standings(), wish in wishes()) {
            let planned = plan(&before, &wish);
            let after = carried_out(&before, &planned).unwrap();
            prop_assert_eq!(&after, &planned.after);
            prop_assert!(planned.holds(&after));
            prop_assert_eq!(planned.holds(&before), planned.edits.is_empty());
            prop_assert_eq!(&plan(&after, &wish).edits, &[]);
            for family in Family::ALL {
                let part = wish.parts.iter().find(|part| part.family == family);
                let (old, new) = (before.of(family), after.of(family));
                match (part, wish.how) {
                    (None, _) => prop_assert_eq!(old, new),
                    (Some(part), How::Set) => prop_assert_eq!(&new.addresses, &part.addresses),
                    (Some(part), How::Add) => prop_assert!(new.addresses.is_superset(&part.addresses)
                        && new.addresses.is_superset(&old.addresses)),
                    (Some(part), How::Remove) => prop_assert!(new.addresses.is_disjoint(&part.addresses)
                        && new.addresses.is_subset(&old.addresses)),
                }
                if let Some(ttl_s) = part.and_then(|part| part.ttl_s).filter(|_| !new.is_empty()) {
                    prop_assert_eq!(new.ttl_s, ttl_s);
                }
            }
            prop_assert_eq!(before.texts_ttl_s, after.texts_ttl_s);
            // Nothing of ours makes the name go that was there, and no mark stands beside an address of ours.
            let had = !before.is_bare() || before.marked;
            prop_assert!(!had || !after.is_bare() || after.marked);
            prop_assert!(after.is_bare() || !after.marked);
        }

        #[test]
        fn below_a_wildcard_it_leads_there_too(before in standings(), wish in wishes()) {
            let planned = plan(&before, &wish);
            if !planned.edits.is_empty() {
                // Nothing stands at the name itself: what needs something there must not be done.
                if !before.is_bare() {
                    prop_assert_eq!(carried_out(&Standing::default(), &planned), None);
                }
                let own = planned.clone().of_its_own();
                let after = carried_out(&Standing::default(), &own).unwrap();
                prop_assert_eq!(&after, &own.after);
                prop_assert_eq!((&after.a, &after.aaaa, after.marked),
                    (&planned.after.a, &planned.after.aaaa, planned.after.marked));
                prop_assert!(own.holds(&after));
            }
        }

        /// Whatever others did meanwhile: it is done as planned, or not at all; the name never goes.
        #[test]
        fn what_changed_meanwhile_is_not_overwritten(before in standings(), now in standings(), wish in wishes()) {
            let planned = plan(&before, &wish);
            if let Some(after) = carried_out(&now, &planned).filter(|_| !planned.edits.is_empty()) {
                for family in &planned.changed {
                    prop_assert_eq!(&now.of(*family).addresses, &before.of(*family).addresses);
                    prop_assert_eq!(after.of(*family), planned.after.of(*family));
                }
                let had = !now.is_bare() || now.marked;
                prop_assert!(!had || !after.is_bare() || after.marked);
            }
        }
    }
}
