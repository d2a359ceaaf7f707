//! Containers of this machine in `pario stat`, `ls -l` and `doctor`.
//!
//! Never: takes another directory for a container.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use pario::containers::{self, LogFinding, LogReport};
use pario::core::{FileKind, Size};
use pario::partition::Location;
use pario::transfer::{FileStat, LinkPolicy, TreePath};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{CliError, CliResult, EXIT_PARTLY, one_line};
use crate::human::{self, Units, UserNames};
use crate::table::{Align, Table};

/// The path of a container, if `text` names one.
pub(crate) fn named(text: &OsStr) -> Option<PathBuf> {
    let path = Path::new(text);
    (!Location::is_one(text) && containers::is_container(path)).then(|| path.to_owned())
}

/// A container as `pario stat` and `pario ls` see it.
pub(crate) struct ContainerFacts {
    path: PathBuf,
    stat: FileStat,
    report: LogReport,
}

impl ContainerFacts {
    pub(crate) fn of(path: PathBuf) -> CliResult<ContainerFacts> {
        let stat = TreePath::local(&path).stat(LinkPolicy::Follow)?;
        let report = containers::check(&path, false).map_err(CliError::failed)?;
        Ok(ContainerFacts { path, stat, report })
    }

    pub(crate) fn json(&self) -> Value {
        let (stat, report) = (&self.stat, &self.report);
        json!({
            "name": self.path.file_name().unwrap_or_default().to_string_lossy(),
            "place": self.path.display().to_string(),
            "kind": "container",
            "size": stat.size,
            "mode": stat.mode,
            "uid": stat.uid,
            "gid": stat.gid,
            "modified_ns": stat.modified_ns,
            "writers": report.writers,
            "entries": report.entries,
            "index_bytes": report.index_bytes,
            "data_bytes": report.data_bytes,
        })
    }

    /// As `pario stat` prints it.
    pub(crate) fn print(&self, context: &Context) -> CliResult {
        let (stat, report, names) = (&self.stat, &self.report, UserNames::of_this_machine());
        let mut table = Table::new(&[Align::Right, Align::Left]);
        let mut row = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
        row("place", one_line(&self.path.display().to_string()));
        row("kind", "container".to_owned());
        row("size", format!("{} ({})", stat.size, Size(stat.size).rounded()));
        row("mode", format!("{} ({:04o})", human::mode(FileKind::File, stat.mode), stat.mode));
        row("owner", format!("{} ({})", names.user(stat.uid), stat.uid));
        row("group", format!("{} ({})", names.group(stat.gid), stat.gid));
        row("modified", human::exact_time(stat.modified_ns));
        let writers = human::count(report.writers, "writer");
        row("logs", format!("{writers}, {} in data logs", Size(report.data_bytes).rounded()));
        row("index", format!("{} entries, {}", report.entries, Size(report.index_bytes).rounded()));
        context.print(|out| table.print(out))
    }

    /// As `pario ls` prints it.
    pub(crate) fn list(&self, context: &Context, is_long: bool, units: Units) -> CliResult {
        let name = self.path.display().to_string();
        if !is_long {
            return context.line(name);
        }
        let (left, right, names) = (Align::Left, Align::Right, UserNames::of_this_machine());
        let mut table = Table::new(&[left, right, left, left, right, left, left]);
        table.row(vec![
            human::mode(FileKind::File, self.stat.mode),
            "1".to_owned(),
            names.user(self.stat.uid),
            names.group(self.stat.gid),
            human::size(self.stat.size, units),
            human::minute(self.stat.modified_ns),
            one_line(&name),
        ]);
        context.print(|out| table.print(out))
    }
}

/// `pario doctor PATH`: examines a container, and with `is_repair` drops what was never finished.
pub(crate) fn doctor(context: &Context, path: &Path, is_deep: bool, is_repair: bool) -> CliResult {
    let found = containers::check(path, is_deep).map_err(CliError::failed)?;
    let is_repaired = is_repair && !found.is_clean();
    let left = if is_repaired { containers::repair(path).map_err(CliError::failed)? } else { found.clone() };
    if context.speech.json {
        let lines =
            |report: &LogReport| report.findings.iter().map(LogFinding::to_string).collect::<Vec<_>>();
        context.json(&json!({
            "path": path.display().to_string(),
            "bytes": left.length,
            "writers": left.writers,
            "entries": left.entries,
            "unmarked": found.is_unmarked,
            "findings": lines(&found),
            "problems": lines(&left),
            "repaired": is_repaired,
        }))?;
    } else {
        print_report(context, path, &found, is_repaired)?;
    }
    if left.is_clean() { Ok(()) } else { Err(CliError::Reported { code: EXIT_PARTLY }) }
}

fn print_report(context: &Context, path: &Path, found: &LogReport, is_repaired: bool) -> CliResult {
    if found.is_unmarked {
        context.line(format!("{}: its marker is missing or damaged", path.display()))?;
    }
    for finding in &found.findings {
        context.line(format!("{}: {finding}", path.display()))?;
    }
    let entries = usize::try_from(found.entries).unwrap_or(usize::MAX);
    let (writers, size) = (human::count(found.writers, "writer"), Size(found.length).rounded());
    let verdict = match (found.is_clean(), is_repaired) {
        (true, _) => "all is well",
        (false, true) => "repaired: what was never finished is dropped",
        (false, false) => "`--repair` drops what was never finished",
    };
    context.line(format!("{}: {size}, {writers}, {entries} entries; {verdict}", path.display()))
}
