//! What one process of the demonstration does: writes its pencil row by row, or reads its slab and checks every value.

use pario::Partition;
use serde::{Deserialize, Serialize};

use super::field::{Field, Part, VALUE_BYTES, value};
use crate::bench::BenchError;
use crate::bench::job::{Outcome, State, counts_of, counts_since};
use crate::clock::Began;

/// Which half of the demonstration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Write a pencil.
    Checkpoint,
    /// Read a slab.
    Restart,
}

/// What a rank is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RankJob {
    pub(crate) partition: String,
    pub(crate) path: String,
    pub(crate) field: Field,
    pub(crate) rank: u64,
    pub(crate) ranks: u64,
    pub(crate) step: Step,
}

/// Does it.
pub(crate) fn run(state: &mut State, job: &RankJob) -> Result<Outcome, BenchError> {
    let partition = state.mount(&job.partition)?;
    match job.step {
        Step::Checkpoint => checkpoint(&partition, job, &job.field.pencil(job.rank, job.ranks)),
        Step::Restart => restart(&partition, job, &job.field.slab(job.rank, job.ranks)),
    }
}

/// Computes the part, then writes it row by row: one call per row, as a simple program does.
fn checkpoint(partition: &Partition, job: &RankJob, part: &Part) -> Result<Outcome, BenchError> {
    let field = &job.field;
    let row_bytes =
        usize::try_from((part.to[0] - part.from[0]) * VALUE_BYTES).expect("a row fits into memory");
    let mut memory =
        Vec::with_capacity(usize::try_from(part.cells() * VALUE_BYTES).expect("a part fits into memory"));
    each_row(part, |y, z| {
        for x in part.from[0]..part.to[0] {
            memory.extend_from_slice(&value(field, [x, y, z]).to_le_bytes());
        }
        Ok(())
    })?;
    let before = counts_of(partition);
    let began = Began::now();
    let file = partition.options().write(true).open(&job.path)?;
    let inside = Began::now();
    let mut rows = memory.chunks_exact(row_bytes);
    let mut calls = 0;
    each_row(part, |y, z| {
        let row = rows.next().expect("as many rows as were computed");
        calls += 1;
        Ok(file.write_at(field.offset([part.from[0], y, z]), row)?)
    })?;
    let calls_seconds = inside.elapsed().as_secs_f64();
    file.close()?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Outcome { seconds, calls_seconds, calls, counts: counts_since(partition, &before) })
}

/// Reads plane by plane, then compares every value with what it must be.
fn restart(partition: &Partition, job: &RankJob, part: &Part) -> Result<Outcome, BenchError> {
    let field = &job.field;
    let plane_bytes = usize::try_from(field.x * field.y * VALUE_BYTES).expect("a plane fits into memory");
    let planes = usize::try_from(part.to[2] - part.from[2]).expect("as many as fit into memory");
    let mut memory = vec![0; plane_bytes * planes];
    let before = counts_of(partition);
    let began = Began::now();
    let file = partition.open(&job.path)?;
    let inside = Began::now();
    for (z, plane) in (part.from[2]..part.to[2]).zip(memory.chunks_exact_mut(plane_bytes)) {
        file.read_exact_at(field.offset([0, 0, z]), plane)?;
    }
    let calls_seconds = inside.elapsed().as_secs_f64();
    file.close()?;
    let seconds = began.elapsed().as_secs_f64();
    let counts = counts_since(partition, &before);
    verify(field, part, &memory)?;
    Ok(Outcome { seconds, calls_seconds, calls: planes as u64, counts })
}

fn verify(field: &Field, part: &Part, memory: &[u8]) -> Result<(), BenchError> {
    let mut values =
        memory.chunks_exact(8).map(|bytes| bytes.try_into().map_or(f64::NAN, f64::from_le_bytes));
    each_row(part, |y, z| {
        for x in part.from[0]..part.to[0] {
            let (found, expected) = (values.next(), value(field, [x, y, z]));
            if found.map(f64::to_bits) != Some(expected.to_bits()) {
                let text = format!("cell ({x}, {y}, {z}) is {found:?} where {expected} was written");
                return Err(BenchError::Wrong(text));
            }
        }
        Ok(())
    })
}

fn each_row(part: &Part, mut row: impl FnMut(u64, u64) -> Result<(), BenchError>) -> Result<(), BenchError> {
    for z in part.from[2]..part.to[2] {
        for y in part.from[1]..part.to[1] {
            row(y, z)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: Field = Field { x: 16, y: 8, z: 6 };

    fn job(rank: u64, step: Step) -> RankJob {
        RankJob { partition: "embedded".into(), path: "field".into(), field: FIELD, rank, ranks: 4, step }
    }

    #[test]
    fn what_pencils_write_slabs_read() {
        let partition = Partition::in_process(2).unwrap();
        partition.create("field").unwrap().close().unwrap();
        for rank in 0..4 {
            let outcome =
                checkpoint(&partition, &job(rank, Step::Checkpoint), &FIELD.pencil(rank, 4)).unwrap();
            assert_eq!(outcome.calls, 4 * 6);
        }
        for rank in 0..4 {
            restart(&partition, &job(rank, Step::Restart), &FIELD.slab(rank, 4)).unwrap();
        }
    }

    #[test]
    fn one_wrong_bit_is_found() {
        let partition = Partition::in_process(2).unwrap();
        partition.create("field").unwrap().close().unwrap();
        for rank in 0..4 {
            checkpoint(&partition, &job(rank, Step::Checkpoint), &FIELD.pencil(rank, 4)).unwrap();
        }
        let file = partition.options().read(true).write(true).open("field").unwrap();
        let at = FIELD.offset([3, 2, 1]);
        let mut byte = [0];
        file.read_exact_at(at, &mut byte).unwrap();
        file.write_at(at, &[byte[0] ^ 1]).unwrap();
        file.close().unwrap();
        let found: Vec<bool> = (0..4)
            .map(|rank| restart(&partition, &job(rank, Step::Restart), &FIELD.slab(rank, 4)).is_err())
            .collect();
        assert_eq!(found.iter().filter(|found| **found).count(), 1);
    }
}
