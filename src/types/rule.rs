//! Rules of policy routing, as the kernel has them.

use super::link::OUR_PROTO;

/// A rule that says which table a packet is looked up in, or that it goes nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) ipv6: bool,
    /// The lower one is asked first; of two alike the one that was added first.
    pub(crate) priority: u32,
    pub(crate) mark: Option<Marked>,
    pub(crate) action: RuleAction,
    /// Who added it (`FRA_PROTOCOL`).
    pub(crate) proto: u8,
    /// It asks for more than a mark: an address, an interface, a port. Such rules are never ours.
    pub(crate) asks_more: bool,
    /// That in ip's words, with a blank before; none where it is nothing or cannot be told whole.
    pub(crate) more: Option<String>,
    /// The first and the last source port that it is for, where it asks for one.
    pub(crate) source_ports: Option<(u16, u16)>,
}

/// What a packet's mark must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marked {
    pub(crate) mark: u32,
    pub(crate) mask: u32,
    /// It must not be that (`ip rule add not fwmark ...`).
    pub(crate) not: bool,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleAction {
    /// Looks the packet up in a table.
    Look {
        table: u32,
        /// Routes of at most so many bits do not count (`suppress_prefixlength`): 0 leaves out the default.
        suppress: Option<u8>,
    },
    Unreachable,
    /// Another of the kernel's `FR_ACT_*`.
    Other(u8),
}

impl Rule {
    pub(crate) fn is_ours(&self) -> bool {
        self.proto == OUR_PROTO && !self.asks_more
    }

    /// Whether a packet with this mark is one of those that it is for, as far as the mark says.
    pub(crate) fn takes(&self, mark: u32) -> bool {
        self.mark.is_none_or(|marked| ((mark ^ marked.mark) & marked.mask == 0) != marked.not)
    }
}

impl std::fmt::Display for Rule {
    /// As `ip rule add` takes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "priority {}", self.priority)?;
        if let Some(Marked { mark, mask, not }) = self.mark {
            write!(f, "{} fwmark {mark:#x}/{mask:#x}", if not { " not" } else { "" })?;
        }
        f.write_str(self.more.as_deref().unwrap_or_default())?;
        match self.action {
            RuleAction::Look { table, suppress } => {
                write!(f, " table {table}")?;
                suppress.map_or(Ok(()), |length| write!(f, " suppress_prefixlength {length}"))?;
            }
            RuleAction::Unreachable => f.write_str(" unreachable")?,
            RuleAction::Other(action) => write!(f, " action {action}")?,
        }
        write!(f, " protocol {}", self.proto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_told_as_ip_takes_it() {
        let rule = Rule {
            ipv6: false,
            priority: 7010,
            mark: Some(Marked { mark: 0x1_0000, mask: 0x00ff_0000, not: false }),
            action: RuleAction::Look { table: 7001, suppress: None },
            proto: OUR_PROTO,
            asks_more: false,
            more: None,
            source_ports: None,
        };
        assert_eq!(rule.to_string(), "priority 7010 fwmark 0x10000/0xff0000 table 7001 protocol 70");
        let any = Marked { mark: 0, mask: 0x00ff_0000, not: true };
        let main = Rule { mark: Some(any), action: RuleAction::Look { table: 254, suppress: Some(0) }, ..rule.clone() };
        let text = "priority 7010 not fwmark 0x0/0xff0000 table 254 suppress_prefixlength 0 protocol 70";
        assert_eq!(main.to_string(), text);
        let from = Rule { asks_more: true, more: Some(" from 192.0.2.1/32 ipproto 6".to_owned()), ..main.clone() };
        assert!(from.to_string().contains("0xff0000 from 192.0.2.1/32 ipproto 6 table 254 "), "{from}");
        assert_eq!([0, 0x2_0000, 0x1_0000, 0x1_0001].map(|mark| rule.takes(mark)), [false, false, true, true]);
        assert_eq!([0, 1, 0x1_0000].map(|mark| main.takes(mark)), [false, false, true]);
        let none = Rule { action: RuleAction::Unreachable, ..rule };
        assert_eq!(none.to_string(), "priority 7010 fwmark 0x10000/0xff0000 unreachable protocol 70");
    }
}
