//! Services that are placed on nodes, what they need, and what they require of a node.

use super::node::check_name;
use std::fmt;
use std::str::FromStr;

/// What nodes have and services use, in the order of [`Amounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    Cpu,
    Memory,
    Bandwidth,
}

impl Resource {
    pub(crate) const ALL: [Resource; 3] = [Resource::Cpu, Resource::Memory, Resource::Bandwidth];

    /// Its key in records.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Resource::Cpu => "cpu",
            Resource::Memory => "memory_bytes",
            Resource::Bandwidth => "bandwidth_bps",
        }
    }

    fn named(word: &str) -> Option<Resource> {
        match word {
            "cpu" => Some(Resource::Cpu),
            "memory" | "memory_bytes" => Some(Resource::Memory),
            "bandwidth" | "bandwidth_bps" => Some(Resource::Bandwidth),
            _ => None,
        }
    }

    /// How many of our units one of a record's is: processors count in thousandths, so that sums are exact.
    fn scale(self) -> f64 {
        if self == Resource::Cpu { 1000.0 } else { 1.0 }
    }

    /// An amount as a record has it, in our units.
    ///
    /// # Errors
    /// It is negative, not finite, or beyond any machine.
    pub(crate) fn amount(self, number: f64) -> Result<u64, String> {
        // Exact in a float, and a thousand sums of it fit.
        const MOST: f64 = 9_007_199_254_740_992.0;
        let scaled = (number * self.scale()).round();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded
        if (0.0..=MOST).contains(&scaled) {
            Ok(scaled as u64)
        } else {
            Err(format!("{number} is no amount of {}", self.as_str()))
        }
    }

    /// The amount as a record has it.
    #[allow(clippy::cast_precision_loss)] // exact below 2^53
    pub(crate) fn number(self, amount: u64) -> f64 {
        amount as f64 / self.scale()
    }

    /// An amount as an operator writes it: `0.5` processors, `4G` bytes (of 1024), `1G` bits a second (of 1000).
    fn parse(self, text: &str) -> Result<u64, String> {
        let wrong = || format!("'{text}' is no amount of {}", self.as_str());
        let base: f64 = if self == Resource::Memory { 1024.0 } else { 1000.0 };
        let units = if self == Resource::Cpu { "" } else { "KMGT" };
        let unit = text.chars().last().and_then(|last| units.find(last.to_ascii_uppercase()));
        let digits = if unit.is_some() { &text[..text.len() - 1] } else { text };
        if !digits.starts_with(|c: char| c.is_ascii_digit()) || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        {
            return Err(wrong());
        }
        let number: f64 = digits.parse().map_err(|_| wrong())?;
        let power = unit.map_or(0, |idx| i32::try_from(idx + 1).unwrap_or_default());
        self.amount(number * base.powi(power)).map_err(|_| wrong())
    }
}

/// So much of each resource: thousandths of a processor, bytes, bits a second.
pub(crate) type Amounts = [u64; 3];

/// Takes `cpu=2`, `memory=4G` or `bandwidth=1G` into `need`; says whether it was one of them.
///
/// # Errors
/// It is no amount.
fn take_need(need: &mut Amounts, key: &str, value: &str) -> Result<bool, String> {
    let Some(resource) = Resource::named(key) else { return Ok(false) };
    need[resource as usize] = resource.parse(value)?;
    Ok(true)
}

/// What a service needs of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need(pub(crate) Amounts);

impl FromStr for Need {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut need = Need::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not KEY=AMOUNT"))?;
            if !take_need(&mut need.0, key, value)? {
                return Err(format!("'{key}' is no resource (cpu memory bandwidth)"));
            }
        }
        Ok(need)
    }
}

/// A service as its operator describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// The node that it belongs on.
    pub(crate) home: Option<String>,
    /// `None`: what all need of which nothing else is said.
    pub(crate) need: Option<Need>,
    pub(crate) requires: Vec<Expr>,
}

