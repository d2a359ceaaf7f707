//! `pario-fault`: rounds of random faults, or a soak.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use pario_fault::cluster::ClusterArgs;
use pario_fault::round::FaultRounds;
use pario_fault::{soak, writer};

/// Kill and stop real servers and clients at random, and verify everything that was acknowledged
#[derive(Parser, Debug)]
#[command(after_help = "\
Examples:
  pario-fault rounds --rounds 1000           random faults, verified after each round
  pario-fault rounds --seed 4711 --first 17  the plan of that seed again, from its 17th round on
  pario-fault soak --minutes 60              sessions come and go; memory, descriptors, threads level off")]
struct Args {
    #[command(subcommand)]
    what: FaultCommand,
}

#[derive(Subcommand, Debug)]
enum FaultCommand {
    /// Rounds of random faults
    Rounds(RoundsArgs),
    /// Many sessions without faults; fails if a server's memory, descriptors or threads keep growing
    Soak(SoakArgs),
    /// A client process of a round
    #[command(hide = true)]
    Writer(writer::WriterArgs),
}

#[derive(clap::Args, Debug)]
struct RoundsArgs {
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u64,
    /// The seed; from the clock if none is given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The first round
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(clap::Args, Debug)]
struct SoakArgs {
    /// How long
    #[arg(long, value_name = "N", default_value_t = 60)]
    minutes: u64,
    #[command(flatten)]
    cluster: ClusterArgs,
}

fn main() -> ExitCode {
    let done = match Args::parse().what {
        FaultCommand::Rounds(args) => rounds(&args),
        FaultCommand::Soak(args) => {
            let lines = soak::run(&args.cluster, Duration::from_secs(args.minutes * 60), print_line);
            lines.map(|lines| lines.iter().for_each(|line| print_line(line)))
        }
        FaultCommand::Writer(args) => writer::run(args).map_err(|error| format!("journal: {error}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("pario-fault: {what}");
            ExitCode::FAILURE
        }
    }
}

fn rounds(args: &RoundsArgs) -> Result<(), String> {
    let seed = args.seed.unwrap_or_else(seed_from_clock);
    eprintln!("seed {seed}");
    let mut rounds = FaultRounds::start(args.cluster.clone(), seed)?;
    for round in args.first..args.first + args.rounds {
        if let Err(what) = rounds.run(round) {
            return Err(format!("{what}\nthe data is kept in {}", rounds.cluster().keep_dir().display()));
        }
        if round % 10 == 9 {
            eprintln!(
                "{} rounds, {} calls, {} MB verified",
                round + 1,
                rounds.counts.calls,
                rounds.counts.bytes / 1_000_000
            );
        }
    }
    let counts = &rounds.counts;
    if args.json {
        print_line(&serde_json::json!({
            "seed": seed, "rounds": counts.rounds, "faults": counts.faults, "calls": counts.calls, "failed": counts.failed,
            "files": counts.files, "bytes": counts.bytes, "longest_ms": counts.longest_ms,
        }).to_string());
    } else {
        print_line(&format!(
            "{} rounds without a violation\nfaults: {:?}\n{} calls, the longest {} ms; failed: {:?}\n{} files, {} bytes verified",
            counts.rounds,
            counts.faults,
            counts.calls,
            counts.longest_ms,
            counts.failed,
            counts.files,
            counts.bytes
        ));
    }
    Ok(())
}

fn seed_from_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs() ^ u64::from(std::process::id()) << 32)
}

fn print_line(line: &str) {
    // A closed output has no reader.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
