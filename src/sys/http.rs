//! HTTP over sockets that we opened ourselves, by ureq, which only this file names.
//!
//! ureq gives the protocol and TLS; the connection is [`super::connect`]'s, so that a probe leaves by
//! the way it was told to, and its refusal keeps its errno.

use super::connect::{self, Via};
use super::{Error, Result, clock};
use crate::types::target::Target;
use crate::types::time::Tick;
use nix::errno::Errno;
use socket2::Socket;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{PemItem, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, RustlsConnector, Transport,
};
use ureq::{Agent, Timeout};

/// Where systems keep the certificates that they trust.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Asks servers, one request a connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: Agent,
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
    /// The name could not be looked up.
    NoSuchHost,
    /// It answered, and not as HTTP and TLS ask it to.
    Wrong(String),
}

/// Checks that `url` can be asked for; says whether it needs TLS.
///
/// # Errors
/// No URL, none of http and https, or one without a host.
pub(crate) fn check_url(url: &str) -> std::result::Result<bool, String> {
    let uri: ureq::http::Uri = url.parse().map_err(|error| format!("'{url}' is not a URL: {error}"))?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(format!("'{url}' is not a URL of http or https (http://192.0.2.1:8080/health)")),
    };
    if uri.host().is_none_or(str::is_empty) {
        return Err(format!("'{url}' names no host"));
    }
    Ok(tls)
}

impl Client {
    /// Makes a client that leaves by `via` and goes to `instead` of a URL's host, where that is given.
    /// Certificates are read only where TLS needs them: those of `ca`, else the system's.
    pub(crate) fn new(tls: bool, ca: Option<&Path>, instead: Option<Target>, via: Via) -> Result<Self> {
        let mut config = Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_idle_connections(0)
            .user_agent(concat!("failover-utils/", env!("CARGO_PKG_VERSION")));
        if tls {
            config = config.tls_config(TlsConfig::builder().root_certs(roots(ca)?).build());
        }
        let connector = Open { via }.chain(RustlsConnector::default());
        Ok(Client { agent: Agent::with_parts(config.build(), connector, Lookup { instead }) })
    }

    /// Gets `url`, and of its body the first `most` bytes.
    ///
    /// # Errors
    /// See [`NoResponse`].
    pub(crate) fn get(&self, url: &str, most: u64, deadline: Tick) -> std::result::Result<Response, NoResponse> {
        let request = self.agent.get(url).header("connection", "close");
        let left = deadline.since(clock::boot()).max(Duration::from_millis(1));
        let request = request.config().timeout_global(Some(left)).build();
        let mut response = request.call().map_err(|error| no_response(&error))?;
        let mut body = Vec::new();
        response.body_mut().as_reader().take(most).read_to_end(&mut body).map_err(|error| io_failed(&error))?;
        Ok(Response { status: response.status().as_u16(), body })
    }
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
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Error::io("read", &name, &error))?;
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
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

fn io_failed(error: &std::io::Error) -> NoResponse {
    // An error of ureq's own may travel inside one of std.
    match error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
        Some(inner) => no_response(inner),
        None => match error.raw_os_error() {
            Some(code) => NoResponse::Connection(Errno::from_raw(code)),
            None if error.kind() == std::io::ErrorKind::TimedOut => NoResponse::Timeout,
            None => NoResponse::Wrong(error.to_string()),
        },
    }
}

fn no_response(error: &ureq::Error) -> NoResponse {
    match error {
        ureq::Error::Timeout(_) => NoResponse::Timeout,
        ureq::Error::HostNotFound => NoResponse::NoSuchHost,
        ureq::Error::Io(error) => io_failed(error),
        other => NoResponse::Wrong(other.to_string()),
    }
}

/// Looks up the host of a URL as every probe does.
#[derive(Debug)]
struct Lookup {
    instead: Option<Target>,
}

impl Resolver for Lookup {
    fn resolve(
        &self,
        uri: &ureq::http::Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> std::result::Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let target = self.instead.clone().or_else(|| host.parse().ok());
        let found = target.and_then(|target| connect::resolve(&target, uri.port_u16().unwrap_or(usual)).ok());
        let mut addresses = self.empty();
        found.ok_or(ureq::Error::HostNotFound)?.into_iter().for_each(|address| addresses.push(address));
        Ok(addresses)
    }
}

/// Opens the connection; the next in the chain puts TLS on it where the URL asks for that.
#[derive(Debug)]
struct Open {
    via: Via,
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
            match errno {
                Errno::ETIMEDOUT => ureq::Error::Timeout(Timeout::Connect),
                errno => ureq::Error::Io(std::io::Error::from_raw_os_error(errno as i32)),
            }
        })?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Connection { socket: socket.0, buffers }))
    }
}

/// A connection as ureq wants one. The socket does not block; it is waited for with a deadline.
struct Connection {
    socket: Socket,
    buffers: LazyBuffers,
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
            if !sources.wait(Some(deadline)).unwrap_or(false) {
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
        // Each request has a connection of its own.
        false
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_http_has_a_url_here() {
        assert!(!check_url("http://192.0.2.1:8080/health").unwrap());
        assert!(check_url("https://www.example.org").unwrap());
        for url in ["", "www.example.org", "ftp://x/", "http://", "http:///x", "/x", "http://a b/"] {
            assert!(check_url(url).is_err(), "{url}");
        }
    }
}
