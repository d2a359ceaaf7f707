//! Settings of teams: from the program, `PARIO_TEAM`, or `team.toml`, in this order.
//!
//! `team.toml` lies in `$XDG_CONFIG_HOME/pario` or `~/.config/pario`, or is named by `PARIO_TEAM_FILE`. It is read at every open:
//!
//! ```toml
//! [[directory]]
//! path = "/scratch"          # the longest path that contains the file counts; a partition is "pario://NAME"
//! saturation = "2MiB"
//! active = 8
//! target = "plain"
//! ```
//!
//! Never: a wrong setting is ignored. Always: an error names the variable or the file, and the key.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pario_core::Size;
use serde::Deserialize;

use super::error::{TeamCode, TeamError, TeamResult};

/// Memory of a handle for parts of members that have gone on.
pub(super) const BUFFER_BYTES: u64 = 16 << 20;

/// Kind of file that a team writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// Chosen by the file system.
    #[default]
    Auto,
    /// One plain file.
    Plain,
    /// A container: a data log for each writer.
    Log,
}

/// Settings of one handle; `None`: not set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TeamSettings {
    /// Saturation size in bytes: smaller calls are one work item. Tuned if not set.
    #[serde(default)]
    pub saturation: Option<Size>,
    /// Members that do the work. Tuned if not set.
    #[serde(default)]
    pub active: Option<u32>,
    /// Kind of file; `auto` if not set. A path of a partition is always a file of the partition.
    #[serde(default)]
    pub target: Option<TargetKind>,
    /// Whether members that are not active may return before their bytes are written; on if not set.
    #[serde(default)]
    pub write_behind: Option<bool>,
    /// Memory for bytes of such members; 16 MiB if not set.
    #[serde(default)]
    pub buffer: Option<Size>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    #[serde(default)]
    directory: Vec<toml::Table>,
}

impl TeamSettings {
    /// These settings, completed by others.
    #[must_use]
    pub fn or(&self, other: &TeamSettings) -> TeamSettings {
        TeamSettings {
            saturation: self.saturation.or(other.saturation),
            active: self.active.or(other.active),
            target: self.target.or(other.target),
            write_behind: self.write_behind.or(other.write_behind),
            buffer: self.buffer.or(other.buffer),
        }
    }

    /// Parses `key=value,key=value`, as in `PARIO_TEAM`.
    ///
    /// # Errors
    /// The key or value that is wrong.
    pub fn parse(text: &str) -> TeamResult<TeamSettings> {
        let mut settings = TeamSettings::default();
        for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            settings.set(key.trim(), value.trim())?;
        }
        Ok(settings)
    }

    /// Sets one key to a value.
    ///
    /// # Errors
    /// The key or value that is wrong.
    pub fn set(&mut self, key: &str, value: &str) -> TeamResult<()> {
        let wrong = |expected: &str| bad(format!("{key}={value}: {expected}"));
        match key {
            "saturation" | "buffer" => {
                let size: Size = value.parse().map_err(|error| bad(format!("{key}: {error}")))?;
                let slot = if key == "buffer" { &mut self.buffer } else { &mut self.saturation };
                *slot = Some(size);
            }
            "active" => {
                let count: Option<u32> = value.parse().ok().filter(|count| 0 < *count);
                self.active = Some(count.ok_or_else(|| wrong("write a number of threads, from 1 on"))?);
            }
            "target" => {
                let kinds =
                    [("auto", TargetKind::Auto), ("plain", TargetKind::Plain), ("log", TargetKind::Log)];
                let kind = kinds.iter().find(|(name, _)| *name == value);
                self.target = Some(kind.ok_or_else(|| wrong("write auto, plain or log"))?.1);
            }
            "write_behind" => {
                self.write_behind = Some(match value {
                    "on" | "true" | "1" => true,
                    "off" | "false" | "0" => false,
                    _ => return Err(wrong("write on or off")),
                });
            }
            _ => return Err(unknown(key)),
        }
        Ok(())
    }

    /// Removes the value of one key.
    ///
    /// # Errors
    /// The key is wrong.
    pub fn clear(&mut self, key: &str) -> TeamResult<()> {
        match key {
            "saturation" => self.saturation = None,
            "active" => self.active = None,
            "target" => self.target = None,
            "write_behind" => self.write_behind = None,
            "buffer" => self.buffer = None,
            _ => return Err(unknown(key)),
        }
        Ok(())
    }

    fn check(self) -> TeamResult<TeamSettings> {
        if self.active == Some(0) || self.saturation == Some(Size(0)) {
            return Err(bad("active and saturation must be greater than 0"));
        }
        Ok(self)
    }
}

