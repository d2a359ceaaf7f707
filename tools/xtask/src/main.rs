//! `cargo run -p xtask -- tidy`: checks of the workspace that neither the compiler nor clippy makes.
//!
//! Never: changes a file. Always: one finding is one line, `path:line: rule: what to do`; any finding ends in failure.

mod direction;
mod finding;
mod formats;
mod mask;
mod source;
mod tree;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use finding::Finding;
use tree::Tree;

const USAGE: &str = "usage: cargo run -p xtask -- tidy";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments != ["tidy"] {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    match tidy().and_then(|findings| Ok(report(&mut io::stdout(), &findings)?)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> Result<Vec<Finding>, Box<dyn Error>> {
    let metadata = direction::metadata()?;
    let tree = Tree::read(&metadata.workspace_root)?;
    let mut findings = direction::check(&metadata);
    findings.extend(tree.sources.iter().flat_map(source::check));
    findings.extend(formats::check(&tree));
    Ok(findings)
}

fn report(out: &mut impl Write, findings: &[Finding]) -> io::Result<ExitCode> {
    for finding in findings {
        writeln!(out, "{finding}")?;
    }
    writeln!(out, "tidy: {} findings", findings.len())?;
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
