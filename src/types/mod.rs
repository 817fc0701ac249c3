//! Nouns that two floors share. Only `std`; each has its text form as `Display` and `FromStr`.

pub(crate) mod bucket;
pub(crate) mod cluster;
pub(crate) mod domain;
pub(crate) mod draw;
pub(crate) mod flow;
pub(crate) mod gateway;
pub(crate) mod link;
pub(crate) mod net;
pub(crate) mod node;
pub(crate) mod power;
pub(crate) mod proof;
pub(crate) mod route;
pub(crate) mod rrset;
pub(crate) mod rule;
pub(crate) mod service;
pub(crate) mod site;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod target;
pub(crate) mod time;
pub(crate) mod vrrp;
