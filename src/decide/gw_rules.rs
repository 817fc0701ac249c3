//! The rules of policy routing by which marked packets leave through their gateway.

use crate::types::gateway::{Marks, priority};
use crate::types::link::OUR_PROTO;
use crate::types::route::MAIN;
use crate::types::rule::{Marked, Rule, RuleAction};

/// The rules of one gateway, in the order in which they are asked: what the main table knows better than by its
/// default route, the gateway's table, and nowhere. Without the last an emptied table would let its flows out
/// by another gateway.
pub(crate) fn of_gateway(ipv6: bool, marks: Marks, number: u32) -> [Rule; 3] {
    let mark = marks.gateway(number);
    let rule = |priority, action| Rule {
        ipv6,
        priority,
        mark: Some(Marked { mark, mask: marks.mask, not: false }),
        action,
        proto: OUR_PROTO,
        asks_more: false,
        more: None,
        source_ports: None,
    };
    [
        rule(priority::SPECIFIC, RuleAction::Look { table: MAIN, suppress: Some(0) }),
        rule(priority::GATEWAYS, RuleAction::Look { table: marks.table(mark), suppress: None }),
        rule(priority::NOWHERE, RuleAction::Unreachable),
    ]
}

/// Whether a rule is one of a split's gateways, of this mask or another.
pub(crate) fn is_of_gateways(rule: &Rule) -> bool {
    rule.is_ours() && (priority::SPECIFIC..priority::PROBES).contains(&rule.priority) && rule.mark.is_some()
}

/// The number of the gateway that a rule is of.
pub(crate) fn number(rule: &Rule) -> Option<u32> {
    rule.mark.map(|marked| Marks { mask: marked.mask }.number(marked.mark))
}

/// Whether a rule of another program looks at bits of ours.
///
/// One that compares all 32 looks at those that are 1 in its value: a VPN that asks for its own mark is not in
/// the way.
pub(crate) fn is_in_the_way(rule: &Rule, marks: Marks) -> bool {
    let is_ours = rule.is_ours() && priority::OURS.contains(&rule.priority);
    let bits = rule.mark.map_or(0, |Marked { mark, mask, .. }| if mask == u32::MAX { mark } else { mask });
    !is_ours && bits & marks.mask != 0
}

/// The first rule of another program that looks at bits of ours.
pub(crate) fn conflict(standing: &[Rule], marks: Marks) -> Option<&Rule> {
    standing.iter().find(|rule| is_in_the_way(rule, marks))
}

/// What is to be added and what is to be deleted, so that of `ours` there is what is `wanted`, each once.
pub(crate) fn difference(ours: &[Rule], wanted: &[Rule]) -> (Vec<Rule>, Vec<Rule>) {
    let new = wanted.iter().filter(|rule| !ours.contains(rule)).cloned().collect();
    let is_extra = |(at, rule): &(usize, &Rule)| !wanted.contains(rule) || ours[..*at].contains(rule);
    let gone = ours.iter().enumerate().filter(is_extra).map(|(_, rule)| rule.clone()).collect();
    (new, gone)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_a_gateway() {
        let texts = of_gateway(false, Marks::USUAL, 2).map(|rule| rule.to_string());
        assert_eq!(
            texts,
            [
                "priority 7000 fwmark 0x20000/0xff0000 table 254 suppress_prefixlength 0 protocol 70",
                "priority 7010 fwmark 0x20000/0xff0000 table 7002 protocol 70",
                "priority 7020 fwmark 0x20000/0xff0000 unreachable protocol 70",
            ]
        );
        let rules = of_gateway(true, Marks::USUAL, 100);
        assert!(rules.iter().all(|rule| is_of_gateways(rule) && number(rule) == Some(100)));
        assert!(rules.windows(2).all(|pair| pair[0].priority < pair[1].priority));
        let probe = Rule { priority: priority::PROBES, ..rules[1].clone() };
        assert!(!is_of_gateways(&probe) && conflict(&[probe], Marks::USUAL).is_none());
    }

    #[test]
    fn a_foreign_rule_is_in_the_way_if_it_looks_at_our_bits() {
        let rule = |mark, mask, not| Rule {
            proto: 3,
            mark: Some(Marked { mark, mask, not }),
            ..of_gateway(false, Marks::USUAL, 1)[1].clone()
        };
        for (foreign, conflicts) in [
            (rule(0xca6c, u32::MAX, true), false),
            (rule(0x2_0000, u32::MAX, false), true),
            (rule(0, 0x00ff_0000, true), true),
            (rule(0x100, 0xff00, false), false),
            (rule(0x100, 0x1_ff00, false), true),
            (Rule { mark: None, ..rule(0, 0, false) }, false),
        ] {
            assert_eq!(conflict(std::slice::from_ref(&foreign), Marks::USUAL).is_some(), conflicts, "{foreign}");
        }
    }

    #[test]
    fn each_rule_is_there_once_afterwards() {
        let (one, two) = (of_gateway(false, Marks::USUAL, 1), of_gateway(false, Marks::USUAL, 2));
        let [a, b, c] = one.clone();
        let standing = [a.clone(), a.clone(), b.clone(), two[0].clone()];
        assert_eq!(difference(&standing, &one), (vec![c], vec![a.clone(), two[0].clone()]));
        assert_eq!(difference(&one, &one), (vec![], vec![]));
    }
}
