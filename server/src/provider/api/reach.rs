//! Whether a model that is asked on this machine is there.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::Url;
use tokio::net::TcpStream;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(1);

/// Why a server on this machine cannot be asked, and what to do. None if it takes connections, or
/// lies elsewhere: another machine is not looked for.
pub(super) async fn problem(base: &Url) -> Option<String> {
    let (ips, port) = (loopback(base.host_str()?)?, base.port_or_known_default()?);
    let at = format!("{}:{port}", base.host_str()?);
    let places: Vec<SocketAddr> = ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    match tokio::time::timeout(CONNECT, TcpStream::connect(&places[..])).await {
        Ok(Ok(_)) => None,
        Ok(Err(no)) if no.kind() == io::ErrorKind::ConnectionRefused => {
            Some(format!("nothing listens on {at}: start it, or mend base_url"))
        }
        Ok(Err(no)) => Some(format!("{at} cannot be reached: {no}")),
        Err(_) => {
            let late = CONNECT.as_secs();
            Some(format!("{at} took no connection within {late} s: see what its server does"))
        }
    }
}

/// The addresses of a host, if it is this machine's loopback.
fn loopback(host: &str) -> Option<Vec<IpAddr>> {
    if host == "localhost" {
        // What the last one says is told, and not every machine has the first.
        return Some(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]);
    }
    let ip: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    ip.is_loopback().then(|| vec![ip])
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn of(base: String) -> Option<String> {
        problem(&base.parse().unwrap()).await
    }

    #[tokio::test]
    async fn what_listens_here_is_found_and_nobody_is_looked_for_elsewhere() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(of(format!("http://127.0.0.1:{port}/v1")).await, None);
        assert_eq!(of(format!("http://localhost:{port}/v1")).await, None);
        drop(listener);
        let told = of(format!("http://127.0.0.1:{port}/v1")).await.unwrap();
        assert_eq!(
            told,
            format!("nothing listens on 127.0.0.1:{port}: start it, or mend base_url")
        );
        let told = of(format!("http://localhost:{port}/v1")).await.unwrap();
        assert!(told.starts_with(&format!("nothing listens on localhost:{port}")), "{told}");
        assert_eq!(of(format!("http://192.0.2.1:{port}/v1")).await, None);
        assert_eq!(of("https://api.example.com/v1".to_owned()).await, None);
        assert_eq!(loopback("[::1]"), Some(vec![Ipv6Addr::LOCALHOST.into()]));
    }
}
