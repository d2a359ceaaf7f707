//! `pario run`: a partition for the lifetime of a command.
//!
//! Always: data written by a job is staged out, also when the job failed or was terminated; if staging out fails, the partition
//! is kept; otherwise nothing is left.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;
use pario::core::Size;
use pario::partition::{Registry, launch, private};
use pario::start::{DownMode, Up};
use pario::transfer::{self, Copied, TransferResult};
use pario::{Bound, Partition};

use crate::context::{Context, PARTITION_VARIABLE, complain};
use crate::demo::{self, Demonstration};
use crate::error::{CliError, CliResult, EXIT_PARTLY};
use crate::job::{SignalWatch, exit_code};
use crate::mount_process::{MountCommand, MountProcess};
use crate::mpi::{self, MpiChoice, PRELOAD_VARIABLE};
use crate::progress::CopyProgress;
use crate::ranks::{self, Ranks};
use crate::settings_args::SettingsArgs;
use crate::{human, progress};

/// Default number of servers.
/// Calls that an MPI library of Pario serves.
const MPI_IO: &str = "MPI-IO";

const SERVERS_DEFAULT: &str = "4";
/// Ranks on one machine; each needs three threads of this process.
const RANKS_MAX: u16 = 512;

/// Arguments of `pario run`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario run                                              a demonstration
  pario run --servers 4 --stage-out out/ -- ./simulate   up, run, stage out, down
  pario run --stage-in input/ -- sh -c 'pario ls -l pario://$PARIO_PARTITION/'
  pario run --mount work -- ./simulate work/out          for programs that know files only
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
    /// Mount the partition in this directory while the command runs; it is made if it is missing
    #[arg(long, value_name = "DIR", requires = "command")]
    mount: Option<PathBuf>,
    /// Leave the partition running at the end
    #[arg(long)]
    keep: bool,
    /// Run this many copies of the command, as the ranks of a group
    #[arg(short = 'n', long, value_name = "N", requires = "command")]
    ranks: Option<u16>,
    /// Simulate this many nodes: ranks, and servers that are started, get labels, and share no memory with another label
    #[arg(long, value_name = "K", requires = "ranks")]
    nodes: Option<u16>,
    /// Begin each line that a rank prints with its number
    #[arg(long, requires = "ranks")]
    tag_output: bool,
    /// Use a partition that is up, and leave it up, instead of one for the life of the command
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "keep", "SettingsArgs"])]
    partition: Option<String>,
    /// Which MPI the command uses; Pario serves its MPI-IO, or else its POSIX calls, by a preload
    #[arg(long, value_enum, default_value_t, requires = "command")]
    mpi: MpiChoice,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: Args) -> CliResult<ExitCode> {
    check_directories(&args)?;
    check_ranks(&args)?;
    let registry =
        if args.partition.is_some() { context.registry()? } else { context.registry_or_private()? };
    let done = run_in(context, &args, &registry);
    // Empty unless the partition was kept.
    private::remove_if_empty(&registry);
    done
}

fn run_in(context: &Context, args: &Args, registry: &Registry) -> CliResult<ExitCode> {
    let watch = SignalWatch::start()?;
    let (up, bound) = match &args.partition {
        Some(name) => (attach(registry, name)?, None),
        None => bring_up(args, registry)?,
    };
    let session = RunSession { context, args, registry, up: &up, watch: &watch };
    up.not_notified.iter().for_each(|untold| complain(&CliError::failed(untold)));
    session.report_start()?;
    let ran = session.work();
    session.end(ran, bound)
}

/// A partition for the lifetime of this process: its servers end with it, also when it is killed, unless they are kept.
fn bring_up(args: &Args, registry: &Registry) -> CliResult<(Up, Option<Bound>)> {
    let settings = settings(args, registry)?.settings(args.file.as_deref(), registry)?;
    let (nodes, limit) = (node_labels(args), launch::START_LIMIT);
    if args.keep {
        return Ok((pario::start::up_with_nodes(registry, &settings, &nodes, limit)?, None));
    }
    Ok(pario::start::up_bound(registry, &settings, &nodes, limit)?)
}

