//! The size of an INTEGER, and the name under which programs need the library.

fn main() {
    println!("cargo:rustc-cfg=pario_integer8");
    println!("cargo:rustc-check-cfg=cfg(pario_integer8)");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpario_i8.so");
    println!("cargo:rerun-if-changed=build.rs");
}
