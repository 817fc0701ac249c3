//! Forgetting connections: a masqueraded flow cannot move to another gateway, but it can begin anew there.

use crate::sys;
use crate::sys::conntrack::Conntrack;
use crate::types::gateway::Marks;
use crate::wire::ctnetlink::{self, Entry, Said};
use nix::errno::Errno;

/// Requests in one send: an answer to each must fit the receive buffer.
const BATCH: usize = 128;

/// Deletes all connections of a family that have the marks of these gateways; says how many there were.
pub(super) fn flush(ipv6: bool, marks: Marks, numbers: &[u32]) -> sys::Result<u64> {
    if numbers.is_empty() {
        return Ok(0);
    }
    let mut conntrack = Conntrack::open()?;
    let mut deleted = 0;
    for number in numbers {
        let mark = marks.gateway(*number);
        conntrack.send(&ctnetlink::list(ipv6, mark, marks.mask, 0))?;
        let mut entries = listed(&mut conntrack)?;
        // A kernel that does not look at the marks lists them all.
        entries.retain(|entry| entry.mark & marks.mask == mark);
        for batch in entries.chunks(BATCH) {
            deleted += delete(&mut conntrack, batch)?;
        }
    }
    Ok(deleted)
}

fn listed(conntrack: &mut Conntrack) -> sys::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    loop {
        for said in ctnetlink::read(conntrack.receive()?) {
            match said {
                Said::Entry(entry) => entries.push(entry),
                Said::Done | Said::Answer(_, 0) => return Ok(entries),
                Said::Answer(_, errno) => return Err(refused("list", errno)),
            }
        }
    }
}

/// How many of them were there still.
fn delete(conntrack: &mut Conntrack, batch: &[Entry]) -> sys::Result<u64> {
    let mut bytes = Vec::new();
    for (sequence, entry) in (0u32..).zip(batch) {
        bytes.extend(ctnetlink::delete(entry, sequence, sequence as usize + 1 == batch.len()));
    }
    conntrack.send(&bytes)?;
    let mut deleted = batch.len() as u64;
    loop {
        for said in ctnetlink::read(conntrack.receive()?) {
            let Said::Answer(sequence, errno) = said else { continue };
            match Errno::from_raw(errno) {
                // It ended by itself.
                Errno::ENOENT => deleted = deleted.saturating_sub(1),
                _ if errno != 0 => return Err(refused("delete", errno)),
                _ => {}
            }
            if sequence as usize + 1 == batch.len() {
                return Ok(deleted);
            }
        }
    }
}

fn refused(doing: &str, errno: i32) -> sys::Error {
    match Errno::from_raw(errno) {
        // No part of the kernel listens to it.
        Errno::EINVAL => sys::Error::Missing {
            doing: doing.to_owned(),
            object: "connections".to_owned(),
            what: "this kernel has no ctnetlink".to_owned(),
            mend: "load the module nf_conntrack_netlink".to_owned(),
            reason: sys::error::Missing::Feature,
        },
        errno => sys::Error::call(doing, "connections", errno),
    }
}
