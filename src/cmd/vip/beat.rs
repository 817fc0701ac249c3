//! What `vip apply` tells the other nodes, by way of `heartbeat send --payload`.
//!
//! They take an address when this word says that it is not here. So it never denies what the kernel has: a
//! take is told before it is done, and a release after it was read back.

use super::{Present, share};
use crate::cli::{Exit, Failure, Reason};
use crate::decide::vip::{Order, Role};
use crate::record::Head;
use crate::record::elect::Told;
use crate::record::envelope;
use crate::sys;
use crate::sys::clock;
use crate::types::link::Address;
use crate::types::time::millis;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The file with one record for each address that was named.
pub(super) struct Beat {
    path: PathBuf,
    node: String,
    dev: Option<String>,
    /// How long the kernel goes on by itself.
    serves: Option<Duration>,
    /// The newest order about each address.
    orders: BTreeMap<IpAddr, Order>,
    written: Vec<(IpAddr, Told, Option<String>)>,
}

impl Beat {
    pub(super) fn new(path: PathBuf, node: &str, dev: Option<&str>, serves: Option<Duration>) -> Self {
        Beat {
            path,
            node: node.to_owned(),
            dev: dev.map(str::to_owned),
            serves,
            orders: BTreeMap::new(),
            written: Vec::new(),
        }
    }

    /// Takes orders in, and tells what will be served before it is.
    pub(super) fn before(&mut self, orders: &[Order], present: &Present) -> Result<(), Failure> {
        for order in orders {
            self.orders.insert(order.vip.addr, order.clone());
        }
        let now = clock::boot();
        let soon = |order: &Order| order.role(now) == Some(Role::Serve);
        let told = self.words(present, soon);
        if told == self.written { Ok(()) } else { self.write(told) }
    }

    /// Tells what the kernel has. Said again also without news, since a word holds for a while only.
    pub(super) fn after(&mut self, present: &Present) -> Result<(), Failure> {
        let told = self.words(present, |_| false);
        self.write(told)
    }

    fn words(&self, present: &Present, soon: impl Fn(&Order) -> bool) -> Vec<(IpAddr, Told, Option<String>)> {
        let word = |(vip, order): (&IpAddr, &Order)| {
            let dev = order.dev.as_deref().or(self.dev.as_deref());
            let told = Told {
                prefix_len: order.vip.len,
                dev: dev.map(str::to_owned),
                address: present.own_address(order.vip, dev).map(|addr| addr.to_string()),
                mine: soon(order) || present.addresses.iter().any(|one| serves(present, one, *vip)),
                master: order.elected.clone(),
                epoch: order.epoch,
            };
            (*vip, told, order.standby.clone())
        };
        self.orders.iter().map(word).collect()
    }

    fn write(&mut self, told: Vec<(IpAddr, Told, Option<String>)>) -> Result<(), Failure> {
        if told.is_empty() {
            return Ok(());
        }
        let now = clock::boot();
        let mut bytes = Vec::new();
        for (vip, word, standby) in &told {
            let mut head = Head::new("vip.address").about(vip);
            head.standby.clone_from(standby);
            // Twice as long as the order holds: the way to the others and their own pauses come on top. What
            // the kernel keeps by itself is said for good.
            let until = self.orders.get(vip).and_then(|order| order.until);
            let kernel = if word.mine { self.serves } else { Some(Duration::ZERO) };
            if let (Some(until), Some(kernel)) = (until, kernel) {
                head.received_ms = Some(now.as_ms());
                head.valid_for_ms = Some(millis((until.since(now) * 2).max(kernel)));
            }
            envelope::write(&mut bytes, &head, clock::wall(), &self.node, word).map_err(|why| {
                Failure::new(Exit::Bug, Reason::WriteFailed, format!("cannot write {}: {why}", self.path.display()))
            })?;
        }
        sys::state::replace(&self.path, &bytes)?;
        self.written = told;
        Ok(())
    }
}

/// Whether an address makes this host answer for `vip`: what is shared makes it serve and answer nobody.
fn serves(present: &Present, address: &Address, vip: IpAddr) -> bool {
    address.prefix.addr == vip && !share::is_shared(present, address)
}
