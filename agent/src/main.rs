//! Thin: parses the command line, calls `runtime`, and exits with a code for scripts.

use std::process::ExitCode;

use epitaph::cli::{self, Cli, Command, SysExit, explain};
use epitaph::config::ProcessEnv;
use epitaph::error;
use epitaph::runtime;

fn main() -> ExitCode {
    let cli = match Cli::parse_or_exit(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return code.into(),
    };
    let env = &ProcessEnv;
    let done = match &cli.command {
        Command::Agent(args) => runtime::agent(args, env),
        Command::Observer(args) => runtime::observer(args, env),
        Command::Logind(args) => runtime::logind(args, env),
        Command::Watch(args) => runtime::watch(args, env),
        Command::Record(args) => runtime::record(args, env),
        Command::Replay(args) => runtime::replay(args, env),
        Command::Why(args) => runtime::why(args, env),
        Command::List(args) => runtime::list(args, env),
        Command::Export(args) => runtime::export(args, env),
        Command::Doctor(args) => match runtime::doctor(args, env) {
            Ok(code) => return code.into(),
            Err(error) => Err(error),
        },
        Command::Ready(args) => runtime::ready(args, env),
        Command::Explain(args) => return explain(&args.words).into(),
    };
    match done {
        Ok(()) => SysExit::Ok.into(),
        Err(error) => {
            eprintln!("error: {}", error::lines(&error));
            error.code.into()
        }
    }
}

fn explain(words: &[String]) -> SysExit {
    match explain::explain(words, runtime::terminal()) {
        Ok(text) => match cli::print(&text) {
            Ok(()) => SysExit::Ok,
            Err(error) => {
                eprintln!("error: cannot write to standard output: {error}");
                SysExit::Os
            }
        },
        Err(error) => {
            eprintln!("error: {}", error::lines(&error));
            SysExit::Usage
        }
    }
}
