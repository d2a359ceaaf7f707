//! `pario umount`: end a mount.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use pario_posix::Unmount;
use pario_posix::fuse::{process_of, unmount};

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::mount_process::{END_LIMIT, wait_gone};

/// Arguments of `pario umount`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario umount ~/scratch       waits until everything is written
  pario umount -l ~/scratch    detaches it at once; it ends with its last open file
`umount` and `fusermount3 -u` do the same without waiting.")]
pub(crate) struct UmountArgs {
    /// Directories of mounts
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Detach it at once, also with open files
    #[arg(short, long)]
    lazy: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &UmountArgs) -> CliResult {
    let how = if args.lazy { Unmount::Lazy } else { Unmount::Now };
    let mut failures = Vec::new();
    for dir in &args.dirs {
        let process = process_of(dir);
        match unmount(dir, how) {
            Ok(()) => context.report(format!("{}: unmounted", dir.display()))?,
            Err(error) => {
                failures.push(CliError::failed(error.to_string()));
                continue;
            }
        }
        if let Some(pid) = process.filter(|_| !args.lazy)
            && !wait_gone(pid, END_LIMIT)
        {
            let text = format!("{}: process {pid}, which served it, still writes", dir.display());
            failures.push(CliError::with_cure(text, "`pario status` shows whether a server is stopped"));
        }
    }
    let done = args.dirs.len() - failures.len();
    end_of_many(context, failures, done)
}
