//! Buckets: `total` parts of all flows, numbered from 1 as CLUSTERIP did.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The most buckets that a map may have.
pub(crate) const MAX_TOTAL: u16 = 4096;

/// A set of bucket numbers; prints sorted, with ranges: `1-22,40`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Buckets(Vec<u16>);

impl Buckets {
    /// No bucket.
    pub(crate) const fn new() -> Self {
        Buckets(Vec::new())
    }

    /// Every bucket from 1 to `total`.
    pub(crate) fn all(total: u16) -> Self {
        Buckets((1..=total).collect())
    }

    pub(crate) fn contains(&self, bucket: u16) -> bool {
        self.0.binary_search(&bucket).is_ok()
    }

    /// Adds a bucket; says whether it was new.
    pub(crate) fn insert(&mut self, bucket: u16) -> bool {
        match self.0.binary_search(&bucket) {
            Ok(_) => false,
            Err(at) => {
                self.0.insert(at, bucket);
                true
            }
        }
    }

    pub(crate) fn union(&self, other: &Buckets) -> Buckets {
        self.iter().chain(other.iter()).collect()
    }

    pub(crate) fn intersection(&self, other: &Buckets) -> Buckets {
        Buckets(self.iter().filter(|&bucket| other.contains(bucket)).collect())
    }

    /// What is here and not in `other`.
    pub(crate) fn difference(&self, other: &Buckets) -> Buckets {
        Buckets(self.iter().filter(|&bucket| !other.contains(bucket)).collect())
    }

    /// In rising order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The highest bucket.
    pub(crate) fn max(&self) -> Option<u16> {
        self.0.last().copied()
    }

    /// Runs of consecutive buckets as `(first, last)`, rising.
    pub(crate) fn ranges(&self) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for bucket in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == bucket => *last = bucket,
                _ => ranges.push((bucket, bucket)),
            }
        }
        ranges
    }
}

impl FromIterator<u16> for Buckets {
    fn from_iter<I: IntoIterator<Item = u16>>(buckets: I) -> Self {
        let mut list: Vec<u16> = buckets.into_iter().collect();
        list.sort_unstable();
        list.dedup();
        Buckets(list)
    }
}

impl fmt::Display for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, (first, last)) in self.ranges().into_iter().enumerate() {
            if idx > 0 {
                f.write_str(",")?;
            }
            if first == last {
                write!(f, "{first}")?;
            } else {
                write!(f, "{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Buckets {
    type Err = String;

    /// Takes `N[-M][,…]`, each from 1 to 4096. The empty text is no bucket.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Buckets::new());
        }
        let mut list = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (bucket_number(first, text)?, bucket_number(last, text)?);
            if first > last {
                return Err(format!("'{part}' runs backwards; write {last}-{first}"));
            }
            list.extend(first..=last);
        }
        Ok(list.into_iter().collect())
    }
}

fn bucket_number(text: &str, list: &str) -> Result<u16, String> {
    let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u16>().ok()).flatten();
    match number {
        Some(number) if (1..=MAX_TOTAL).contains(&number) => Ok(number),
        _ => Err(format!("'{list}' is not a bucket list (N[-M][,…], each 1 to {MAX_TOTAL})")),
    }
}

/// Which node owns which buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners(pub(crate) BTreeMap<String, Buckets>);

impl Owners {
    /// The node that owns `bucket`; the first by name where several do.
    pub(crate) fn owner(&self, bucket: u16) -> Option<&str> {
        self.0.iter().find(|(_, buckets)| buckets.contains(bucket)).map(|(node, _)| node.as_str())
    }

    /// Adds one `node` with its buckets.
    ///
    /// # Errors
    /// A bucket that another node has already, or a node named twice.
    pub(crate) fn add(&mut self, node: &str, buckets: Buckets) -> Result<(), String> {
        for (other, theirs) in &self.0 {
            let both = theirs.intersection(&buckets);
            if !both.is_empty() {
                return Err(format!("bucket {both} is given to both {other} and {node}"));
            }
        }
        if self.0.insert(node.to_owned(), buckets).is_some() {
            return Err(format!("node {node} is named twice"));
        }
        Ok(())
    }
}

impl FromStr for Owners {
    type Err = String;

    /// Takes `node=LIST,node=LIST`, as on a command line: `n1=1-3,5,n2=4`, also `1=n1,2=n2`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut grouped: Vec<(String, String)> = Vec::new();
        for part in text.split(',') {
            match part.split_once('=') {
                Some((left, right))
                    if left.starts_with(|c: char| c.is_ascii_digit())
                        && !right.starts_with(|c: char| c.is_ascii_digit()) =>
                {
                    match grouped.iter_mut().find(|(node, _)| node == right) {
                        Some((_, list)) => {
                            list.push(',');
                            list.push_str(left);
                        }
                        None => grouped.push((right.to_owned(), left.to_owned())),
                    }
                }
                Some((node, first)) => grouped.push((node.to_owned(), first.to_owned())),
                None => match grouped.last_mut() {
                    Some((_, list)) => {
                        list.push(',');
                        list.push_str(part);
                    }
                    None => return Err(format!("'{text}' is not an owner map (n1=1-2,n2=3)")),
                },
            }
        }
        let mut owners = Owners::default();
        for (node, list) in grouped {
            super::node::check_name(&node)?;
            owners.add(&node, list.parse()?)?;
        }
        Ok(owners)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_list_prints_sorted_with_ranges() {
        for (text, printed) in [("1,2", "1-2"), ("3,1,2,7", "1-3,7"), ("5-5", "5"), ("", ""), ("1-4,2-6", "1-6")] {
            assert_eq!(text.parse::<Buckets>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["0", "4097", "1-", "-1", "2-1", "1,,2", "a", "+1", "1 2", "99999999999"] {
            assert!(text.parse::<Buckets>().is_err(), "{text}");
        }
    }

    #[test]
    fn owners_read_in_both_directions() {
        for text in ["n1=1-3,5,n2=4", "1-3=n1,5=n1,4=n2"] {
            let owners: Owners = text.parse().unwrap();
            assert_eq!(owners.owner(5), Some("n1"));
            assert_eq!(owners.owner(4), Some("n2"));
            assert_eq!(owners.owner(6), None);
        }
    }

    #[test]
    fn a_bucket_has_one_owner() {
        assert!("n1=1-3,n2=3".parse::<Owners>().is_err());
        assert!("n1=1,n1=2".parse::<Owners>().is_err());
        assert!("1,2".parse::<Owners>().is_err());
    }
}
