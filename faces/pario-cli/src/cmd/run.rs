//! `pario run`: a partition for the life of a command.
//!
//! Always: data that a job has written is staged out, also when the job failed or was terminated; if that fails the partition
//! is kept; otherwise nothing is left.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;
use pario::Partition;
use pario::core::Size;
use pario::partition::{Registry, launch};
use pario::start::{DownHow, Up};

use crate::context::{Context, PARTITION_VARIABLE, complain};
use crate::copy::Copied;
use crate::error::{CliError, EXIT_PARTLY, Outcome};
use crate::job::{Watch, exit_code};
use crate::mpi::{self, Choice, PRELOAD_VARIABLE};
use crate::ranks::{self, Ranks};
use crate::settings_args::SettingsArgs;
use crate::{demo, human, stage};

/// Servers of a partition that was not told how many.
const SERVERS_DEFAULT: &str = "4";
/// Ranks of one machine; each has three threads of this process.
const RANKS_MAX: u16 = 512;

/// What can be said to `pario run`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario run                                              a demonstration
  pario run --servers 4 --stage-out out/ -- ./simulate   up, run, stage out, down
  pario run --stage-in input/ -- sh -c 'pario ls -l pario://$PARIO_PARTITION/'
  pario run --store memory --memory 8GiB -- ./simulate
  pario run -n 4 -- ./simulate                           four ranks that are a group
  pario run -n 4 --nodes 2 --tag-output -- ./simulate    two nodes, played by this machine
  pario run -n 4 --partition scratch -- ./simulate       on a partition that is up
  pario run --servers 4 -- mpiexec -n 4 ./simulate       its MPI-IO on pario:///path is Pario's
The command gets PARIO_PARTITION, PARIO_REGISTRY and PARIO_BIN; signals are passed on to it; the
exit code is its own, 128 + N if signal N ended it, 127 if it was not found, 126 if it could not be
run. Staging out is verified by checksums and
runs also when the command failed; if it cannot be done the partition is kept, the way to reach it
is printed, and the exit code is 3 if the command's was 0.
With -n the ranks find each other by PARIO_RANK, PARIO_SIZE, PARIO_GROUP and PARIO_GROUP_TOKEN; the
exit code is that of the first rank that failed. When a signal ends a rank, the others are told and
get 5 s to end by themselves, then SIGTERM and 5 s later SIGKILL. Rank 0 reads standard input.")]
pub(crate) struct Args {
    /// A partition file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Put what is in this directory into the partition first
    #[arg(long, value_name = "DIR")]
    stage_in: Option<PathBuf>,
    /// Put everything that is in the partition into this directory afterwards
    #[arg(long, value_name = "DIR")]
    stage_out: Option<PathBuf>,
    /// Leave the partition running at the end
    #[arg(long)]
    keep: bool,
    /// Run so many copies of the command, as the ranks of a group
    #[arg(short = 'n', long, value_name = "N", requires = "command")]
    ranks: Option<u16>,
    /// Play so many nodes: ranks, and servers that are started, get labels, and share no memory with another label
    #[arg(long, value_name = "K", requires = "ranks")]
    nodes: Option<u16>,
    /// Begin each line that a rank prints with its number
    #[arg(long, requires = "ranks")]
    tag_output: bool,
    /// Use a partition that is up, and leave it up, instead of one for the life of the command
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "keep", "SettingsArgs"])]
    partition: Option<String>,
    /// Which MPI the command uses; Pario serves its MPI-IO by a preload
    #[arg(long, value_enum, default_value_t, requires = "command")]
    mpi: Choice,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: Args) -> Outcome<ExitCode> {
    check_directories(&args)?;
    check_ranks(&args)?;
    let registry = context.registry()?;
    let watch = Watch::start()?;
    let up = match &args.partition {
        Some(name) => attach(&registry, name)?,
        None => {
            let settings = settings(&args, &registry)?.settings(args.file.as_deref(), &registry)?;
            pario::start::up_playing(&registry, &settings, &node_labels(&args), launch::START_LIMIT)?
        }
    };
    let session = Session { context, args: &args, registry: &registry, up: &up, watch: &watch };
    session.report_start()?;
    let ran = session.work();
    session.end(ran)
}

