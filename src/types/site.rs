//! Sites: places with the same service, behind one name.

use super::gateway::Weight;
use super::node::check_name;
use std::net::IpAddr;

/// A site as its operator describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    pub(crate) name: String,
    /// Each once, of either family.
    pub(crate) addresses: Vec<IpAddr>,
    /// Above 0.
    pub(crate) weight: Weight,
    /// 1 is used first.
    pub(crate) tier: u32,
}

impl Site {
    /// The site of this name, as it is without any further word.
    ///
    /// # Errors
    /// It is no name.
    pub(crate) fn called(name: &str) -> Result<Self, String> {
        check_name(name).map_err(|_| format!("'{name}' is no name of a site (letters, digits, '.', '-', '_')"))?;
        Ok(Site { name: name.to_owned(), addresses: Vec::new(), weight: Weight(1.0), tier: 1 })
    }

    /// Takes a word of its description: an address, `weight=2` or `tier=2`.
    ///
    /// # Errors
    /// It is none of them, or no address that a client can go to.
    pub(crate) fn take(&mut self, word: &str) -> Result<(), String> {
        match word.split_once('=') {
            None => self.add(word),
            Some(("weight", value)) => {
                let weight: Weight = value.parse()?;
                if weight.0 <= 0.0 {
                    return Err("a site with the weight 0 is none: leave it out".to_owned());
                }
                self.weight = weight;
                Ok(())
            }
            Some(("tier", value)) => {
                let tier = value.parse().ok().filter(|tier| (1..=255).contains(tier));
                self.tier = tier.ok_or_else(|| format!("'{value}' is not a tier from 1 to 255"))?;
                Ok(())
            }
            Some((key, _)) => Err(format!("a site has no '{key}' (weight tier)")),
        }
    }

    /// # Errors
    /// It is no address that a client can go to.
    pub(crate) fn add(&mut self, address: &str) -> Result<(), String> {
        let address: IpAddr = address.parse().map_err(|_| format!("'{address}' is not an address"))?;
        if address.is_unspecified() || address.is_multicast() {
            return Err(format!("{address} is no address of a site"));
        }
        if !self.addresses.contains(&address) {
            self.addresses.push(address);
        }
        Ok(())
    }
}
