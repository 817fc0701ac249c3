//! Do the nodes agree, and does one node's kernel hold what it should?

use crate::types::bucket::Buckets;
use std::collections::BTreeMap;

/// What one node shows of a cluster IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) node: String,
    pub(crate) owned: Buckets,
    pub(crate) total: u16,
    /// What must be the same on every node, by name: algo, mode, seed, MAC, …
    pub(crate) parameters: BTreeMap<&'static str, String>,
}

/// What the nodes cover together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cover {
    /// Sorted, each once.
    pub(crate) nodes: Vec<String>,
    /// Served by nobody.
    pub(crate) gaps: Buckets,
    /// Served by several: the buckets of each set of nodes.
    pub(crate) overlaps: Vec<(Buckets, Vec<String>)>,
    /// The names of parameters that are not the same everywhere.
    pub(crate) differ: Vec<&'static str>,
}

impl Cover {
    /// Whether each bucket is served once, by one hash.
    pub(crate) fn is_whole(&self) -> bool {
        self.gaps.is_empty() && self.overlaps.is_empty() && self.differ.is_empty()
    }
}

/// Holds the records of several nodes against each other. The last record of a node counts.
pub(crate) fn verify(shown: &[Shown]) -> Cover {
    let newest: BTreeMap<&str, &Shown> = shown.iter().map(|shown| (shown.node.as_str(), shown)).collect();
    let total = newest.values().map(|shown| shown.total).max().unwrap_or_default();
    let mut cover = Cover { nodes: newest.keys().map(|&node| node.to_owned()).collect(), ..Cover::default() };
    let mut several: BTreeMap<Vec<String>, Buckets> = BTreeMap::new();
    for bucket in 1..=total {
        let owners: Vec<String> =
            newest.values().filter(|shown| shown.owned.contains(bucket)).map(|shown| shown.node.clone()).collect();
        match owners.len() {
            0 => {
                cover.gaps.insert(bucket);
            }
            1 => {}
            _ => {
                several.entry(owners).or_default().insert(bucket);
            }
        }
    }
    cover.overlaps = several.into_iter().map(|(nodes, buckets)| (buckets, nodes)).collect();
    let mut values: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for shown in newest.values() {
        let total = ("total", shown.total.to_string());
        for (name, value) in shown.parameters.iter().map(|(&name, value)| (name, value.clone())).chain([total]) {
            let seen = values.entry(name).or_default();
            if !seen.contains(&value) {
                seen.push(value);
            }
        }
    }
    cover.differ = values.into_iter().filter(|(_, seen)| seen.len() > 1).map(|(name, _)| name).collect();
    cover
}

/// One thing that is not as it should be, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) what: String,
    pub(crate) want: String,
    pub(crate) got: String,
    pub(crate) mend: Option<String>,
}

/// The facts of `wanted` that `got` does not have, or has otherwise. Both in any order.
///
/// A fact of `got` that nobody asked for is no difference: the host has a life besides ours.
pub(crate) fn differences(
    wanted: &[(String, String, Option<String>)],
    got: &BTreeMap<String, String>,
) -> Vec<Difference> {
    wanted
        .iter()
        .filter_map(|(what, want, mend)| {
            let got = got.get(what).cloned().unwrap_or_else(|| "absent".to_owned());
            (got != *want).then(|| Difference { what: what.clone(), want: want.clone(), got, mend: mend.clone() })
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shown(node: &str, owned: &str, seed: &str) -> Shown {
        Shown {
            node: node.to_owned(),
            owned: owned.parse().unwrap(),
            total: 4,
            parameters: BTreeMap::from([("seed", seed.to_owned())]),
        }
    }

    #[test]
    fn gaps_overlaps_and_other_seeds_are_named() {
        let cover = verify(&[shown("n2", "2-3", "7"), shown("n1", "1-2", "7")]);
        assert_eq!(cover.gaps.to_string(), "4");
        assert_eq!(cover.overlaps, [("2".parse().unwrap(), vec!["n1".to_owned(), "n2".to_owned()])]);
        assert!(!cover.is_whole());
        let cover = verify(&[shown("n1", "1-2", "7"), shown("n2", "3-4", "8")]);
        assert_eq!(cover.differ, ["seed"]);
        assert!(verify(&[shown("n1", "1-2", "7"), shown("n2", "3-4", "7")]).is_whole());
    }

    #[test]
    fn the_last_record_of_a_node_counts() {
        assert!(verify(&[shown("n1", "1-3", "7"), shown("n2", "3-4", "7"), shown("n1", "1-2", "7")]).is_whole());
    }

    #[test]
    fn nothing_shown_is_not_whole_by_accident() {
        // The caller has to refuse it: there is no total to hold it against.
        assert!(verify(&[]).nodes.is_empty());
    }

    #[test]
    fn what_is_missing_or_other_is_a_difference() {
        let wanted = [
            ("address".to_owned(), "present".to_owned(), Some("vip add".to_owned())),
            ("mac".to_owned(), "a".to_owned(), None),
        ];
        let got = BTreeMap::from([("mac".to_owned(), "b".to_owned()), ("other".to_owned(), "c".to_owned())]);
        let found = differences(&wanted, &got);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].got, "absent");
        assert_eq!(found[1].got, "b");
    }
}
