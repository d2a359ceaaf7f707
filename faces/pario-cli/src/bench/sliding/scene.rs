//! One comparison: so many processes on a file of that size, every way in turn.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use pario::core::Size;
use pario::group::{Hub, NODE_VARIABLE};

use super::super::error::BenchError;
use super::super::ground::Ground;
use super::super::job::{Job, Outcome};
use super::super::progress::Progress;
use super::super::worker::{Worker, together};
use super::SlidingPlan;
use super::hosts::Hosts;
use super::pattern::{Pattern, Stamp};
use super::way::Way;
use super::worker::{SlidingJob, UNSUPPORTED, check_end};

/// What is compared.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) bytes: Size,
    pub(super) pattern: Pattern,
    pairs: usize,
    cache_bytes: u64,
    hosts: usize,
    ways: Vec<Way>,
}

/// Where it is played.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    ground: &'a Ground,
    /// As this process sees it.
    file: PathBuf,
    hosts: Option<Hosts>,
}

/// One run of all processes.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Take {
    /// Open to close, of the slowest.
    pub(super) seconds: f64,
    /// What the caches of all nodes counted.
    pub(super) counts: BTreeMap<String, u64>,
}

/// All runs, by way; a way that is not supported has none.
pub(super) type Takes = BTreeMap<Way, Vec<Take>>;

impl Scene {
    pub(super) fn new(plan: &SlidingPlan, processes: u64, bytes: Size) -> Scene {
        Scene {
            bytes,
            pattern: Pattern::over(bytes.0, processes, plan.page.0, plan.rounds),
            pairs: plan.pairs,
            cache_bytes: plan.cache.0,
            hosts: plan.hosts,
            ways: Way::ALL
                .into_iter()
                .filter(|way| plan.sides.is_empty() || plan.sides.contains(way))
                .collect(),
        }
    }

    /// The host of a rank: neighbours in rank are neighbours on a host.
    fn host(&self, rank: usize) -> usize {
        rank * self.hosts / usize::try_from(self.pattern.processes).unwrap_or(1)
    }
}

impl Stage<'_> {
    /// Makes the file, and the hosts if there are to be several.
    pub(super) fn set<'a>(
        plan: &SlidingPlan,
        ground: &'a Ground,
        scene: &Scene,
    ) -> Result<Stage<'a>, BenchError> {
        let file = ground.plain_file();
        make(&file, &scene.pattern)?;
        let place = ground.dir().join("remote");
        let hosts = if 1 < plan.hosts {
            if !place.exists() {
                std::fs::create_dir(&place).map_err(BenchError::at("making", &place))?;
            }
            Some(Hosts::start(plan.hosts, plan.link_bits_s, &file, &place)?)
        } else {
            None
        };
        Ok(Stage { ground, file, hosts })
    }

    /// All ways in turn, again and again. On one node the first time is not counted, since it finds memory that nobody has used yet; between
    /// hosts the links hide that.
    pub(super) fn play(&self, scene: &Scene, progress: &Progress) -> Result<Takes, BenchError> {
        let mut takes = Takes::new();
        let mut ways = scene.ways.clone();
        if self.crew(scene, Way::CacheFirstTouch, true)?.counts.contains_key(UNSUPPORTED) {
            ways.retain(|way| !way.is_cached() || *way == Way::CacheHome);
        }
        for pair in usize::from(1 < scene.hosts)..=scene.pairs {
            let what = format!("{} processes, {}, run", scene.pattern.processes, scene.bytes.rounded());
            progress.step(&what, pair.saturating_sub(1), scene.pairs);
            // Each time another way comes first, so that none always follows the same one.
            for index in 0..ways.len() {
                let way = ways[(index + pair) % ways.len()];
                let take = self.take(scene, way)?;
                if 0 < pair {
                    takes.entry(way).or_default().push(take);
                }
            }
        }
        Ok(takes)
    }

    fn take(&self, scene: &Scene, way: Way) -> Result<Take, BenchError> {
        make(&self.file, &scene.pattern)?;
        let take = self.crew(scene, way, false)?;
        let file = File::open(&self.file).map_err(BenchError::at("opening", &self.file))?;
        check_end(&scene.pattern, way, &file)?;
        tracing::debug!(?way, seconds = take.seconds, counts = ?take.counts, "a run");
        Ok(take)
    }

    /// Fresh processes, once through all windows.
    fn crew(&self, scene: &Scene, way: Way, only_open: bool) -> Result<Take, BenchError> {
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
        let path = self.hosts.as_ref().map_or_else(|| self.file.clone(), Hosts::file);
        let job = SlidingJob { way, pattern: scene.pattern, path, cache_bytes: scene.cache_bytes, only_open };
        let outcomes = together(&mut workers, |_| Job::Sliding(job.clone()));
        drop(workers);
        Ok(Take::of(&outcomes?))
    }
}

impl Take {
    fn of(outcomes: &[Outcome]) -> Take {
        let mut take = Take::default();
        for outcome in outcomes {
            take.seconds = take.seconds.max(outcome.seconds);
            for (name, count) in &outcome.counts {
                *take.counts.entry(name.clone()).or_default() += count;
            }
        }
        take
    }
}

/// The file as it is before every run: each page says that nobody has written it. Written in place, so that whoever serves it goes on.
fn make(path: &Path, pattern: &Pattern) -> Result<(), BenchError> {
    let file = File::options().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(BenchError::at("making", path))?;
    file.set_len(pattern.file_bytes()).map_err(BenchError::at("making", path))?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut page = vec![0; usize::try_from(pattern.page_bytes).unwrap_or(usize::MAX)];
    for number in 0..pattern.pages() {
        Stamp::First(number).fill(&mut page);
        file.write_all(&page).map_err(BenchError::at("writing", path))?;
    }
    file.flush().map_err(BenchError::at("writing", path))
}
