//! Ranks of a group that write one file together and read it back: `pario run -n 4 -- target/debug/examples/ranks`.
//!
//! Each rank sees every n-th row of a table. Without `pario run -n` it is a group of one, in a partition of its own.

use pario::group::{self, Reduce};
use pario::{Datatype, Hints, Partition};
use pario_core::Clock;
use pario_sys::MonotonicClock;

const ROW_BYTES: usize = 4096;
const ROWS: usize = 64;
const ROUNDS: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let group = group::current()?;
    let (rank, size) = (group.rank(), group.size());
    let nodes: Vec<usize> = (0..size).map(|rank| group.node_of(rank)).collect();

    let began = MonotonicClock.now();
    for _ in 0..ROUNDS {
        group.allgather(&[0; 100])?;
    }
    let took = MonotonicClock.now().since(began) / u32::try_from(ROUNDS)?;

    let partition = match std::env::var("PARIO_PARTITION") {
        Ok(name) => Partition::mount(&name)?,
        Err(_) => Partition::in_process(2)?,
    };
    let options = partition.options().create(true).read(true).write(true);
    let file = options.open_all(&group, "table", &Hints::default())?;
    let byte = Datatype::elementary(1)?;
    let row = Datatype::contiguous(i64::try_from(ROW_BYTES)?, &byte)?;
    file.set_view(
        i64::try_from(rank * ROW_BYTES)?,
        &byte,
        &row.resized(0, i64::try_from(size * ROW_BYTES)?)?,
    )?;
    let rows = vec![u8::try_from(rank % 251)?; ROWS * ROW_BYTES];
    file.write_at_all(0, &rows)?;
    let mut back = vec![0xff; rows.len()];
    let count = file.read_at_all(0, &mut back)?;
    let right = u64::from(count == rows.len() && back == rows);
    file.close()?;

    let all_right = group.reduce(right, Reduce::Sum)? == size as u64;
    if rank == 0 {
        eprintln!(
            "{size} ranks on nodes {nodes:?}, an allgather of 100 B takes {took:?}, rows right: {all_right}"
        );
    }
    if !all_right {
        return Err("rows are wrong".into());
    }
    group.leave();
    Ok(())
}
