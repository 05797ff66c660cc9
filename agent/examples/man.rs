//! Writes the manual pages into a directory: `cargo run -p epitaph --example man -- DIR`. For the Debian package.

use std::{io, path::PathBuf, process::ExitCode};

use clap::CommandFactory as _;
use clap_mangen::Man;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("man: error: no directory");
        return ExitCode::FAILURE;
    };
    match write(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("man: error: writing the manual pages into {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

/// `epitaph.1`, and a page for each command, as `epitaph-agent.1`.
fn write(dir: &std::path::Path) -> io::Result<()> {
    // The long version names this build's records and machine.
    let mut command = epitaph::cli::Cli::command().version(env!("CARGO_PKG_VERSION"));
    command.build();
    let mut pages = vec![command.clone()];
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let name: &'static str = format!("epitaph-{}", sub.get_name()).leak();
        pages.push(sub.clone().name(name).version(env!("CARGO_PKG_VERSION")));
    }
    for page in pages {
        let name = page.get_name().to_owned();
        let mut text = Vec::new();
        Man::new(page).manual("Epitaph").render(&mut text)?;
        std::fs::write(dir.join(format!("{name}.1")), text)?;
    }
    Ok(())
}
