//! Keeps settings of a directory in `team.toml`.
//!
//! Never: changes other directories, other keys or comments of the file. Always: the file is replaced atomically, and only by one that
//! gives the wanted settings when it is read.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::MeasureError;
use crate::team::error::TeamError;
use crate::team::settings::{TeamSettings, of_text, read_file, settings_path};

/// Head of the settings of a directory.
const HEAD: &str = "[[directory]]";

/// The path for which settings of a directory are kept: the mount point of its file system, or the directory itself if that is the root.
///
/// # Errors
/// The directory is missing.
pub fn kept_path(directory: &Path) -> Result<PathBuf, MeasureError> {
    let directory = directory.canonicalize().map_err(MeasureError::at(directory))?;
    let device = |path: &Path| path.metadata().map(|data| data.dev()).map_err(MeasureError::at(path));
    let own = device(&directory)?;
    let mut mount = directory.as_path();
    while let Some(parent) = mount.parent() {
        if device(parent)? != own {
            return Ok(mount.to_owned());
        }
        mount = parent;
    }
    Ok(directory)
}

/// Keeps `saturation`, `active` and `target` for the files below `path` in the settings file; returns its path.
///
/// # Errors
/// The settings file is wrong or cannot be written, or there is no place for it.
pub fn keep(path: &Path, settings: &TeamSettings) -> Result<PathBuf, MeasureError> {
    let look_up = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    let Some(file) = settings_path(look_up) else {
        let text = "no place for team.toml: set HOME, XDG_CONFIG_HOME or PARIO_TEAM_FILE";
        return Err(MeasureError::Settings(text.to_owned()));
    };
    keep_in(&file, path, settings)?;
    Ok(file)
}

fn keep_in(file: &Path, path: &Path, settings: &TeamSettings) -> Result<(), MeasureError> {
    let wrong = |error: TeamError| MeasureError::Settings(error.to_string());
    let Some(name) = path.to_str() else {
        let text = format!("{}: a path in team.toml must be UTF-8", path.display());
        return Err(MeasureError::Settings(text));
    };
    // A wrong file is not made worse.
    read_file(file, name).map_err(wrong)?;
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(MeasureError::at(file)(error)),
    };
    let text = edited(&text, name, settings);
    let kept = of_text(&text, name).map_err(wrong)?;
    if (kept.saturation, kept.active, kept.target) != (settings.saturation, settings.active, settings.target)
    {
        let form = "write each directory as [[directory]], with each key on a line of its own";
        return Err(MeasureError::Settings(format!("{}: {form}", file.display())));
    }
    replace(file, &text)
}

fn replace(file: &Path, text: &str) -> Result<(), MeasureError> {
    // A link to the file stays a link.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let directory = file.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory).map_err(MeasureError::at(directory))?;
    let new = file.with_extension(format!("toml.{}", std::process::id()));
    let write = || {
        let mut output = std::fs::File::create(&new)?;
        output.write_all(text.as_bytes())?;
        output.sync_all()?;
        std::fs::rename(&new, &file)
    };
    write().map_err(|error| {
        // It was never made, or not renamed.
        let _ = std::fs::remove_file(&new);
        MeasureError::at(&file)(error)
    })
}

/// The text of the settings file with the three keys of a directory changed, or with the directory added.
fn edited(text: &str, name: &str, settings: &TeamSettings) -> String {
    let mut keys: Vec<(&str, String)> = Vec::new();
    keys.extend(settings.saturation.map(|size| ("saturation", format!("\"{size}\""))));
    keys.extend(settings.active.map(|count| ("active", count.to_string())));
    keys.extend(settings.target.map(|kind| ("target", format!("\"{}\"", kind.word()))));
    let line = |(key, value): &(&str, String)| format!("{key} = {value}\n");
    let mut blocks = blocks(text);
    let Some(block) = blocks.iter_mut().find(|block| path_of(block).as_deref() == Some(name)) else {
        let gap = if text.is_empty() || text.ends_with("\n\n") { "" } else { "\n" };
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let lines: String = keys.iter().map(line).collect();
        return format!("{text}{end}{gap}{HEAD}\npath = {}\n{lines}", toml::Value::from(name));
    };
    let mut new = String::new();
    for old in block.split_inclusive('\n') {
        let key = old.split('=').next().unwrap_or_default().trim();
        if ["saturation", "active", "target"].contains(&key) {
            continue;
        }
        new.push_str(old);
        if key == "path" {
            new.push_str(if old.ends_with('\n') { "" } else { "\n" });
            keys.iter().for_each(|key| new.push_str(&line(key)));
        }
    }
    *block = new;
    blocks.concat()
}

