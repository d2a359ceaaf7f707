//! Ranks write dumps of a 3-D field through views and read them back: `pario run -n 4 --servers 4 -- dumps [N [DUMPS]]`.
//!
//! Each rank owns a quarter of an N x N x N grid of five doubles, cut in x and y, and prints how long its calls took.

#![expect(clippy::print_stdout, reason = "an example's output")]
#![expect(clippy::disallowed_methods, reason = "an example measures time")]

use std::time::Instant;

use pario::view::{ArrayOrder, SubarrayDimension};
use pario::{Datatype, Hints, Partition, group};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |at: usize, default: i64| std::env::args().nth(at).map_or(Ok(default), |text| text.parse());
    let (n, dumps) = (number(1, 64)?, number(2, 40)?);
    let group = group::current()?;
    let name = std::env::var("PARIO_PARTITION")?;
    let partition = Partition::mount(&name)?;
    let (rank, half) = (i64::try_from(group.rank())?, n / 2);
    let cell = Datatype::contiguous(5, &Datatype::elementary(8)?)?;
    let part = |start: i64, size: i64| SubarrayDimension { size: n, subsize: size, start };
    let box_of = [part(0, n), part(rank / 2 % 2 * half, half), part(rank % 2 * half, half)];
    let filetype = Datatype::subarray(&box_of, ArrayOrder::C, &cell)?;
    let seed = u64::try_from(group.rank())? * 17;
    let mine: Vec<u8> = (0..filetype.size()).flat_map(|at| u8::try_from((at + seed) % 251)).collect();
    for round in 0..5 {
        let options = partition.options().create(true).truncate(true).read(true).write(true);
        group.barrier()?;
        let opened = Instant::now();
        let file = options.open_all(&group, "dumps", &Hints::default())?;
        file.set_view(0, &Datatype::elementary(8)?, &filetype)?;
        let began = Instant::now();
        for _ in 0..dumps {
            file.write_all(&mine)?;
        }
        let written = began.elapsed();
        group.barrier()?;
        let total_write = opened.elapsed();
        let mut back = vec![0; mine.len()];
        let began = Instant::now();
        for dump in 0..dumps {
            file.read_at_all(u64::try_from(dump)? * filetype.size() / 8, &mut back)?;
            assert!(back == mine, "reads return the written data");
        }
        let read = began.elapsed();
        file.close()?;
        group.barrier()?;
        if group.rank() == 0 {
            println!(
                "{round}: write {written:?}, to barrier {total_write:?}, read {read:?}, all {:?}",
                opened.elapsed()
            );
        }
    }
    Ok(())
}