/// What would fail for sure is refused before anything is started; what might fail later is said before work is put in.
fn check_directories(args: &Args) -> Outcome {
    if let Some(dir) = args.stage_in.as_ref().filter(|dir| !dir.is_dir()) {
        return Err(CliError::usage(format!("--stage-in {}: is not a directory", dir.display())));
    }
    if let Some(dir) = args.stage_out.as_ref().filter(|dir| dir.exists() && !dir.is_dir()) {
        return Err(CliError::usage(format!("--stage-out {}: is not a directory", dir.display())));
    }
    if let Some(dir) = &args.stage_out
        && let Err(error) = std::fs::create_dir_all(dir)
    {
        let text = format!("--stage-out {}: {error}", dir.display());
        let cure = "the command runs all the same; if this stays so, its data is kept in the partition";
        complain(&CliError::with_cure(text, cure));
    }
    Ok(())
}

fn check_ranks(args: &Args) -> Outcome {
    let Some(ranks) = args.ranks else { return Ok(()) };
    if ranks == 0 || RANKS_MAX < ranks {
        return Err(CliError::usage(format!("-n {ranks}: 1 to {RANKS_MAX} ranks can be run")));
    }
    if let Some(nodes) = args.nodes.filter(|nodes| *nodes == 0 || ranks < *nodes) {
        return Err(CliError::usage(format!("--nodes {nodes}: {ranks} ranks play 1 to {ranks} nodes")));
    }
    Ok(())
}

fn node_labels(args: &Args) -> Vec<String> {
    ranks::node_labels(args.nodes.map_or(0, usize::from))
}

/// A partition that others brought up.
fn attach(registry: &Registry, name: &str) -> Outcome<Up> {
    Ok(Up { entry: registry.find(name)?, took: Duration::ZERO, fresh: false })
}

fn settings(args: &Args, registry: &Registry) -> Outcome<SettingsArgs> {
    let mut settings = args.settings.clone();
    if args.file.is_some() {
        return Ok(settings);
    }
    let stored = match &settings.name {
        Some(name) => registry.get(name)?.is_some(),
        None => {
            settings.name = Some(free_name(registry)?);
            false
        }
    };
    let given = std::env::var_os("PARIO_SERVERS").is_some_and(|servers| !servers.is_empty());
    if settings.servers.is_none() && settings.server.is_empty() && !given && !stored {
        settings.servers = Some(SERVERS_DEFAULT.to_owned());
    }
    Ok(settings)
}

/// `run-PID`; a partition that an earlier process of that number left keeps its name.
fn free_name(registry: &Registry) -> Outcome<String> {
    let taken: Vec<String> = registry.list()?.into_iter().map(|entry| entry.name).collect();
    let first = format!("run-{}", std::process::id());
    let further = (2..).map(|number| format!("{first}-{number}"));
    let mut names = std::iter::once(first.clone()).chain(further);
    Ok(names.find(|name| !taken.contains(name)).unwrap_or(first))
}

/// One run.
struct Session<'a> {
    context: &'a Context,
    args: &'a Args,
    registry: &'a Registry,
    up: &'a Up,
    watch: &'a Watch,
}

/// How the work in the middle went.
struct Ran {
    /// The exit code so far.
    code: u8,
    /// Whether data must be kept because it could not be brought out.
    kept: bool,
}

