//! The name under which programs need the library: without it, a program linked by path would need that path.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpario.so");
    println!("cargo:rerun-if-changed=build.rs");
}
