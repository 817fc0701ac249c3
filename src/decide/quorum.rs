//! What the majority says: who lives, and whether this side may act for all.
//!
//! The base is the members that were *named*, never those that answered: five named and two heard
//! is no majority, however much the two agree. Each member has one vote on each other, its newest
//! word within the window. A member's word about itself counts where nobody contradicts it, so it
//! makes up no majority against another's word. Too few votes either way is `unknown`: neither dead
//! nor alive.
//!
//! # Why two sides of a split are never both quorate
//!
//! A side is the members that this node hears itself. Of two disjoint sides at most one has more than
//! half. A veto only takes away. So the tie of an even split stays one until one side has switched the
//! other off: [`Conclusion::waiting_for`] names whom.
//!
//! Proofs make a majority of a side that has none only where *every* member that is missing on it is
//! proven off, for a proof says that a member was off, not that nobody switches it on again behind a
//! cut. Switched off, a node forgets the proofs that it had. So of two sides that each switched off all
//! of the other, the one that was switched off last has none. A side that is less than half could as
//! well be opposed by a plain majority of those that are back; it counts only where each of these must
//! hear it first, or switch it off: with `wait_for_all` on all of them.

use crate::types::proof::Proof;
use crate::types::status::Status;
use crate::types::time::Tick;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The configuration: the same on every node but for `me`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) members: BTreeSet<String>,
    /// This node; one that is no member has no vote and only counts those of others.
    pub(crate) me: String,
    /// A report that is older counts no more.
    pub(crate) window: Duration,
    /// A member that is proven off is no longer counted.
    pub(crate) fence: bool,
    /// Not quorate before every member was heard once, or is proven off.
    pub(crate) wait_for_all: bool,
    /// What this side must reach: subjects of other verdicts.
    pub(crate) vetoes: BTreeSet<String>,
}

/// Two goodbyes that are less apart than this may have crossed.
const APART: Duration = Duration::from_secs(2);

/// One word about a member, or about what has a veto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: Status,
    /// When it arrived here.
    pub(crate) at: Tick,
    /// When it stops being true, where its writer said so.
    pub(crate) until: Option<Tick>,
}

impl Said {
    /// The first point at which it counts no more.
    fn ends(&self, window: Duration) -> Tick {
        // A nanosecond beyond, since a report as old as the window still counts.
        let aged = self.at.after(window).after(Duration::from_nanos(1));
        self.until.map_or(aged, |until| until.min(aged))
    }

    fn counts(&self, window: Duration, now: Tick) -> bool {
        now < self.ends(window)
    }
}

/// Everything that was said. Bounded by the members: the newest word of each about each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    /// By subject, then by reporter.
    words: BTreeMap<String, BTreeMap<String, Said>>,
    vetoes: BTreeMap<String, Said>,
    lives: BTreeMap<String, u64>,
    /// When each member was last heard by this node itself.
    last: BTreeMap<String, Tick>,
    proofs: BTreeMap<String, Proof>,
    /// Who has said goodbye, when, and was not heard since.
    left: BTreeMap<String, Tick>,
    /// When this node itself has said goodbye.
    goodbye: Option<Tick>,
    /// Who was heard since this machine started.
    pub(crate) heard: BTreeSet<String>,
}

/// Who said what about one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Votes {
    pub(crate) up: Vec<String>,
    pub(crate) down: Vec<String>,
    /// Had a vote, and gave none that counts.
    pub(crate) silent: Vec<String>,
}

/// The verdict about one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) member: String,
    pub(crate) status: Status,
    pub(crate) votes: Votes,
}

