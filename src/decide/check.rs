//! Where an answer came from: an authority's own, a cache, a cache that goes on after its end, or nobody can say.
//!
//! What proves what, strongest first. Of an authority the AA bit. Of a resolver a question that it may not pass
//! on (RD=0), asked just before the one that counts: answered, it was in the cache; not answered, it was not. Then
//! Extended DNS Errors (RFC 8914 §4.4, §4.20, §4.23, §4.24), a TTL below the authority's, a TTL that falls with the
//! clock. A TTL that stands still proves nothing by itself: a live server and `serve-original-ttl` look alike.

use crate::types::time::Tick;
use std::collections::BTreeMap;
use std::time::Duration;

/// What an expired answer is handed out with, again and again (RFC 8767 §4, and the default of Unbound and BIND).
const STALE_TTL_S: u32 = 30;
/// A TTL that has not changed in less than this may yet be in the same second.
const LEAST_GAP: Duration = Duration::from_millis(1_050);
const STALE_ANSWER: u16 = 3;
const STALE_NXDOMAIN: u16 = 19;
const NO_REACHABLE_AUTHORITY: u16 = 22;
const NETWORK_ERROR: u16 = 23;

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The authority's own at this moment, told by itself or fetched for this question.
    Live,
    /// Kept since some earlier question, within its time.
    Cached,
    /// Kept beyond its time.
    Stale,
    /// It cannot be told.
    Unknown,
}

impl Class {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Class::Live => "live",
            Class::Cached => "cached",
            Class::Stale => "stale",
            Class::Unknown => "unknown",
        }
    }
}

/// What one answer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// What it rests on and for how many seconds: owners of aliases in their order, then of the records, or the
    /// zone whose SOA says that there are none.
    pub(crate) links: Vec<(String, u32)>,
    /// It says that there are no such records; its last link is the SOA's then.
    pub(crate) negative: bool,
    /// It says that there is nothing at all by this name, of whatever type (NXDOMAIN).
    pub(crate) no_name: bool,
    /// It does not end with an alias that leads elsewhere.
    pub(crate) whole: bool,
    /// The records, sorted.
    pub(crate) records: Vec<String>,
    /// The AA bit.
    pub(crate) authoritative: bool,
}

impl Answer {
    /// The links by what they are of: an owner, and whether it has no records.
    fn by_owner(&self) -> impl Iterator<Item = ((String, bool), u32)> {
        let last = self.links.len().checked_sub(1).filter(|_| self.negative);
        self.links.iter().enumerate().map(move |(at, (name, ttl))| ((name.clone(), Some(at) == last), *ttl))
    }

    /// It says nothing, not even whose zone has no such records.
    pub(crate) fn is_bare(&self) -> bool {
        self.links.is_empty() && self.records.is_empty() && !self.no_name
    }

    /// How long any part of it can still be handed out, as far as its TTLs tell.
    fn at_most(&self) -> Option<Duration> {
        let longest = self.links.iter().map(|(_, ttl)| *ttl).max();
        // What is left of a second does not show.
        longest.map(|ttl| Duration::from_secs(u64::from(ttl) + 1))
    }

    /// Seconds that the answer as a whole may be kept; none where nothing says it.
    pub(crate) fn ttl_s(&self) -> Option<u32> {
        self.links.iter().map(|(_, ttl)| *ttl).min()
    }
}

/// What came back to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    /// An answer that came after the one that it should have come before.
    Late,
    /// A response code that is no answer, in lower case where it has evidence of its own.
    Error(&'static str),
    /// Nothing that answers: other servers, or an empty message.
    Referral,
    Answer(Answer),
}

/// A question without recursion and one with it, and when the latter was on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) alone: Said,
    pub(crate) said: Said,
    /// It was sent more than once, so that an earlier copy may have filled the cache.
    pub(crate) retried: bool,
    /// Extended DNS Errors beside either.
    pub(crate) errors: Vec<u16>,
    pub(crate) asked: Tick,
    pub(crate) heard: Tick,
}

/// What the authorities say of a name at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The lowest and the highest TTL of each link.
    ttls: BTreeMap<(String, bool), (u32, u32)>,
    /// The records as each has them, and whether there is nothing by this name.
    sets: Vec<(bool, Vec<String>)>,
}

