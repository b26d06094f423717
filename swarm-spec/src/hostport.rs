//! Jobs that are addresses: `host:port`, written as lines `host,port` by the predecessors' peering.

/// The name of the job that a line `host,port` stands for; `None` if it is nothing of the kind.
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
        // Only an address of IPv6 has colons of its own.
        host if host.contains(':') && !host.starts_with('[') => Some(format!("[{host}]:{port}")),
        host => Some(format!("{host}:{port}")),
    }
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
}
