//! Endpoints: a host and a port, as a person writes them and as a request names them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Longest name of a host, and longest part of one, in bytes (RFC 1035).
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A host, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A name, without a dot at its end.
    Name(String),
    /// All names below one, which is not meant itself: `*.example.com`.
    Below(String),
    /// An address.
    Address(IpAddr),
}

/// A host and a port that can be connected to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The host.
    pub host: Host,
    /// The port, not 0.
    pub port: u16,
}

/// Why a text is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The scheme is another than http and https.
    #[error("{0:?} is no scheme for an endpoint; use https or http")]
    Scheme(String),
    /// There is a user or a password in it.
    #[error("it holds a user or a password; write the host only")]
    UserInfo,
    /// There is more than a host and a port.
    #[error("it holds a path; write host and port only, since nothing else is checked")]
    Path,
    /// There is no port, and no scheme to take it from.
    #[error("it has no port; write https:// before it, or the port after it")]
    NoPort,
    /// What stands for the port is none.
    #[error("{0:?} is no port; one from 1 to 65535 fits")]
    Port(String),
    /// What stands for the host is none.
    #[error("{host:?} is no host: {problem}")]
    Host {
        /// What stands there.
        host: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl Endpoint {
    /// Whether a request for `target` is for this endpoint.
    pub(crate) fn covers(&self, target: &Self) -> bool {
        let same_host = match (&self.host, &target.host) {
            (Host::Below(above), Host::Name(name)) => name
                .strip_suffix(above.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            (host, wanted) => host == wanted,
        };
        same_host && self.port == target.port
    }

    /// Reads `host`, `host:port` or `[address]:port`, without a `*`.
    pub(super) fn of_request(text: &str, default_port: Option<u16>) -> Result<Self, EndpointError> {
        let (host, port) = split(text)?;
        let port = match port {
            Some(port) => read_port(port)?,
            None => default_port.ok_or(EndpointError::NoPort)?,
        };
        Ok(Self { host: read_host(host)?, port })
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// Reads an endpoint as a person writes it: `https://api.example.com`,
    /// `http://127.0.0.1:11434`, `*.example.com:443`.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (default_port, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Some(443), rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Some(80), rest),
            Some((scheme, _)) => return Err(EndpointError::Scheme(shown(scheme))),
            None => (None, text),
        };
        let authority = rest.strip_suffix('/').filter(|_| default_port.is_some()).unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err(EndpointError::Path);
        }
        let Some(below) = authority.strip_prefix("*.") else {
            return Self::of_request(authority, default_port);
        };
        let endpoint = Self::of_request(below, default_port)?;
        let problem = match endpoint.host {
            Host::Name(name) if name.contains('.') => {
                return Ok(Self { host: Host::Below(name), ..endpoint });
            }
            Host::Name(_) => "a * must stand before a name with a dot in it",
            _ => "a * stands before a name, not an address",
        };
        Err(EndpointError::Host { host: shown(authority), problem })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Below(name) => write!(f, "*.{name}:{}", self.port),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            Host::Address(address) => write!(f, "{address}:{}", self.port),
        }
    }
}

/// Divides `host[:port]`; the brackets around an IPv6 address stay.
fn split(text: &str) -> Result<(&str, Option<&str>), EndpointError> {
    if text.contains('@') {
        return Err(EndpointError::UserInfo);
    }
    let end =
        if text.starts_with('[') { text.find(']').map(|end| end + 1) } else { text.find(':') };
    let (host, rest) = text.split_at(end.unwrap_or(text.len()));
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(EndpointError::Port(shown(rest))),
    }
}

fn read_port(text: &str) -> Result<u16, EndpointError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = if digits { text.parse().ok().filter(|port| *port != 0) } else { None };
    port.ok_or_else(|| EndpointError::Port(shown(text)))
}