fn unknown(key: &str) -> TeamError {
    bad(format!("'{key}' is not a setting of teams: write saturation, active, target, write_behind, buffer"))
}

fn bad(text: impl Into<String>) -> TeamError {
    TeamError::new(TeamCode::BadArgument, text.into())
}

/// Settings for a file: those of the program, completed by the environment and the settings file.
pub(super) fn settings_for(name: &str, of_program: &TeamSettings) -> TeamResult<TeamSettings> {
    let look_up = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    let of_environment = match look_up("PARIO_TEAM") {
        Some(text) => TeamSettings::parse(&text.to_string_lossy())
            .map_err(|error| bad(format!("PARIO_TEAM: {error}")))?,
        None => TeamSettings::default(),
    };
    let of_file = match settings_path(look_up) {
        Some(path) => read_file(&path, name)?,
        None => TeamSettings::default(),
    };
    of_program.or(&of_environment).or(&of_file).check()
}

fn settings_path(look_up: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(path) = look_up("PARIO_TEAM_FILE") {
        return Some(path.into());
    }
    // A relative XDG directory counts as unset, by its specification.
    let config = look_up("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| look_up("HOME").map(|home| PathBuf::from(home).join(".config")));
    config.map(|config| config.join("pario/team.toml"))
}

fn read_file(path: &Path, name: &str) -> TeamResult<TeamSettings> {
    match std::fs::read_to_string(path) {
        Ok(text) => of_text(&text, name).map_err(|error| bad(format!("{}: {error}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(TeamSettings::default()),
        Err(error) => Err(TeamError::from_io(&error, path.display())),
    }
}

/// The settings of the longest directory that contains `name`, an absolute path or a path of a partition.
fn of_text(text: &str, name: &str) -> TeamResult<TeamSettings> {
    let file: SettingsFile = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
    let mut best: Option<(String, TeamSettings)> = None;
    for mut directory in file.directory {
        let Some(toml::Value::String(path)) = directory.remove("path") else {
            return Err(bad("a [[directory]] without a path"));
        };
        let settings =
            TeamSettings::deserialize(directory).map_err(|error| bad(format!("{path}: {error}")))?;
        let settings = settings.check().map_err(|error| bad(format!("{path}: {error}")))?;
        let is_longer = best.as_ref().is_none_or(|(other, _)| other.len() < path.len());
        if is_longer && Path::new(name).starts_with(&path) {
            best = Some((path, settings));
        }
    }
    Ok(best.map(|(_, settings)| settings).unwrap_or_default())
}

/// The patience of `PARIO_TEAM_PATIENCE`: seconds, or a number with `ms` or `s`.
pub(super) fn patience_of_environment() -> TeamResult<Option<Duration>> {
    match std::env::var_os("PARIO_TEAM_PATIENCE").filter(|value| !value.is_empty()) {
        Some(text) => parse_patience(&text.to_string_lossy()).map(Some),
        None => Ok(None),
    }
}

fn parse_patience(text: &str) -> TeamResult<Duration> {
    let text = text.trim();
    let (number, milliseconds) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or(text), 1000),
    };
    let number: Option<u64> = number.trim().parse().ok();
    let limit = number.and_then(|number| number.checked_mul(milliseconds)).filter(|limit| 0 < *limit);
    let wrong = || bad(format!("PARIO_TEAM_PATIENCE={text}: write a time such as 30s or 500ms"));
    limit.map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
