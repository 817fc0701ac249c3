//! Bytes and text of other programs <-> structs. Each file names its RFC or its source.

pub(crate) mod arp;
pub(crate) mod checksum;
pub(crate) mod clusterip;
pub(crate) mod ctnetlink;
pub(crate) mod dns;
pub(crate) mod env_conf;
pub(crate) mod etcd;
pub(crate) mod ethernet;
pub(crate) mod fence;
pub(crate) mod flow;
pub(crate) mod getent;
pub(crate) mod heartbeat;
pub(crate) mod icmp;
pub(crate) mod iptables;
pub(crate) mod keys;
pub(crate) mod ndp;
pub(crate) mod networkd;
pub(crate) mod nft;
pub(crate) mod nft_conf;
pub(crate) mod probe;
pub(crate) mod proc;
pub(crate) mod tcp;
pub(crate) mod vrrp;