/// Refuses before the start what must fail; warns of what may fail at the end.
fn check_directories(args: &Args) -> CliResult {
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

fn check_ranks(args: &Args) -> CliResult {
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

/// A partition brought up by another process.
fn attach(registry: &Registry, name: &str) -> CliResult<Up> {
    let (restarted, notes, untold) = (Vec::new(), Vec::new(), Vec::new());
    Ok(Up {
        entry: registry.find(name)?,
        took: Duration::ZERO,
        fresh: false,
        restarted,
        notes,
        not_notified: untold,
    })
}

fn settings(args: &Args, registry: &Registry) -> CliResult<SettingsArgs> {
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

/// `run-PID`; a partition left by an earlier process with that number keeps its name.
fn free_name(registry: &Registry) -> CliResult<String> {
    let taken: Vec<String> = registry.list()?.into_iter().map(|entry| entry.name).collect();
    let first = format!("run-{}", std::process::id());
    let further = (2..).map(|number| format!("{first}-{number}"));
    let mut names = std::iter::once(first.clone()).chain(further);
    Ok(names.find(|name| !taken.contains(name)).unwrap_or(first))
}

/// State of one `pario run`.
struct RunSession<'a> {
    context: &'a Context,
    args: &'a Args,
    registry: &'a Registry,
    up: &'a Up,
    watch: &'a SignalWatch,
}

/// Result of staging and running.
struct CommandResult {
    /// The exit code so far.
    code: u8,
    /// Whether the partition is kept because staging out failed.
    kept: bool,
}

impl RunSession<'_> {
    fn name(&self) -> &str {
        &self.up.entry.name
    }

    fn report_start(&self) -> CliResult {
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

    /// Stages in, runs the command, stages out.
    fn work(&self) -> CliResult<CommandResult> {
        let partition = Partition::mount_from(self.registry, self.name())?;
        if let Some(dir) = &self.args.stage_in {
            self.watched("staging in", |progress| transfer::stage_in(dir, &partition, progress))?;
        }
        self.watch.stop.check()?;
        let mount = self.mount()?;
        let ran = self.execute(&partition);
        // Before staging out: what the mount has not written is written now.
        if let Some(mount) = mount {
            mount.end();
        }
        let code = ran?;
        self.watch.stage_out();
        let Some(dir) = &self.args.stage_out else { return Ok(CommandResult { code, kept: false }) };
        let stage_out = |progress: &CopyProgress| transfer::stage_out(&partition, dir, progress);
        match self.watched("staging out", stage_out) {
            Ok(copied) => {
                self.report_stage_out(&copied);
                Ok(CommandResult { code, kept: false })
            }
            Err(error) => {
                complain(&CliError::failed(format!(
                    "{}: staging out to {} failed: {error}",
                    self.name(),
                    dir.display()
                )));
                Ok(CommandResult { code: if code == 0 { EXIT_PARTLY } else { code }, kept: true })
            }
        }
    }

    /// Runs the command, or the demonstration; returns the exit code.
    fn execute(&self, partition: &Partition) -> CliResult<u8> {
        match self.args.command.is_empty() {
            true => self.demonstrate(partition),
            false => match self.args.ranks {
                None => Ok(exit_code(self.watch.run(&self.args.command, &self.variables())?)),
                Some(ranks) => self.ranks(ranks).run(self.watch),
            },
        }
    }

    fn mount(&self) -> CliResult<Option<MountProcess>> {
        let Some(dir) = &self.args.mount else { return Ok(None) };
        std::fs::create_dir_all(dir)
            .map_err(|error| CliError::failed(format!("--mount {}: {error}", dir.display())))?;
        let (registry, name) = (self.registry.path().to_owned(), self.name().to_owned());
        let command = MountCommand {
            registry,
            name,
            dir: dir.clone(),
            allow_other: false,
            nonempty: false,
            log: None,
            bound: true,
        };
        command.start().map(Some)
    }

    fn watched(
        &self,
        what: &'static str,
        transfer: impl FnOnce(&CopyProgress) -> TransferResult<Copied>,
    ) -> CliResult<Copied> {
        progress::watched(self.context, what, &self.watch.stop, transfer)
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
            lines: None,
        }
    }

    /// Exit code of the demonstration's ranks.
    fn demonstrate(&self, partition: &Partition) -> CliResult<u8> {
        let plain = demo::DemoPlainFile::within(&self.storage())?;
        let words = plain.words(self.args.keep || self.args.stage_out.is_some())?;
        let (lines, told) = std::sync::mpsc::channel();
        let speech = self.context.speech;
        let (code, reports) = std::thread::scope(|scope| {
            let listening = scope.spawn(move || demo::listen(&told, speech));
            let ranks = self.ranks(demo::RANKS);
            let ranks =
                Ranks { words: &words, variables: self.base_variables(), lines: Some(lines), ..ranks };
            let code = ranks.run(self.watch);
            drop(ranks);
            (code, listening.join().unwrap_or_default())
        });
        let code = code?;
        if code != 0 {
            return Ok(code);
        }
        let shown = Demonstration::of(partition, &reports);
        match self.context.speech.json {
            true => self.context.json(&shown)?,
            false => self.context.line(shown.table().trim_end())?,
        }
        Ok(0)
    }

    /// Storage directory of the first server, or the temporary directory if that server is on another machine.
    fn storage(&self) -> PathBuf {
        let first = self.up.entry.servers.first().filter(|server| self.up.entry.is_here(server));
        first.map_or_else(std::env::temp_dir, |server| server.dir.clone())
    }

    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = self.base_variables();
        variables.extend(self.preload());
        variables
    }

    fn base_variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![
            (PARTITION_VARIABLE, OsString::from(self.name())),
            ("PARIO_REGISTRY", self.registry.path().as_os_str().to_owned()),
        ];
        if let Ok(own) = std::env::current_exe() {
            variables.push(("PARIO_BIN", own.into_os_string()));
        }
        variables
    }

    /// Library that serves the MPI-IO of an MPI command, or the POSIX calls of any other. If it is missing, a warning is
    /// printed and the command runs without it.
    fn preload(&self) -> Option<(&'static str, OsString)> {
        // The demonstration uses the library itself.
        if self.args.command.is_empty() {
            return None;
        }
        let (library, served, why) = match self.args.mpi.resolve(&self.args.command) {
            Some(found) => (mpi::library(found.abi), MPI_IO, found.why),
            None if self.args.mpi == MpiChoice::Auto => {
                (mpi::posix_library(), "I/O on pario:// paths", "no MPI was found".to_owned())
            }
            None => return None,
        };
        match library {
            Ok(library) => {
                let before = std::env::var_os(PRELOAD_VARIABLE);
                Some((PRELOAD_VARIABLE, mpi::preload(&library, before.as_deref())))
            }
            Err(error) => {
                // A program without MPI may need no library: the line is for programs that are given such a path.
                let is_needed = served == MPI_IO || self.args.command.iter().any(is_partition_path);
                if is_needed {
                    complain(&CliError::failed(format!("{served} is not served ({why}): {error}")));
                }
                None
            }
        }
    }

    /// Takes the partition down, or prints how to reach it.
    fn end(&self, ran: CliResult<CommandResult>, bound: Option<Bound>) -> CliResult<ExitCode> {
        self.watch.take_down();
        let kept = ran.as_ref().is_ok_and(|ran| ran.kept);
        if self.args.partition.is_some() {
            return ran.map(|ran| ExitCode::from(ran.code));
        }
        if kept || self.args.keep {
            if let Some(Err(error)) = bound.map(Bound::release) {
                complain(&error.into());
            }
            self.print_kept(kept);
            return ran.map(|ran| ExitCode::from(ran.code));
        }
        // Data from before this run is kept.
        let how = if self.up.fresh { DownMode::Destroy } else { DownMode::Keep };
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

    fn print_kept(&self, because_of_stage_out: bool) {
        let name = self.name();
        // A failed directory is not proposed again.
        let out = if because_of_stage_out { "ANOTHER-DIR" } else { "DIR" };
        let first = match private::is_private(self.registry) {
            true => {
                format!("`export PARIO_REGISTRY={}` lets commands find it; ", self.registry.path().display())
            }
            false => String::new(),
        };
        let text = format!(
            "partition '{name}' is kept: {first}`pario ls pario://{name}/` shows its files, \
             `pario cp -rp pario://{name}/ {out}` copies them, `pario down {name} --destroy` removes it"
        );
        complain(&CliError::failed(text));
    }
}

/// Whether a word of a command names a file of a partition.
fn is_partition_path(word: &OsString) -> bool {
    word.to_string_lossy().contains("pario:")
}