fn read_host(text: &str) -> Result<Host, EndpointError> {
    let refuse = |problem| EndpointError::Host { host: shown(text), problem };
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address = inner.parse::<Ipv6Addr>();
        return match address {
            Ok(address) => Ok(Host::Address(address.into())),
            Err(_) => Err(refuse("there is no IPv6 address between the brackets")),
        };
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.is_empty() {
        return Err(refuse("it is empty"));
    }
    if name.len() > MAX_NAME || name.split('.').any(|label| label.len() > MAX_LABEL) {
        return Err(refuse("it is longer than a name can be"));
    }
    if !name.is_ascii() {
        return Err(refuse("it is not ASCII; write it in its xn-- form"));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        return Err(refuse("a name has letters, digits, \"-\", \"_\" and \".\" only"));
    }
    if name.split('.').any(str::is_empty) {
        return Err(refuse("a part of it is empty"));
    }
    // What ends in a number is an address to a resolver, in forms such as 127.1 or 0x7f000001.
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if !is_number {
        return Ok(Host::Name(name.to_ascii_lowercase()));
    }
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Host::Address(address)),
        Err(_) => Err(refuse("it ends in a number, but is no IPv4 address of four parts")),
    }
}

/// A text as an error shows it.
fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        let endpoint = text.parse::<Endpoint>();
        endpoint.map(|endpoint| endpoint.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_endpoint_is_read_as_a_person_writes_it() {
        for (text, read) in [
            ("https://api.anthropic.com", "api.anthropic.com:443"),
            ("HTTPS://API.Anthropic.com./", "api.anthropic.com:443"),
            ("http://127.0.0.1:11434", "127.0.0.1:11434"),
            ("http://localhost", "localhost:80"),
            ("https://[2606:4700::1111]", "[2606:4700::1111]:443"),
            ("[::1]:8080", "[::1]:8080"),
            ("my_host:1", "my_host:1"),
            ("https://*.openai.com", "*.openai.com:443"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(read), "{text}");
            assert_eq!(parse(read).as_deref(), Ok(read), "what is shown can be read");
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_for_what_is_wrong() {
        for (text, problem) in [
            ("api.anthropic.com", "it has no port"),
            ("ftp://x.example", "\"ftp\" is no scheme"),
            ("https://me:secret@x.example", "a user or a password"),
            ("https://x.example/v1", "it holds a path"),
            ("https://x.example?a", "it holds a path"),
            ("x.example:443/", "it holds a path"),
            ("x.example:0", "\"0\" is no port"),
            ("x.example:65536", "\"65536\" is no port"),
            ("x.example:+1", "\"+1\" is no port"),
            ("x.example:", "\"\" is no port"),
            ("[::1]x:80", "\"x:80\" is no port"),
            ("", "it has no port"),
            (":80", "it is empty"),
            ("https://", "it is empty"),
            ("a..b:80", "a part of it is empty"),
            ("a b:80", "letters, digits"),
            ("a\r\nb:80", "letters, digits"),
            ("bücher.example:80", "xn--"),
            ("127.1:80", "no IPv4 address"),
            ("0x7f000001:80", "no IPv4 address"),
            ("2130706433:80", "no IPv4 address"),
            ("127.0.0.1.:80", "no IPv4 address"),
            ("[fe80::1%eth0]:80", "no IPv6 address"),
            ("::1:80", "it is empty"),
            ("*.com:443", "a * must stand before"),
            ("*.1.2.3.4:443", "not an address"),
            ("a.*.example.com:443", "letters, digits"),
            ("*:443", "letters, digits"),
        ] {
            let error = parse(text).unwrap_err();
            // "::1:80" divides at its first colon: which part is blamed does not matter.
            let blamed = error.contains(problem) || (text == "::1:80" && error.contains("port"));
            assert!(blamed, "{text}: {error}");
        }
        assert!(parse(&format!("{}.example:1", "a".repeat(64))).is_err());
        assert!(parse(&format!("{}:1", "a.".repeat(128))).is_err());
    }

    #[test]
    fn an_entry_covers_its_own_host_and_port_and_no_other() {
        let covers = |entry: &str, target: &str| {
            let target = Endpoint::of_request(target, None).unwrap();
            entry.parse::<Endpoint>().unwrap().covers(&target)
        };
        assert!(covers("https://api.example.com", "API.example.COM.:443"));
        assert!(!covers("https://api.example.com", "api.example.com:80"));
        assert!(!covers("https://api.example.com", "x.api.example.com:443"));
        assert!(covers("https://*.example.com", "a.b.example.com:443"));
        assert!(!covers("https://*.example.com", "example.com:443"));
        assert!(!covers("https://*.example.com", "badexample.com:443"));
        assert!(covers("127.0.0.1:80", "127.0.0.1:80"));
        assert!(!covers("127.0.0.1:80", "[::ffff:127.0.0.1]:80"));
        assert!(!covers("127.0.0.1:80", "localhost:80"));
    }
}
