//! Kernel settings below `/proc/sys/net`.

use super::{Error, Result};
use std::fs;
use std::path::PathBuf;

/// Reads one setting, `ipv4/conf/eth0/arp_ignore`; `None` where the kernel has no such file.
pub(crate) fn read(name: &str) -> Result<Option<String>> {
    match fs::read_to_string(path(name)) {
        Ok(value) => Ok(Some(value.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path(name).display().to_string(), &error)),
    }
}

/// Writes one setting; says whether it was another before.
pub(crate) fn write(name: &str, value: &str) -> Result<bool> {
    if read(name)?.as_deref() == Some(value) {
        return Ok(false);
    }
    let file = path(name);
    match fs::write(&file, value) {
        Ok(()) => Ok(true),
        Err(error) => Err(Error::io(format!("write {value} to"), file.display().to_string(), &error)),
    }
}

fn path(name: &str) -> PathBuf {
    // An interface may have a dot in its name; it is one folder there all the same.
    PathBuf::from("/proc/sys/net").join(name)
}