/// One conclusion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conclusion {
    /// One for each member, sorted.
    pub(crate) verdicts: Vec<Verdict>,
    /// Members on this side that count.
    pub(crate) here: usize,
    /// Votes that make a majority.
    pub(crate) needed: usize,
    /// What is waited for is a proof.
    pub(crate) needs_proof: bool,
    pub(crate) quorate: bool,
    /// A subject with a veto is down.
    pub(crate) vetoed: bool,
    /// Subjects with a veto that are up: this node's way to them works in both directions.
    pub(crate) reaches: Vec<String>,
    /// What is missing for an answer: members that were never heard, the veto's verdict, or the proof
    /// that these are off. Empty where the answer is clear.
    pub(crate) waiting_for: Vec<String>,
    /// Not quorate, and not cut off either: what this side holds nobody else can take meanwhile.
    pub(crate) may_keep: bool,
    /// When time alone changes the answer.
    pub(crate) wake: Option<Tick>,
}

impl Reports {
    /// Takes `reporter`'s word about `subject`; the newest holds, whatever the order of arrival.
    ///
    /// `was_heard` says that the word is from somebody who has heard the subject, not just missed it.
    pub(crate) fn hear(&mut self, settings: &Settings, reporter: &str, subject: &str, said: Said, was_heard: bool) {
        if !settings.members.contains(reporter) || !settings.members.contains(subject) {
            return;
        }
        if reporter == settings.me && subject != settings.me {
            if said.status == Status::Up {
                self.left.remove(subject);
                let last = self.last.entry(subject.to_owned()).or_default();
                *last = said.at.max(*last);
            }
            if was_heard {
                self.heard.insert(subject.to_owned());
            }
        } else if reporter != settings.me {
            self.heard.insert(reporter.to_owned());
        }
        let words = self.words.entry(subject.to_owned()).or_default();
        if words.get(reporter).is_none_or(|old| old.at <= said.at) {
            words.insert(reporter.to_owned(), said);
        }
    }

    /// A member has said goodbye to this node.
    pub(crate) fn leaves(&mut self, settings: &Settings, member: &str, at: Tick) {
        if settings.members.contains(member) {
            self.left.insert(member.to_owned(), at);
        }
    }

    /// Whether a goodbye of this node matters: somebody has said one and was not heard since.
    pub(crate) fn misses_somebody_who_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Notes when this node itself has said goodbye last.
    pub(crate) fn said_goodbye(&mut self, at: Option<Tick>) {
        self.goodbye = at;
    }

    /// Whether a member is out of the count. Of two, also the one that has said goodbye to the other:
    /// where it comes back unheard it counts both, and is not quorate. But for that it must not have had a
    /// goodbye of the other later than its own; two that leave at about the same time have neither.
    /// Among more members each side of a split could hold a goodbye of the other that is over.
    fn is_out(&self, settings: &Settings, member: &str) -> bool {
        let later = |at: &Tick| self.goodbye.is_none_or(|own| *at > own.after(APART));
        let left = settings.members.len() == 2 && self.left.get(member).is_some_and(later);
        left || (settings.fence && self.is_off(settings, member))
    }

    /// Takes the verdict about something with a veto.
    pub(crate) fn veto(&mut self, subject: &str, said: Said) {
        if self.vetoes.get(subject).is_none_or(|old| old.at <= said.at) {
            self.vetoes.insert(subject.to_owned(), said);
        }
    }

    /// Notes the life that a member is in.
    pub(crate) fn lives(&mut self, settings: &Settings, member: &str, incarnation: u64) {
        if settings.members.contains(member) {
            let life = self.lives.entry(member.to_owned()).or_default();
            *life = incarnation.max(*life);
        }
    }

    /// Takes a proof. One that names no life is about the one that is known now.
    pub(crate) fn prove(&mut self, settings: &Settings, member: &str, proof: Proof) {
        if settings.members.contains(member) {
            let incarnation = proof.incarnation.or(self.lives.get(member).copied());
            let proof = Proof { incarnation, ..proof };
            let newest = self.proofs.entry(member.to_owned()).or_insert(proof);
            if newest.at <= proof.at {
                *newest = proof;
            }
        }
    }

    /// Forgets a proof that its file no longer has.
    pub(crate) fn unprove(&mut self, member: &str) {
        self.proofs.remove(member);
    }

