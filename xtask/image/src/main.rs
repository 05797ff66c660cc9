//! The program behind `cargo xtask image`: built files → an OCI layout and an archive.

use std::process::ExitCode;

fn main() -> ExitCode {
    match epitaph_image::command::run(pico_args::Arguments::from_env()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("image: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
