//! `cargo xtask tidy`: checks of the workspace that neither the compiler nor clippy makes. `cargo xtask dist`: a package.
//!
//! Never: changes a file of the workspace. Always: one finding is one line, `path:line: rule: what to do`; any finding ends in
//! failure.

mod direction;
mod dist;
mod finding;
mod formats;
mod mask;
mod numbers;
mod source;
mod tree;
mod versions;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use finding::RuleFinding;
use tree::SourceTree;

const USAGE: &str = "usage: cargo xtask tidy [--numbers] | dist";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["tidy"] => tidy().and_then(|findings| Ok(report(&mut io::stdout(), &findings)?)),
        ["tidy", "--numbers"] => numbers().map(|()| ExitCode::SUCCESS),
        ["dist"] => dist::run().map(|()| ExitCode::SUCCESS),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}

fn tidy() -> Result<Vec<RuleFinding>, Box<dyn Error>> {
    let metadata = direction::metadata()?;
    let tree = SourceTree::read(&metadata.workspace_root)?;
    let mut findings = direction::check(&metadata);
    findings.extend(tree.sources.iter().flat_map(source::check));
    findings.extend(formats::check(&tree));
    findings.extend(versions::check(&tree));
    findings.extend(numbers::check(&tree));
    Ok(findings)
}

fn numbers() -> Result<(), Box<dyn Error>> {
    let tree = SourceTree::read(&direction::metadata()?.workspace_root)?;
    let mut out = io::stdout();
    numbers::lines(&tree).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(())
}

fn report(out: &mut impl Write, findings: &[RuleFinding]) -> io::Result<ExitCode> {
    for finding in findings {
        writeln!(out, "{finding}")?;
    }
    writeln!(out, "tidy: {} findings", findings.len())?;
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
