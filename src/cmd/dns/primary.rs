//! A server that takes updates, and how it is talked to: signed, and each step over a connection of its own.

use crate::cli::{Exit, Failure, Reason};
use crate::decide::update::Standing;
use crate::sys::connect::{self, Via};
use crate::sys::{clock, raw};
use crate::types::domain::Domain;
use crate::types::rrset::{AddressSet, Family, MARK};
use crate::types::target::Target;
use crate::types::time::Tick;
use crate::wire::dns::update::{Fault, Key, Said, Signed, Update};
use crate::wire::dns::{Answer, Question, tcp};
use nix::errno::Errno;
use std::net::SocketAddr;

/// The server, and the name that it is asked about.
pub(super) struct Primary<'a> {
    pub(super) target: &'a Target,
    pub(super) to: SocketAddr,
    pub(super) key: &'a Key,
    pub(super) name: &'a Domain,
}

/// Why a step came to nothing.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) failure: Failure,
    pub(super) rcode: Option<String>,
    pub(super) fault: Option<Fault>,
    /// What was sent may have been done all the same.
    pub(super) unclear: bool,
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Trouble { failure, rcode: None, fault: None, unclear: false }
    }
}

/// What a server tells of the name.
pub(super) struct Look {
    pub(super) standing: Standing,
    /// Where it was asked for and told.
    pub(super) zone: Option<String>,
    pub(super) rcode: String,
}

/// Seconds since 1970, which signatures count in.
fn now_s() -> u64 {
    u64::try_from(clock::wall().unix_us / 1_000_000).unwrap_or(0)
}

/// Five minutes, which two clocks may be apart: who counts less cannot say when its signature begins to hold.
const FIRST_S: u64 = 300;

fn identifier() -> Result<u16, Failure> {
    Ok(u16::from_be_bytes(raw::random()?))
}

