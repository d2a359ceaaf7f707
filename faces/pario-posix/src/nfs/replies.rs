//! Replies to calls that must not be carried out twice: a client that has lost its connection sends them again over a new one.
//!
//! Never: takes a call of the same connection for a repetition: TCP repeats nothing; keeps more than [`KEPT_MAX`] replies, or one for longer
//! than [`KEPT`]. Always: a repetition has the same address and the same bytes, the number of the call and the credential included.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario::MonotonicClock;
use pario::core::{Clock, Nanos};
use sha2::{Digest, Sha256};

/// See the module.
const KEPT_MAX: usize = 1024;
const KEPT: Duration = Duration::from_secs(120);

/// The connection that a call has come through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CallOrigin {
    pub(super) address: IpAddr,
    pub(super) connection: u64,
}

/// Identifies a call and its repetitions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct CallKey {
    address: IpAddr,
    digest: [u8; 32],
}

/// What is known of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum KnownCall {
    /// It is to be carried out.
    New,
    /// It is carried out now.
    UnderWay,
    /// Its reply.
    Answered(Vec<u8>),
}

#[derive(Debug)]
struct KeptReply {
    connection: u64,
    began: Nanos,
    reply: Option<Vec<u8>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RecentReplies {
    kept: Mutex<KeptReplies>,
}

#[derive(Debug, Default)]
struct KeptReplies {
    replies: HashMap<CallKey, KeptReply>,
    order: VecDeque<CallKey>,
}

impl CallKey {
    pub(super) fn new(origin: CallOrigin, record: &[u8]) -> CallKey {
        CallKey { address: origin.address, digest: Sha256::digest(record).into() }
    }
}

impl RecentReplies {
    fn kept(&self) -> MutexGuard<'_, KeptReplies> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a call is carried out.
    pub(super) fn begin(&self, key: CallKey, origin: CallOrigin) -> KnownCall {
        let now = MonotonicClock.now();
        let mut kept = self.kept();
        let known = kept.replies.get(&key);
        if let Some(known) = known.filter(|known| known.connection != origin.connection)
            && now.since(known.began) < KEPT
        {
            return known.reply.clone().map_or(KnownCall::UnderWay, KnownCall::Answered);
        }
        let begun = KeptReply { connection: origin.connection, began: now, reply: None };
        if kept.replies.insert(key, begun).is_none() {
            kept.order.push_back(key);
        }
        if KEPT_MAX < kept.order.len()
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.replies.remove(&oldest);
        }
        KnownCall::New
    }

    /// After it was carried out.
    pub(super) fn end(&self, key: CallKey, reply: &[u8]) {
        if let Some(known) = self.kept().replies.get_mut(&key) {
            known.reply = Some(reply.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_on_other_connections_of_the_same_address() {
        let replies = RecentReplies::default();
        let origin = |connection| CallOrigin { address: IpAddr::from([127, 0, 0, 1]), connection };
        let key = CallKey::new(origin(1), b"call");
        assert_eq!(replies.begin(key, origin(1)), KnownCall::New);
        assert_eq!(replies.begin(key, origin(2)), KnownCall::UnderWay);
        replies.end(key, b"reply");
        assert_eq!(replies.begin(key, origin(2)), KnownCall::Answered(b"reply".to_vec()));
        assert_eq!(replies.begin(key, origin(1)), KnownCall::New, "the same connection repeats nothing");
        let elsewhere = CallOrigin { address: IpAddr::from([127, 0, 0, 2]), connection: 3 };
        assert_eq!(replies.begin(CallKey::new(elsewhere, b"call"), elsewhere), KnownCall::New);
        for number in 0..KEPT_MAX {
            replies.begin(CallKey::new(origin(1), &number.to_be_bytes()), origin(1));
        }
        assert_eq!(replies.begin(key, origin(2)), KnownCall::New, "the oldest are forgotten");
        assert_eq!(replies.kept().replies.len(), KEPT_MAX);
    }
}
