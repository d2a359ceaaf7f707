//! The machine of a measurement.

use std::fs;
use std::path::Path;

use pario::core::Size;
use serde::Serialize;

/// Description of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Machine {
    /// Processors this process may use.
    pub(crate) cpus: usize,
    /// Their model.
    pub(crate) cpu_model: String,
    /// Bytes of memory.
    pub(crate) memory_bytes: u64,
    /// Name and version of the kernel.
    pub(crate) kernel: String,
    /// Kind of the measured file system.
    pub(crate) file_system: String,
}

impl Machine {
    /// This machine; `dir` is on the measured file system.
    pub(crate) fn here(dir: &Path) -> Machine {
        let name = rustix::system::uname();
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_model: cpu_model(&read("/proc/cpuinfo")),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            kernel: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
            file_system: file_system(&read("/proc/self/mountinfo"), dir),
        }
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        let memory = Size(self.memory_bytes).rounded();
        format!("{} × {}, {memory}, {}, {}", self.cpus, self.cpu_model, self.kernel, self.file_system)
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn cpu_model(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|rest| rest.split_once(':')).map(|(_, model)| model.trim().to_owned());
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn memory_bytes(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The kind of the mount with the longest path above `dir`; the last of several stacked ones.
fn file_system(mountinfo: &str, dir: &Path) -> String {
    let mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let point = place.split(' ').nth(4)?.replace("\\040", " ");
        let kind = kind.split(' ').next()?.to_owned();
        dir.starts_with(&point).then_some((point.len(), kind))
    };
    let found = mountinfo.lines().filter_map(mount).max_by_key(|(length, _)| *length);
    found.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_says() {
        assert_eq!(cpu_model("processor : 0\nmodel name\t: Fast CPU\nflags : x\n"), "Fast CPU");
        assert_eq!(memory_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"), 2 << 20);
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /dev/shm rw shared:1 - tmpfs tmpfs rw\n\
                      3 1 0:6 / /mnt/a\\040b rw - xfs /dev/b rw\n";
        assert_eq!(file_system(mounts, Path::new("/home")), "ext4");
        assert_eq!(file_system(mounts, Path::new("/dev/shm/x")), "tmpfs");
        assert_eq!(file_system(mounts, Path::new("/mnt/a b/c")), "xfs");
        assert_eq!(file_system("", Path::new("/")), "unknown");
    }

    #[test]
    fn this_machine_has_processors_and_memory() {
        let machine = Machine::here(&std::env::temp_dir());
        assert!(0 < machine.cpus && 0 < machine.memory_bytes, "{machine:?}");
    }
}
