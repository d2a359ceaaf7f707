//! One handover request for blocks that are about to be overwritten: consequences of the owner's answer or of its loss.
//!
//! Never: treats a lost answer as a refusal: the blocks may already belong to this server, and then no other copy of them exists. Always:
//! asks the owner at most twice, then the homes.

use std::ops::Range;

use pario_core::{Code, Fault, Sabotage, ServerIndex};

use super::sabotage::Bug;
use crate::peers::{Handover, HandoverReply, RemoteAccess};

/// See the module.
#[derive(Clone, Debug)]
pub struct HandoverAttempt {
    /// The owner asked.
    pub owner: ServerIndex,
    /// The request.
    pub handover: Handover,
    /// The blocks.
    pub blocks: Range<u64>,
    /// Why the first answer was lost.
    fault: Option<Fault>,
    sabotage: Sabotage<Bug>,
}

/// Consequence of an answer.
#[derive(PartialEq, Eq, Debug)]
pub enum HandoverOutcome {
    /// The blocks belong to this server: block and ownership number.
    Granted(Vec<(u64, u64)>),
    /// The owner refused.
    Refused {
        /// The write is too late (the file was truncated), and no reader can see it.
        late: bool,
    },
    /// Ask the owner once more: it answers from its state, or has reported to the homes by then.
    Retry(Handover),
    /// Ask the homes: blocks that they record as this server's have no bytes except those about to be written. The fault applies to the
    /// other blocks.
    AskHomes(Fault),
}

impl HandoverAttempt {
    /// A request for these blocks.
    #[must_use]
    pub fn new(owner: ServerIndex, take: Handover, blocks: Range<u64>) -> HandoverAttempt {
        HandoverAttempt { owner, handover: take, blocks, fault: None, sabotage: Sabotage::default() }
    }

    /// With a deliberate bug.
    #[must_use]
    pub fn sabotaged(self, bug: Option<Bug>) -> HandoverAttempt {
        HandoverAttempt { sabotage: Sabotage::new(bug), ..self }
    }

    /// The owner has answered, or its answer was lost.
    pub fn answered(&mut self, answer: Result<HandoverReply, Fault>) -> HandoverOutcome {
        let count = self.blocks.end - self.blocks.start;
        match (answer, &self.fault) {
            (Err(_), _) if self.sabotage.has(Bug::LostIsRefusal) => HandoverOutcome::Refused { late: false },
            (Err(fault), None) => {
                let visit = RemoteAccess { home_confirmed: true, ..self.handover.first };
                self.fault = Some(fault);
                HandoverOutcome::Retry(Handover { first: visit, ..self.handover })
            }
            // The first request may have been granted and the file truncated since: then the block has only the new bytes.
            (Err(_) | Ok(HandoverReply::NotMine | HandoverReply::TooLate), Some(first)) => {
                HandoverOutcome::AskHomes(first.clone())
            }
            (Ok(HandoverReply::Granted(numbers)), _) if numbers.len() as u64 == count => {
                HandoverOutcome::Granted(self.blocks.clone().zip(numbers).collect())
            }
            (Ok(HandoverReply::Granted(numbers)), _) => {
                let text = format!("{count} blocks were requested, {} were handed over", numbers.len());
                HandoverOutcome::AskHomes(Fault::new(Code::Protocol, text))
            }
            (Ok(HandoverReply::NotMine), None) => HandoverOutcome::Refused { late: false },
            (Ok(HandoverReply::TooLate), None) => HandoverOutcome::Refused { late: true },
        }
    }
}

/// Groups contiguous blocks into runs.
#[must_use]
pub fn runs(blocks: &[(u64, u64)]) -> Vec<Range<u64>> {
    let adjacent = blocks.chunk_by(|(one, _), (next, _)| one + 1 == *next);
    adjacent.filter_map(|run| Some(run.first()?.0..run.last()?.0 + 1)).collect()
}

#[cfg(test)]
mod tests {
    use pario_core::{Generation, InodeId, LocalOffset, ObjectId};

    use super::*;

    fn reach() -> HandoverAttempt {
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        let visit = RemoteAccess { object, at: LocalOffset(20), home_confirmed: false };
        let take = Handover { to: ServerIndex(0), first: visit, blocks: 2, syncs: 0, number_sum: 0 };
        HandoverAttempt::new(ServerIndex(1), take, 2..4)
    }

    fn lost() -> Result<HandoverReply, Fault> {
        Err(Fault::new(Code::Unreachable, "lost"))
    }

    #[test]
    fn an_answer_that_is_lost_is_no_refusal() {
        assert_eq!(reach().answered(Ok(HandoverReply::NotMine)), HandoverOutcome::Refused { late: false });
        assert_eq!(
            reach().answered(Ok(HandoverReply::Granted(vec![7, 9]))),
            HandoverOutcome::Granted(vec![(2, 7), (3, 9)])
        );
        assert!(matches!(
            reach().answered(Ok(HandoverReply::Granted(vec![7]))),
            HandoverOutcome::AskHomes(_)
        ));
        assert_eq!(reach().answered(Ok(HandoverReply::TooLate)), HandoverOutcome::Refused { late: true });
        for second in [lost(), Ok(HandoverReply::NotMine), Ok(HandoverReply::TooLate)] {
            let mut reach = reach();
            let HandoverOutcome::Retry(again) = reach.answered(lost()) else {
                panic!("the owner is asked again")
            };
            assert!(again.first.home_confirmed);
            assert!(
                matches!(reach.answered(second), HandoverOutcome::AskHomes(fault) if fault.text.contains("lost"))
            );
        }
    }

    #[test]
    fn runs_end_at_gaps() {
        assert_eq!(runs(&[(1, 0), (2, 9), (4, 9)]), [1..3, 4..5]);
    }
}
