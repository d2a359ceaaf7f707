//! `pario-sim`: runs seeds until one fails, and shows how.

use std::process::ExitCode;

use clap::Parser;
use pario_sim::{ALL_BUGS, AnyBug, Coverage, EXPECTED, RunOptions, run};

/// Simulate the coherence of Pario: leases, locks, the manager and placement under faults, by seed
#[derive(Parser, Debug)]
#[command(after_help = "\
Examples:
  pario-sim --seeds 100000                 every run must be right; a failing seed is printed
  pario-sim --first 4711 --seeds 1         that run again, with its last steps
  pario-sim --sabotage lock-no-circles     how soon a deliberate bug is found
  pario-sim --list                         the deliberate bugs")]
struct Args {
    /// How many runs
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Switch a deliberate bug on
    #[arg(long, value_name = "NAME")]
    sabotage: Option<AnyBug>,
    /// List the deliberate bugs
    #[arg(long)]
    list: bool,
    /// Show how often each state and transition was visited
    #[arg(long)]
    coverage: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        let words: Vec<&str> = ALL_BUGS().into_iter().map(AnyBug::word).collect();
        return print_line(&words.join("\n"), ExitCode::SUCCESS);
    }
    let mut seen = Coverage::default();
    for seed in args.first..args.first.saturating_add(args.seeds) {
        match run(RunOptions { seed, bug: args.sabotage }) {
            Ok(coverage) => seen.add(&coverage),
            Err(violation) => {
                let text = format!(
                    "{}\nseed {} violates: {}\nagain: pario-sim --first {} --seeds 1{}",
                    violation.trace.join("\n"),
                    violation.seed,
                    violation.what,
                    violation.seed,
                    args.sabotage.map(|bug| format!(" --sabotage {}", bug.word())).unwrap_or_default()
                );
                return print_line(&text, ExitCode::FAILURE);
            }
        }
    }
    let missing = seen.missing();
    let mut text = String::new();
    if args.coverage {
        for (what, count) in seen.visits() {
            text += &format!("{count:12}  {what}\n");
        }
    }
    text += &format!(
        "{} runs without a violation; {} of {} states and transitions visited",
        args.seeds,
        EXPECTED.len() - missing.len(),
        EXPECTED.len()
    );
    if !missing.is_empty() {
        text += &format!(", not: {}", missing.join(", "));
    }
    print_line(&text, ExitCode::SUCCESS)
}

fn print_line(text: &str, code: ExitCode) -> ExitCode {
    use std::io::Write;
    // Errors of a closed output are ignored.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
    code
}
