//! HTTP over sockets that we opened ourselves, by ureq, which only this file names.
//!
//! ureq gives the protocol and TLS; the connection is [`super::connect`]'s, so that a probe leaves by
//! the way it was told to, and its refusal keeps its errno.

use super::connect::{self, Via};
use super::worker::Stop;
use super::{Error, Result, clock};
use crate::types::target::Target;
use crate::types::time::Tick;
use nix::errno::Errno;
use socket2::Socket;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, RustlsConnector, Transport,
};

/// Where systems keep the certificates that they trust.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Asks servers.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: Agent,
}

/// How a server is trusted, and what it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls<'a> {
    /// Certificates to trust and no others, in PEM; the system's where it is not named.
    pub(crate) ca: Option<&'a Path>,
    /// A certificate of our own and its key, in PEM.
    pub(crate) identity: Option<(&'a Path, &'a Path)>,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The beginning of the body, as much as was asked for.
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoResponse {
    /// The connection failed.
    Connection(Errno),
    /// Nothing, or not all of it, came in time.
    Timeout,
    /// There is no way to the host: its name cannot be looked up, its interface is not there.
    Nowhere(Error),
    /// It answered, and not as HTTP and TLS ask it to.
    Wrong(String),
}

/// Why what was asked has no answer, and whether it was asked at all.
#[derive(Debug)]
pub(crate) struct NoAnswer {
    pub(crate) why: NoResponse,
    /// Perhaps the server does what it was asked to.
    pub(crate) asked: bool,
}

/// A URL of http or https that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// With user and password, which the server wants, and without the zone of an address, which means
    /// nothing to it (RFC 6874 §3).
    asked: String,
    /// For records and people: without user and password, which are nobody else's.
    pub(crate) shown: String,
    pub(crate) tls: bool,
    /// Its host, without a port.
    pub(crate) host: Target,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        // In what is no URL the password may have any form: all before the last @ is left out.
        let hidden = format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, rest)| rest));
        let hidden = if scheme.is_empty() { hidden.trim_start_matches("://") } else { &hidden };
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(format!("'{hidden}' is not a URL of http or https (http://192.0.2.1:8080/health)")),
        };
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, place) = authority.rsplit_once('@').map_or(("", authority), |(user, place)| (user, place));
        let (host, port) = match place.find(']') {
            Some(end) if place.starts_with('[') => place.split_at(end + 1),
            _ => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        if host.is_empty() {
            return Err(format!("'{hidden}' names no host"));
        }
        // Without a number it is the usual one (RFC 3986 §3.2.3).
        let number = port.strip_prefix(':').unwrap_or(port);
        let is_port = |number: &str| {
            number.bytes().all(|digit| digit.is_ascii_digit()) && number.parse::<u16>().is_ok_and(|port| port > 0)
        };
        if !number.is_empty() && !is_port(number) {
            return Err(format!("'{hidden}' has no port from 1 to 65535"));
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        // The percent sign of a zone is written as %25 in a URL, and often is not.
        let (bare, zone) = bare.split_once('%').map_or((bare, ""), |(bare, zone)| (bare, zone));
        let zone = zone.strip_prefix("25").unwrap_or(zone);
        let target = if zone.is_empty() { bare.to_owned() } else { format!("{bare}%{zone}") };
        let host_asked = if host.starts_with('[') { format!("[{bare}]") } else { bare.to_owned() };
        let at = if user.is_empty() { "" } else { "@" };
        let asked = format!("{scheme}://{user}{at}{host_asked}{port}{tail}");
        asked.parse::<ureq::http::Uri>().map_err(|error| format!("'{hidden}' is not a URL: {error}"))?;
        if host.starts_with('[') && bare.parse::<Ipv6Addr>().is_err() {
            return Err(format!("'{hidden}' has no IPv6 address between its brackets"));
        }
        let host = target.parse().map_err(|why| format!("the host of '{hidden}': {why}"))?;
        Ok(Url { asked, shown: format!("{scheme}://{place}{tail}"), tls, host })
    }
}

impl Client {
    /// Makes a client that leaves by `via` and goes to `target`, whatever the host of a URL is.
    /// Certificates are read only where TLS needs them: those of `ca`, else the system's.
    pub(crate) fn new(tls: bool, ca: Option<&Path>, target: Target, via: Via) -> Result<Self> {
        let tls = tls.then_some(Tls { ca, identity: None });
        Client::with(tls.as_ref(), target, Open { via, keeps: false, stop: None })
    }

