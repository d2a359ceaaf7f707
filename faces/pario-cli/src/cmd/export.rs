//! `pario export`: a partition for machines that run nothing of Pario.

use std::net::SocketAddr;

use clap::Args as ClapArgs;
use pario_posix::{AllowedNetwork, Export, ExportOptions};
use signal_hook::iterator::Signals;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::signals::{Stop, heeded};

/// Arguments of `pario export`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario export scratch                                     on 127.0.0.1:12049, for this machine only
  pario export scratch --nfs 10.0.0.1:12049 --allow 10.0.0.0/24
It stays in the foreground and ends in order with Ctrl-C or SIGTERM. Clients mount with
  mount -t nfs -o vers=3,proto=tcp,port=12049,mountport=12049,nolock HOST:/scratch DIR
NFSv3 proves no identity: a client claims any user, and nothing is encrypted. Allow only networks
of machines that you trust. Locks are not served. docs/guide/nfs.md says more.")]
pub(crate) struct ExportArgs {
    /// The partition
    #[arg(value_name = "NAME")]
    name: String,
    /// Address and port for NFSv3 and MOUNT, without rpcbind
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:12049")]
    nfs: SocketAddr,
    /// Network of clients, as 10.0.0.0/24; repeat it for several. Needed for an address that other machines reach
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<AllowedNetwork>,
    /// Refuse changes
    #[arg(long)]
    read_only: bool,
    /// Give a client's root the rights of an unknown user
    #[arg(long, value_name = "yes|no", default_value = "yes", value_parser = ["yes", "no"])]
    root_squash: String,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &ExportArgs) -> CliResult {
    let name = context.partition_name(Some(&args.name))?;
    // The second signal of a kind ends the process, also while a server does not answer.
    Stop::default().catch()?;
    let mut signals =
        Signals::new(heeded()).map_err(|error| CliError::failed(format!("cannot catch signals: {error}")))?;
    let partition = context.mount(&name)?;
    let options = ExportOptions {
        address: args.nfs,
        allow: args.allow.clone(),
        read_only: args.read_only,
        root_squash: args.root_squash == "yes",
    };
    let export = Export::new(&partition, options).map_err(|error| CliError::failed(error.to_string()))?;
    let (host, port) = (export.address().ip(), export.address().port());
    let host = if host.is_ipv6() { format!("[{host}]") } else { host.to_string() };
    context.report(format!(
        "{name}: exported by NFSv3 on {host}:{port} (mount -t nfs -o \
         vers=3,proto=tcp,port={port},mountport={port},nolock {host}:/{name} DIR)"
    ))?;
    context.flush()?;
    signals.forever().next();
    match export.stop() {
        0 => Ok(()),
        lost => Err(CliError::failed(format!("{name}: writes to {lost} files were lost"))),
    }
}
