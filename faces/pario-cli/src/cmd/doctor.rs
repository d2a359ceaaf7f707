//! `pario doctor`: is everything of a partition where it belongs?

use std::collections::{HashMap, HashSet};

use clap::Args as ClapArgs;
use indicatif::{ProgressBar, ProgressDrawTarget};
use pario::Partition;
use pario::core::{FileAttr, InodeId, ObjectId, ServerIndex};
use serde_json::{Value, json};

use crate::absent::{self, Absent};
use crate::context::Context;
use crate::error::{CliError, EXIT_PARTLY, Outcome};
use crate::health::PartitionHealth;
use crate::human;
use crate::problem::{Found, Problem};
use crate::wire;

/// What can be said to `pario doctor`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario doctor scratch             servers answer, objects in place, lengths agree, no orphans
  pario doctor scratch --repair    and remove orphans, while nobody has a file open
  pario doctor mpi                 which MPI is here, and a proof that Pario serves its file calls
A file whose length has blocks on a server that has no object of it is warned of: a hole, or a
lost object.
Exit code: 0 no errors, warnings or not; 3 problems remain; 1 the check itself failed.")]
pub(crate) struct Args {
    /// The partition; without it, the one that PARIO_PARTITION names
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Remove objects that belong to no file
    #[arg(long)]
    repair: bool,
}

/// What the check saw.
#[derive(Default)]
struct Examined {
    inodes: u64,
    objects: u64,
    bytes: u64,
    problems: Vec<Problem>,
    absent: Vec<Absent>,
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    context.stop.catch()?;
    // A partition may be called that, too.
    if args.name.as_deref() == Some("mpi") && context.registry()?.get("mpi")?.is_none() {
        return super::doctor_mpi::run(context);
    }
    let name = context.partition_name(args.name.as_deref())?;
    let partition = context.mount(&name)?;
    let entry = context.registry()?.find(&name)?;
    let health = PartitionHealth::of(&entry);
    let mut examined = Examined::default();
    for server in &health.servers {
        if let Err(why) = &server.report {
            examined.problems.push(Problem::Unreachable { server: server.index, why: why.clone() });
        }
    }
    examine(context, &partition, &mut examined)?;
    absent::find_names(&partition, &mut examined.absent)?;
    let removed = if args.repair { repair(context, &partition, &mut examined)? } else { 0 };
    if context.speech.json {
        context.json(&facts(&name, &examined, removed))?;
    } else {
        print(context, &name, &examined, removed)?;
    }
    if examined.problems.is_empty() { Ok(()) } else { Err(CliError::Told { code: EXIT_PARTLY }) }
}

fn examine(context: &Context, partition: &Partition, examined: &mut Examined) -> Outcome {
    let mount = partition.mount_handle();
    let spinner = spinner(context);
    let mut inodes: HashMap<InodeId, FileAttr> = HashMap::new();
    let unreachable = |examined: &Examined, server: ServerIndex| {
        examined
            .problems
            .iter()
            .any(|problem| matches!(problem, Problem::Unreachable { server: ill, .. } if *ill == server))
    };
    if unreachable(examined, ServerIndex::MANAGER) {
        // Without names nothing can be judged.
        return Ok(());
    }
    wire::each_inode(mount, |attr| {
        inodes.insert(attr.inode, attr);
        spinner.inc(1);
    })
    .map_err(|fault| wire::told(partition, fault))?;
    examined.inodes = inodes.len() as u64;
    for server in wire::servers(mount) {
        context.stop.check()?;
        if unreachable(examined, server) {
            continue;
        }
        let (mut suspects, mut present) = (Vec::new(), HashSet::new());
        wire::each_object(mount, server, |object, bytes| {
            examined.objects += 1;
            examined.bytes += bytes;
            spinner.inc(1);
            present.insert(object);
            let found = Found { server, object, bytes };
            if found.judge(inodes.get(&object.inode)).is_some() {
                suspects.push(found);
            }
        })
        .map_err(|fault| wire::told(partition, fault))?;
        for found in suspects {
            examined.problems.extend(look_again(partition, found)?);
        }
        for attr in inodes.values().filter(|attr| absent::is_expected(attr, server)) {
            if !present.contains(&absent::object_of(attr)) {
                examined.absent.extend(absent::look_again(partition, server, attr)?);
            }
        }
    }
    spinner.finish_and_clear();
    Ok(())
}