    /// Makes a client that keeps its connection to `target` for the next request, and breaks off what it waits for
    /// once `stop` says so.
    pub(crate) fn lasting(tls: Option<&Tls<'_>>, target: Target, stop: Option<Stop>) -> Result<Self> {
        Client::with(tls, target, Open { via: Via::default(), keeps: true, stop })
    }

    fn with(tls: Option<&Tls<'_>>, target: Target, open: Open) -> Result<Self> {
        let mut config = Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_idle_connections(usize::from(open.keeps))
            .user_agent(concat!("failover-utils/", env!("CARGO_PKG_VERSION")));
        if let Some(tls) = tls {
            let identity = tls.identity.map(|(certificate, key)| identity(certificate, key)).transpose()?;
            let tls = TlsConfig::builder().root_certs(roots(tls.ca)?).client_cert(identity);
            config = config.tls_config(tls.build());
        }
        let connector = open.chain(RustlsConnector::default());
        Ok(Client { agent: Agent::with_parts(config.build(), connector, Lookup { target }) })
    }

    /// Gets `url`, and of its body the first `most` bytes.
    ///
    /// # Errors
    /// See [`NoResponse`].
    pub(crate) fn get(&self, url: &Url, most: u64, deadline: Tick) -> std::result::Result<Response, NoResponse> {
        let request = self.agent.get(&url.asked).header("connection", "close");
        let left = deadline.since(clock::boot()).max(Duration::from_millis(1));
        let request = request.config().timeout_global(Some(left)).build();
        let mut response = request.call().map_err(|error| no_response(&error))?;
        let mut body = Vec::new();
        response.body_mut().as_reader().take(most).read_to_end(&mut body).map_err(|error| io_failed(&error))?;
        Ok(Response { status: response.status().as_u16(), body })
    }
}

/// What is asked of a server by POST, always as JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post<'a> {
    pub(crate) url: &'a Url,
    pub(crate) headers: &'a [(&'static str, &'a str)],
    pub(crate) body: &'a [u8],
}

impl Client {
    /// Asks by POST, and gets of the answer the first `most` bytes.
    ///
    /// # Errors
    /// See [`NoAnswer`].
    pub(crate) fn post(&self, post: Post<'_>, most: u64, deadline: Tick) -> std::result::Result<Response, NoAnswer> {
        let (status, mut reader) = self.send(post, Timing::Whole(deadline))?;
        let mut body = Vec::new();
        let read = Read::by_ref(&mut reader).take(most).read_to_end(&mut body);
        read.map_err(|error| NoAnswer { why: io_failed(&error), asked: true })?;
        // A connection can be kept only where the end of the answer was read.
        let _ = reader.read(&mut [0]);
        Ok(Response { status, body })
    }

    /// Asks by POST for an answer that has no end: it must begin by `deadline`.
    ///
    /// # Errors
    /// See [`NoAnswer`]; what fails later is an error of the reader.
    pub(crate) fn stream(
        &self,
        post: Post<'_>,
        deadline: Tick,
    ) -> std::result::Result<(u16, impl Read + use<>), NoAnswer> {
        self.send(post, Timing::Beginning(deadline))
    }

    fn send(&self, post: Post<'_>, timing: Timing) -> std::result::Result<(u16, impl Read + use<>), NoAnswer> {
        let left = |deadline: Tick| Some(deadline.since(clock::boot()).max(Duration::from_millis(1)));
        let mut request = self.agent.post(&post.url.asked).header("content-type", "application/json");
        for (name, value) in post.headers {
            request = request.header(*name, *value);
        }
        let config = request.config();
        let request = match timing {
            Timing::Whole(deadline) => config.timeout_global(left(deadline)).build(),
            Timing::Beginning(deadline) => {
                config.timeout_connect(left(deadline)).timeout_recv_response(left(deadline)).build()
            }
        };
        let response = request.send(post.body).map_err(|error| {
            let why = no_response(&error);
            let unconnected = matches!(&error, ureq::Error::Other(inner) if inner.is::<Unconnected>());
            NoAnswer { asked: !unconnected && !matches!(why, NoResponse::Nowhere(_)), why }
        })?;
        Ok((response.status().as_u16(), response.into_body().into_reader()))
    }
}

/// What must be over by a point in time.
#[derive(Clone, Copy)]
enum Timing {
    Whole(Tick),
    Beginning(Tick),
}

/// Reads a certificate of our own, with those that signed it, and its key.
fn identity(certificate: &Path, key: &Path) -> Result<ClientCert> {
    let wrong = |path: &Path, why: &str| Error::File {
        doing: "read".to_owned(),
        path: path.display().to_string(),
        why: why.to_owned(),
        mend: "PEM is wanted".to_owned(),
    };
    let chain = certificates(certificate)?;
    let text = super::state::read_secret(key, "read", "a file with a private key is wanted, in PEM")?;
    let key = PrivateKey::from_pem(text.as_bytes()).map_err(|_| wrong(key, "there is no private key in it"))?;
    Ok(ClientCert::new_with_certs(&chain, key))
}