/// The text in blocks: what is in front of the first directory, then one for each.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            blocks.push(String::new());
        }
        if let Some(block) = blocks.last_mut() {
            block.push_str(line);
        }
    }
    blocks
}

/// The path of a block that is a directory.
fn path_of(block: &str) -> Option<String> {
    let table: toml::Table = toml::from_str(block).ok()?;
    let directory = table.get("directory")?.get(0)?;
    Some(directory.get("path")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> TeamSettings {
        TeamSettings::parse(text).unwrap()
    }

    #[test]
    fn the_keys_of_one_directory_change_and_all_else_stays() {
        let measured = settings("saturation=2MiB,active=8,target=log");
        let new = edited("", "/scratch", &measured);
        assert_eq!(
            new,
            "[[directory]]\npath = \"/scratch\"\nsaturation = \"2MiB\"\nactive = 8\ntarget = \"log\"\n"
        );
        let old = "# mine\n[[directory]]\npath = \"/scratch\" # fast\nactive = 2\n# why\nwrite_behind = false\n\n\
                   [[directory]]\nactive = 3\npath = \"/other\"\n";
        let text = edited(old, "/scratch", &measured);
        for kept in
            ["# mine\n", "# fast\n", "# why\nwrite_behind = false\n\n", "active = 3\npath = \"/other\"\n"]
        {
            assert!(text.contains(kept), "{kept:?} of {text}");
        }
        let expected = settings("saturation=2MiB,active=8,target=log,write_behind=off");
        assert_eq!(of_text(&text, "/scratch/a").unwrap(), expected);
        assert_eq!(of_text(&text, "/other/a").unwrap(), settings("active=3"));
        assert_eq!(edited(&text, "/scratch", &measured), text, "the second time nothing changes");
        let added = edited("[[directory]]\npath = \"/a\"", "/b \"c\"", &measured);
        assert_eq!(of_text(&added, "/b \"c\"/d").unwrap(), measured);
        assert_eq!(of_text(&added, "/a/d").unwrap(), TeamSettings::default());
    }

    #[test]
    fn a_file_is_made_replaced_and_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/pario/team.toml");
        let measured = settings("saturation=1MiB,active=2,target=plain");
        keep_in(&file, Path::new("/scratch"), &measured).unwrap();
        keep_in(&file, Path::new("/scratch"), &settings("active=4,saturation=64KiB,target=log")).unwrap();
        assert_eq!(read_file(&file, "/scratch/x").unwrap().active, Some(4));
        let names: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        for wrong in [
            "speed = 1\n",
            "directory = [{ path = \"/scratch\", active = 1 }]\n",
            "[[directory]]\nactive=1\n",
        ] {
            std::fs::write(&file, wrong).unwrap();
            let error = keep_in(&file, Path::new("/scratch"), &measured).unwrap_err().to_string();
            assert!(error.contains("team.toml") && !error.is_empty(), "{error}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), wrong, "it stays as it was");
        }
    }

    #[test]
    fn a_path_of_a_mount_is_its_mount_point() {
        let dir = tempfile::tempdir().unwrap();
        let path = kept_path(dir.path()).unwrap();
        assert!(dir.path().canonicalize().unwrap().starts_with(&path) && path != Path::new("/"), "{path:?}");
        if let Ok(proc) = kept_path(Path::new("/proc/sys/kernel")) {
            assert_eq!(proc, Path::new("/proc"));
        }
        assert!(kept_path(&dir.path().join("none")).is_err());
    }
}
