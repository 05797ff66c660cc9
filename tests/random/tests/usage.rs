//! The command line of the binary. Cargo builds a package's binary for its integration tests only, and the everyday histories need it.

use std::process::Command;

#[test]
fn what_it_does_not_know_is_named_with_the_usage() {
    let output = Command::new(env!("CARGO_BIN_EXE_random-histories"))
        .args(["--epitaph", "/bin/true", "--sede", "1"])
        .output()
        .expect("start random-histories");
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("--sede") && errors.contains("usage: random-histories"),
        "{errors}"
    );
}
