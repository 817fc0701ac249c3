//! What `getent ahosts` prints: the addresses that the C library would give a program, a line for each kind of socket.

use std::net::IpAddr;

/// The addresses, in the order in which a program would try them, each once.
pub(crate) fn ahosts(text: &str) -> Vec<IpAddr> {
    let mut all = Vec::new();
    for word in text.lines().filter_map(|line| line.split_whitespace().next()) {
        let address = word.split('%').next().unwrap_or_default();
        if let Ok(address) = address.parse()
            && !all.contains(&address)
        {
            all.push(address);
        }
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_address_counts_once_and_in_order() {
        let text = "192.0.2.81      STREAM www.example.org\n192.0.2.81      DGRAM  \n192.0.2.81      RAW    \n\
                    fe80::1%eth0    STREAM \n2001:db8::1     STREAM\nnonsense\n\n";
        let wanted: Vec<IpAddr> =
            ["192.0.2.81", "fe80::1", "2001:db8::1"].into_iter().map(|it| it.parse().unwrap()).collect();
        assert_eq!(ahosts(text), wanted);
    }
}
