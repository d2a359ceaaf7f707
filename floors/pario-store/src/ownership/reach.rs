//! Blocks that their owner was asked for by whoever overwrites them: what comes of the answer, or of its loss.
//!
//! Never: takes an answer that did not come for a refusal: the blocks may be this server's, and then nobody has other bytes of them.
//! Always: the owner is asked at most twice, and then the homes.

use std::ops::Range;

use pario_core::{Code, Fault, ServerIndex};

use super::sabotage::{Bug, Sabotage};
use crate::places::{Take, Taken, Visit};

/// See the module.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Who was asked.
    pub owner: ServerIndex,
    /// What for.
    pub take: Take,
    /// Which blocks that are.
    pub blocks: Range<u64>,
    /// Why the first answer did not come.
    fault: Option<Fault>,
    sabotage: Sabotage,
}

/// What comes of an answer.
#[derive(PartialEq, Eq, Debug)]
pub enum Heard {
    /// They are this server's: block and number of the ownership.
    Mine(Vec<(u64, u64)>),
    /// They are not.
    Refused {
        /// What was to be written comes too late, and nobody can ask for it.
        late: bool,
    },
    /// The owner is asked once more: it knows, or has told the homes by the time that it answers.
    Again(Take),
    /// The homes must be asked: those blocks that they say are this server's have no bytes any more but those that are about to be
    /// written. For the others this is what failed.
    Unheard(Fault),
}

impl Reach {
    /// Blocks that an owner is asked for.
    #[must_use]
    pub fn new(owner: ServerIndex, take: Take, blocks: Range<u64>) -> Reach {
        Reach { owner, take, blocks, fault: None, sabotage: Sabotage::default() }
    }

    /// With a deliberate bug.
    #[must_use]
    pub fn sabotaged(self, bug: Option<Bug>) -> Reach {
        Reach { sabotage: Sabotage(bug), ..self }
    }

    /// The owner has answered, or its answer will not come.
    pub fn heard(&mut self, answer: Result<Taken, Fault>) -> Heard {
        let count = self.blocks.end - self.blocks.start;
        match (answer, &self.fault) {
            (Err(_), _) if self.sabotage.has(Bug::LostIsRefusal) => Heard::Refused { late: false },
            (Err(fault), None) => {
                let visit = Visit { told: true, ..self.take.visit };
                self.fault = Some(fault);
                Heard::Again(Take { visit, ..self.take })
            }
            // The first asking may have been granted, and the file cut since: then the block has no bytes but the new ones.
            (Err(_) | Ok(Taken::NotMine | Taken::Late), Some(first)) => Heard::Unheard(first.clone()),
            (Ok(Taken::Yours(numbers)), _) if numbers.len() as u64 == count => {
                Heard::Mine(self.blocks.clone().zip(numbers).collect())
            }
            (Ok(Taken::Yours(numbers)), _) => {
                let text = format!("{count} blocks were taken, {} were given", numbers.len());
                Heard::Unheard(Fault::new(Code::Protocol, text))
            }
            (Ok(Taken::NotMine), None) => Heard::Refused { late: false },
            (Ok(Taken::Late), None) => Heard::Refused { late: true },
        }
    }
}

/// Blocks right behind one another.
#[must_use]
pub fn runs(blocks: &[(u64, u64)]) -> Vec<Range<u64>> {
    let adjacent = blocks.chunk_by(|(one, _), (next, _)| one + 1 == *next);
    adjacent.filter_map(|run| Some(run.first()?.0..run.last()?.0 + 1)).collect()
}

#[cfg(test)]
mod tests {
    use pario_core::{Generation, InodeId, LocalOffset, ObjectId};

    use super::*;

    fn reach() -> Reach {
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        let visit = Visit { object, at: LocalOffset(20), told: false };
        let take = Take { to: ServerIndex(0), visit, blocks: 2, syncs: 0, of: 0 };
        Reach::new(ServerIndex(1), take, 2..4)
    }

    fn lost() -> Result<Taken, Fault> {
        Err(Fault::new(Code::Unreachable, "lost"))
    }

    #[test]
    fn an_answer_that_is_lost_is_no_refusal() {
        assert_eq!(reach().heard(Ok(Taken::NotMine)), Heard::Refused { late: false });
        assert_eq!(reach().heard(Ok(Taken::Yours(vec![7, 9]))), Heard::Mine(vec![(2, 7), (3, 9)]));
        assert!(matches!(reach().heard(Ok(Taken::Yours(vec![7]))), Heard::Unheard(_)));
        assert_eq!(reach().heard(Ok(Taken::Late)), Heard::Refused { late: true });
        for second in [lost(), Ok(Taken::NotMine), Ok(Taken::Late)] {
            let mut reach = reach();
            let Heard::Again(again) = reach.heard(lost()) else { panic!("it is asked for again") };
            assert!(again.visit.told);
            assert!(matches!(reach.heard(second), Heard::Unheard(fault) if fault.text.contains("lost")));
        }
    }

    #[test]
    fn runs_end_at_gaps() {
        assert_eq!(runs(&[(1, 0), (2, 9), (4, 9)]), [1..3, 4..5]);
    }
}
