//! Groups: the processes that open a file together, and the facts they must agree on.
//!
//! [`Group`] is the only interface that the rest of Pario uses, so processes of this machine, MPI ranks and a single process
//! look the same. Only open, close, set view and similar control calls go through a group; reads and writes never do, except
//! where a method says so.
//!
//! Never: carries file data. Always: a collective ends for every member, with an error that names a dead member; a slow member
//! is waited for without limit.

mod agreement;
mod alone;
mod call;
mod collective_state;
mod hub;
mod hub_reader;
mod invitation;
mod local;
mod nodes;
mod rendezvous;
mod share;
mod star;
mod threads;
mod values;
mod wire;

use std::sync::Arc;

use pario_core::{Code, Fault};

use self::agreement::{
    decode_result, disagree, encode_result, encode_values, error_bytes, error_of, first_difference, not_same,
};
pub use self::alone::Alone;
pub use self::call::CollectiveCall;
pub use self::hub::Hub;
pub use self::invitation::{GROUP_VARIABLE, Invitation, RANK_VARIABLE, SIZE_VARIABLE, TOKEN_VARIABLE};
pub use self::local::{LocalGroup, current, from_env};
pub use self::nodes::{NODE_VARIABLE, own_node};
pub use self::rendezvous::{ByteExchange, FormedGroup, form_group};
pub use self::share::{SHARED_NAME, create_shared, share};
pub use self::star::Star;
pub use self::threads::{ThreadGroup, threads, threads_on};
pub(crate) use self::values::{broadcast_value, exchange_values};
use crate::error::Result;

/// How [`Group::reduce`] combines numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduce {
    /// The sum; overflow is an error.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

/// A duplicate of a group after its members agreed, and the bytes of each member, in rank order.
pub type Agreed = (Arc<dyn Group>, Vec<Vec<u8>>);

/// See the module head. Every method but `rank`, `size`, `node_of`, `check`, `family` and `leave` is collective: all members call
/// it, in the same order.
pub trait Group: std::fmt::Debug + Send + Sync {
    /// Rank of this process in the group.
    fn rank(&self) -> usize;

    /// Number of members.
    fn size(&self) -> usize;

    /// The node that a member runs on: members of one node share memory. Nodes are numbered by their first members.
    fn node_of(&self, rank: usize) -> usize;

    /// The bytes of all members, in rank order. At most 16 MiB each and 64 MiB together; more is an error for all members.
    fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// [`Group::allgather`] on behalf of a collective that is built on it, so that a mismatch of calls is detected.
    fn collect(&self, call: CollectiveCall, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let _ = call;
        self.allgather(bytes)
    }

    /// Fails if a member is known to be dead, and names it. Sends nothing: for callers that wait for a member by other means.
    fn check(&self) -> Result<()>;

    /// The same members, for collectives that must not mix with those of this group.
    fn duplicate(&self) -> Result<Arc<dyn Group>>;

    /// Distinguishes a group and its duplicates from other groups of this process; 0 where only one exists.
    fn family(&self) -> u64 {
        0
    }

    /// Leaves the group and its duplicates in order. Not collective: members that continue and miss this one get an error that it
    /// left, not that it died. No effect where leaving needs no message.
    fn leave(&self) {}

    /// Waits until every member has called it.
    fn barrier(&self) -> Result<()> {
        self.collect(CollectiveCall::Barrier, &[]).map(|_| ())
    }

    /// The bytes of `root`, for all members.
    fn broadcast(&self, root: usize, bytes: &[u8]) -> Result<Vec<u8>> {
        let mine: &[u8] = if root == self.rank() { bytes } else { &[] };
        let call = CollectiveCall::Broadcast { root: u32::try_from(root).unwrap_or(u32::MAX) };
        let mut all = self.collect(call, mine)?;
        if root < all.len() { Ok(all.swap_remove(root)) } else { Err(no_member(root, all.len())) }
    }

    /// Combines one number of each member.
    fn reduce(&self, number: u64, how: Reduce) -> Result<u64> {
        let all = self.collect(CollectiveCall::Reduce, &number.to_le_bytes())?;
        let mut result: Option<u64> = None;
        for bytes in &all {
            let bytes: [u8; 8] = bytes.as_slice().try_into().map_err(|_| disagree("a number"))?;
            let next = u64::from_le_bytes(bytes);
            result = Some(match result {
                None => next,
                Some(before) => combine(before, next, how)?,
            });
        }
        result.ok_or_else(|| no_member(0, 0))
    }