impl Known {
    /// An authority has said this of its own zone.
    pub(crate) fn add(&mut self, answer: &Answer) {
        for (owner, ttl) in answer.by_owner() {
            let of = self.ttls.entry(owner).or_insert((ttl, ttl));
            *of = (of.0.min(ttl), of.1.max(ttl));
        }
        if answer.whole && !self.has(answer) {
            self.sets.push((answer.no_name, answer.records.clone()));
        }
    }

    /// An authority says the same.
    fn has(&self, answer: &Answer) -> bool {
        self.sets.iter().any(|(no_name, records)| (*no_name, records) == (answer.no_name, &answer.records))
    }

    /// Where no authority says anything any more, its TTLs are as they were; its records may not be.
    pub(crate) fn or_ttls_of(mut self, before: &Known) -> Known {
        if self.ttls.is_empty() {
            self.ttls.clone_from(&before.ttls);
        }
        self
    }

    /// What an authority says that the answer as a whole may be kept; none where a part of it that no authority
    /// was asked for (an alias in another zone) may end before.
    pub(crate) fn ttl_s(&self, answer: &Answer) -> Option<u32> {
        let of = |owner| self.ttls.get(&owner).map(|(_, highest)| *highest);
        let lowest = answer.by_owner().filter_map(|(owner, _)| of(owner)).min()?;
        let ends_before = answer.by_owner().any(|(owner, ttl)| of(owner).is_none() && ttl < lowest);
        (!ends_before).then_some(lowest)
    }

    fn compare(&self, answer: &Answer) -> Compared {
        let (mut compared, mut equal) = (Compared::default(), !answer.links.is_empty());
        for (owner, ttl) in answer.by_owner() {
            match self.ttls.get(&owner) {
                None => equal = false,
                Some((lowest, highest)) => {
                    compared.known = true;
                    compared.below |= ttl < *lowest;
                    compared.above |= ttl > *highest;
                }
            }
        }
        compared.equal = equal && !compared.below && !compared.above;
        compared
    }
}

/// TTLs beside those of the authorities.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    known: bool,
    below: bool,
    above: bool,
    /// Each is known, and as an authority says it.
    equal: bool,
}

/// What is concluded of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) class: Class,
    /// What it rests on, in the order in which it was found.
    pub(crate) evidence: Vec<&'static str>,
    /// Another look after a while would tell more.
    pub(crate) look_again: bool,
    /// It is of the answer that came at the first look, not of the last.
    pub(crate) of_first: bool,
    /// The latest that it can still hand this out, from when it was heard.
    pub(crate) at_most: Option<Duration>,
}

impl Verdict {
    fn new(class: Class, evidence: Vec<&'static str>) -> Self {
        Verdict { class, evidence, look_again: false, of_first: false, at_most: None }
    }
}

/// Judges what an authority said to a question without recursion.
pub(crate) fn authority(said: &Said) -> Verdict {
    match said {
        Said::Nothing | Said::Late => Verdict::new(Class::Unknown, vec!["silent"]),
        Said::Error(slug) => Verdict::new(Class::Unknown, vec![slug, "not-authoritative"]),
        Said::Referral => Verdict::new(Class::Unknown, vec!["not-authoritative", "referral"]),
        Said::Answer(answer) if !answer.authoritative => {
            Verdict::new(Class::Cached, vec!["not-authoritative", "rd0-answer"])
        }
        Said::Answer(answer) if answer.whole => Verdict::new(Class::Live, vec!["aa"]),
        Said::Answer(_) => Verdict::new(Class::Live, vec!["aa", "alias-elsewhere"]),
    }
}

/// How TTLs moved from one look to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// By about the time between.
    Falls,
    Constant,
    /// Otherwise: it was fetched anew, or another cache has answered.
    Jumps,
}