    /// Proofs that something heard since has refuted: it was the wrong plug, or the node is back.
    pub(crate) fn refuted(&self, settings: &Settings) -> Vec<(String, Proof)> {
        let proofs = self.proofs.iter().filter(|(member, _)| !self.is_off(settings, member));
        proofs.map(|(member, proof)| (member.clone(), *proof)).collect()
    }

    fn is_off(&self, settings: &Settings, member: &str) -> bool {
        member != settings.me
            && self
                .proofs
                .get(member)
                .is_some_and(|proof| proof.holds(self.lives.get(member).copied(), self.last.get(member).copied()))
    }

    /// Whether a member says anything at all these days.
    fn reports(&self, settings: &Settings, member: &str, now: Tick) -> bool {
        self.words
            .values()
            .filter_map(|words| words.get(member))
            .any(|said| said.status != Status::Unknown && said.counts(settings.window, now))
    }

    /// Whether a member belongs to this side: this node's own word, or its reports where this node
    /// has no word about it.
    fn is_here(&self, settings: &Settings, member: &str, now: Tick) -> bool {
        let own = self.words.get(member).and_then(|words| words.get(&settings.me));
        match own {
            _ if member == settings.me => true,
            Some(said) => said.status == Status::Up && said.counts(settings.window, now),
            None => self.reports(settings, member, now),
        }
    }

    fn verdict(&self, settings: &Settings, member: &str, counted: &[&str], needed: usize, now: Tick) -> Verdict {
        let mut votes = Votes::default();
        for reporter in counted.iter().filter(|reporter| **reporter != member) {
            let said = self.words.get(member).and_then(|words| words.get(*reporter));
            let vote = match said.filter(|said| said.counts(settings.window, now)).map(|said| said.status) {
                Some(Status::Up) => &mut votes.up,
                Some(Status::Down) => &mut votes.down,
                _ => &mut votes.silent,
            };
            vote.push((*reporter).to_owned());
        }
        // Who speaks lives, unless somebody says otherwise: then its own word does not save it.
        let off = !counted.contains(&member);
        let speaks = member == settings.me || self.reports(settings, member, now);
        if !off && votes.down.is_empty() && speaks {
            votes.up.push(member.to_owned());
            votes.up.sort();
        }
        let status = if off || votes.down.len() >= needed {
            Status::Down
        } else if votes.up.len() >= needed {
            Status::Up
        } else {
            Status::Unknown
        };
        Verdict { member: member.to_owned(), status, votes }
    }