    /// Succeeds on all members, or fails on all: with its own error on the failing member, and elsewhere with an error of the
    /// same code that names that member.
    fn agree(&self, mine: Result<()>) -> Result<()> {
        self.agree_in(CollectiveCall::Agree, mine)
    }

    /// [`Group::agree`] on behalf of a collective that is built on it.
    fn agree_in(&self, call: CollectiveCall, mine: Result<()>) -> Result<()> {
        let all = self.collect(call, &mine.as_ref().err().map(error_bytes).unwrap_or_default())?;
        mine?;
        match all.iter().position(|bytes| !bytes.is_empty()) {
            None => Ok(()),
            Some(rank) => Err(error_of(rank, &all[rank])),
        }
    }

    /// Fails on all members unless all passed the same bytes; `what` names them in the error.
    fn same(&self, what: &str, bytes: &[u8]) -> Result<()> {
        self.same_in(CollectiveCall::Same, what, bytes)
    }

    /// [`Group::same`] on behalf of a collective that is built on it.
    fn same_in(&self, call: CollectiveCall, what: &str, bytes: &[u8]) -> Result<()> {
        let all = self.collect(call, bytes)?;
        match all.iter().position(|other| *other != all[0]) {
            None => Ok(()),
            Some(rank) => Err(not_same(0, rank, what)),
        }
    }

    /// [`Group::agree_in`] and [`Group::same_in`] for several values in one exchange: every member passes the named values that
    /// must be equal on all members, or the error that prevents it.
    fn agree_on(&self, call: CollectiveCall, mine: Result<&[(&str, &[u8])]>) -> Result<()> {
        let told = match &mine {
            Ok(list) => encode_result(Ok(&encode_values(list))),
            Err(error) => encode_result(Err(error)),
        };
        let all = self.collect(call, &told)?;
        let list = mine?;
        let others = all.iter().enumerate().map(|(rank, bytes)| decode_result(rank, bytes));
        let others: Vec<&[u8]> = others.collect::<Result<_>>()?;
        // All members compare with rank 0, so that all report the same error.
        match others.iter().position(|theirs| *theirs != others[0]) {
            None => Ok(()),
            Some(rank) => Err(not_same(0, rank, first_difference(list, others[0], others[rank]))),
        }
    }

    /// Every member passes the named values that must be equal on all members, and its own bytes or the error that prevents them;
    /// one exchange. Fails on all members if values differ, or else if a member has an error; returns the bytes of each member,
    /// in rank order.
    fn exchange(
        &self,
        call: CollectiveCall,
        alike: &[(&str, &[u8])],
        mine: Result<&[u8]>,
    ) -> Result<Vec<Vec<u8>>> {
        let all = self.collect(call, &agreement::encode_exchange(alike, &mine))?;
        agreement::decode_exchange(&all, alike, mine)
    }

    /// [`Group::encode_exchange`] and, if all agree, [`Group::duplicate`]; one exchange where the group can combine both.
    fn duplicate_if(&self, alike: &[(&str, &[u8])], mine: Result<&[u8]>) -> Result<Agreed> {
        let all = self.exchange(CollectiveCall::Open, alike, mine)?;
        Ok((self.duplicate()?, all))
    }
}

/// Rank `root` computes a result for all members: its bytes, or its error; one exchange.
pub(crate) fn decide(
    group: &dyn Group,
    root: usize,
    find: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let mine = (group.rank() == root).then(find);
    let told = mine.as_ref().map(|mine| encode_result(mine.as_deref())).unwrap_or_default();
    let told = group.broadcast(root, &told)?;
    match mine {
        Some(mine) => mine,
        None => decode_result(root, &told).map(<[u8]>::to_vec),
    }
}

fn combine(before: u64, next: u64, how: Reduce) -> Result<u64> {
    match how {
        Reduce::Min => Ok(before.min(next)),
        Reduce::Max => Ok(before.max(next)),
        Reduce::Sum => before
            .checked_add(next)
            .ok_or_else(|| Fault::new(Code::TooLarge, "the sum over a group does not fit in 64 bits").into()),
    }
}

/// A member's bytes for a collective, or why they are refused: the other members must get the error instead of waiting.
fn check_part(bytes: &[u8]) -> std::result::Result<Vec<u8>, String> {
    if collective_state::PART_BYTES_MAX < bytes.len() {
        let limit = collective_state::PART_BYTES_MAX;
        return Err(format!("{} bytes for a collective of a group; the limit is {limit} bytes", bytes.len()));
    }
    Ok(bytes.to_vec())
}

fn no_member(rank: usize, size: usize) -> crate::error::Error {
    Fault::new(Code::Invalid, format!("a group of {size} has no rank {rank}")).into()
}