fn moved(before: &Look, last: &Look) -> Option<Moved> {
    let (Said::Answer(first), Said::Answer(second)) = (&before.said, &last.said) else { return None };
    let least = last.asked.since(before.heard);
    // Whole seconds, rounded by whoever counts them, at each end.
    let (least_s, most_s) = (least.as_secs().saturating_sub(1).max(1), last.heard.since(before.asked).as_secs() + 2);
    let earlier: BTreeMap<_, _> = first.by_owner().collect();
    let mut found: Option<Moved> = None;
    for (owner, now) in second.by_owner() {
        let Some(was) = earlier.get(&owner) else { continue };
        let fallen = was.checked_sub(now).map(u64::from);
        let of = match fallen {
            Some(0) => Moved::Constant,
            Some(fallen) if (least_s..=most_s).contains(&fallen) => Moved::Falls,
            _ => Moved::Jumps,
        };
        found = Some(match (found, of) {
            (Some(Moved::Falls), _) | (_, Moved::Falls) => Moved::Falls,
            (Some(Moved::Jumps), _) | (_, Moved::Jumps) => Moved::Jumps,
            _ => Moved::Constant,
        });
    }
    found.filter(|moved| *moved != Moved::Constant || least >= LEAST_GAP)
}

/// Judges what a resolver said at the last look, with the look before it where there was one.
///
/// `live` needs a cache that was empty just before, or the AA bit, and the authority's own TTL and records. What
/// is not proven is `unknown`.
pub(crate) fn resolver(last: &Look, before: Option<&Look>, known: &Known) -> Verdict {
    let silent = last.said == Said::Nothing;
    let mut evidence = match &last.alone {
        Said::Answer(answer) if answer.whole => vec!["rd0-answer"],
        Said::Answer(_) => vec!["rd0-alias"],
        Said::Referral => vec!["rd0-empty"],
        Said::Error("refused") => vec!["rd0-refused"],
        Said::Error(_) => vec!["rd0-error"],
        Said::Late => vec!["rd0-late"],
        Said::Nothing if silent => vec![],
        Said::Nothing => vec!["rd0-silent"],
    };
    let has = |code| last.errors.contains(&code);
    for (code, slug) in [
        (STALE_ANSWER, "ede-stale-answer"),
        (STALE_NXDOMAIN, "ede-stale-nxdomain"),
        (NO_REACHABLE_AUTHORITY, "ede-no-reachable-authority"),
        (NETWORK_ERROR, "ede-network-error"),
    ] {
        evidence.extend(has(code).then_some(slug));
    }
    let answer = match &last.said {
        Said::Nothing | Said::Late => {
            evidence.push("silent");
            return Verdict::new(Class::Unknown, evidence);
        }
        Said::Error(slug) => {
            evidence.push(slug);
            return Verdict::new(Class::Unknown, evidence);
        }
        Said::Referral => {
            evidence.push("referral");
            return Verdict::new(Class::Unknown, evidence);
        }
        Said::Answer(answer) => answer,
    };
    if [STALE_ANSWER, STALE_NXDOMAIN, NO_REACHABLE_AUTHORITY, NETWORK_ERROR].into_iter().any(has) {
        return Verdict::new(Class::Stale, evidence);
    }
    let ttl = known.compare(answer);
    let is_authority_s = answer.whole && known.has(answer);
    for (is, slug) in [
        (answer.authoritative, "aa"),
        (ttl.below, "ttl-below-authority"),
        (ttl.above, "ttl-above-authority"),
        (!ttl.known, "authority-ttl-unknown"),
    ] {
        evidence.extend(is.then_some(slug));
    }
    if answer.authoritative {
        // Its own zone, or what somebody has put into its place.
        let class = if is_authority_s { Class::Live } else { Class::Unknown };
        return Verdict::new(class, evidence);
    }
    let held = matches!(last.alone, Said::Answer(_));
    let was_held = before.is_some_and(|before| matches!(before.alone, Said::Answer(_)));
    let moved = before.and_then(|before| moved(before, last));
    evidence.extend(moved.map(|moved| match moved {
        Moved::Falls => "ttl-falls",
        Moved::Constant => "ttl-constant",
        Moved::Jumps => "ttl-jumps",
    }));
    let was_above = before.is_some_and(
        |before| matches!(&before.said, Said::Answer(first) if !first.authoritative && known.compare(first).above),
    );
    if moved == Some(Moved::Jumps) && was_above && !ttl.above {
        // No floor would let it fall so low: that was an expired answer, and a fresh one has come into its place.
        evidence.push("ttl-refreshed");
        return Verdict { of_first: true, ..Verdict::new(Class::Stale, evidence) };
    }
    if held && was_held && moved == Some(Moved::Constant) && (ttl.above || ttl.below) {
        return Verdict::new(Class::Stale, evidence);
    }
    let fresh = ttl.equal && is_authority_s && !last.retried;
    let expired_between = fresh && expired_between(&last.alone, answer);
    evidence.extend(expired_between.then_some("expired-between"));
    // What has expired is handed out with this TTL, and in the cache it is too: only a TTL that falls is within its
    // time.
    let suspect = answer.ttl_s() == Some(STALE_TTL_S) && !ttl.equal;
    let class = if expired_between || (fresh && last.alone == Said::Referral) {
        Class::Live
    } else if suspect && moved != Some(Moved::Falls) {
        Class::Unknown
    } else if held
        || (ttl.below && moved != Some(Moved::Constant) && last.alone != Said::Referral)
        || moved == Some(Moved::Falls)
    {
        Class::Cached
    } else {
        Class::Unknown
    };
    let undecided = class == Class::Unknown || (held && (ttl.above || !ttl.known));
    let look_again = before.is_none() && class != Class::Live && undecided;
    // A TTL that does not move does not tell when it ends, unless it is the authority's own.
    let tells = moved == Some(Moved::Falls) || ttl.equal || ttl.below || class == Class::Live;
    let at_most = answer.at_most().filter(|_| tells && class != Class::Unknown);
    Verdict { class, evidence, look_again, of_first: false, at_most }
}

