//! The name under which programs need the library: without it, a program linked by path would need that path.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpario.so");
    // Set for `libpario_i8.so`: INTEGERs of Fortran have 8 bytes.
    println!("cargo:rustc-check-cfg=cfg(pario_integer8)");
    println!("cargo:rerun-if-changed=build.rs");
}
