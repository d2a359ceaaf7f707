//! Which target a name gets.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pario_sys::processors::processors;

use super::TeamTarget;
use super::container::ContainerTarget;
use super::file_system::{self, KindChoice};
use super::partition::PartitionTarget;
use super::plain::PlainFileTarget;
use crate::handle::Partition;
use crate::partition::Location;
use crate::team::counts::explain;
use crate::team::error::{TeamCode, TeamError, TeamResult};
use crate::team::options::TeamOptions;
use crate::team::settings::{TargetKind, TeamSettings, settings_for};

/// An open target with the settings that hold for it.
#[derive(Debug)]
pub(in crate::team) struct OpenedTarget {
    pub(in crate::team) target: Box<dyn TeamTarget>,
    pub(in crate::team) settings: TeamSettings,
}

/// Opens a plain path, or a path of a running partition.
pub(in crate::team) fn open(name: &Path, options: &TeamOptions) -> TeamResult<OpenedTarget> {
    check_access(name, options)?;
    if Location::is_one(name) {
        let location = Location::parse(name)
            .map_err(|error| TeamError::new(TeamCode::BadArgument, error.to_string()))?;
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(&location.path));
        return open_file(&mounted(&location.partition)?, path, options);
    }
    let absolute = std::path::absolute(name).map_err(|error| TeamError::from_io(&error, name.display()))?;
    let settings = settings_for(&absolute.to_string_lossy(), &options.settings)?;
    let shown = name.display().to_string();
    let set = |kind| KindChoice { kind, why: "a setting".to_owned() };
    // A missing file that is not created is an error of plain files.
    let creates = options.create || options.create_new;
    let active = settings.active.map_or(processors() as u64, u64::from);
    let active = if creates { active } else { 1 };
    let choice = match settings.target.unwrap_or_default() {
        TargetKind::Auto => file_system::choose(name, active),
        kind @ (TargetKind::Log | TargetKind::Plain) => set(kind),
    };
    let is_container = choice.kind == TargetKind::Log;
    let target: Box<dyn TeamTarget> = if is_container {
        Box::new(ContainerTarget::open(name, options)?)
    } else {
        Box::new(PlainFileTarget::open(name, options)?)
    };
    explain(&shown, if is_container { "container" } else { "plain file" }, &choice.why);
    Ok(OpenedTarget { target, settings })
}

/// Opens a file of a mounted partition.
pub(in crate::team) fn open_in(
    partition: &Partition,
    path: &Path,
    options: &TeamOptions,
) -> TeamResult<OpenedTarget> {
    check_access(path, options)?;
    open_file(&Arc::new(partition.clone()), path, options)
}

fn open_file(partition: &Arc<Partition>, path: &Path, options: &TeamOptions) -> TeamResult<OpenedTarget> {
    let name = format!("pario://{}/{}", partition.name(), path.display().to_string().trim_start_matches('/'));
    let settings = settings_for(&name, &options.settings)?;
    let how = partition.options().read(options.read).write(options.write).mode(options.mode);
    let how = how.create(options.create).create_new(options.create_new).truncate(options.truncate);
    let file = how.open(path)?;
    explain(&name, "file of a partition", "its name");
    let target = PartitionTarget::new(file, Arc::clone(partition))?;
    Ok(OpenedTarget { target: Box::new(target), settings })
}

fn check_access(name: &Path, options: &TeamOptions) -> TeamResult<()> {
    if options.read || options.write {
        return Ok(());
    }
    let text = format!("{}: open for neither reading nor writing", name.display());
    Err(TeamError::new(TeamCode::BadArgument, text))
}

/// Partitions that teams of this process have mounted: handles of one partition share a session.
static MOUNTED: Mutex<Option<HashMap<String, Weak<Partition>>>> = Mutex::new(None);

fn mounted(name: &str) -> TeamResult<Arc<Partition>> {
    let mut table = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let table = table.get_or_insert_default();
    if let Some(partition) = table.get(name).and_then(Weak::upgrade) {
        return Ok(partition);
    }
    let partition = Arc::new(Partition::mount(name)?);
    table.retain(|_, partition| 0 < partition.strong_count());
    table.insert(name.to_owned(), Arc::downgrade(&partition));
    Ok(partition)
}
