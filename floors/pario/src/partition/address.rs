//! Address of a server's storage: `host:/dir`, or `/dir` on the machine that brings the partition up.
//!
//! Always: the directory is absolute and without `.`, `..` or doubled slashes, so that equal directories compare equal.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// One server's host and storage directory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ServerAddress {
    /// Name or address of the host, in lower case; an IPv6 address without its brackets. `None`: the host that brings the partition up.
    pub host: Option<String>,
    /// Absolute directory on that host.
    pub dir: PathBuf,
}

/// Why a text is not a server's address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// No absolute directory.
    #[error("needs an absolute directory: write \"/dir\" or \"host:/dir\"")]
    Relative,
    /// An ambiguous directory.
    #[error("the directory must not have '..' in it, must not be '/', and must not have control characters")]
    Directory,
    /// Not a host's name.
    #[error("'{host}' is not a host: write a name, an IPv4 address, or an IPv6 address in brackets")]
    Host {
        /// The text.
        host: String,
    },
}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, dir) = split(text)?;
        Ok(ServerAddress { host: host.map(check_host).transpose()?, dir: clean_directory(dir)? })
    }
}

/// Host and directory, neither checked yet.
fn split(text: &str) -> Result<(Option<&str>, &str), AddressError> {
    if text.starts_with('/') {
        return Ok((None, text));
    }
    let host_end = if text.starts_with('[') { text.find(']').map_or(0, |at| at + 1) } else { 0 };
    let colon = text[host_end..].find(':').ok_or(AddressError::Relative)? + host_end;
    Ok((Some(&text[..colon]), &text[colon + 1..]))
}

fn check_host(host: &str) -> Result<String, AddressError> {
    let wrong = || AddressError::Host { host: host.to_owned() };
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| wrong())?;
        return Ok(address.to_string());
    }
    // A leading '-' would be an option of the launch command.
    let good = !host.is_empty()
        && !host.starts_with(['-', '.'])
        && host.len() <= 253
        && host.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if good { Ok(host.to_ascii_lowercase()) } else { Err(wrong()) }
}

/// An absolute directory without doubled slashes and `.`.
///
/// # Errors
/// [`AddressError::Relative`] or [`AddressError::Directory`].
pub fn clean_directory(dir: &str) -> Result<PathBuf, AddressError> {
    if !dir.starts_with('/') {
        return Err(AddressError::Relative);
    }
    let path = Path::new(dir);
    let strange =
        path.components().any(|part| part == Component::ParentDir) || dir.chars().any(char::is_control);
    let clean: PathBuf = path.components().collect();
    if strange || clean == Path::new("/") { Err(AddressError::Directory) } else { Ok(clean) }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            None => write!(f, "{}", self.dir.display()),
            Some(host) if host.contains(':') => write!(f, "[{host}]:{}", self.dir.display()),
            Some(host) => write!(f, "{host}:{}", self.dir.display()),
        }
    }
}

impl ServerAddress {
    /// Whether it is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.host.as_deref().is_none_or(is_local)
    }

    /// Host and directory for comparison: all names of the local machine are equal.
    fn comparable(&self) -> (&str, &Path) {
        let host = self.host.as_deref().filter(|host| !is_loopback(host)).unwrap_or("");
        (host, &self.dir)
    }
}

/// The first two servers, by index, with equal or nested directories.
#[must_use]
pub fn find_overlap(servers: &[ServerAddress]) -> Option<(usize, usize)> {
    let mut order: Vec<usize> = (0..servers.len()).collect();
    order.sort_by_key(|&at| servers[at].comparable());
    // Paths sort by component: a nested directory directly follows its parent.
    order.windows(2).find_map(|pair| {
        let (outer, inner) = (servers[pair[0]].comparable(), servers[pair[1]].comparable());
        (outer.0 == inner.0 && inner.1.starts_with(outer.1))
            .then(|| (pair[0].min(pair[1]), pair[0].max(pair[1])))
    })
}

/// Whether a host is this machine: `localhost`, a loopback address, its own name, or an address of its interfaces. Names are
/// not resolved: another alias of this machine is reached by the launch command, which also works.
#[must_use]
pub fn is_local(host: &str) -> bool {
    if is_loopback(host) {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return is_own_address(address);
    }
    let own = own_host();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    host == own || (!host.contains('.') || !own.contains('.')) && short(host) == short(&own)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The kernel binds a socket only to addresses of its own interfaces.
fn is_own_address(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && UdpSocket::bind((address, 0)).is_ok()
}

/// This machine's name, in lower case.
#[must_use]
pub fn own_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, host: Option<&str>, dir: &str) {
        let address: ServerAddress = text.parse().unwrap();
        assert_eq!((address.host.as_deref(), address.dir.to_str().unwrap()), (host, dir));
        assert_eq!(address.to_string().parse(), Ok(address));
    }

    #[test]
    fn reads_host_and_directory() {
        check("/data", None, "/data");
        check("//data/./x/", None, "/data/x");
        check("Node1:/data", Some("node1"), "/data");
        check("10.0.0.1:/a:b", Some("10.0.0.1"), "/a:b");
        check("[::1]:/data", Some("::1"), "/data");
    }

    #[test]
    fn refuses_what_is_no_address() {
        for text in ["", "data", "node1", "node1:data", "[::1]", "node1:"] {
            assert_eq!(text.parse::<ServerAddress>(), Err(AddressError::Relative), "{text}");
        }
        for text in ["/", "/a/../b", "node1:/", "/a\nb"] {
            assert_eq!(text.parse::<ServerAddress>(), Err(AddressError::Directory), "{text}");
        }
        for text in [":/d", "-oProxyCommand=x:/d", "a b:/d", "user@host:/d", "[::zz]:/d", "::1:/d", ".x:/d"] {
            assert!(matches!(text.parse::<ServerAddress>(), Err(AddressError::Host { .. })), "{text}");
        }
    }

    #[test]
    fn finds_servers_that_share_a_place() {
        let overlap = |texts: &[&str]| {
            find_overlap(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<ServerAddress>>())
        };
        assert_eq!(overlap(&["/a", "/b", "/ab"]), None);
        assert_eq!(overlap(&["n1:/a", "n2:/a"]), None);
        assert_eq!(overlap(&["/b", "/a", "/b/"]), Some((0, 2)));
        assert_eq!(overlap(&["/a/x", "/a-x", "localhost:/a"]), Some((0, 2)));
        assert_eq!(overlap(&["127.0.0.1:/a", "[::1]:/a"]), Some((0, 1)));
    }

    #[test]
    fn knows_this_machine() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "::1", &own_host()] {
            assert!(is_local(host), "{host}");
        }
        for host in ["192.0.2.77", "0.0.0.0", "224.0.0.1", "2001:db8::1", "no-such-host-here"] {
            assert!(!is_local(host), "{host}");
        }
    }
}
