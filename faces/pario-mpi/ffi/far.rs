//! Ranks on several hosts: MPI carries addresses once, then they are connected over TCP.

use std::ffi::c_int;
use std::sync::Arc;

use pario::group::{Star, own_node};
use pario::{Error, Group};
use pario_mpi::{Problem, Result};

use super::api;
use crate::abi::{self, Comm};

/// The group of a communicator; collective.
pub(crate) fn gather(comm: Comm, rank: usize, size: usize) -> Result<Arc<dyn Group>> {
    let ranks = Ranks { comm: Handle(comm), rank, size };
    let node = own_node()?;
    Ok(Star::over(&ranks, node.as_deref())?)
}

/// The ranks of a communicator as a group that can only exchange bytes; used on the thread that called MPI, inside that call.
#[derive(Debug)]
struct Ranks {
    comm: Handle,
    rank: usize,
    size: usize,
}

#[derive(Clone, Copy, Debug)]
struct Handle(Comm);
// SAFETY: a handle, which any thread may pass to the MPI library that made it.
unsafe impl Send for Handle {}
// SAFETY: the same.
unsafe impl Sync for Handle {}

impl Ranks {
    /// Blocks of equal length.
    fn exchange(&self, own: &[u8]) -> Result<Vec<u8>> {
        let mut all = vec![0; own.len() * self.size];
        let bytes = c_int::try_from(own.len()).expect("parts are small while ranks meet");
        let (from, to) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
        api::allgather(from, bytes, abi::byte(), to, bytes, abi::byte(), self.comm.0)?;
        Ok(all)
    }
}

impl Group for Ranks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn node_of(&self, rank: usize) -> usize {
        rank
    }

    fn allgather(&self, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, Error> {
        let told = |problem: Problem| problem.to_error();
        let lengths = self.exchange(&(bytes.len() as u64).to_le_bytes()).map_err(told)?;
        let lengths: Vec<usize> = lengths
            .chunks_exact(8)
            .map(|length| {
                usize::try_from(u64::from_le_bytes(length.try_into().expect("eight bytes"))).unwrap_or(0)
            })
            .collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if longest == 0 {
            return Ok(vec![Vec::new(); self.size]);
        }
        let mut own = bytes.to_vec();
        own.resize(longest, 0);
        let all = self.exchange(&own).map_err(told)?;
        let part = |rank: usize| all[rank * longest..rank * longest + lengths[rank]].to_vec();
        Ok((0..self.size).map(part).collect())
    }

    /// The MPI library ends the program when a rank dies.
    fn check(&self) -> std::result::Result<(), Error> {
        Ok(())
    }

    fn duplicate(&self) -> std::result::Result<Arc<dyn Group>, Error> {
        Ok(Arc::new(Ranks { comm: self.comm, rank: self.rank, size: self.size }))
    }
}
