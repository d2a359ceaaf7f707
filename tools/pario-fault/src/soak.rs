//! A soak: sessions mount and unmount without faults, and each server's resource use must level off.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pario::MonotonicClock;
use pario::core::{Clock, Nanos};

use crate::cluster::{Cluster, ClusterArgs, pause, until};
use crate::round::writer_binary;

/// Lifetime of a session before it is replaced.
const SESSION: Duration = Duration::from_secs(3);
/// Memory may grow by this between the second and the last third: a log that is about to be truncated, a page table.
const GROWTH_KIB_MAX: u64 = 2048;
/// Descriptors and threads may.
const GROWTH_MAX: u64 = 8;

/// What one server holds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Private memory.
    pub private_kib: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
}

impl Sample {
    fn of(pid: u32) -> Option<Sample> {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let private = rollup.lines().filter(|line| line.starts_with("Private_"));
        let kib = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum();
        let count = |dir: &str| Some(std::fs::read_dir(format!("/proc/{pid}/{dir}")).ok()?.count() as u64);
        Some(Sample { private_kib: kib, descriptors: count("fd")?, threads: count("task")? })
    }

    fn most(samples: &[Sample]) -> Sample {
        samples.iter().fold(Sample::default(), |most, sample| Sample {
            private_kib: most.private_kib.max(sample.private_kib),
            descriptors: most.descriptors.max(sample.descriptors),
            threads: most.threads.max(sample.threads),
        })
    }
}

/// Whether samples level off: the last third holds no more than the one before it, within the tolerance.
pub fn judge(samples: &[Sample]) -> Result<(Sample, Sample), String> {
    let third = samples.len() / 3;
    if third == 0 {
        return Err("too few samples to judge".to_owned());
    }
    let (before, last) = (Sample::most(&samples[third..2 * third]), Sample::most(&samples[2 * third..]));
    let grew = |name: &str, before: u64, last: u64, most: u64| {
        if before + most < last { Err(format!("{name} grew from {before} to {last}")) } else { Ok(()) }
    };
    grew(
        "private memory (KiB)",
        before.private_kib,
        last.private_kib,
        GROWTH_KIB_MAX + before.private_kib / 10,
    )?;
    grew("descriptors", before.descriptors, last.descriptors, GROWTH_MAX)?;
    grew("threads", before.threads, last.threads, GROWTH_MAX)?;
    Ok((before, last))
}

/// Runs for `limit`; `tell` gets progress lines. Returns a line for each server.
pub fn run(args: &ClusterArgs, limit: Duration, mut tell: impl FnMut(&str)) -> Result<Vec<String>, String> {
    let cluster = Cluster::start(args)?;
    let began: Nanos = MonotonicClock.now();
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); usize::from(args.servers)];
    let mut wave = 0;
    while MonotonicClock.now().since(began) < limit {
        sessions(&cluster, args, wave)?;
        for (server, process) in cluster.servers().iter().enumerate() {
            let sample = Sample::of(process.pid).ok_or_else(|| format!("server {server} is gone"))?;
            samples[server].push(sample);
        }
        wave += 1;
        if wave % 20 == 0 {
            let now: Vec<String> = samples.iter().filter_map(|of| of.last()).map(describe).collect();
            tell(&format!("{:>5} s  {}", MonotonicClock.now().since(began).as_secs(), now.join("  ")));
        }
    }
    let judged = samples.iter().enumerate().map(|(server, samples)| {
        let (before, last) = judge(samples).map_err(|what| format!("server {server}: {what}"))?;
        Ok(format!("server {server}: {} then {}", describe(&before), describe(&last)))
    });
    judged.collect()
}

fn describe(sample: &Sample) -> String {
    format!("{} KiB, {} fds, {} threads", sample.private_kib, sample.descriptors, sample.threads)
}

/// Writers that live for a while, then the removal of their files.
fn sessions(cluster: &Cluster, args: &ClusterArgs, wave: u64) -> Result<(), String> {
    let dir = format!("wave{wave}");
    let partition = cluster.mount()?;
    partition.create_dir(&dir).map_err(|error| error.to_string())?;
    let start = |number: u64| -> Result<Child, String> {
        let mut command = Command::new(writer_binary()?);
        command.arg("writer").arg("--registry").arg(cluster.registry().path()).arg("--dir").arg(&dir);
        command.arg("--journal").arg(cluster.dir().join(format!("{dir}-{number}")));
        for (name, value) in [("--seed", wave), ("--writer", number), ("--writers", args.writers)] {
            command.arg(name).arg(value.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map_err(|error| error.to_string())
    };
    let mut children = (0..args.writers).map(start).collect::<Result<Vec<_>, _>>()?;
    pause(SESSION);
    children.iter_mut().for_each(|child| drop(child.stdin.take()));
    for (number, child) in children.iter_mut().enumerate() {
        if !until(Duration::from_secs(60), || child.try_wait().is_ok_and(|status| status.is_some())) {
            return Err(format!("writer {number} of {dir} does not end"));
        }
        let journal = cluster.dir().join(format!("{dir}-{number}"));
        std::fs::remove_file(&journal).map_err(|error| format!("{}: {error}", journal.display()))?;
    }
    crate::round::remove_dir(&partition, &dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(kib: impl Fn(u64) -> u64) -> Vec<Sample> {
        (0..30).map(|at| Sample { private_kib: kib(at), descriptors: 20, threads: 8 }).collect()
    }

    #[test]
    fn what_levels_off_is_told_from_what_grows() {
        judge(&samples(|at| 2000 + 500 * at.min(9))).unwrap();
        let what = judge(&samples(|at| 2000 + 500 * at)).unwrap_err();
        assert!(what.contains("private memory (KiB) grew from 11500 to 16500"), "{what}");
        let mut leaking = samples(|_| 2000);
        leaking[29].descriptors = 40;
        assert!(judge(&leaking).is_err());
        assert!(judge(&leaking[..2]).is_err());
    }
}