/// The certificates of a file.
fn certificates(path: &Path) -> Result<Vec<ureq::tls::Certificate<'static>>> {
    let name = path.display().to_string();
    let bytes = super::state::read(path)?.ok_or_else(|| Error::File {
        doing: "read".to_owned(),
        path: name.clone(),
        why: "it is not there".to_owned(),
        mend: "a file with certificates is wanted, in PEM".to_owned(),
    })?;
    let certificates: Vec<_> = ureq::tls::parse_pem(&bytes)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(Error::File {
            doing: "read".to_owned(),
            path: name,
            why: "there is no certificate in it".to_owned(),
            mend: "PEM is wanted: -----BEGIN CERTIFICATE-----".to_owned(),
        });
    }
    Ok(certificates)
}

fn roots(ca: Option<&Path>) -> Result<RootCerts> {
    let found = ca.or_else(|| SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists()));
    let path = found.ok_or_else(|| Error::Missing {
        doing: "verify".to_owned(),
        object: "servers".to_owned(),
        what: "the system has no list of trusted certificates".to_owned(),
        mend: "install the package ca-certificates, or give --ca FILE".to_owned(),
        reason: super::error::Missing::Feature,
    })?;
    Ok(RootCerts::Specific(Arc::new(certificates(path)?)))
}

fn io_failed(error: &std::io::Error) -> NoResponse {
    // An error of ureq's own may travel inside one of std.
    match error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
        Some(inner) => no_response(inner),
        None => match error.raw_os_error() {
            Some(code) => NoResponse::Connection(Errno::from_raw(code)),
            None if error.kind() == std::io::ErrorKind::TimedOut => NoResponse::Timeout,
            // It ended before its answer did.
            None if error.kind() == std::io::ErrorKind::UnexpectedEof => NoResponse::Connection(Errno::ECONNRESET),
            None => wrong(error.to_string()),
        },
    }
}

fn no_response(error: &ureq::Error) -> NoResponse {
    match error {
        ureq::Error::Timeout(_) => NoResponse::Timeout,
        ureq::Error::Io(error) => io_failed(error),
        ureq::Error::Other(inner) if let Some(error) = inner.downcast_ref::<Error>() => {
            NoResponse::Nowhere(error.clone())
        }
        ureq::Error::Other(inner) if let Some(Unconnected(errno)) = inner.downcast_ref() => match errno {
            Errno::ETIMEDOUT => NoResponse::Timeout,
            errno => NoResponse::Connection(*errno),
        },
        other => wrong(other.to_string()),
    }
}

/// What a server did wrong, in words that say what to do where the library's do not.
fn wrong(said: String) -> NoResponse {
    // What `openssl req -x509` makes is the certificate of a CA (RFC 5280 §4.2.1.9).
    NoResponse::Wrong(if said.contains("CaUsedAsEndEntity") {
        "its certificate is a CA's own and no server's: give the server one that a CA has signed, and --ca the CA's"
            .to_owned()
    } else {
        said
    })
}

/// Finds the way to a server as every probe does.
#[derive(Debug)]
struct Lookup {
    target: Target,
}

impl Resolver for Lookup {
    fn resolve(
        &self,
        uri: &ureq::http::Uri,
        _: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> std::result::Result<ResolvedSocketAddrs, ureq::Error> {
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let deadline = clock::boot().after(*timeout.after);
        let found = connect::resolve(&self.target, uri.port_u16().unwrap_or(usual), deadline);
        let mut addresses = self.empty();
        let found = found.map_err(|error| ureq::Error::Other(Box::new(error)))?;
        for address in found {
            addresses.push(address);
        }
        Ok(addresses)
    }
}

/// There is no connection, so nothing was asked.
#[derive(Debug)]
struct Unconnected(Errno);

impl std::fmt::Display for Unconnected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.desc())
    }
}

impl std::error::Error for Unconnected {}

/// Opens the connection; the next in the chain puts TLS on it where the URL asks for that.
#[derive(Debug)]
struct Open {
    via: Via,
    /// Whether a connection may serve the next request too.
    keeps: bool,
    /// Breaks off what is waited for.
    stop: Option<Stop>,
}