impl Service {
    /// The longest name of a service, in bytes.
    const MAX_NAME: usize = 223;

    /// The service of this name, as it is without any further word.
    ///
    /// # Errors
    /// It is no name: empty, long, or with blanks, commas, quotes or control characters.
    pub(crate) fn called(name: &str) -> Result<Self, String> {
        let fits = (1..=Self::MAX_NAME).contains(&name.len())
            && !name.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, ',' | '"' | '=' | '{' | '['));
        if !fits {
            return Err(format!("'{name}' is no name of a service (no blanks, ',', '=', '\"', '{{' or '[')"));
        }
        Ok(Service { name: name.to_owned(), home: None, need: None, requires: Vec::new() })
    }

    /// Takes a word of its description: `home=n1`, `cpu=2`, `memory=4G`, `bandwidth=1G` or `require=EXPR`.
    ///
    /// # Errors
    /// It is none of them.
    pub(crate) fn take(&mut self, word: &str) -> Result<(), String> {
        match word.split_once('=') {
            None => Err(format!("'{word}' is not key=value")),
            Some(("home", node)) => {
                check_name(node)?;
                self.home = Some(node.to_owned());
                Ok(())
            }
            Some(("require", expr)) => {
                self.requires.push(expr.parse()?);
                Ok(())
            }
            Some((key, value)) => {
                let mut need = self.need.unwrap_or_default();
                if !take_need(&mut need.0, key, value)? {
                    return Err(format!("a service has no '{key}' (home cpu memory bandwidth require)"));
                }
                self.need = Some(need);
                Ok(())
            }
        }
    }
}

/// What an expression is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Node,
    Services,
    Total(Resource),
    Used(Resource),
    /// What is left of the total.
    Free(Resource),
    /// A field or label as the node tells it.
    Told(String),
}

impl Key {
    fn read(text: &str) -> Key {
        let of = |prefix: &str| text.strip_prefix(prefix).and_then(Resource::named);
        match text {
            "node" => Key::Node,
            "services" => Key::Services,
            _ => of("total.")
                .map(Key::Total)
                .or_else(|| of("used.").map(Key::Used))
                .or_else(|| of("free.").map(Key::Free))
                .unwrap_or_else(|| Key::Told(text.to_owned())),
        }
    }

    /// Whether placing something can change it: such an expression chooses a node, and drives nothing off one.
    pub(crate) fn changes(&self) -> bool {
        matches!(self, Key::Services | Key::Used(_) | Key::Free(_))
    }
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Op {
    Equal,
    Not,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// `KEY(=|!=|<|<=|>|>=)VALUE`: numbers are compared as numbers, else as text, which is equal or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr {
    pub(crate) key: Key,
    op: Op,
    value: Fact,
    text: String,
}

impl FromStr for Expr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not KEY(=|!=|<|<=|>|>=)VALUE");
        let at = text.find(['=', '!', '<', '>']).ok_or_else(wrong)?;
        let (key, rest) = text.split_at(at);
        let ops = [
            ("!=", Op::Not),
            ("<=", Op::AtMost),
            (">=", Op::AtLeast),
            ("=", Op::Equal),
            ("<", Op::Less),
            (">", Op::More),
        ];
        let (op, value) =
            ops.into_iter().find_map(|(sign, op)| Some((op, rest.strip_prefix(sign)?))).ok_or_else(wrong)?;
        if key.is_empty() || value.is_empty() || key.contains(char::is_whitespace) || text.len() > 256 {
            return Err(wrong());
        }
        let value = Fact::read(value);
        if matches!(value, Fact::Text(_)) && !matches!(op, Op::Equal | Op::Not) {
            return Err(format!("'{text}': only numbers are less or more"));
        }
        Ok(Expr { key: Key::read(key), op, value, text: text.to_owned() })
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expr {
    /// As it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a value satisfies it; one that is not there does not, whatever is asked of it.
    pub(crate) fn holds(&self, fact: Option<&Fact>) -> bool {
        match (fact, &self.value) {
            (None, _) => false,
            (Some(Fact::Number(got)), Fact::Number(wanted)) => match self.op {
                #[allow(clippy::float_cmp)] // as written
                Op::Equal => got == wanted,
                #[allow(clippy::float_cmp)]
                Op::Not => got != wanted,
                Op::Less => got < wanted,
                Op::AtMost => got <= wanted,
                Op::More => got > wanted,
                Op::AtLeast => got >= wanted,
            },
            (Some(got), wanted) => match self.op {
                Op::Equal => got == wanted,
                Op::Not => got != wanted,
                _ => false,
            },
        }
    }

    /// Why a value does not satisfy it.
    pub(crate) fn fault(&self, fact: Option<&Fact>) -> String {
        match fact {
            None => format!("{self}: the node does not tell it"),
            Some(fact) => format!("{self}: it is {fact}"),
        }
    }
}

/// What a node tells under one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fact {
    Number(f64),
    Text(String),
}

