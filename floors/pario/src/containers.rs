//! Log-structured containers: files as directories with a data log for each writer, on any file system of this machine.
//!
//! ```
//! use pario::containers::{LogContainer, LogOptions, flatten};
//!
//! # let dir = std::env::temp_dir().join(format!("pario-doc-container-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! let path = dir.join("field");
//! let container = LogContainer::create(&path)?;
//! std::thread::scope(|scope| {
//!     for part in 0..4u64 {
//!         let writer = container.writer(); // one for each thread
//!         scope.spawn(move || writer.write_at(&[7; 1000], part * 1000));
//!     }
//! });
//! assert_eq!(container.len(), 4000);
//! container.close()?;
//! flatten(&LogOptions::default(), &path)?;
//! assert_eq!(std::fs::read(&path)?, [7; 4000]);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Never: needs a partition or a server. The guide is `docs/guide/containers.md`.

pub use pario_server::store::log::{
    FindingKind, IndexFlush, LogContainer, LogError, LogFinding, LogOptions, LogReport, LogWriter, check,
    flatten, is_container, remove, repair,
};
