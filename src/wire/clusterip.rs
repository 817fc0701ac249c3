//! The text of `/proc/net/ipt_CLUSTERIP/ADDRESS` (`net/ipv4/netfilter/ipt_CLUSTERIP.c`, Linux 2.6.10 to 6.1).
//!
//! Reading gives the local nodes, `1,2` and a newline, or nothing at all where there is none.
//! Writing takes one of `+N` and `-N` a write.

use crate::types::bucket::Buckets;

/// The most nodes that the kernel's structure holds (`CLUSTERIP_MAX_NODES`).
pub(crate) const MAX_NODES: u16 = 16;

/// Reads the file: the buckets that this node answers for.
///
/// # Errors
/// Anything but numbers from 1 to 32 between commas: the kernel prints a bitmap of 32.
pub(crate) fn parse(text: &str) -> Result<Buckets, String> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    if text.is_empty() {
        return Ok(Buckets::new());
    }
    text.split(',')
        .map(|number| match number.parse::<u16>() {
            Ok(bucket) if (1..=32).contains(&bucket) && !number.starts_with('+') => Ok(bucket),
            _ => Err(format!("'{number}' is not a node number (1 to 32)")),
        })
        .collect()
}

/// The file's text for `owned`, as the kernel prints it.
#[cfg(test)]
fn print(owned: &Buckets) -> String {
    let numbers: Vec<String> = owned.iter().map(|bucket| bucket.to_string()).collect();
    let mut text = numbers.join(",");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// One write that takes a bucket.
pub(crate) fn add(bucket: u16) -> String {
    format!("+{bucket}\n")
}

/// One write that gives a bucket up.
pub(crate) fn remove(bucket: u16) -> String {
    format!("-{bucket}\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_text_reads_and_prints() {
        for (text, list) in [("1,2\n", "1-2"), ("2\n", "2"), ("1,3,16\n", "1,3,16"), ("", "")] {
            let buckets = parse(text).unwrap();
            assert_eq!(buckets.to_string(), list);
            assert_eq!(print(&buckets), text);
        }
    }

    #[test]
    fn what_the_kernel_never_prints_is_refused() {
        for text in ["0\n", "33\n", "1,,2\n", "1-2\n", "x", "1,2,\n", "\n\n", "+1", "\0\0"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
