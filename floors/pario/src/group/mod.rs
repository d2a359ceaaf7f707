//! Groups: the processes that open a file together, and what they must agree on.
//!
//! [`Group`] is all that the rest of Pario knows of them, so that processes of this machine, MPI ranks and a lone process look the
//! same. Only opening, closing and setting views go through a group; reading and writing never do, except where a method says so.
//!
//! Never: carries file data. Always: a collective ends for every member, with an error that names a member that is gone; a member
//! that is merely late is waited for.

mod alone;
mod call;
mod crowd;
mod hub;
mod invitation;
mod listening;
mod local;
mod meeting;
mod nodes;
mod said;
mod share;
mod star;
mod threads;
mod wire;

use std::sync::Arc;

use pario_core::{Code, Fault};

pub use self::alone::Alone;
pub use self::call::Call;
pub use self::crowd::leave_in_turn;
pub use self::hub::Hub;
pub use self::invitation::{GROUP_VARIABLE, Invitation, RANK_VARIABLE, SIZE_VARIABLE, TOKEN_VARIABLE};
pub use self::local::{LocalGroup, current, from_env};
pub use self::nodes::{NODE_VARIABLE, own_node};
use self::said::{differs, disagree, error_bytes, error_of, heard, not_same, said, things};
pub use self::share::{SHARED_NAME, create_shared, share};
pub use self::star::Star;
pub use self::threads::{ThreadGroup, threads, threads_on};
use crate::error::Result;

/// How [`Group::reduce`] puts numbers together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduce {
    /// Their sum; it must fit.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

/// A duplicate of a group whose members agree, and what each of them has, in the order of ranks.
pub type Agreed = (Arc<dyn Group>, Vec<Vec<u8>>);

/// See the module. Every method but `rank`, `size`, `node_of`, `check`, `family` and `leave` is collective: all members call it, in the same order.
pub trait Group: std::fmt::Debug + Send + Sync {
    /// This process's place in the group.
    fn rank(&self) -> usize;

    /// How many members there are.
    fn size(&self) -> usize;

    /// The node that a member runs on: members of one node share memory. Nodes are numbered by their first members.
    fn node_of(&self, rank: usize) -> usize;

    /// Everyone's bytes, in the order of ranks. At most 16 MiB each and 64 MiB together; more is an error for all.
    fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// [`Group::allgather`] on behalf of a collective that is made of it, so that members who call different ones are told.
    fn collect(&self, call: Call, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let _ = call;
        self.allgather(bytes)
    }

    /// Fails once a member is known to be gone, and names it. Sends nothing: for those who wait for a member by other means.
    fn check(&self) -> Result<()>;

    /// The same members, for collectives that must not mix with those of this group.
    fn duplicate(&self) -> Result<Arc<dyn Group>>;

    /// Tells a group and its duplicates from other groups of this process; 0 where there is only one.
    fn family(&self) -> u64 {
        0
    }

    /// Leaves the group and its duplicates in order. Not collective: those who go on and miss this member are told that it has
    /// left, and not that it died. Nothing happens where leaving needs no telling.
    fn leave(&self) {}

    /// Waits until every member is here.
    fn barrier(&self) -> Result<()> {
        self.collect(Call::Barrier, &[]).map(|_| ())
    }

    /// The bytes of `root`, for everyone.
    fn broadcast(&self, root: usize, bytes: &[u8]) -> Result<Vec<u8>> {
        let mine: &[u8] = if root == self.rank() { bytes } else { &[] };
        let call = Call::Broadcast { root: u32::try_from(root).unwrap_or(u32::MAX) };
        let mut all = self.collect(call, mine)?;
        if root < all.len() { Ok(all.swap_remove(root)) } else { Err(no_member(root, all.len())) }
    }

    /// One number of everyone's.
    fn reduce(&self, number: u64, how: Reduce) -> Result<u64> {
        let all = self.collect(Call::Reduce, &number.to_le_bytes())?;
        let mut result: Option<u64> = None;
        for bytes in &all {
            let bytes: [u8; 8] = bytes.as_slice().try_into().map_err(|_| disagree("a number"))?;
            let next = u64::from_le_bytes(bytes);
            result = Some(match result {
                None => next,
                Some(before) => join(before, next, how)?,
            });
        }
        result.ok_or_else(|| no_member(0, 0))
    }

