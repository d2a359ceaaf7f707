//! Random types and views against a brute-force map that writes every byte out.

mod bytes;
mod datatypes;
mod large;
mod paper;
mod specs;
mod together;
mod typemap;
mod views;