/// What was listed may be old by now: files come, grow and go. The inode and the object as they are now decide.
fn look_again(partition: &Partition, found: Found) -> Outcome<Option<Problem>> {
    let mount = partition.mount_handle();
    let attr = wire::inode(mount, found.object.inode).map_err(|fault| wire::told(partition, fault))?;
    let bytes =
        wire::measure(mount, found.server, found.object).map_err(|fault| wire::told(partition, fault))?;
    Ok(bytes.and_then(|bytes| Found { bytes, ..found }.judge(attr.as_ref())))
}

/// Removes what belongs to no file; what could not be removed stays a problem.
fn repair(context: &Context, partition: &Partition, examined: &mut Examined) -> Outcome<usize> {
    let busy = open_files(partition)?;
    let mut removed = 0;
    for problem in std::mem::take(&mut examined.problems) {
        context.stop.check()?;
        let Some((server, object)) = problem.removable() else {
            examined.problems.push(problem);
            continue;
        };
        match remove(partition, (server, object), busy) {
            Ok(()) => removed += 1,
            Err(error) => {
                context.complain(&error);
                examined.problems.push(problem);
            }
        }
    }
    Ok(removed)
}

fn remove(partition: &Partition, (server, object): (ServerIndex, ObjectId), busy: u64) -> Outcome {
    let mount = partition.mount_handle();
    let now = wire::inode(mount, object.inode).map_err(|fault| wire::told(partition, fault))?;
    match now {
        // A removed file that is still open looks the same as an orphan.
        None if busy != 0 => {
            let text = format!("{}: object {object} on server {server} is left", partition.name());
            let files = human::count(usize::try_from(busy).unwrap_or(usize::MAX), "file");
            return Err(CliError::with_cure(
                text,
                format!("{files} open: repeat when nobody uses the partition"),
            ));
        }
        Some(attr) if attr.generation <= object.generation => {
            let text = format!("{}: object {object} on server {server} is in use by now", partition.name());
            return Err(CliError::failed(text));
        }
        None | Some(_) => {}
    }
    wire::remove_orphan(mount, server, object).map_err(|fault| wire::told(partition, fault))
}

/// Files that somebody has open, as the manager counts.
fn open_files(partition: &Partition) -> Outcome<u64> {
    let text = partition.mount_handle().server_status(ServerIndex::MANAGER);
    let text = text.map_err(|error| CliError::remote(partition.name(), &error))?;
    let report: Value = serde_json::from_str(&text).unwrap_or_default();
    // Not told counts as open.
    Ok(report.pointer("/manager/open_files").and_then(Value::as_u64).unwrap_or(u64::MAX))
}

fn spinner(context: &Context) -> ProgressBar {
    let wanted = !context.speech.quiet && !context.speech.json;
    let target = if wanted { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(None, target).with_message("examining")
}

fn facts(name: &str, examined: &Examined, removed: usize) -> Value {
    json!({
        "name": name,
        "inodes": examined.inodes,
        "objects": examined.objects,
        "bytes": examined.bytes,
        "removed": removed,
        "problems": examined.problems.iter().map(Problem::facts).collect::<Vec<_>>(),
        "warnings": examined.absent.iter().map(Absent::facts).collect::<Vec<_>>(),
    })
}

fn print(context: &Context, name: &str, examined: &Examined, removed: usize) -> Outcome {
    for problem in &examined.problems {
        context.line(crate::error::one_line(&problem.to_string()))?;
    }
    if let Some(line) = absent::line(&examined.absent) {
        context.line(crate::error::one_line(&format!("warning: {line}")))?;
    }
    let removed =
        if removed == 0 { String::new() } else { format!(", {} removed", human::count(removed, "orphan")) };
    let verdict = match (examined.problems.len(), examined.absent.is_empty()) {
        (0, true) => "all is well".to_owned(),
        (0, false) => "no errors, 1 warning".to_owned(),
        (problems, true) => human::count(problems, "problem"),
        (problems, false) => format!("{}, 1 warning", human::count(problems, "problem")),
    };
    let size = pario::core::Size(examined.bytes).rounded();
    context.report(format!(
        "{name}: {} inodes, {} objects ({size}) examined{removed}: {verdict}",
        examined.inodes, examined.objects
    ))
}