impl Fact {
    /// A value as it is written: a number if it can be one.
    pub(crate) fn read(text: &str) -> Fact {
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.map_or_else(|| Fact::Text(text.to_owned()), Fact::Number)
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Number(number) => number.fmt(f),
            Fact::Text(text) => text.fmt(f),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_service_reads_its_words() {
        let mut service = Service::called("iqn.2026-11.org.example:lun1").unwrap();
        for word in ["home=n1", "cpu=0.5", "memory=4G", "bandwidth=1G", "require=zone=a", "require=services<3"] {
            service.take(word).unwrap();
        }
        assert_eq!(service.need, Some(Need([500, 4 << 30, 1_000_000_000])));
        assert_eq!((service.home.as_deref(), service.requires.len()), (Some("n1"), 2));
        for word in
            ["x", "home=a/b", "cpu=", "cpu=-1", "cpu=1G", "memory=4X", "memory=1e9", "weight=2", "require=a", "cpu=NaN"]
        {
            assert!(service.take(word).is_err(), "{word}");
        }
        for name in ["", "a b", "a,b", "a=b", &"x".repeat(224)] {
            assert!(Service::called(name).is_err(), "{name}");
        }
        assert_eq!("cpu=2,memory_bytes=1K,bandwidth_bps=1k".parse(), Ok(Need([2000, 1024, 1000])));
        assert!("cpu".parse::<Need>().is_err() && "disk=1".parse::<Need>().is_err());
    }

    #[test]
    fn an_expression_compares_numbers_as_numbers_and_a_missing_key_fails() {
        for (expr, fact, holds) in [
            ("zone=a", Some("a"), true),
            ("zone=a", Some("b"), false),
            ("zone!=a", Some("b"), true),
            ("zone!=a", None, false),
            ("zone=a", None, false),
            ("gen=2", Some("2.0"), true),
            ("gen<10", Some("9"), true),
            ("gen<=9", Some("9"), true),
            ("gen>9", Some("9"), false),
            ("gen>=9", Some("9"), true),
            ("gen>1", Some("new"), false),
            ("gen!=1", Some("new"), true),
        ] {
            let read: Expr = expr.parse().unwrap();
            assert_eq!(read.holds(fact.map(Fact::read).as_ref()), holds, "{expr} {fact:?}");
            assert_eq!(read.to_string(), expr);
        }
        for text in ["", "zone", "=a", "zone=", "zone<a", "zone!a", "a b=1"] {
            assert!(text.parse::<Expr>().is_err(), "{text}");
        }
        let fault = |fact: Option<&Fact>| "zone=a".parse::<Expr>().unwrap().fault(fact);
        assert_eq!(fault(None), "zone=a: the node does not tell it");
        assert_eq!(fault(Some(&Fact::read("b"))), "zone=a: it is b");
        assert_eq!("free.memory_bytes>=1".parse::<Expr>().unwrap().key, Key::Free(Resource::Memory));
    }
}
