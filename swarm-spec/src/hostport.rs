//! Jobs that are addresses `host:port`. The predecessors' peering writes them as lines `host,port`.

/// The name of the job that a line `host,port` means; `None` for any other line.
///
/// ```
/// use swarm_spec::hostport::job_of;
///
/// assert_eq!(job_of("example.com,80").as_deref(), Some("example.com:80"));
/// assert_eq!(job_of("::1 , 8080").as_deref(), Some("[::1]:8080"));
/// assert_eq!(job_of("example.com:80"), None);
/// ```
#[must_use]
pub fn job_of(line: &str) -> Option<String> {
    let (host, port) = line.split_once(',')?;
    let (host, port) = (host.trim(), port.trim().parse::<u16>().ok().filter(|port| 0 < *port)?);
    match host {
        "" => None,
        // An IPv6 address, the only kind of host with colons.
        host if host.contains(':') && !host.starts_with('[') => Some(format!("[{host}]:{port}")),
        host => Some(format!("{host}:{port}")),
    }
}

/// The line `host,port` for the job of this name; `None` if the name is not an address.
///
/// ```
/// use swarm_spec::hostport::{job_of, line_of};
///
/// assert_eq!(line_of("example.com:80").as_deref(), Some("example.com,80"));
/// assert_eq!(line_of("[::1]:8080").as_deref(), Some("::1,8080"));
/// assert_eq!(line_of("stream:cars:new"), None);
/// ```
#[must_use]
pub fn line_of(job: &str) -> Option<String> {
    let (host, port) = job.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let line = format!("{bare},{port}");
    // A line is valid only if it is read back as the same job.
    (job_of(&line).as_deref() == Some(job)).then_some(line)
}

/// The text to write instead of a name that cannot be pinged.
pub const INSTEAD: &str = "write HOST:PORT, such as 127.0.0.1:9090 or [::1]:9090";

/// The host and the port of a job that is pinged; `None` for a name that no ping can reach.
///
/// ```
/// use swarm_spec::hostport::parts;
///
/// assert_eq!(parts("db.local:80"), Some(("db.local", 80)));
/// assert_eq!(parts("[::1]:9090"), Some(("::1", 9090)));
/// assert_eq!(parts("stream:cars:new"), None);
/// ```
#[must_use]
pub fn parts(job: &str) -> Option<(&str, u16)> {
    let (host, port) = job.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|host| host.contains(':'))?,
        None => Some(host).filter(|host| !host.contains([':', ']']))?,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
    (!host.is_empty() && host.chars().all(is_plain)).then_some((host, port))
}

/// The lines of a list of addresses with their numbers from 1, trimmed. Empty lines and comments
/// are left out.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The mistake in a line that is not an address, and the text to write instead.
#[must_use]
pub(crate) fn mistake_in(line: &str) -> String {
    let Some((host, port)) = line.split_once(',') else {
        return "write `host,port`".to_owned();
    };
    let (host, port) = (host.trim(), port.trim());
    if port.starts_with(|c: char| c.is_ascii_digit()) && port.bytes().all(|b| b.is_ascii_digit()) {
        return match host {
            "" => "the host is missing; write `host,port`".to_owned(),
            _ => format!("{} cannot be a port; write 1 to 65535", excerpt(port)),
        };
    }
    match (host, port) {
        ("host", "port") => "it is a heading; remove the line".to_owned(),
        (_, "") => "the port is missing; write `host,port`".to_owned(),
        _ => format!("the port `{}` is not a number; write 1 to 65535", excerpt(port)),
    }
}

/// The start of a line that is not an address, for an error message.
#[must_use]
pub fn excerpt(line: &str) -> String {
    line.chars().take(40).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_host_and_a_port() {
        for bad in ["example.com", "example.com:80", ",80", "a,0", "a,65536", "a,b", "a,1,2"] {
            assert_eq!(job_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_ping_needs_a_host_and_a_port() {
        for bad in ["", "a", "a:", ":80", "a:0", "a:65536", "::1:80", "[a]:80", "a/b:80", "a b:1"] {
            assert_eq!(parts(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_job_that_is_no_address_has_no_line() {
        for bad in ["example.com", "a:0", "a:080", "a:b:80", "a,b:80", ":80", "[a]:80"] {
            assert_eq!(line_of(bad), None, "{bad}");
        }
        assert_eq!(line_of("a:80").as_deref(), Some("a,80"));
    }
}