/// Whether a verdict hangs on a cache that was empty before, and there is still time to see that it would have
/// told what it has: a server may answer questions without recursion with nothing in any case.
pub(crate) fn needs_confirming(verdict: &Verdict, last: &Look, now: Tick) -> bool {
    let Said::Answer(answer) = &last.said else { return false };
    let shortest = answer.ttl_s().map_or(Duration::ZERO, |ttl| Duration::from_secs(ttl.saturating_sub(1).into()));
    let hangs = verdict.class == Class::Live || is_lowered(verdict);
    hangs && last.alone == Said::Referral && now.since(last.heard) < shortest / 2
}

/// Nothing is concluded yet of a TTL below the authority's behind an empty cache.
fn is_lowered(verdict: &Verdict) -> bool {
    verdict.class == Class::Unknown && verdict.evidence.contains(&"ttl-below-authority")
}

/// The verdict once the question without recursion was asked once more, which now finds what was fetched, or not.
pub(crate) fn confirmed(mut verdict: Verdict, last: &Look, again: &Said) -> Verdict {
    let is_lowered = is_lowered(&verdict);
    if let Said::Answer(_) = again {
        verdict.evidence.push("rd0-answer-after");
        // Fetched for this question, but from where: a cap on the authority's TTL and another cache behind this one
        // look alike, and what was fetched now would pass for cached at another look.
        return Verdict { look_again: verdict.look_again && !is_lowered, ..verdict };
    }
    verdict.evidence.push("rd0-empty-after");
    if let (true, Said::Answer(answer)) = (is_lowered, &last.said) {
        // It shows nothing in any case, so that the TTL is all there is.
        return Verdict { class: Class::Cached, look_again: false, at_most: answer.at_most(), ..verdict };
    }
    Verdict { class: Class::Unknown, at_most: None, ..verdict }
}

/// The same verdict where there was no time to ask once more.
pub(crate) fn unconfirmed(verdict: Verdict) -> Verdict {
    Verdict { class: Class::Unknown, at_most: None, look_again: true, ..verdict }
}

/// What was in the cache had come to its end, and the answer is newer.
fn expired_between(alone: &Said, answer: &Answer) -> bool {
    let Said::Answer(held) = alone else { return false };
    let (Some(was), Some(is)) = (held.ttl_s(), answer.ttl_s()) else { return false };
    was <= 1 && is > was + 1
}

/// The word of a response code that is no answer, as evidence.
pub(crate) fn slug(rcode: &str) -> &'static str {
    match rcode {
        "REFUSED" => "refused",
        "SERVFAIL" => "servfail",
        "NOTIMP" => "notimp",
        "FORMERR" => "formerr",
        _ => "rcode",
    }
}

/// Whether those that answered agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    Agree,
    Disagree,
    /// None answered, or no authority.
    Undecided,
}

