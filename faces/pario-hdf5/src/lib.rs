//! `libpario_hdf5.so`: an HDF5 VOL connector. Files that a program opens through HDF5 are HDF5 trees of Pario.
//!
//! Never: links HDF5, calls it from another thread than the caller's, lets a panic cross a callback, writes to standard output.
//! Always: what is not supported is an error in words on HDF5's error stack.
#![expect(unsafe_code, reason = "these are C functions, called by HDF5 and calling HDF5")]

mod ffi;
mod settings;
mod stats;