impl Connector<()> for Open {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> std::result::Result<Option<Connection>, ureq::Error> {
        let addresses: Vec<SocketAddr> = details.addrs.iter().copied().collect();
        let deadline = clock::boot().after(*details.timeout.after);
        let socket = connect::first(&addresses, &self.via, deadline).map_err(|refusals| {
            // What the last one said: all of them failed.
            let errno = refusals.last().map_or(Errno::EHOSTUNREACH, |(_, errno)| *errno);
            ureq::Error::Other(Box::new(Unconnected(errno)))
        })?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let (socket, _) = socket;
        if self.keeps {
            // A request is one segment and waits for its answer: holding it back for more only delays it. And a
            // server that is gone without a word must not be waited for without end.
            let _ = socket.set_tcp_nodelay(true);
            let _ = connect::keep_alive(&socket);
        }
        Ok(Some(Connection { socket, buffers, keeps: self.keeps, stop: self.stop.clone() }))
    }
}

/// A connection as ureq wants one. The socket does not block; it is waited for with a deadline.
struct Connection {
    socket: Socket,
    buffers: LazyBuffers,
    keeps: bool,
    stop: Option<Stop>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.fmt(f)
    }
}

impl Connection {
    /// Tries until it neither blocks nor is interrupted.
    fn retry<T>(
        &self,
        timeout: NextTimeout,
        write: bool,
        mut step: impl FnMut(&Socket) -> std::io::Result<T>,
    ) -> std::result::Result<T, ureq::Error> {
        use std::os::fd::AsFd;
        let deadline = clock::boot().after(*timeout.after);
        loop {
            match step(&self.socket) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => return Ok(other?),
            }
            let mut sources = super::event::Sources::default();
            if write {
                sources.writable(self.socket.as_fd());
            } else {
                sources.readable(self.socket.as_fd());
            }
            let stop = self.stop.as_ref().map(|stop| sources.readable(stop.as_fd()));
            let ready = sources.wait(Some(deadline)).unwrap_or(false);
            if !ready || stop.is_some_and(|stop| sources.is_ready(stop)) {
                return Err(ureq::Error::Timeout(timeout.reason));
            }
        }
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> std::result::Result<(), ureq::Error> {
        let mut sent = 0;
        while sent < amount {
            let output = self.buffers.output();
            let rest = output.get(sent..amount).unwrap_or_default().to_vec();
            sent += self.retry(timeout, true, |mut socket| socket.write(&rest))?;
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> std::result::Result<bool, ureq::Error> {
        let mut block = [0; 8192];
        let room = self.buffers.input_append_buf().len().min(block.len());
        let length = self.retry(timeout, false, |mut socket| socket.read(&mut block[..room]))?;
        self.buffers.input_append_buf()[..length].copy_from_slice(&block[..length]);
        self.buffers.input_appended(length);
        Ok(length > 0)
    }

    fn is_open(&mut self) -> bool {
        // What can be read between two requests is the end, or no answer to anything.
        let mut sources = super::event::Sources::default();
        let slot = sources.readable(std::os::fd::AsFd::as_fd(&self.socket));
        self.keeps && sources.wait(Some(clock::boot())).is_ok() && !sources.is_ready(slot)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_http_has_a_url_here() {
        assert!(!"http://192.0.2.1:8080/health".parse::<Url>().unwrap().tls);
        assert!("HTTPS://www.example.org".parse::<Url>().unwrap().tls);
        for url in [
            "",
            "www.example.org",
            "ftp://x/",
            "http://",
            "http:///x",
            "/x",
            "http://a b/",
            "http://a:99999/",
            "http://a:0/",
            "http://a:+1/",
            "http://[::1]x/",
            "http://[::1/",
            "http://[x]/",
        ] {
            assert!(url.parse::<Url>().is_err(), "{url}");
        }
    }

    #[test]
    fn a_zone_is_a_way_and_not_a_part_of_the_question() {
        for text in ["http://[fe80::1%25eth0]:8080/x", "http://[fe80::1%eth0]:8080/x"] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.asked.as_str(), url.shown.as_str()), ("http://[fe80::1]:8080/x", text));
            assert_eq!(url.host.to_string(), "fe80::1%eth0");
        }
    }

    #[test]
    fn a_password_is_asked_with_and_never_shown() {
        let url: Url = "http://user:secret@www.example.org:80/a@b".parse().unwrap();
        assert_eq!(url.asked, "http://user:secret@www.example.org:80/a@b");
        assert_eq!(url.shown, "http://www.example.org:80/a@b");
        for wrong in ["user:secret@x", "http://user:secret@x:99999/", "http://user:sec/secret@x", "ftp://user:secret@x"]
        {
            let said = wrong.parse::<Url>().unwrap_err();
            assert!(!said.contains("secret") && !said.contains("user"), "{said}");
        }
    }
}
