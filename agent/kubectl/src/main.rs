//! Thin: parses the command line, asks the API server, and exits with a code for scripts.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_epitaph::run(std::env::args_os().collect()).into()
}
