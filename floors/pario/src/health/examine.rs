//! Examination of a partition: every object of every server against the inodes.

use std::collections::{HashMap, HashSet};

use pario_core::{FileAttr, InodeId, ServerIndex};
use serde_json::Value;

use super::absent::{self, AbsentObject};
use super::questions::{self, named};
use super::watch::check_stopped;
use super::{FoundObject, HealthProblem, PartitionHealth, Watch};
use crate::handle::Partition;
use crate::transfer::TransferResult;

/// Result of an examination.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// Inodes of the manager.
    pub inodes: u64,
    /// Objects of all servers that answer.
    pub objects: u64,
    /// Length of these.
    pub bytes: u64,
    /// Problems.
    pub problems: Vec<HealthProblem>,
    /// Leftovers of failed writes: harmless.
    pub leftovers: Vec<HealthProblem>,
    /// Files without an object on a server where their length has blocks.
    pub absent: Vec<AbsentObject>,
    /// The manager's report of opening its names.
    pub recovery: Value,
}

impl Examination {
    /// Examines a partition; unreachable servers are problems, and are skipped.
    pub fn of(
        partition: &Partition,
        health: &PartitionHealth,
        watch: &dyn Watch,
    ) -> TransferResult<Examination> {
        let mut examination = Examination::default();
        for server in &health.servers {
            if let Err(why) = &server.report {
                let (server, why) = (server.index, why.clone());
                examination.problems.push(HealthProblem::Unreachable { server, why });
            }
        }
        // Without names, no object can be judged.
        if !examination.is_unreachable(ServerIndex::MANAGER) {
            examination.objects(partition, watch)?;
            let report = questions::manager_report(partition).unwrap_or_default();
            examination.recovery = report.pointer("/manager/recovery").cloned().unwrap_or_default();
        }
        absent::find_names(partition, &mut examination.absent)?;
        Ok(examination)
    }

    pub(super) fn add(&mut self, problem: HealthProblem) {
        let is_leftover = matches!(problem, HealthProblem::Leftover { .. });
        let list = if is_leftover { &mut self.leftovers } else { &mut self.problems };
        list.push(problem);
    }

    /// The reachable servers.
    #[must_use]
    pub fn reachable(&self, partition: &Partition) -> Vec<ServerIndex> {
        questions::servers(partition).filter(|server| !self.is_unreachable(*server)).collect()
    }

    fn is_unreachable(&self, server: ServerIndex) -> bool {
        self.problems.iter().any(
            |problem| matches!(problem, HealthProblem::Unreachable { server: ill, .. } if *ill == server),
        )
    }

    fn objects(&mut self, partition: &Partition, watch: &dyn Watch) -> TransferResult {
        let mut inodes: HashMap<InodeId, FileAttr> = HashMap::new();
        let listed = questions::each_inode(partition, |attr| {
            inodes.insert(attr.inode, attr);
            watch.examined();
        });
        named(partition, listed)?;
        self.inodes = inodes.len() as u64;
        for server in self.reachable(partition) {
            check_stopped(watch)?;
            let (mut suspects, mut present) = (Vec::new(), HashSet::new());
            let listed = questions::each_object(partition, server, |object, bytes| {
                self.objects += 1;
                self.bytes += bytes;
                watch.examined();
                present.insert(object);
                let found = FoundObject { server, object, bytes };
                if found.judge(inodes.get(&object.inode)).is_some() {
                    suspects.push(found);
                }
            });
            named(partition, listed)?;
            for found in suspects {
                check_again(partition, found)?.into_iter().for_each(|problem| self.add(problem));
            }
            for attr in inodes.values().filter(|attr| absent::is_expected(attr, server)) {
                if !present.contains(&absent::object_of(attr)) {
                    self.absent.extend(absent::check_again(partition, server, attr)?);
                }
            }
        }
        Ok(())
    }
}

/// A listing may be outdated: the current inode and object decide.
fn check_again(partition: &Partition, found: FoundObject) -> TransferResult<Option<HealthProblem>> {
    let attr = named(partition, questions::inode(partition, found.object.inode))?;
    let bytes = named(partition, questions::measure(partition, found.server, found.object))?;
    Ok(bytes.and_then(|bytes| FoundObject { bytes, ..found }.judge(attr.as_ref())))
}