    /// Succeeds on all members, or fails on all: with a member's own error there, and elsewhere with one of the same code that names it.
    fn agree(&self, mine: Result<()>) -> Result<()> {
        self.agree_in(Call::Agree, mine)
    }

    /// [`Group::agree`] on behalf of a collective that is made of it.
    fn agree_in(&self, call: Call, mine: Result<()>) -> Result<()> {
        let all = self.collect(call, &mine.as_ref().err().map(error_bytes).unwrap_or_default())?;
        mine?;
        match all.iter().position(|bytes| !bytes.is_empty()) {
            None => Ok(()),
            Some(rank) => Err(error_of(rank, &all[rank])),
        }
    }

    /// Fails on all members unless all gave the same bytes; `what` names them in the error.
    fn same(&self, what: &str, bytes: &[u8]) -> Result<()> {
        self.same_in(Call::Same, what, bytes)
    }

    /// [`Group::same`] on behalf of a collective that is made of it.
    fn same_in(&self, call: Call, what: &str, bytes: &[u8]) -> Result<()> {
        let all = self.collect(call, bytes)?;
        match all.iter().position(|other| *other != all[0]) {
            None => Ok(()),
            Some(rank) => Err(not_same(0, rank, what)),
        }
    }

    /// [`Group::agree_in`] and [`Group::same_in`] for several things at once, in one round: every member gives what all must have
    /// alike, each thing with its name, or the error that keeps it from that.
    fn agree_on(&self, call: Call, mine: Result<&[(&str, &[u8])]>) -> Result<()> {
        let told = match &mine {
            Ok(list) => said(Ok(&things(list))),
            Err(error) => said(Err(error)),
        };
        let all = self.collect(call, &told)?;
        let list = mine?;
        let others = all.iter().enumerate().map(|(rank, bytes)| heard(rank, bytes));
        let others: Vec<&[u8]> = others.collect::<Result<_>>()?;
        // Compared with the first one's by everybody, so that all say the same.
        match others.iter().position(|theirs| *theirs != others[0]) {
            None => Ok(()),
            Some(rank) => Err(not_same(0, rank, differs(list, others[0], others[rank]))),
        }
    }

    /// Every member gives what all must have alike, each thing with its name, and what it has itself or the error that keeps it from that;
    /// one round. Fails on all members where things are not alike, or else where a member has an error; returns what each has, in the order
    /// of ranks.
    fn exchange(&self, call: Call, alike: &[(&str, &[u8])], mine: Result<&[u8]>) -> Result<Vec<Vec<u8>>> {
        let all = self.collect(call, &said::exchange(alike, &mine))?;
        said::exchanged(&all, alike, mine)
    }

    /// [`Group::exchange`] and, if all agree, [`Group::duplicate`]; one round where a group can do both at once.
    fn duplicate_if(&self, alike: &[(&str, &[u8])], mine: Result<&[u8]>) -> Result<Agreed> {
        let all = self.exchange(Call::Open, alike, mine)?;
        Ok((self.duplicate()?, all))
    }
}

/// What rank `root` of a group finds out, for everyone: its bytes, or its error; one round.
pub(crate) fn decide(
    group: &dyn Group,
    root: usize,
    find: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let mine = (group.rank() == root).then(find);
    let told = mine.as_ref().map(|mine| said(mine.as_deref())).unwrap_or_default();
    let told = group.broadcast(root, &told)?;
    match mine {
        Some(mine) => mine,
        None => heard(root, &told).map(<[u8]>::to_vec),
    }
}

fn join(before: u64, next: u64, how: Reduce) -> Result<u64> {
    match how {
        Reduce::Min => Ok(before.min(next)),
        Reduce::Max => Ok(before.max(next)),
        Reduce::Sum => {
            before.checked_add(next).ok_or_else(|| Fault::new(Code::TooLarge, "a sum over a group").into())
        }
    }
}

/// A member's bytes for a collective, or why it cannot have them: the others must be told, not left waiting.
fn check_part(bytes: &[u8]) -> std::result::Result<Vec<u8>, String> {
    if meeting::PART_BYTES_MAX < bytes.len() {
        let limit = meeting::PART_BYTES_MAX;
        return Err(format!("{} bytes for a collective of a group, at most {limit} may be", bytes.len()));
    }
    Ok(bytes.to_vec())
}

fn no_member(rank: usize, size: usize) -> crate::error::Error {
    Fault::new(Code::Invalid, format!("a group of {size} has no rank {rank}")).into()
}
