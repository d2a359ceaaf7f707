//! The data that a process needs to join a local group; passed through the environment.
//!
//! Never: prints the token. Always: the variables are set together; a missing variable is an error that names it.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::collective_state::MEMBERS_MAX;
use super::wire::TOKEN_BYTES;
use crate::error::{Error, Result};

/// Rank of the member in its group.
pub const RANK_VARIABLE: &str = "PARIO_RANK";
/// Number of members of the group.
pub const SIZE_VARIABLE: &str = "PARIO_SIZE";
/// Path of the group hub's socket.
pub const GROUP_VARIABLE: &str = "PARIO_GROUP";
/// Secret that proves the invitation.
pub const TOKEN_VARIABLE: &str = "PARIO_GROUP_TOKEN";

/// An invitation to be one rank of a local group; made by [`super::Hub::invitation`], used by [`super::LocalGroup::join`].
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) socket: PathBuf,
    pub(super) token: [u8; TOKEN_BYTES],
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Invitation { rank, size, socket, .. } = self;
        write!(f, "Invitation(rank {rank} of {size} at {})", socket.display())
    }
}

impl Invitation {
    /// Environment variables for the process that is to join.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let token: String = self.token.iter().map(|byte| format!("{byte:02x}")).collect();
        vec![
            (RANK_VARIABLE, self.rank.to_string().into()),
            (SIZE_VARIABLE, self.size.to_string().into()),
            (GROUP_VARIABLE, self.socket.clone().into_os_string()),
            (TOKEN_VARIABLE, token.into()),
        ]
    }

    /// The invitation in this process's environment; `None`: the process was not started in a group.
    pub fn from_env() -> Result<Option<Invitation>> {
        Invitation::from_variables(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// Byte encoding, for other transports than the environment; [`Invitation::from_bytes`] decodes it for any rank.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        let socket = self.socket.as_os_str().as_bytes();
        [&self.size.to_le_bytes()[..], &self.token, socket].concat()
    }

    /// Decodes the invitation of `rank` to the group.
    pub fn from_bytes(bytes: &[u8], rank: usize) -> Result<Invitation> {
        use std::os::unix::ffi::OsStringExt;
        let wrong = || Error::Setup(format!("not an invitation for rank {rank}"));
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(wrong)?;
        let (token, socket) = rest.split_first_chunk::<TOKEN_BYTES>().ok_or_else(wrong)?;
        let size = u32::from_le_bytes(*size);
        let rank = u32::try_from(rank).ok().filter(|rank| *rank < size && size as usize <= MEMBERS_MAX);
        let socket = OsString::from_vec(socket.to_vec()).into();
        Ok(Invitation { rank: rank.ok_or_else(wrong)?, size, socket, token: *token })
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Invitation>> {
        let Some(socket) = variable(GROUP_VARIABLE) else { return Ok(None) };
        let missing = |name: &str| Error::Setup(format!("{GROUP_VARIABLE} is set, but {name} is not"));
        let wrong = |name: &str, what: &str| Error::Setup(format!("{name} is not {what}"));
        let number = |name: &str, max: usize| {
            let text = variable(name).ok_or_else(|| missing(name))?;
            let number = text.to_str().and_then(|text| text.parse::<u32>().ok());
            let fits = |number: &u32| usize::try_from(*number).is_ok_and(|number| number <= max);
            number.filter(fits).ok_or_else(|| wrong(name, &format!("a number up to {max}")))
        };
        let size = number(SIZE_VARIABLE, MEMBERS_MAX)?;
        let rank = number(RANK_VARIABLE, MEMBERS_MAX)?;
        if size <= rank {
            return Err(Error::Setup(format!("{RANK_VARIABLE} is {rank} in a group of {size}")));
        }
        let token = variable(TOKEN_VARIABLE).ok_or_else(|| missing(TOKEN_VARIABLE))?;
        let token = token.to_str().and_then(parse_token);
        let token = token.ok_or_else(|| wrong(TOKEN_VARIABLE, "32 hexadecimal digits"))?;
        Ok(Some(Invitation { rank, size, socket: socket.into(), token }))
    }
}

fn parse_token(digits: &str) -> Option<[u8; TOKEN_BYTES]> {
    if digits.len() != 2 * TOKEN_BYTES || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut token = [0; TOKEN_BYTES];
    for (at, byte) in token.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&'static str, OsString)]) -> Result<Option<Invitation>> {
        Invitation::from_variables(|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
        })
    }

    fn sample() -> Invitation {
        Invitation { rank: 2, size: 4, socket: "/proc/1/fd/9".into(), token: [0xa5; TOKEN_BYTES] }
    }

    #[test]
    fn variables_carry_it_and_nothing_shows_the_token() {
        assert_eq!(read(&sample().variables()).unwrap(), Some(sample()));
        assert_eq!(read(&[]).unwrap(), None);
        assert!(!format!("{:?}", sample()).contains("a5"));
    }

    #[test]
    fn bytes_carry_it_to_any_rank() {
        let passed = Invitation::from_bytes(&sample().to_bytes(), 3).unwrap();
        assert_eq!(passed, Invitation { rank: 3, ..sample() });
        assert!(Invitation::from_bytes(&sample().to_bytes(), 4).is_err());
        assert!(Invitation::from_bytes(b"short", 0).is_err());
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for at in [0, 1, 3] {
            let mut variables = sample().variables();
            let (name, _) = variables.remove(at);
            let error = read(&variables).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("a5a5"), "{error}");
        }
        for (at, value) in [(0, "4"), (0, "-1"), (0, "x"), (1, "1000000"), (3, "a5"), (3, "é")] {
            let mut variables = sample().variables();
            variables[at].1 = value.into();
            let error = read(&variables).unwrap_err().to_string();
            assert!(error.contains(variables[at].0), "{error}");
        }
    }
}
