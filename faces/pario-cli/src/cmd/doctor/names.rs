//! `pario doctor NAME --names export|import FILE`, and the manager's report of opening its names.

use std::path::Path;

use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{CliError, CliResult};

/// Runs `--names`.
pub(super) fn run(context: &Context, name: &str, words: &[String]) -> CliResult {
    let [verb, file] = words else {
        return Err(CliError::usage("--names takes export or import, and a file"));
    };
    let entry = context.registry()?.find(name)?;
    let (done, said) = match verb.as_str() {
        "export" => (pario::names::export(&entry, Path::new(file))?, "written to"),
        "import" => (pario::names::import(&entry, Path::new(file))?, "taken from"),
        other => return Err(CliError::usage(format!("--names takes export or import, not '{other}'"))),
    };
    if context.speech.json {
        return context.json(&json!({ "name": name, "rows": done.rows, "file": file, "notes": done.notes }));
    }
    for note in &done.notes {
        context.warn(note);
    }
    context.report(format!("{name}: names ({} rows) {said} {file}", done.rows))
}

/// The manager's report of opening its names, as lines.
pub(super) fn notes(recovery: &Value) -> Vec<String> {
    let notes = recovery["notes"].as_array();
    notes.map(|notes| notes.iter().filter_map(Value::as_str).map(str::to_owned).collect()).unwrap_or_default()
}