/// Concludes from how many sets of records were told, and whether an authority told one of its own.
pub(crate) fn agreement(sets: usize, authority: bool) -> Agreement {
    match (sets, authority) {
        (0, _) | (1, false) => Agreement::Undecided,
        (1, true) => Agreement::Agree,
        _ => Agreement::Disagree,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: &str = "app.gslb.test";

    fn answer(ttl: u32) -> Answer {
        Answer {
            links: vec![(NAME.into(), ttl)],
            negative: false,
            no_name: false,
            whole: true,
            records: vec!["192.0.2.81".into()],
            authoritative: false,
        }
    }

    fn known(ttl: u32) -> Known {
        let mut known = Known::default();
        known.add(&Answer { authoritative: true, ..answer(ttl) });
        known
    }

    fn refused() -> Said {
        Said::Error("refused")
    }

    fn held(ttl: u32) -> Said {
        Said::Answer(answer(ttl))
    }

    fn at(ms: u64, alone: Said, said: Said) -> Look {
        let tick = |ms| Tick(Duration::from_millis(ms));
        Look { alone, said, retried: false, errors: vec![], asked: tick(ms), heard: tick(ms + 1) }
    }

    fn once(alone: Said, said: Said, known: &Known) -> Verdict {
        resolver(&at(0, alone, said), None, known)
    }

    /// Two looks 2.1 s apart, as the first asks for.
    #[track_caller]
    fn twice(first: (Said, Said), second: (Said, Said), known: &Known) -> Verdict {
        let first = at(0, first.0, first.1);
        assert!(resolver(&first, None, known).look_again, "{first:?}");
        let verdict = resolver(&at(2_100, second.0, second.1), Some(&first), known);
        assert!(!verdict.look_again);
        verdict
    }

    #[test]
    fn an_authority_is_live_by_the_aa_bit_alone() {
        let own = Answer { authoritative: true, ..answer(5) };
        assert_eq!(authority(&Said::Answer(own.clone())), Verdict::new(Class::Live, vec!["aa"]));
        let lame = authority(&held(5));
        assert_eq!(
            (lame.class, lame.evidence.as_slice()),
            (Class::Cached, ["not-authoritative", "rd0-answer"].as_slice())
        );
        for said in [Said::Nothing, refused(), Said::Error("servfail"), Said::Referral] {
            assert_eq!(authority(&said).class, Class::Unknown);
        }
        let elsewhere = authority(&Said::Answer(Answer { whole: false, ..own }));
        assert_eq!(elsewhere.evidence, ["aa", "alias-elsewhere"]);
    }

    #[test]
    fn an_empty_cache_before_and_the_authority_s_ttl_is_live() {
        let verdict = once(Said::Referral, held(5), &known(5));
        assert_eq!((verdict.class, verdict.evidence.as_slice()), (Class::Live, ["rd0-empty"].as_slice()));
        assert_eq!(verdict.at_most, Some(Duration::from_secs(6)));
        // A TTL of 0 is never kept.
        assert_eq!(once(Said::Referral, held(0), &known(0)).class, Class::Live);
        // Below: a cap, a cache behind it, or one of several. Not known: it may have come from anywhere.
        assert_eq!(once(Said::Referral, held(4), &known(5)).class, Class::Unknown);
        assert_eq!(once(Said::Referral, held(5), &Known::default()).class, Class::Unknown);
        // Its first copy may have filled the cache.
        let retried = Look { retried: true, ..at(0, Said::Referral, held(5)) };
        assert_eq!(resolver(&retried, None, &known(5)).class, Class::Unknown);
        // Unbound's serve-expired-client-timeout: nothing for RD=0, and after a while what has expired.
        assert_eq!(once(Said::Referral, held(30), &known(5)).class, Class::Unknown);
        let other = Answer { records: vec!["192.0.2.9".into()], ..answer(30) };
        assert_eq!(once(Said::Referral, Said::Answer(other), &known(30)).class, Class::Unknown);
    }

    #[test]
    fn a_cache_that_never_shows_what_it_has_proves_nothing() {
        let look = at(0, Said::Referral, held(5));
        let verdict = resolver(&look, None, &known(5));
        let soon = look.heard.after(Duration::from_millis(10));
        assert!(needs_confirming(&verdict, &look, soon));
        assert!(!needs_confirming(&verdict, &look, look.heard.after(Duration::from_secs(2))), "it may have expired");
        let shows = confirmed(verdict.clone(), &look, &held(5));
        assert_eq!(
            (shows.class, shows.evidence.as_slice()),
            (Class::Live, ["rd0-empty", "rd0-answer-after"].as_slice())
        );
        for hides in [Said::Referral, refused(), Said::Nothing] {
            let hidden = confirmed(verdict.clone(), &look, &hides);
            assert_eq!((hidden.class, hidden.at_most), (Class::Unknown, None));
        }
        let cut = unconfirmed(verdict);
        assert_eq!(
            (cut.class, cut.evidence.as_slice(), cut.look_again),
            (Class::Unknown, ["rd0-empty"].as_slice(), true)
        );
        let zero = at(0, Said::Referral, held(0));
        assert!(!needs_confirming(&resolver(&zero, None, &known(0)), &zero, zero.heard), "it is never kept");
    }

    /// Unbound's cache-max-ttl, and a forwarder in front of a cache.
    #[test]
    fn a_lower_ttl_behind_an_empty_cache_is_a_cap_or_another_cache() {
        let look = at(0, Said::Referral, held(3));
        let verdict = resolver(&look, None, &known(5));
        assert_eq!((verdict.class, verdict.look_again, verdict.at_most), (Class::Unknown, true, None));
        assert!(needs_confirming(&verdict, &look, look.heard));
        let shows = confirmed(verdict.clone(), &look, &held(3));
        assert_eq!((shows.class, shows.look_again), (Class::Unknown, false));
        assert_eq!(shows.evidence, ["rd0-empty", "ttl-below-authority", "rd0-answer-after"]);
        // It never shows what it has, so that the empty cache before was none.
        let hides = confirmed(verdict, &look, &Said::Referral);
        assert_eq!((hides.class, hides.at_most), (Class::Cached, Some(Duration::from_secs(4))));
        let short = at(0, Said::Referral, held(1));
        assert!(!needs_confirming(&resolver(&short, None, &known(5)), &short, short.heard));
    }

    #[test]
    fn what_is_in_the_cache_is_cached_and_serve_original_ttl_too() {
        let verdict = once(held(5), held(5), &known(5));
        assert_eq!((verdict.class, verdict.look_again), (Class::Cached, false));
        assert_eq!(once(held(2), held(2), &known(5)).evidence, ["rd0-answer", "ttl-below-authority"]);
        // Known-fault 10: kept longer than the source says.
        let floor = twice((held(60), held(60)), (held(58), held(58)), &known(5));
        assert_eq!((floor.class, floor.at_most), (Class::Cached, Some(Duration::from_secs(59))));
        assert_eq!(floor.evidence, ["rd0-answer", "ttl-above-authority", "ttl-falls"]);
    }

    #[test]
    fn without_the_cache_s_word_a_ttl_must_fall() {
        let falls = twice((refused(), held(5)), (refused(), held(3)), &known(5));
        assert_eq!(
            (falls.class, falls.evidence.as_slice()),
            (Class::Cached, ["rd0-refused", "ttl-below-authority", "ttl-falls"].as_slice())
        );
        let stands = twice((refused(), held(5)), (refused(), held(5)), &known(5));
        assert_eq!((stands.class, stands.at_most), (Class::Unknown, None));
        assert_eq!(stands.evidence, ["rd0-refused", "ttl-constant"]);
        assert_eq!(twice((refused(), held(0)), (refused(), held(0)), &known(0)).class, Class::Unknown);
        let unknown = Known::default();
        assert_eq!(twice((refused(), held(50)), (refused(), held(48)), &unknown).class, Class::Cached);
        assert_eq!(twice((refused(), held(50)), (refused(), held(50)), &unknown).class, Class::Unknown);
        // Too soon to have moved.
        let (first, second) = (at(0, refused(), held(5)), at(500, refused(), held(5)));
        assert_eq!(resolver(&second, Some(&first), &known(5)).evidence, ["rd0-refused"]);
    }

    #[test]
    fn an_expired_answer_stands_still_where_it_should_not() {
        let stale = twice((held(30), held(30)), (held(30), held(30)), &known(5));
        assert_eq!((stale.class, stale.at_most), (Class::Stale, None));
        assert_eq!(stale.evidence, ["rd0-answer", "ttl-above-authority", "ttl-constant"]);
        // Below the authority's it would pass for what is left.
        assert_eq!(twice((held(30), held(30)), (held(30), held(30)), &known(300)).class, Class::Stale);
        assert_eq!(twice((held(30), held(30)), (held(28), held(28)), &known(300)).class, Class::Cached);
        assert_eq!(twice((refused(), held(30)), (refused(), held(30)), &known(300)).class, Class::Unknown);
        // Nobody says what the TTL should be: in the cache, and for how long is not known.
        let dead = twice((held(60), held(60)), (held(60), held(60)), &Known::default());
        assert_eq!((dead.class, dead.at_most), (Class::Cached, None));
        assert_eq!(twice((held(30), held(30)), (held(30), held(30)), &Known::default()).class, Class::Unknown);
        // One look does not tell it from one within its time.
        for authority in [5, 300] {
            let one = once(held(30), held(30), &known(authority));
            assert_eq!((one.class, one.at_most), (Class::Unknown, None), "{authority}");
        }
        assert_eq!(once(held(30), held(30), &known(30)).class, Class::Cached, "serve-original-ttl");
        assert_eq!(once(held(60), held(60), &known(5)).class, Class::Cached, "a floor");
        assert_eq!(twice((held(60), held(60)), (held(30), held(30)), &known(5)).class, Class::Unknown);
        // The first answer was expired, and made it fetch another.
        let refreshed = twice((held(30), held(30)), (held(3), held(3)), &known(5));
        assert_eq!((refreshed.class, refreshed.of_first), (Class::Stale, true));
    }

    #[test]
    fn extended_errors_beside_an_answer_are_stale() {
        for code in [3, 19, 22, 23] {
            let look = Look { errors: vec![code], ..at(0, Said::Referral, held(5)) };
            assert_eq!(resolver(&look, None, &known(5)).class, Class::Stale, "{code}");
            let failed = Look { errors: vec![code], ..at(0, refused(), Said::Error("servfail")) };
            assert_eq!(resolver(&failed, None, &known(5)).class, Class::Unknown, "{code}");
        }
        let other = Look { errors: vec![9], ..at(0, Said::Referral, held(5)) };
        assert_eq!(resolver(&other, None, &known(5)).class, Class::Live);
    }

    #[test]
    fn what_expires_between_the_two_questions_is_fresh() {
        let verdict = once(held(0), held(5), &known(5));
        assert_eq!(
            (verdict.class, verdict.evidence.as_slice()),
            (Class::Live, ["rd0-answer", "expired-between"].as_slice())
        );
        assert_eq!(once(held(1), held(1), &known(1)).class, Class::Cached);
        // Several caches behind one address.
        assert_eq!(once(held(200), held(290), &known(300)).class, Class::Cached);
        assert_eq!(once(held(200), held(300), &known(300)).class, Class::Cached);
    }

    #[test]
    fn caches_behind_one_address_jump() {
        let jumps = twice((refused(), held(300)), (refused(), held(120)), &known(300));
        assert_eq!((jumps.class, jumps.evidence.last()), (Class::Cached, Some(&"ttl-jumps")));
        let rises = twice((refused(), held(50)), (refused(), held(90)), &Known::default());
        assert_eq!(rises.class, Class::Unknown);
    }

    #[test]
    fn of_aliases_each_ttl_counts_by_itself() {
        let chain = |alias, address| Answer {
            links: vec![("www.gslb.test".into(), alias), (NAME.into(), address)],
            ..answer(0)
        };
        let mut known = Known::default();
        known.add(&Answer { authoritative: true, ..chain(3600, 5) });
        let fresh = once(Said::Referral, Said::Answer(chain(3600, 5)), &known);
        assert_eq!((fresh.class, fresh.at_most), (Class::Live, Some(Duration::from_secs(3601))));
        // The address was fetched anew, the alias was not.
        let half = Answer { whole: false, links: vec![("www.gslb.test".into(), 3000)], ..answer(0) };
        assert_eq!(once(Said::Answer(half), Said::Answer(chain(3000, 5)), &known).class, Class::Cached);
        let half = Answer { whole: false, ..answer(5) };
        assert_eq!(once(Said::Answer(half), Said::Answer(chain(3600, 5)), &known).evidence, ["rd0-alias"]);
        assert_eq!(known.ttl_s(&chain(1, 1)), Some(5));
        // The alias is another zone's.
        let mut half = Known::default();
        half.add(&Answer { authoritative: true, ..answer(7) });
        assert_eq!((half.ttl_s(&chain(3000, 5)), half.ttl_s(&chain(5, 7))), (Some(7), None));
    }

    #[test]
    fn without_records_the_soa_s_ttl_counts() {
        let none =
            |ttl| Answer { links: vec![("gslb.test".into(), ttl)], negative: true, records: vec![], ..answer(0) };
        let mut known = Known::default();
        known.add(&Answer { authoritative: true, ..none(15) });
        assert_eq!(once(Said::Referral, Said::Answer(none(15)), &known).class, Class::Live);
        assert_eq!(once(Said::Answer(none(9)), Said::Answer(none(9)), &known).at_most, Some(Duration::from_secs(10)));
        // No such name at all is something else.
        let gone = Answer { no_name: true, ..none(15) };
        assert_eq!(once(Said::Referral, Said::Answer(gone), &known).class, Class::Unknown);
        // Without an SOA it may not be kept, and nothing tells.
        let bare = Answer { links: vec![], ..none(0) };
        assert_eq!(once(refused(), Said::Answer(bare), &known).class, Class::Unknown);
        // Records at the zone's own name are another matter.
        let apex = Answer { links: vec![("gslb.test".into(), 5)], ..answer(0) };
        assert!(!known.compare(&apex).known);
    }

    #[test]
    fn an_authority_of_before_tells_the_ttl_still() {
        let now = Known::default().or_ttls_of(&known(5));
        assert_eq!(twice((held(30), held(30)), (held(30), held(30)), &now).class, Class::Stale);
        assert!(now.sets.is_empty());
    }

    #[test]
    fn those_that_answered_agree_or_not() {
        assert_eq!(agreement(1, true), Agreement::Agree);
        assert_eq!(agreement(2, false), Agreement::Disagree);
        assert_eq!(agreement(1, false), Agreement::Undecided);
        assert_eq!(agreement(0, false), Agreement::Undecided);
    }

    fn said() -> impl Strategy<Value = Said> {
        prop_oneof![
            Just(Said::Nothing),
            Just(Said::Late),
            Just(refused()),
            Just(Said::Referral),
            (0_u32..70, any::<bool>(), any::<bool>())
                .prop_map(|(ttl, whole, negative)| { Said::Answer(Answer { negative, whole, ..answer(ttl) }) }),
        ]
    }

    proptest! {
        /// Whatever is seen: live needs an empty cache or one that came to its end, and the authority's own TTL.
        #[test]
        fn live_is_never_a_guess(alone in said(), last in said(), first in proptest::option::of((said(), said())), ttl in 0_u32..70, retried: bool) {
            let before = first.map(|(alone, said)| at(0, alone, said));
            let look = Look { retried, ..at(2_100, alone, last) };
            let verdict = resolver(&look, before.as_ref(), &known(ttl));
            if verdict.class == Class::Live {
                prop_assert!(!retried);
                let Said::Answer(answer) = &look.said else { return Err(TestCaseError::fail("no answer")) };
                prop_assert_eq!(answer.ttl_s(), Some(ttl));
                match &look.alone {
                    Said::Referral => {}
                    Said::Answer(held) => prop_assert!(held.ttl_s() <= Some(1) && ttl >= 2),
                    other => return Err(TestCaseError::fail(format!("{other:?}"))),
                }
            }
            prop_assert!(verdict.class == Class::Unknown || !verdict.evidence.is_empty());
            prop_assert!(verdict.at_most.is_none() || matches!(verdict.class, Class::Live | Class::Cached));
            prop_assert!(resolver(&look, None, &Known::default()).class != Class::Live, "nothing to hold it against");
        }

        /// A cache that hands out its first TTL until the end is never live, as long as it holds anything.
        #[test]
        fn serve_original_ttl_is_never_live(ttl in 0_u32..4000, gap in 0_u64..100_000, refuses: bool) {
            let alone = || if refuses { refused() } else { held(ttl) };
            let first = at(0, alone(), held(ttl));
            let second = at(gap, alone(), held(ttl));
            prop_assert!(resolver(&first, None, &known(ttl)).class != Class::Live);
            prop_assert!(resolver(&second, Some(&first), &known(ttl)).class != Class::Live);
        }
    }
}
