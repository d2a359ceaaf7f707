//! `pario mount`: a partition as a directory.

use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use pario_posix::{Mount, MountOptions, Unmount};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::mount_process::{MountCommand, READY};

/// Arguments of `pario mount`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario mount scratch ~/scratch        returns when it is there; `pario umount ~/scratch` ends it
  pario mount -f scratch ~/scratch     serves it in the foreground, until a signal or an unmount
Root mounts by itself, other users by fusermount3 (Debian package fuse3). docs/guide/posix.md says
what programs can rely on.")]
pub(crate) struct MountArgs {
    /// The partition
    #[arg(value_name = "NAME")]
    name: String,
    /// An empty directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// Let other users in; permission bits decide what they may do
    #[arg(long)]
    allow_other: bool,
    /// Mount over a directory that is not empty; its entries are hidden meanwhile
    #[arg(long)]
    nonempty: bool,
    /// Append causes of errors to this file; in the foreground they go to standard error
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
    /// Serve a mount that another command started
    #[arg(long, hide = true)]
    served: bool,
    /// End when the process that started it ends
    #[arg(long, hide = true)]
    bound: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &MountArgs) -> CliResult {
    let name = context.partition_name(Some(&args.name))?;
    if args.foreground || args.served {
        return serve(context, args, &name);
    }
    // Errors of the partition are told before a process is started.
    drop(context.mount(&name)?);
    let command = MountCommand {
        registry: context.registry()?.path().to_owned(),
        name: name.clone(),
        dir: args.dir.clone(),
        allow_other: args.allow_other,
        nonempty: args.nonempty,
        log: args.log.clone(),
        bound: false,
    };
    let dir = command.start()?.detach();
    context.report(format!("{name}: mounted in {}", dir.display()))
}

fn serve(context: &Context, args: &MountArgs, name: &str) -> CliResult {
    if args.served {
        // The terminal of the command that started it sends it no signals. It fails if it leads a session already.
        let _ = rustix::process::setsid();
    }
    if args.bound {
        let signal = rustix::process::Signal::TERM;
        rustix::process::set_parent_process_death_signal(Some(signal))
            .map_err(|error| CliError::failed(format!("cannot follow the end of the command: {error}")))?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| CliError::failed(format!("cannot catch signals: {error}")))?;
    let partition = context.mount(name)?;
    let options = MountOptions { allow_other: args.allow_other, nonempty: args.nonempty };
    let mount =
        Mount::new(&partition, &args.dir, options).map_err(|error| CliError::failed(error.to_string()))?;
    let dir = mount.dir().to_owned();
    let watch = std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if let Err(error) = pario_posix::fuse::unmount(&dir, Unmount::Lazy) {
                tracing::warn!(%error, "a signal could not end the mount");
            }
        }
    });
    watch.map_err(|error| CliError::failed(format!("cannot catch signals: {error}")))?;
    if args.served {
        // The starter waits for this line; it may have ended before.
        let _ = writeln!(std::io::stdout(), "{READY}");
    } else {
        context.report(format!("{name}: mounted in {}", mount.dir().display()))?;
        context.flush()?;
    }
    match mount.wait() {
        0 => Ok(()),
        lost => Err(CliError::failed(format!("{name}: writes to {lost} open files were lost"))),
    }
}
