//! One rule: written as nft reads it, read back from JSON, and compared.

use crate::types::bucket::Buckets;
use std::fmt;

/// A piece of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Words as nft takes and lists them.
    Words(String),
    /// `jhash FIELDS mod TOTAL seed SEED offset 1 [!=] { BUCKETS }`
    Hash(Hash),
}

/// The match that finds a packet's bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hash {
    /// `ip saddr . th sport`
    pub(crate) fields: String,
    pub(crate) total: u64,
    pub(crate) seed: u64,
    /// Whether the rule is for these buckets, or for all others.
    pub(crate) among: bool,
    pub(crate) buckets: Buckets,
}

/// A rule in a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) parts: Vec<Part>,
    pub(crate) comment: Option<String>,
}

impl Rule {
    /// A rule of words alone.
    pub(crate) fn of(words: impl Into<String>) -> Self {
        Rule { parts: vec![Part::Words(words.into())], comment: None }
    }

    /// Appends words.
    #[must_use]
    pub(crate) fn and(mut self, words: impl Into<String>) -> Self {
        self.parts.push(Part::Words(words.into()));
        self
    }

    /// The hash that the rule looks at.
    pub(crate) fn hash(&self) -> Option<&Hash> {
        self.parts.iter().find_map(|part| match part {
            Part::Hash(hash) => Some(hash),
            Part::Words(_) => None,
        })
    }

    /// Whether `words` stand in the rule.
    pub(crate) fn says(&self, words: &str) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Words(own) if own.contains(words)))
    }

    /// The rule as one line without its comment, in the form that both a rule of ours and the
    /// same rule as listed have.
    ///
    /// nft names a port after the protocol that an earlier match fixed (`tcp sport`, where `th
    /// sport` was written), and then leaves that match out.
    pub(crate) fn normal(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            let part = match part {
                Part::Words(words) => words.clone(),
                Part::Hash(hash) => hash.to_string(),
            };
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(&part);
        }
        let text = text.replace("meta l4proto tcp ", "");
        ["tcp", "udp", "dccp", "sctp", "udplite"].iter().fold(text, |text, proto| {
            text.replace(&format!("{proto} sport"), "th sport").replace(&format!("{proto} dport"), "th dport")
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, part) in self.parts.iter().enumerate() {
            if idx > 0 {
                f.write_str(" ")?;
            }
            match part {
                Part::Words(words) => f.write_str(words)?,
                Part::Hash(hash) => write!(f, "{hash}")?,
            }
        }
        match &self.comment {
            Some(comment) => write!(f, " comment \"{comment}\""),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.among { "" } else { "!= " };
        let list = self.buckets.to_string().replace(',', ", ");
        write!(f, "jhash {} mod {} seed {:#x} offset 1 {not}{{ {list} }}", self.fields, self.total, self.seed)
    }
}
