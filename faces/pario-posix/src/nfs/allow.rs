//! Networks of machines that may use an export.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network, as `10.0.0.0/24`; an address alone is a network of one machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllowedNetwork {
    address: IpAddr,
    prefix: u32,
}

/// A network that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkError {
    text: String,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a network (as 10.0.0.0/24, fd00::/64 or 10.0.0.7)", self.text)
    }
}

impl std::error::Error for NetworkError {}

/// The address as 128 bits from the left, and the number of bits that it has.
fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(four) => (u128::from(u32::from(four)) << 96, 32),
        IpAddr::V6(six) => (u128::from(six), 128),
    }
}

fn network_of(address: IpAddr, prefix: u32) -> u128 {
    // A shift by all bits is not defined.
    bits(address).0 & u128::MAX.checked_shl(128 - prefix).unwrap_or(0)
}

impl AllowedNetwork {
    /// Whether an address belongs to it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        // An IPv4 client of an IPv6 socket.
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && network_of(address, self.prefix) == network_of(self.address, self.prefix)
    }
}

impl FromStr for AllowedNetwork {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<AllowedNetwork, NetworkError> {
        let wrong = || NetworkError { text: text.to_owned() };
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = bits(address).1;
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| wrong())?,
            None => most,
        };
        if most < prefix { Err(wrong()) } else { Ok(AllowedNetwork { address, prefix }) }
    }
}

impl fmt::Display for AllowedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_their_addresses_only() {
        let cases = [
            ("10.0.0.0/24", "10.0.0.255", true),
            ("10.0.0.0/24", "10.0.1.0", false),
            ("10.0.0.0/24", "::ffff:10.0.0.9", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.6", false),
            ("fd00::/64", "fd00::1:2", true),
            ("fd00::/64", "fd00:0:0:1::2", false),
        ];
        for (network, address, is_inside) in cases {
            let network: AllowedNetwork = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), is_inside, "{network} {address}");
        }
        for wrong in ["", "10.0.0/24", "10.0.0.0/33", "10.0.0.0/", "fd00::/129", "host"] {
            assert!(wrong.parse::<AllowedNetwork>().is_err(), "{wrong}");
        }
    }
}
