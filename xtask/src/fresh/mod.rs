//! Runs the README's two commands on a machine that has only what the README's first lines name.
//!
//! The machine is a minimal Debian root, made on the spot, on the kernel and the network of this machine. Every `execve` of the
//! commands and their descendants is traced: a program that was started and is not installed is reported, with its starters.

mod keeper;
mod missing;
mod root;
mod settings;
mod trace;

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{ExitCode, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use self::{
    keeper::Keeper,
    missing::{Allowed, Missing},
    root::Root,
    trace::Trace,
};
use crate::{debian, done, shell};

const COMMANDS: [&str; 2] = ["cargo xtask demo", "cargo xtask test"];

/// How a command ended.
struct Ended {
    command: String,
    succeeded: bool,
    /// The last line of its standard output.
    closing: String,
}

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    // Internal: how the task starts its keeper.
    if let Some(dir) = args.opt_value_from_str::<_, String>("--keeper")? {
        done(args)?;
        return keeper::keep(Path::new(&dir));
    }
    let only: Option<String> = args.opt_value_from_str("--run")?;
    done(args)?;
    if !shell::is_root() {
        bail!("making and entering a Debian root needs root: run this task as root");
    }
    let allowed = Allowed::read()?;
    let head = root::committed()?;
    debian::ensure(&["mmdebstrap", "bpftrace"], "making a Debian root and tracing execve")?;

    let dir = shell::cache().join("fresh");
    let keeper = Keeper::start(&dir)?;
    let root = Root::make(&keeper::root(&dir), &head)?;
    let trace = Trace::start(&dir)?;
    let commands = only.map_or_else(|| COMMANDS.map(str::to_owned).to_vec(), |command| vec![command]);
    let ended = commands
        .iter()
        .map(|command| run(&root, command))
        .collect::<Result<Vec<Ended>>>()?;
    let recorded = trace.end()?;
    keeper.end()?;
    Ok(verdict(&ended, &missing::of(&recorded), &allowed, &root.name))
}

/// Runs `command` in `root` and shows its output.
fn run(root: &Root, command: &str) -> Result<Ended> {
    shell::log(format_args!("running in the fresh {}: {command}", root.name));
    let mut child = root
        .command(&["sh", "-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| command.to_owned())?;
    let output = BufReader::new(child.stdout.take().context("the pipe that was just asked for")?);
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        output
            .split(b'\n')
            .map_while(Result::ok)
            .all(|line| sender.send(line).is_ok())
    });
    let mut closing = String::new();
    let mut status = None;
    let status = loop {
        match (lines.recv_timeout(Duration::from_secs(1)), status) {
            (Ok(line), _) => {
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                if !line.trim().is_empty() {
                    closing = line.trim().to_owned();
                }
            }
            (Err(RecvTimeoutError::Disconnected), _) => break child.wait().with_context(|| command.to_owned())?,
            // A process that the command left behind may keep the pipe open forever.
            (Err(RecvTimeoutError::Timeout), Some(status)) => break status,
            (Err(RecvTimeoutError::Timeout), None) => status = child.try_wait().with_context(|| command.to_owned())?,
        }
    };
    Ok(Ended {
        command: command.to_owned(),
        succeeded: status.success(),
        closing,
    })
}

/// Prints the commands' results, every missing program, and the closing line.
fn verdict(ended: &[Ended], missing: &[Missing], allowed: &Allowed, name: &str) -> ExitCode {
    println!();
    for Ended {
        command,
        succeeded,
        closing,
    } in ended
    {
        println!("{} {command}: {closing}", if *succeeded { "ok    " } else { "FAILED" });
    }
    let mut refused = 0;
    for program in missing {
        match allowed.reason(program) {
            Some(why) => println!("missing, allowed: {program} ({why})"),
            None => {
                refused += 1;
                println!("MISSING: {program}; not in tests/allowed-missing.txt");
            }
        }
    }
    let failed = ended.iter().filter(|ended| !ended.succeeded).count();
    let commands = match ended {
        [_] => "1 command".to_owned(),
        more => format!("{} commands", more.len()),
    };
    println!("fresh {name}: {commands}, {failed} failed; {refused} missing programs");
    if failed + refused == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