impl Session<'_> {
    fn name(&self) -> &str {
        &self.up.entry.name
    }

    fn report_start(&self) -> Outcome {
        if self.context.speech.verbose == 0 || self.args.partition.is_some() {
            return Ok(());
        }
        let servers = human::count(self.up.entry.servers.len(), "server");
        self.context.report(format!(
            "{}: {servers} ready in {}",
            self.name(),
            human::duration(self.up.took)
        ))?;
        // Before the command's own output.
        self.context.flush()
    }

    /// Stages in, runs, stages out.
    fn work(&self) -> Outcome<Ran> {
        let partition = Partition::mount_from(self.registry, self.name())?;
        if let Some(dir) = &self.args.stage_in {
            stage::stage_in(self.context, dir, &partition, &self.watch.stop)?;
        }
        self.watch.stop.check()?;
        let code = match self.args.command.is_empty() {
            true => self.demonstrate(&partition)?,
            false => match self.args.ranks {
                None => exit_code(self.watch.run(&self.args.command, &self.variables())?),
                Some(ranks) => self.ranks(ranks).run(self.watch)?,
            },
        };
        self.watch.stage_out();
        let Some(dir) = &self.args.stage_out else { return Ok(Ran { code, kept: false }) };
        match stage::stage_out(self.context, &partition, dir, &self.watch.stop) {
            Ok(copied) => {
                self.report_stage_out(&copied);
                Ok(Ran { code, kept: false })
            }
            Err(error) => {
                complain(&CliError::failed(format!(
                    "{}: staging out to {} failed: {error}",
                    self.name(),
                    dir.display()
                )));
                Ok(Ran { code: if code == 0 { EXIT_PARTLY } else { code }, kept: true })
            }
        }
    }

    /// On standard error: standard output is the command's.
    fn report_stage_out(&self, copied: &Copied) {
        if !self.context.speech.quiet {
            let files = human::count(usize::try_from(copied.files).unwrap_or(usize::MAX), "file");
            let text = format!("staged out {files}, {}, verified", Size(copied.bytes).rounded());
            complain(&CliError::failed(text));
        }
    }

    fn ranks(&self, size: u16) -> Ranks<'_> {
        Ranks {
            words: &self.args.command,
            variables: self.variables(),
            size: usize::from(size),
            nodes: node_labels(self.args),
            tag_output: self.args.tag_output,
            quiet: self.context.speech.quiet,
        }
    }

    fn demonstrate(&self, partition: &Partition) -> Outcome<u8> {
        let shown = demo::run(partition, self.registry.path());
        self.watch.stop.check()?;
        let shown = shown.map_err(CliError::failed)?;
        match self.context.speech.json {
            true => self.context.json(&shown)?,
            false => self.context.line(shown.table().trim_end())?,
        }
        Ok(0)
    }

    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![
            (PARTITION_VARIABLE, OsString::from(self.name())),
            ("PARIO_REGISTRY", self.registry.path().as_os_str().to_owned()),
        ];
        if let Ok(own) = std::env::current_exe() {
            variables.push(("PARIO_BIN", own.into_os_string()));
        }
        variables.extend(self.preload());
        variables
    }

    /// What serves the MPI-IO of a command that uses MPI. Where it is missing the command runs all the same, and this is said.
    fn preload(&self) -> Option<(&'static str, OsString)> {
        let found = self.args.mpi.resolve(&self.args.command)?;
        match mpi::library(found.abi) {
            Ok(library) => {
                let before = std::env::var_os(PRELOAD_VARIABLE);
                Some((PRELOAD_VARIABLE, mpi::preload(&library, before.as_deref())))
            }
            Err(error) => {
                complain(&CliError::failed(format!("MPI-IO is not served ({}): {error}", found.why)));
                None
            }
        }
    }

    /// Takes the partition down, or says how to reach it.
    fn end(&self, ran: Outcome<Ran>) -> Outcome<ExitCode> {
        self.watch.take_down();
        let kept = ran.as_ref().is_ok_and(|ran| ran.kept);
        if self.args.partition.is_some() {
            return ran.map(|ran| ExitCode::from(ran.code));
        }
        if kept || self.args.keep {
            self.say_kept(kept);
            return ran.map(|ran| ExitCode::from(ran.code));
        }
        // Data that was there before this run is not this run's to remove.
        let how = if self.up.fresh { DownHow::Destroy } else { DownHow::Keep };
        let down = pario::start::down(self.registry, self.name(), how);
        match (ran, down) {
            (Err(error), Err(second)) => {
                complain(&second.into());
                Err(error)
            }
            (Err(error), Ok(_)) => Err(error),
            (Ok(ran), Ok(_)) => Ok(ExitCode::from(ran.code)),
            (Ok(ran), Err(error)) => {
                complain(&error.into());
                Ok(ExitCode::from(if ran.code == 0 { EXIT_PARTLY } else { ran.code }))
            }
        }
    }

    fn say_kept(&self, because_of_stage_out: bool) {
        let name = self.name();
        // Where it could not go once it cannot go again.
        let out = if because_of_stage_out { "ANOTHER-DIR" } else { "DIR" };
        let text = format!(
            "partition '{name}' is kept: `pario ls pario://{name}/` shows its files, \
             `pario cp -rp pario://{name}/ {out}` copies them, `pario down {name} --destroy` removes it"
        );
        complain(&CliError::failed(text));
    }
}
