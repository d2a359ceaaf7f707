//! `pario bench team btio`: the dumps of the NAS BT benchmark by threads, against as many processes of Pario.

use super::job::{TeamJob, TeamWork};
use super::pattern::TeamPattern;
use super::scenario::versus;
use super::side::TeamSide;
use super::{PARTITION, SERVERS, TeamBench};
use crate::error::BenchError;
use crate::figures::{Figure, Goal, mib};
use crate::job::BenchJob;
use crate::kernel::KernelSide;
use crate::kernel::shapes::{Btio, ShapeSpec};
use crate::kernel::workers::{KernelWorkers, WorkerTask};
use crate::worker::Worker;

const THREADS: u32 = 4;
/// Largest index of a container of class A.
const INDEX_BYTES_MAX: f64 = 65_536.0;
const SIDES: [TeamSide; 3] = [TeamSide::Plain, TeamSide::Partition, TeamSide::Log];

pub(super) fn bench(bench: &mut TeamBench<'_>) -> Result<(), BenchError> {
    let spec = ShapeSpec::Btio(Btio { class: bench.plan.class, dumps: bench.plan.dumps, run_cells: None });
    bench.progress.show("bringing up a partition");
    bench.testbed.up(PARTITION, SERVERS)?;
    let sides = bench.wanted(&SIDES);
    let mut processes = KernelWorkers::start(&bench.testbed, &task(&spec))?;
    bench.progress.show("verifying the processes");
    processes.verify(KernelSide::ServerDirected)?;
    processes.remove(KernelSide::ServerDirected)?;
    let mut index_bytes = None;
    let mut workers = Vec::new();
    for side in &sides {
        bench.progress.show(&format!("verifying {}", side.word()));
        let mut worker = Worker::start(&bench.testbed.registry_path(), &[])?;
        let job = |work| job(bench, &spec, *side, work);
        worker.run_job(&job(TeamWork::Verify))?;
        if *side == TeamSide::Log {
            let flattened = worker.run_job(&job(TeamWork::Flatten))?;
            index_bytes = flattened.counts.get("index_bytes").copied();
        }
        worker.run_job(&job(TeamWork::Remove))?;
        workers.push(worker);
    }
    let (mut process_s, mut thread_s) = (Vec::new(), vec![Vec::new(); sides.len()]);
    for round in 0..=bench.plan.pairs {
        bench.progress.step("btio by processes and threads, pair", round.saturating_sub(1), bench.plan.pairs);
        crate::backed::touch(spec.data_bytes(u64::from(THREADS)) * 2);
        let of_processes = processes.write(KernelSide::ServerDirected, 0)?.total_s;
        processes.remove(KernelSide::ServerDirected)?;
        bench.testbed.wait_idle(PARTITION)?;
        if 0 < round {
            process_s.push(of_processes);
        }
        for (index, side) in sides.iter().enumerate() {
            crate::backed::touch(spec.data_bytes(u64::from(THREADS)) * 2);
            let seconds = workers[index].run_job(&job(bench, &spec, *side, TeamWork::Write))?.seconds;
            workers[index].run_job(&job(bench, &spec, *side, TeamWork::Remove))?;
            bench.testbed.wait_idle(PARTITION)?;
            if 0 < round {
                thread_s[index].push(seconds);
            }
        }
    }
    drop((processes, workers));
    bench.testbed.down(PARTITION)?;
    keep(bench, &spec, (&process_s, &thread_s), index_bytes);
    Ok(())
}

fn keep(
    bench: &mut TeamBench<'_>,
    spec: &ShapeSpec,
    (process_s, thread_s): (&[f64], &[Vec<f64>]),
    index_bytes: Option<u64>,
) {
    let bytes = spec.data_bytes(u64::from(THREADS));
    let speed = |times: &[f64]| {
        let speeds: Vec<f64> = times.iter().map(|seconds| mib(bytes) / seconds).collect();
        Figure::of(&speeds, "MiB/s")
    };
    let what = format!("class {:?}, {} dumps, open to close; 4 threads", bench.plan.class, bench.plan.dumps);
    bench.add("write_mib_s_processes", speed(process_s), Goal::None, "4 processes, server-directed");
    for (side, times) in bench.wanted(&SIDES).into_iter().zip(thread_s) {
        let of_side = format!("{}_threads_vs_processes", side.key().trim_start_matches("team_"));
        let is_partition = side == TeamSide::Partition;
        let (name, goal) =
            if is_partition { ("threads_vs_processes".to_owned(), 1.0) } else { (of_side, 0.0) };
        bench.add_ratio(&name, versus(process_s, times), goal, &what);
        bench.add(&format!("write_mib_s_{}", side.key()), speed(times), Goal::None, "4 threads");
    }
    if let Some(index) = index_bytes {
        let figure = Figure::of(&[f64::from(u32::try_from(index).unwrap_or(u32::MAX))], "B");
        bench.add("log_index_bytes", figure, Goal::AtMost(INDEX_BYTES_MAX), "all indexes of the container");
    }
}

fn task(spec: &ShapeSpec) -> WorkerTask<'_> {
    WorkerTask {
        spec,
        ranks: u64::from(THREADS),
        partition: PARTITION,
        limit_bytes_s: None,
        node: None,
        holder: None,
    }
}

fn job(bench: &TeamBench<'_>, spec: &ShapeSpec, side: TeamSide, work: TeamWork) -> BenchJob {
    BenchJob::Team(Box::new(TeamJob {
        work,
        side,
        pattern: TeamPattern::Shape(spec.clone()),
        threads: THREADS,
        files: 1,
        path: bench.testbed.plain_file(),
        partition: PARTITION.to_owned(),
        settings: String::new(),
        sync: bench.plan.sync,
        sweeps: 0,
        steady: false,
    }))
}
