//! Typed values in the collectives of a group.
//!
//! Always: a member that sends bytes of another form is reported, not ignored.

use pario_core::{Code, Fault};
use serde::{Deserialize, Serialize};

use super::Group;
use crate::error::Result;

/// The values of all members, in rank order.
pub(crate) fn exchange_values<T: Serialize + for<'a> Deserialize<'a>>(
    group: &dyn Group,
    mine: &T,
) -> Result<Vec<T>> {
    group.allgather(&encode(mine)?)?.iter().map(|bytes| decode(bytes)).collect()
}

/// The value of rank 0, for all members.
pub(crate) fn broadcast_value<T: Serialize + for<'a> Deserialize<'a>>(
    group: &dyn Group,
    mine: &T,
) -> Result<T> {
    decode(&group.broadcast(0, &encode(mine)?)?)
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Fault::new(Code::Protocol, error.to_string()).into())
}

fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        Fault::new(Code::Protocol, format!("members of the group do not agree: {error}")).into()
    })
}
