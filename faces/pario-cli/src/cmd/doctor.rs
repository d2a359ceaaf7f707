//! `pario doctor`: checks that every object of a partition has its file, and every file its objects.

mod lines;
mod names;

use std::path::Path;

use clap::Args as ClapArgs;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pario::Partition;
use pario::health::{
    self, AbsentObject, AtRest, Examination, HealthProblem, PartitionHealth, RepairExtent, RepairPlan,
    Repaired, Watch,
};
use pario::partition::Location;
use pario::transfer::TransferError;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{CliError, CliResult, EXIT_PARTLY};
use crate::signals::Stop;

/// Arguments of `pario doctor`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario doctor scratch             servers answer, objects in place, lengths agree, no orphans
  pario doctor scratch --dry-run   say what --repair would do
  pario doctor scratch --repair    move orphans to lost+found and cut leftovers of failed writes, while no file is open
  pario doctor scratch --names export FILE    all names into a file of their own
  pario doctor scratch --names import FILE    names of a partition that is down, from such a file
  pario doctor scratch --deep      and compare stored bytes with their checksums (checksums = \"on\")
  pario doctor results/field --repair    a container: drop what was never finished
  pario doctor mpi                 which MPI is here, and a proof that Pario serves its file calls
A file whose length has blocks on a server that has no object of it is warned of: a hole, or a
lost object.
Exit code: 0 no errors, warnings or not; 3 problems remain; 1 the check itself failed.")]
pub(crate) struct Args {
    /// The partition, or the path of a container; without it, the partition that PARIO_PARTITION names
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Move objects that belong to no file to lost+found of their server, and cut leftovers of unfinished writes
    #[arg(long)]
    repair: bool,
    /// Read everything that is stored and compare it with its checksums
    #[arg(long)]
    deep: bool,
    /// Say what --repair would do, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Repair also if more than a tenth of the objects would go
    #[arg(long, requires = "repair")]
    force: bool,
    /// Export all names to a file, or import them from one (the partition must be down)
    #[arg(long, num_args = 2, value_names = ["export|import", "FILE"], conflicts_with_all = ["repair", "dry_run"])]
    names: Option<Vec<String>>,
}

/// Progress bar of an examination, and the signal that stops it.
struct ExamineProgress<'a> {
    bar: ProgressBar,
    stop: &'a Stop,
}

impl ExamineProgress<'_> {
    /// `bytes`: number of bytes to compare; `None`: objects are counted.
    fn new(context: &Context, bytes: Option<u64>) -> ExamineProgress<'_> {
        let wanted = !context.speech.quiet && !context.speech.json;
        let target =
            if wanted { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(bytes, target);
        let comparing = "comparing {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let bar = match ProgressStyle::with_template(comparing) {
            Ok(style) if bytes.is_some() => bar.with_style(style),
            Ok(_) | Err(_) => bar.with_message("examining"),
        };
        ExamineProgress { bar, stop: &context.stop }
    }
}

impl Watch for ExamineProgress<'_> {
    fn examined(&self) {
        self.bar.inc(1);
    }

    fn compared(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn failed(&self, error: TransferError) {
        crate::context::complain(&error.into());
    }

    fn is_stopped(&self) -> bool {
        self.stop.signal().is_some()
    }
}

/// Actions of a repair, done or planned (dry run).
#[derive(Default)]
struct Outlook {
    repaired: Repaired,
    plan: Vec<String>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    context.stop.catch()?;
    // A partition may also be named `mpi`.
    if args.name.as_deref() == Some("mpi") && context.registry()?.get("mpi")?.is_none() {
        return super::doctor_mpi::run(context);
    }
    if let Some(path) = args.name.as_deref().and_then(as_path) {
        return super::container::doctor(context, path, args.deep, args.repair && !args.dry_run);
    }
    let name = context.partition_name(args.name.as_deref())?;
    if let Some(words) = &args.names {
        return names::run(context, &name, words);
    }
    let partition = context.mount(&name)?;
    let health = PartitionHealth::of(&context.registry()?.find(&name)?);
    let progress = ExamineProgress::new(context, None);
    let mut examination = context.stop.outcome(Examination::of(&partition, &health, &progress))?;
    progress.bar.finish_and_clear();
    let at_rest = at_rest(context, &partition, &examination, args.deep)?;
    let outlook = repair(context, &partition, &mut examination, args)?;
    if context.speech.json {
        let mut facts = facts(&name, &examination, &outlook);
        facts["at_rest"] = at_rest.facts();
        context.json(&facts)?;
    } else {
        lines::print(
            context,
            &name,
            &lines::DoctorResult {
                examination: &examination,
                at_rest: &at_rest,
                repaired: &outlook.repaired,
            },
        )?;
    }
    if examination.problems.is_empty() && at_rest.damage.is_empty() {
        Ok(())
    } else {
        Err(CliError::Reported { code: EXIT_PARTLY })
    }
}

/// A path of this machine has a slash; a partition's name has none. A container without a slash is one, too.
fn as_path(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    let is_path = !Location::is_one(name) && (name.contains('/') || pario::containers::is_container(path));
    is_path.then_some(path)
}

fn at_rest(
    context: &Context,
    partition: &Partition,
    examination: &Examination,
    deep: bool,
) -> CliResult<AtRest> {
    let servers = examination.reachable(partition);
    if !deep {
        let progress = ExamineProgress { bar: ProgressBar::hidden(), stop: &context.stop };
        return context.stop.outcome(AtRest::examine(partition, &servers, false, &progress));
    }
    let progress = ExamineProgress::new(context, Some(examination.bytes));
    let found = AtRest::examine(partition, &servers, true, &progress);
    progress.bar.finish_and_clear();
    context.stop.outcome(found)
}

/// Prints the plan of a repair, then runs it if requested.
fn repair(
    context: &Context,
    partition: &Partition,
    examination: &mut Examination,
    args: &Args,
) -> CliResult<Outlook> {
    if !args.dry_run && !args.repair {
        return Ok(Outlook::default());
    }
    let plan = RepairPlan::of(examination).lines();
    if !context.speech.json {
        let verb = if args.dry_run { "would" } else { "will" };
        plan.iter().try_for_each(|line| context.report(format!("{verb}: {line}")))?;
    }
    if args.dry_run {
        return Ok(Outlook { plan, ..Outlook::default() });
    }
    let extent = if args.force { RepairExtent::Force } else { RepairExtent::Careful };
    let progress = ExamineProgress { bar: ProgressBar::hidden(), stop: &context.stop };
    let repaired = health::repair(partition, examination, extent, &progress);
    Ok(Outlook { repaired: context.stop.outcome(repaired)?, plan: Vec::new() })
}

fn facts(name: &str, examination: &Examination, outlook: &Outlook) -> Value {
    let Repaired { moved, removed, cut } = &outlook.repaired;
    json!({
        "name": name,
        "inodes": examination.inodes,
        "objects": examination.objects,
        "bytes": examination.bytes,
        "removed": removed,
        "repaired": { "moved": moved, "removed": removed, "cut": cut, "plan": outlook.plan },
        "names": examination.recovery,
        "leftovers": examination.leftovers.iter().map(HealthProblem::facts).collect::<Vec<_>>(),
        "problems": examination.problems.iter().map(HealthProblem::facts).collect::<Vec<_>>(),
        "warnings": examination.absent.iter().map(AbsentObject::facts).collect::<Vec<_>>(),
    })
}
