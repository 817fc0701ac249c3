//! Which link-layer addresses an interface lets in besides its own.

use super::{Error, Result};
use crate::types::net::Mac;

/// The link-layer groups that are joined on `dev`, from `/proc/net/dev_mcast`.
pub(crate) fn joined(dev: &str) -> Result<Vec<Mac>> {
    let path = "/proc/self/net/dev_mcast";
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, &error))?;
    Ok(text
        .lines()
        .filter_map(|line| {
            // index, name, users, global users, address in hex
            let mut words = line.split_whitespace();
            let name = words.nth(1)?;
            let hex = words.nth(2).filter(|hex| hex.len() == 12 && name == dev)?;
            let number = u64::from_str_radix(hex, 16).ok()?.to_be_bytes();
            number.get(2..)?.try_into().ok().map(Mac)
        })
        .collect())
}
