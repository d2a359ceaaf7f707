//! One comparison: the processes and the file size of a scenario, every side alternately.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use pario::core::Size;
use pario::group::{Hub, NODE_VARIABLE};

use super::super::error::BenchError;
use super::super::job::{BenchJob, JobOutcome};
use super::super::progress::BenchProgress;
use super::super::testbed::Testbed;
use super::super::worker::{Worker, together};
use super::SlidingPlan;
use super::hosts::BenchHosts;
use super::pattern::{PageStamp, SlidingPattern};
use super::side::SlidingSide;
use super::worker::{SlidingJob, UNSUPPORTED, check_end};

/// Specification of a comparison.
#[derive(Clone, Debug)]
pub(super) struct SlidingScenario {
    pub(super) bytes: Size,
    pub(super) pattern: SlidingPattern,
    pairs: usize,
    cache_bytes: u64,
    hosts: usize,
    sides: Vec<SlidingSide>,
}

/// Testbed of the scenarios.
#[derive(Debug)]
pub(super) struct SlidingFixture<'a> {
    ground: &'a Testbed,
    /// Path for this process.
    file: PathBuf,
    hosts: Option<BenchHosts>,
}

/// One run of all processes.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct SlidingSample {
    /// Open to close, of the slowest.
    pub(super) seconds: f64,
    /// Counters of the caches of all nodes.
    pub(super) counts: BTreeMap<String, u64>,
}

/// All runs, by side; an unsupported side has none.
pub(super) type SlidingSamples = BTreeMap<SlidingSide, Vec<SlidingSample>>;

impl SlidingScenario {
    pub(super) fn new(plan: &SlidingPlan, processes: u64, bytes: Size) -> SlidingScenario {
        SlidingScenario {
            bytes,
            pattern: SlidingPattern::over(bytes.0, processes, plan.page.0, plan.rounds),
            pairs: plan.pairs,
            cache_bytes: plan.cache.0,
            hosts: plan.hosts,
            sides: SlidingSide::ALL
                .into_iter()
                .filter(|way| plan.sides.is_empty() || plan.sides.contains(way))
                .collect(),
        }
    }

    /// The host of a rank: adjacent ranks share a host.
    fn host(&self, rank: usize) -> usize {
        rank * self.hosts / usize::try_from(self.pattern.processes).unwrap_or(1)
    }
}

impl SlidingFixture<'_> {
    /// Creates the file, and the hosts if several.
    pub(super) fn set<'a>(
        plan: &SlidingPlan,
        ground: &'a Testbed,
        scene: &SlidingScenario,
    ) -> Result<SlidingFixture<'a>, BenchError> {
        let file = ground.plain_file();
        make(&file, &scene.pattern)?;
        let place = ground.dir().join("remote");
        let hosts = if 1 < plan.hosts {
            if !place.exists() {
                std::fs::create_dir(&place).map_err(BenchError::at("making", &place))?;
            }
            Some(BenchHosts::start(plan.hosts, plan.link_bits_s, &file, &place)?)
        } else {
            None
        };
        Ok(SlidingFixture { ground, file, hosts })
    }

    /// All sides alternately, repeated. On one node the first repetition is not counted, since it touches memory for the first
    /// time; between hosts the links hide that.
    pub(super) fn run(
        &self,
        scene: &SlidingScenario,
        progress: &BenchProgress,
    ) -> Result<SlidingSamples, BenchError> {
        let mut takes = SlidingSamples::new();
        let mut ways = scene.sides.clone();
        if self.run_workers(scene, SlidingSide::CacheFirstTouch, true)?.counts.contains_key(UNSUPPORTED) {
            ways.retain(|way| !way.is_cached() || *way == SlidingSide::CacheHome);
        }
        for pair in usize::from(1 < scene.hosts)..=scene.pairs {
            let what = format!("{} processes, {}, run", scene.pattern.processes, scene.bytes.rounded());
            progress.step(&what, pair.saturating_sub(1), scene.pairs);
            // Each repetition starts with another side, so that none always follows the same one.
            for index in 0..ways.len() {
                let way = ways[(index + pair) % ways.len()];
                let take = self.sample(scene, way)?;
                if 0 < pair {
                    takes.entry(way).or_default().push(take);
                }
            }
        }
        Ok(takes)
    }

    fn sample(&self, scene: &SlidingScenario, way: SlidingSide) -> Result<SlidingSample, BenchError> {
        make(&self.file, &scene.pattern)?;
        let take = self.run_workers(scene, way, false)?;
        let file = File::open(&self.file).map_err(BenchError::at("opening", &self.file))?;
        check_end(&scene.pattern, way, &file)?;
        tracing::debug!(?way, seconds = take.seconds, counts = ?take.counts, "a run");
        Ok(take)
    }

    /// Fresh processes, one pass over all windows.
    fn run_workers(
        &self,
        scene: &SlidingScenario,
        way: SlidingSide,
        only_open: bool,
    ) -> Result<SlidingSample, BenchError> {
        let ranks = usize::try_from(scene.pattern.processes).unwrap_or(usize::MAX);
        let hub = Hub::start(ranks)?;
        let start = |rank: usize| {
            let host = scene.host(rank);
            let (label, inside) =
                (format!("host-{host}"), self.hosts.as_ref().map(|hosts| hosts.holder(host)));
            let node = [(NODE_VARIABLE, label.as_str())];
            Worker::inside(inside, &self.ground.registry_path(), &hub.invitation(rank), &node)
        };
        let mut workers = (0..ranks).map(start).collect::<Result<Vec<_>, _>>()?;
        let path = self.hosts.as_ref().map_or_else(|| self.file.clone(), BenchHosts::file);
        let job =
            SlidingJob { side: way, pattern: scene.pattern, path, cache_bytes: scene.cache_bytes, only_open };
        let outcomes = together(&mut workers, |_| BenchJob::Sliding(job.clone()));
        drop(workers);
        Ok(SlidingSample::of(&outcomes?))
    }
}

impl SlidingSample {
    fn of(outcomes: &[JobOutcome]) -> SlidingSample {
        let mut take = SlidingSample::default();
        for outcome in outcomes {
            take.seconds = take.seconds.max(outcome.seconds);
            for (name, count) in &outcome.counts {
                *take.counts.entry(name.clone()).or_default() += count;
            }
        }
        take
    }
}

/// Writes the initial stamps before every run. In place, so that an open server keeps the file.
fn make(path: &Path, pattern: &SlidingPattern) -> Result<(), BenchError> {
    let file = File::options().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(BenchError::at("making", path))?;
    file.set_len(pattern.file_bytes()).map_err(BenchError::at("making", path))?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut page = vec![0; usize::try_from(pattern.page_bytes).unwrap_or(usize::MAX)];
    for number in 0..pattern.pages() {
        PageStamp::First(number).fill(&mut page);
        file.write_all(&page).map_err(BenchError::at("writing", path))?;
    }
    file.flush().map_err(BenchError::at("writing", path))
}
