//! A cluster IP: one address that several nodes share, each answering for some buckets.

use super::bucket::Buckets;
use super::net::{Mac, Proto};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

/// What is hashed to find the bucket of a packet. The names are CLUSTERIP's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::enum_variant_names)] // CLUSTERIP's names
pub(crate) enum Mode {
    #[default]
    SourceIp,
    SourceIpSourcePort,
    SourceIpSourcePortDestPort,
}

impl Mode {
    pub(crate) const ALL: [Mode; 3] = [Mode::SourceIp, Mode::SourceIpSourcePort, Mode::SourceIpSourcePortDestPort];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Mode::SourceIp => "sourceip",
            Mode::SourceIpSourcePort => "sourceip-sourceport",
            Mode::SourceIpSourcePortDestPort => "sourceip-sourceport-destport",
        }
    }

    /// Whether ports are hashed for the protocols that have them.
    pub(crate) fn has_ports(self) -> bool {
        self != Mode::SourceIp
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Mode::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| {
            format!("'{text}' is not a mode (sourceip, sourceip-sourceport, sourceip-sourceport-destport)")
        })
    }
}

/// What happens to packets for the address that `--proto` and `--port` leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Every node drops them: left to all, each would be answered once by every node.
    #[default]
    Drop,
    /// They are hashed like the others.
    Hash,
}

impl Rest {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Rest::Drop => "drop",
            Rest::Hash => "hash",
        }
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Rest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "drop" => Ok(Rest::Drop),
            "hash" => Ok(Rest::Hash),
            _ => Err(format!("'{text}' is neither drop nor hash")),
        }
    }
}

/// The parameters of a cluster IP on one node. All but the device must be the same on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) vip: IpAddr,
    pub(crate) dev: String,
    /// The MAC that all nodes answer with; a group address unless the cluster is unicast.
    pub(crate) mac: Mac,
    /// The device's own MAC when the rules were made: IPv6 sums are corrected by the difference.
    pub(crate) made_from: Mac,
    pub(crate) total: u16,
    pub(crate) seed: u32,
    pub(crate) mode: Mode,
    pub(crate) proto: Option<Proto>,
    pub(crate) port: Option<u16>,
    pub(crate) rest: Rest,
    /// How long the kernel serves without a renewal; `None` serves for ever.
    pub(crate) lease: Option<Duration>,
    /// Whether the TCP peers of all nodes are remembered, so that a take-over can wake them.
    pub(crate) remember: bool,
    /// What `drop_unicast_in_l2_multicast` was before us, if we changed it.
    pub(crate) sysctl_was: Option<u8>,
    /// The number of the ownership map that this node follows; 0 before the first.
    pub(crate) epoch: u64,
    /// The digest of the configuration that the map was made from.
    pub(crate) config: Option<String>,
}

impl Cluster {
    /// Whether the cluster MAC is an ordinary address, which needs the device's filter opened.
    pub(crate) fn is_unicast(&self) -> bool {
        !self.mac.is_group()
    }
}

/// What one node lets in. `opening`, `reset` are part of `owned`; `draining` is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Answered for.
    pub(crate) owned: Buckets,
    /// Gained by drain: of TCP only openings and what was opened here.
    pub(crate) opening: Buckets,
    /// Taken over: TCP that nobody here opened is reset.
    pub(crate) reset: Buckets,
    /// Given up by plan: TCP that was opened here is still served.
    pub(crate) draining: Buckets,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_reads_as_it_prints() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse::<Mode>().unwrap(), mode);
        }
        assert!("source".parse::<Mode>().is_err());
        assert!("all".parse::<Rest>().is_err());
    }
}
