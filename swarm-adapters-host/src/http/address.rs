//! Parses an address to listen on, in the notation that people use.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Parses an address. `8080` and `localhost:8080` mean the loopback interface, and `:8080` means
/// all interfaces. `127.0.0.1:8080` or `[::1]:8080` mean the interface with this IP. Port 0 means
/// any free port.
///
/// # Errors
///
/// A sentence for a person.
///
/// ```
/// use swarm_adapters_host::http::address;
///
/// assert_eq!(address("localhost:8080"), address("127.0.0.1:8080"));
/// assert_eq!(address(":8080"), address("0.0.0.0:8080"));
/// assert!(address("example.com:8080").is_err());
/// ```
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let at = |ip: Ipv4Addr, port: &str| Some(SocketAddr::new(IpAddr::V4(ip), port.parse().ok()?));
    let short = match text.rsplit_once(':') {
        None => at(Ipv4Addr::LOCALHOST, text),
        Some(("localhost", port)) => at(Ipv4Addr::LOCALHOST, port),
        Some(("", port)) => at(Ipv4Addr::UNSPECIFIED, port),
        Some(_) => text.parse().ok(),
    };
    short.ok_or_else(|| {
        "write a port, or IP:PORT such as 127.0.0.1:8080, or :PORT for all interfaces".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let read = |text: &str| address(text).map(|address| address.to_string()).ok();
        for (text, expected) in [
            ("8080", "127.0.0.1:8080"),
            ("0", "127.0.0.1:0"),
            ("localhost:8080", "127.0.0.1:8080"),
            (":8080", "0.0.0.0:8080"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
            ("[::]:80", "[::]:80"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
        for bad in ["", ":", "everywhere", "70000", "localhost", "example.com:80", "::1:80", "-1"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