    /// Concludes.
    pub(crate) fn conclude(&self, settings: &Settings, now: Tick) -> Conclusion {
        let is_off = |member: &str| self.is_off(settings, member);
        let names = settings.members.iter().map(String::as_str);
        let counted: Vec<&str> = names.filter(|member| !self.is_out(settings, member)).collect();
        let needed = counted.len() / 2 + 1;
        let here = counted.iter().filter(|member| self.is_here(settings, member, now)).count();
        let all = settings.members.len();
        let tie = settings.fence && here > 0 && here * 2 == counted.len();
        let is_large = (here >= needed || tie) && (here * 2 >= all || settings.wait_for_all);
        let missing = counted.iter().filter(|member| !self.is_here(settings, member, now));
        let missing: Vec<String> = missing.map(|member| (*member).to_owned()).collect();
        let is_settled = here * 2 > all || missing.is_empty();

        let unheard = settings
            .members
            .iter()
            .filter(|member| **member != settings.me && !self.heard.contains(*member) && !is_off(member));
        let unheard: Vec<String> = unheard.filter(|_| settings.wait_for_all).cloned().collect();
        let veto = |subject: &String| {
            let said = self.vetoes.get(subject).filter(|said| match said.until {
                Some(until) => now < until,
                None => said.counts(settings.window, now),
            });
            said.map_or(Status::Unknown, |said| said.status)
        };
        let vetoed = settings.vetoes.iter().any(|subject| veto(subject) == Status::Down);
        let unsure = settings.vetoes.iter().filter(|subject| veto(subject) == Status::Unknown);
        let reaches = settings.vetoes.iter().filter(|subject| veto(subject) == Status::Up).cloned().collect();

        let mut needs_proof = false;
        let waiting_for: Vec<String> = if vetoed {
            Vec::new()
        } else if !unheard.is_empty() {
            unheard
        } else if !is_large {
            Vec::new()
        } else {
            let unsure: Vec<String> = unsure.cloned().collect();
            // Whoever may not even reach the gateway does not shoot.
            needs_proof = !is_settled && unsure.is_empty();
            if needs_proof { missing } else { unsure }
        };
        let quorate = is_large && is_settled && !vetoed && waiting_for.is_empty();
        let words = self.words.values().flat_map(BTreeMap::values);
        let vetoes = self.vetoes.values().map(|said| said.until.unwrap_or(said.ends(settings.window)));
        Conclusion {
            verdicts: settings
                .members
                .iter()
                .map(|member| self.verdict(settings, member, &counted, needed, now))
                .collect(),
            here,
            needed,
            needs_proof,
            quorate,
            vetoed,
            reaches,
            may_keep: !quorate && !vetoed && is_large,
            waiting_for,
            wake: words.map(|said| said.ends(settings.window)).chain(vetoes).filter(|ends| *ends > now).min(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Tick {
        Tick(Duration::from_secs(seconds))
    }

    fn settings(members: &str, me: &str) -> Settings {
        let members: BTreeSet<String> = members.split(',').map(str::to_owned).collect();
        Settings {
            members,
            me: me.to_owned(),
            window: Duration::from_secs(60),
            fence: false,
            wait_for_all: false,
            vetoes: BTreeSet::new(),
        }
    }

    /// `n1:n3-` is n1's word that n3 is down; `+` is up, `?` unknown. All of second 100.
    fn reports(settings: &Settings, words: &str) -> Reports {
        let mut reports = Reports::default();
        for word in words.split_whitespace() {
            let (reporter, about) = word.split_once(':').unwrap();
            let (subject, sign) = about.split_at(about.len() - 1);
            let status = match sign {
                "+" => Status::Up,
                "-" => Status::Down,
                _ => Status::Unknown,
            };
            reports.hear(settings, reporter, subject, Said { status, at: at(100), until: None }, status == Status::Up);
        }
        reports
    }

    fn status(conclusion: &Conclusion, member: &str) -> Status {
        conclusion.verdicts.iter().find(|verdict| verdict.member == member).unwrap().status
    }

    /// known-faults 15, and its neighbours.
    #[test]
    fn half_is_no_majority() {
        for (members, words, subject, wanted, quorate) in [
            // (a) four voters, two say dead, two say alive
            ("a,b,c,d,x", "a:x- b:x- c:x+ d:x+", "x", Status::Unknown, true),
            ("a,b,c,d", "a:d- b:d- c:d+ d:d+", "d", Status::Unknown, true),
            // (b) five configured, two say dead, three silent
            ("a,b,c,d,e", "a:e- b:e-", "e", Status::Unknown, false),
            // (c) one says it three times
            ("a,b,c", "a:c- a:c- a:c-", "c", Status::Unknown, false),
            // a majority, and the node's own word against it
            ("a,b,c", "a:c- b:c- c:c+", "c", Status::Down, true),
            ("a,b,c", "a:c+ b:c- c:c+", "c", Status::Unknown, true),
            ("a,b,c", "a:b+ b:a+ a:c- b:c-", "b", Status::Up, true),
            ("a,b,c", "a:c? b:c?", "c", Status::Unknown, false),
            // a stranger has no vote
            ("a,b,c", "a:c- z:c-", "c", Status::Unknown, false),
        ] {
            let settings = settings(members, "observer");
            let conclusion = reports(&settings, words).conclude(&settings, at(100));
            assert_eq!(status(&conclusion, subject), wanted, "{members} {words}");
            assert_eq!(conclusion.quorate, quorate, "{members} {words}");
        }
    }

    /// known-faults 15 (d)
    #[test]
    fn a_report_older_than_the_window_counts_no_more() {
        let settings = settings("a,b,c", "observer");
        let reports = reports(&settings, "a:c- b:c-");
        assert_eq!(status(&reports.conclude(&settings, at(160)), "c"), Status::Down);
        let wake = reports.conclude(&settings, at(160)).wake.unwrap();
        assert_eq!(status(&reports.conclude(&settings, wake), "c"), Status::Unknown);
        assert_eq!(reports.conclude(&settings, wake).wake, None);
    }

    #[test]
    fn an_older_word_that_comes_late_changes_nothing() {
        let settings = settings("a,b,c", "a");
        let mut reports = reports(&settings, "a:b+ b:c-");
        reports.hear(&settings, "a", "b", Said { status: Status::Down, at: at(99), until: None }, true);
        assert!(reports.conclude(&settings, at(100)).quorate);
    }

    #[test]
    fn a_side_is_what_this_node_hears_and_who_was_never_heard_is_unknown() {
        let settings = settings("a,b,c", "a");
        let alone = reports(&settings, "").conclude(&settings, at(100));
        assert_eq!((alone.quorate, alone.may_keep, alone.needed), (false, false, 2));
        assert_eq!(["a", "b", "c"].map(|member| status(&alone, member)), [Status::Unknown; 3]);
        // b's last words are still within the window, and this node hears it no more.
        let cut = reports(&settings, "a:b- a:c- b:a+ b:c+").conclude(&settings, at(101));
        assert!(!cut.quorate && !cut.may_keep);
        let pair = reports(&settings, "a:b+ a:c- b:a+ b:c-").conclude(&settings, at(101));
        assert!(pair.quorate);
        assert_eq!(status(&pair, "c"), Status::Down);
        assert_eq!(pair.verdicts[1].votes.up, ["a", "b"]);
        assert_eq!(pair.verdicts[0].votes.silent, ["c"]);
    }

    #[test]
    fn two_members_wait_for_each_other_then_for_proof() {
        let settings = Settings { fence: true, wait_for_all: true, ..settings("a,b", "a") };
        let boot = Reports::default().conclude(&settings, at(1));
        assert_eq!((boot.quorate, boot.waiting_for.as_slice()), (false, &["b".to_owned()][..]));
        let mut reports = reports(&settings, "a:b+ b:a+");
        assert!(reports.conclude(&settings, at(100)).quorate);
        reports.hear(&settings, "a", "b", Said { status: Status::Down, at: at(110), until: None }, true);
        let tie = reports.conclude(&settings, at(110));
        assert_eq!((tie.quorate, tie.may_keep, tie.waiting_for.as_slice()), (false, true, &["b".to_owned()][..]));
        assert_eq!(status(&tie, "b"), Status::Unknown, "one of two is no majority");
        reports.lives(&settings, "b", 7);
        reports.prove(&settings, "b", Proof { incarnation: Some(7), at: at(111) });
        let won = reports.conclude(&settings, at(112));
        assert_eq!((won.quorate, won.needed, status(&won, "b")), (true, 1, Status::Down));
        // The first beat of its next life.
        reports.lives(&settings, "b", 8);
        assert!(!reports.conclude(&settings, at(113)).quorate);
    }

    #[test]
    fn of_two_who_said_goodbye_is_not_missed_and_of_more_it_is() {
        let gone = Said { status: Status::Down, at: at(110), until: None };
        for (members, quorate) in [("a,b", true), ("a,b,c", false)] {
            let settings = settings(members, "a");
            let mut reports = reports(&settings, "a:b+");
            reports.hear(&settings, "a", "b", gone, true);
            reports.leaves(&settings, "b", at(110));
            assert_eq!(reports.conclude(&settings, at(110)).quorate, quorate, "{members}");
            reports.hear(&settings, "a", "b", Said { status: Status::Up, at: at(111), ..gone }, true);
            reports.hear(&settings, "a", "b", Said { at: at(112), ..gone }, true);
            assert!(!reports.conclude(&settings, at(112)).quorate, "it came back, and is missed now");
        }
    }

    #[test]
    fn two_goodbyes_that_may_have_crossed_make_no_majority() {
        let settings = settings("a,b", "a");
        for (own, quorate) in [(None, true), (Some(at(60)), true), (Some(at(109)), false), (Some(at(111)), false)] {
            let mut reports = reports(&settings, "a:b-");
            reports.leaves(&settings, "b", at(110));
            reports.said_goodbye(own);
            assert_eq!(reports.conclude(&settings, at(112)).quorate, quorate, "{own:?}");
        }
    }

    #[test]
    fn proofs_make_a_majority_only_where_everybody_who_is_missing_is_off() {
        let proof = Proof { incarnation: Some(1), at: at(101) };
        // (members, this side, proven off, wait for all, quorate, waits for)
        for (members, here, off, wait, quorate, waits) in [
            ("a,b,c,d", "b", "c", false, false, &["d"][..]),
            ("a,b,c,d", "b", "c,d", false, true, &[]),
            ("a,b,c", "", "b,c", false, false, &[]),
            ("a,b,c", "", "b,c", true, true, &[]),
            ("a,b,c", "", "b", true, false, &["c"]),
            ("a,b,c", "b", "", false, true, &[]),
            ("a,b,c,d,e", "b", "c,d,e", false, false, &[]),
            ("a,b,c,d,e", "b", "c,d,e", true, true, &[]),
            ("a,b,c,d,e", "b,c", "d", false, true, &[]),
        ] {
            let settings = Settings { fence: true, wait_for_all: wait, ..settings(members, "a") };
            let mut reports = Reports { heard: settings.members.clone(), ..Reports::default() };
            for member in here.split(',').filter(|member| !member.is_empty()) {
                reports.hear(&settings, "a", member, Said { status: Status::Up, at: at(100), until: None }, true);
            }
            for member in off.split(',').filter(|member| !member.is_empty()) {
                reports.prove(&settings, member, proof);
            }
            let concluded = reports.conclude(&settings, at(102));
            let said = (concluded.quorate, concluded.waiting_for.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(said, (quorate, waits.to_vec()), "{members}: {here} here, {off} off, {wait}");
        }
    }

    #[test]
    fn without_a_tie_breaker_half_gives_up() {
        let settings = settings("a,b", "a");
        let mut reports = reports(&settings, "a:b-");
        reports.heard.insert("b".to_owned());
        let half = reports.conclude(&settings, at(100));
        assert!(!half.quorate && !half.may_keep && half.waiting_for.is_empty());
    }

    #[test]
    fn a_veto_takes_away_and_never_adds() {
        let settings = Settings { vetoes: ["gw".to_owned()].into(), fence: true, ..settings("a,b", "a") };
        let gateway = |status, until| Said { status, at: at(100), until };
        let mut both = reports(&settings, "a:b+ b:a+");
        let unsure = both.conclude(&settings, at(100));
        assert_eq!(
            (unsure.quorate, unsure.may_keep, unsure.waiting_for.as_slice()),
            (false, true, &["gw".to_owned()][..])
        );
        both.veto("gw", gateway(Status::Up, Some(at(103))));
        assert!(both.conclude(&settings, at(102)).quorate);
        assert_eq!(both.conclude(&settings, at(103)).waiting_for, ["gw"], "it has expired");
        both.veto("gw", gateway(Status::Down, Some(at(103))));
        let vetoed = both.conclude(&settings, at(102));
        assert!(vetoed.vetoed && !vetoed.quorate && !vetoed.may_keep && vetoed.reaches.is_empty());
        // Reaching the gateway is no vote, and who may not reach it waits for nobody's proof.
        let mut alone = reports(&settings, "a:b-");
        assert_eq!(alone.conclude(&settings, at(100)).waiting_for, ["gw"]);
        alone.veto("gw", gateway(Status::Up, None));
        let alone = alone.conclude(&settings, at(100));
        assert_eq!((alone.quorate, alone.waiting_for.as_slice()), (false, &["b".to_owned()][..]));
    }

    proptest! {
        /// Whoever fences whom across a cut, in any order, and everybody is switched on again: what was
        /// switched off has forgotten whom it had proven off, and whom it had heard.
        #[test]
        fn two_sides_that_fence_each_other_and_come_back_are_never_both_quorate(
            sides in proptest::collection::vec(0u8..2, 2..8),
            history in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..16),
            wait in any::<bool>(),
        ) {
            let names: Vec<String> = (0..sides.len()).map(|idx| format!("n{idx}")).collect();
            let mut proofs = vec![BTreeSet::new(); sides.len()];
            let mut booted = vec![false; sides.len()];
            for (by, target) in &history {
                let (by, target) = (by.index(sides.len()), target.index(sides.len()));
                if sides[by] != sides[target] {
                    proofs[by].insert(target);
                    proofs[target].clear();
                    booted[target] = true;
                }
            }
            let quorate_on = |side: u8| (0..sides.len()).filter(|me| sides[*me] == side).any(|me| {
                let settings = Settings { fence: true, wait_for_all: wait, ..settings(&names.join(","), &names[me]) };
                let mut reports = Reports::default();
                for (idx, name) in names.iter().enumerate() {
                    if !booted[me] || sides[idx] == side {
                        reports.heard.insert(name.clone());
                    }
                    if sides[idx] == side {
                        let up = Said { status: Status::Up, at: at(100), until: None };
                        reports.hear(&settings, &names[me], name, up, true);
                    }
                }
                for target in &proofs[me] {
                    reports.prove(&settings, &names[*target], Proof { incarnation: Some(1), at: at(99) });
                }
                reports.conclude(&settings, at(101)).quorate
            });
            prop_assert!(!(quorate_on(0) && quorate_on(1)));
        }

        /// Members are split in two, some are truly off; each side knows some of that, and has old
        /// words of the other. Never is a node of each side quorate.
        #[test]
        fn two_sides_are_never_both_quorate(
            sides in proptest::collection::vec(0u8..3, 2..9),
            known in proptest::collection::vec(any::<(bool, bool)>(), 9),
            stale in proptest::collection::vec(any::<bool>(), 81),
            gateway in any::<(bool, bool)>(),
            veto in any::<bool>(),
            fence in any::<bool>(),
            wait in any::<bool>(),
        ) {
            let names: Vec<String> = (0..sides.len()).map(|idx| format!("n{idx}")).collect();
            let quorate_on = |side: u8| {
                let mut living = names.iter().zip(&sides).enumerate().filter(|(_, (_, of))| **of == side);
                living.any(|(me_idx, (me, _))| {
                    let settings = Settings {
                        fence,
                        wait_for_all: wait,
                        vetoes: if veto { ["gw".to_owned()].into() } else { BTreeSet::new() },
                        ..settings(&names.join(","), me)
                    };
                    let mut reports = Reports { heard: names.iter().cloned().collect(), ..Reports::default() };
                    let mut hear = |reporter: &str, subject: &str, status, second| {
                        reports.hear(&settings, reporter, subject, Said { status, at: at(second), until: None }, true);
                    };
                    for (idx, (name, of)) in names.iter().zip(&sides).enumerate() {
                        // What was said before the split.
                        if stale[me_idx * 9 + idx] {
                            for other in &names {
                                hear(name, other, Status::Up, 90);
                            }
                        }
                        if *of == side {
                            for (other, theirs) in names.iter().zip(&sides) {
                                hear(name, other, if *theirs == side { Status::Up } else { Status::Down }, 100);
                            }
                        }
                    }
                    for (idx, (name, of)) in names.iter().zip(&sides).enumerate() {
                        let knows = if side == 0 { known[idx].0 } else { known[idx].1 };
                        if *of == 2 && knows {
                            reports.prove(&settings, name, Proof { incarnation: Some(1), at: at(99) });
                        }
                    }
                    let reaches = if side == 0 { gateway.0 } else { gateway.1 };
                    let status = if reaches { Status::Up } else { Status::Down };
                    reports.veto("gw", Said { status, at: at(100), until: None });
                    reports.conclude(&settings, at(101)).quorate
                })
            };
            prop_assert!(!(quorate_on(0) && quorate_on(1)));
        }
    }
}
