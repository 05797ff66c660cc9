//! Tells the crate where the built probes are.

use std::path::PathBuf;

#[expect(
    clippy::disallowed_methods,
    reason = "a build script has no other configuration than its environment"
)]
fn main() {
    println!("cargo::rerun-if-env-changed=EPITAPH_BPF_OBJECT");
    let object = match std::env::var_os("EPITAPH_BPF_OBJECT") {
        Some(path) => PathBuf::from(path),
        None => {
            let is_shipped = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
            let name = if is_shipped { "shipped" } else { "probes" };
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/bpf").join(name)
        }
    };
    println!("cargo::rerun-if-changed={}", object.display());
    match object.canonicalize() {
        Ok(object) => println!("cargo::rustc-env=EPITAPH_BPF_OBJECT={}", object.display()),
        Err(error) => println!(
            "cargo::error=the probes are not built ({}: {error}). Run `cargo xtask build` first: it builds them and then this \
             crate; or name a built object in EPITAPH_BPF_OBJECT",
            object.display()
        ),
    }
}
