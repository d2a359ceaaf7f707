//! Random types and views against a brute-force map that writes every byte out.

mod bytes;
mod comparison;
mod datatypes;
mod large;
mod ordered;
mod paper;
mod specs;
mod typemap;
mod views;