impl Primary<'_> {
    /// Begins each sentence.
    fn cannot(&self) -> String {
        format!("cannot update {} on {}", self.name, self.target)
    }

    pub(super) fn failure(&self, exit: Exit, reason: Reason, why: &str) -> Failure {
        Failure::new(exit, reason, format!("{}: {why}", self.cannot()))
    }

    /// What a failure of ours says, without what is in every one.
    pub(super) fn why<'f>(&self, failure: &'f Failure) -> &'f str {
        let sentence = failure.sentence.as_str();
        sentence.strip_prefix(&self.cannot()).map_or(sentence, |rest| rest.trim_start_matches(": "))
    }

    /// What stands at the name, and the zone that it is in where that is `wanted`.
    pub(super) fn look(&self, zone_wanted: bool, until: Tick) -> Result<Look, Trouble> {
        let types = ["A", "AAAA", "TXT", "SOA"];
        let types = if zone_wanted { &types[..] } else { &types[..3] };
        let answers = self.ask(&types.iter().map(|qtype| (self.name.as_str(), *qtype)).collect::<Vec<_>>(), until)?;
        for answer in &answers {
            self.check(answer)?;
        }
        let set = |family: Family| {
            let found = answers.iter().zip(types).find(|(_, qtype)| **qtype == family.as_str());
            found.map_or_else(AddressSet::default, |(answer, _)| addresses(answer))
        };
        let texts = answers.get(2);
        let is_mark = |text: &Vec<Box<[u8]>>| matches!(text.as_slice(), [one] if **one == *MARK.as_bytes());
        let has_others = |answer: &&Answer| !answer.texts.iter().all(is_mark);
        Ok(Look {
            standing: Standing {
                a: set(Family::A),
                aaaa: set(Family::Aaaa),
                marked: texts.is_some_and(|answer| answer.texts.iter().any(is_mark)),
                texts_ttl_s: texts.filter(has_others).and_then(|answer| answer.ttl_s),
            },
            zone: answers.get(3).and_then(|answer| answer.soa.as_ref()).map(|soa| soa.zone.clone()),
            rcode: answers.into_iter().next().map(|answer| answer.rcode).unwrap_or_default(),
        })
    }

    /// Whether an answer is the server's own word about the name.
    fn check(&self, answer: &Answer) -> Result<(), Trouble> {
        let trouble = |exit, reason, why: &str| Trouble {
            rcode: Some(answer.rcode.clone()),
            ..Trouble::from(self.failure(exit, reason, why))
        };
        match answer.rcode.as_str() {
            "NOERROR" | "NXDOMAIN" => {}
            "SERVFAIL" => {
                let why = "it cannot tell what stands there (SERVFAIL; its log tells why)";
                return Err(trouble(Exit::Undecided, Reason::Refused, why));
            }
            rcode => {
                let why =
                    format!("it has no zone with that name, or does not let us ask ({rcode}; is it the primary?)");
                return Err(trouble(Exit::BadInput, Reason::NotInZone, &why));
            }
        }
        if !answer.authoritative {
            let why = "it answers without authority, so it has no zone with that name (is it a resolver?)";
            return Err(trouble(Exit::BadInput, Reason::NotInZone, why));
        }
        if answer.truncated {
            let why = "what stands there does not fit its answer (are there thousands of records?)";
            return Err(trouble(Exit::Undecided, Reason::Refused, why));
        }
        match answer.aliases.last() {
            None => Ok(()),
            Some(other) => {
                let why = format!("it is an alias of {other}, beside which no address can stand (update that name)");
                Err(trouble(Exit::BadInput, Reason::Conflict, &why))
            }
        }
    }

    /// Asks for what is known of names without asking others, all over one connection.
    pub(super) fn ask(&self, questions: &[(&str, &str)], until: Tick) -> Result<Vec<Answer>, Trouble> {
        if now_s() < FIRST_S {
            let why = "our clock is before 1970, and a signature counts from there (set the clock)";
            return Err(self.failure(Exit::BadInput, Reason::BadTime, why).into());
        }
        let mut id = identifier()?;
        let mut asked = Vec::new();
        for (name, qtype) in questions {
            id = id.wrapping_add(1);
            let question = Question::new(name, qtype, id).map_err(Failure::usage)?.without_recursion();
            let signed = question.signed(self.key, now_s()).map_err(Failure::usage)?;
            asked.push((question, signed));
        }
        let signed: Vec<Signed> = asked.iter().map(|(_, signed)| signed.clone()).collect();
        let said = self.exchange(&signed, until)?;
        let read = |((question, _), (said, bytes)): (&(Question, Signed), (Said, Vec<u8>))| {
            question.answer(&bytes).ok_or_else(|| Trouble {
                rcode: Some(said.rcode.clone()),
                ..self.failure(Exit::Undecided, Reason::Refused, &format!("its answer ({}) is none", said.rcode)).into()
            })
        };
        asked.iter().zip(said).map(read).collect()
    }

    /// An update as it is sent.
    ///
    /// # Errors
    /// It does not fit a message.
    pub(super) fn sign(&self, update: &Update<'_>) -> Result<Signed, Failure> {
        let signed = update.signed(identifier()?, self.key, now_s());
        signed.map_err(|why| self.failure(Exit::BadInput, Reason::BadInput, &why))
    }

    /// Sends an update. What the server says of it is the caller's to judge.
    pub(super) fn update(&self, update: &Signed, until: Tick) -> Result<String, Trouble> {
        let said = self.exchange(std::slice::from_ref(update), until)?;
        Ok(said.into_iter().next().map(|(said, _)| said.rcode).unwrap_or_default())
    }

    /// Sends messages, and gives what is said to each once all were answered; the first fault ends it.
    fn exchange(&self, messages: &[Signed], until: Tick) -> Result<Vec<(Said, Vec<u8>)>, Trouble> {
        let mut bytes = Vec::new();
        for message in messages {
            tcp::push(message.bytes(), &mut bytes).map_err(Failure::usage)?;
        }
        let socket = connect::one(self.to, &Via::default(), until).map_err(|errno| self.unreachable(errno))?;
        let whole = |got: &[u8]| {
            let now = now_s();
            let of = |message: &Signed| {
                tcp::messages(got).find_map(|bytes| Some((message.read(bytes, now)?, bytes.to_vec())))
            };
            let answers: Vec<_> = messages.iter().map(of).collect();
            let faulty = answers.iter().flatten().find_map(|(said, _)| Some((said.fault?, said.rcode.clone())));
            match faulty {
                Some(faulty) => Some(Err(faulty)),
                None => answers.into_iter().collect::<Option<Vec<_>>>().map(Ok),
            }
        };
        let most = messages.len() * tcp::MOST;
        match connect::converse(&socket, &bytes, most, until, whole) {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err((fault, rcode))) => Err(self.distrusted(fault, rcode)),
            Err(errno) => Err(self.silent(errno)),
        }
    }

    fn unreachable(&self, errno: Errno) -> Trouble {
        let why = match errno {
            Errno::ECONNREFUSED => {
                "nobody listens there over TCP (does the server run, and is the port right?)".to_owned()
            }
            Errno::ETIMEDOUT => "no connection over TCP in the time given (is a firewall between?)".to_owned(),
            errno => format!("no connection: {}", errno.desc()),
        };
        Failure { errno: Some(errno), ..self.failure(Exit::Undecided, Reason::Unreachable, &why) }.into()
    }

    fn silent(&self, errno: Errno) -> Trouble {
        let reason = if errno == Errno::EMSGSIZE { Reason::Refused } else { Reason::TimedOut };
        let why = match errno {
            Errno::EMSGSIZE => {
                "it answered, and more than was asked for: nothing of it is an answer to us (is it a name \
                 server?)"
                    .to_owned()
            }
            Errno::ETIMEDOUT => "it did not answer in the time given (allow longer with --timeout)".to_owned(),
            Errno::ECONNRESET | Errno::EPIPE => {
                "it ended the connection without an answer (its log may tell why)".to_owned()
            }
            errno => format!("it did not answer: {}", errno.desc()),
        };
        let failure = Failure { errno: Some(errno), ..self.failure(Exit::Undecided, reason, &why) };
        Trouble { unclear: true, ..failure.into() }
    }

    /// An answer whose signature, or what it says of ours, is not as it should be.
    fn distrusted(&self, fault: Fault, rcode: String) -> Trouble {
        let (name, algorithm) = (self.key.name(), self.key.algorithm());
        let (exit, reason, why) = match fault {
            Fault::BadSig => (
                Exit::BadInput,
                Reason::BadSignature,
                format!("its key {name} has another secret than ours (BADSIG; compare the two key files)"),
            ),
            Fault::BadKey => (
                Exit::BadInput,
                Reason::BadKey,
                format!("it does not know a key {name} with {algorithm} (BADKEY; is the key in its configuration?)"),
            ),
            Fault::BadTime { ahead_s } => {
                let side = if ahead_s < 0 { "behind" } else { "ahead of" };
                let apart = ahead_s.unsigned_abs();
                let why = format!("our clock is {apart} s {side} the server's (BADTIME; set the one that is wrong)");
                (Exit::BadInput, Reason::BadTime, why)
            }
            Fault::BadTrunc => (
                Exit::BadInput,
                Reason::BadSignature,
                "it wants longer signatures than the algorithm of the key makes (BADTRUNC; make a key of another)"
                    .to_owned(),
            ),
            Fault::Other(code) => (
                Exit::BadInput,
                Reason::BadSignature,
                format!("it refuses our signature with the TSIG error {code} (its log may tell why)"),
            ),
            Fault::Unsigned => (
                Exit::Undecided,
                Reason::BadSignature,
                format!(
                    "its answer ({rcode}) to what we signed has no signature, so it is not believed (does it know \
                     TSIG, and is it the server that you mean?)"
                ),
            ),
            Fault::Truncated => (
                Exit::Undecided,
                Reason::BadSignature,
                "the signature of its answer is cut short, which proves too little (configure whole ones)".to_owned(),
            ),
            Fault::OtherKey => (
                Exit::Undecided,
                Reason::BadSignature,
                format!("its answer is signed with another key than {name} or not with {algorithm}"),
            ),
            Fault::Unverified => (
                Exit::Undecided,
                Reason::BadSignature,
                "the signature of its answer is wrong: it was changed on its way, or is another's".to_owned(),
            ),
            Fault::OutOfTime { ahead_s } => {
                let side = if ahead_s < 0 { "after" } else { "before" };
                let apart = ahead_s.unsigned_abs();
                let why = format!("its answer was signed {apart} s {side} our time (set the clock that is wrong)");
                (Exit::Undecided, Reason::BadTime, why)
            }
        };
        Trouble {
            failure: self.failure(exit, reason, &why),
            rcode: Some(rcode),
            fault: Some(fault),
            unclear: !fault.is_refusal(),
        }
    }

    /// An update that was not done.
    pub(super) fn refused(&self, rcode: &str, zone: &str) -> Trouble {
        let (exit, reason, why) = match rcode {
            "REFUSED" => (
                Exit::NotPermitted,
                Reason::NotPermitted,
                format!(
                    "the key {} may not change it (REFUSED; see allow-update and update-policy there)",
                    self.key.name()
                ),
            ),
            "NOTAUTH" => (
                Exit::BadInput,
                Reason::NotInZone,
                format!("it is not an authority for the zone {zone} (NOTAUTH; is it the primary?)"),
            ),
            "NOTZONE" => (
                Exit::BadInput,
                Reason::NotInZone,
                format!("it says that the name is not in the zone {zone} (NOTZONE)"),
            ),
            "SERVFAIL" => (
                Exit::Undecided,
                Reason::Refused,
                "it could not do it (SERVFAIL; its log tells why: a journal that it cannot write, more records than it takes?)".to_owned(),
            ),
            "NOTIMP" => (
                Exit::BadInput,
                Reason::Refused,
                "it does not know updates at all (NOTIMP; is it the primary?)".to_owned(),
            ),
            "FORMERR" => (Exit::BadInput, Reason::Refused, "it does not understand the update (FORMERR)".to_owned()),
            rcode => (Exit::Undecided, Reason::Refused, format!("it did not do it ({rcode})")),
        };
        Trouble { rcode: Some(rcode.to_owned()), ..self.failure(exit, reason, &why).into() }
    }
}

/// The addresses of an answer to a question for them.
pub(super) fn addresses(answer: &Answer) -> AddressSet {
    AddressSet { addresses: answer.addresses.iter().copied().collect(), ttl_s: answer.ttl_s.unwrap_or(0) }
}
