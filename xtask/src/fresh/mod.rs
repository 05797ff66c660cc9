//! Both commands of the README on a machine that has only what the README's first lines name.
//!
//! The machine is a minimal Debian root, made on the spot, with the kernel, the network and the processors of this one. While the
//! commands run, every program that they start is watched: one that is not there is named, with who started it.

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
    // How a keeper is started: not for people.
    if let Some(dir) = args.opt_value_from_str::<_, String>("--keeper")? {
        done(args)?;
        return keeper::keep(Path::new(&dir));
    }
    let own: Option<String> = args.opt_value_from_str("--run")?;
    done(args)?;
    if !shell::is_root() {
        bail!("a Debian root is made, and entered, by root: run it as root");
    }
    let allowed = Allowed::read()?;
    let head = root::committed()?;
    debian::ensure(&["mmdebstrap", "bpftrace"], "a fresh machine, and seeing what it lacks")?;

    let dir = shell::cache().join("fresh");
    let keeper = Keeper::start(&dir)?;
    let root = Root::make(&keeper::root(&dir), &head)?;
    let trace = Trace::start(&dir)?;
    let commands = own.map_or_else(|| COMMANDS.map(str::to_owned).to_vec(), |command| vec![command]);
    let ended = commands
        .iter()
        .map(|command| run(&root, command))
        .collect::<Result<Vec<Ended>>>()?;
    let recorded = trace.end()?;
    keeper.end()?;
    Ok(verdict(&ended, &missing::of(&recorded), &allowed, &root.name))
}

/// Runs `command` in `root`, its output in view.
fn run(root: &Root, command: &str) -> Result<Ended> {
    shell::say(format_args!("on the fresh {}: {command}", root.name));
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
            // What it left behind may keep its output open for ever.
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

/// Prints how the commands ended, every program that was missing, and the closing line.
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
            Some(why) => println!("may be missing: {program} ({why})"),
            None => {
                refused += 1;
                println!("MISSING: {program}");
            }
        }
    }
    let failed = ended.iter().filter(|ended| !ended.succeeded).count();
    let commands = match ended {
        [_] => "1 command".to_owned(),
        more => format!("{} commands", more.len()),
    };
    println!("fresh {name}: {commands}, {failed} failed; {refused} programs were started that nobody installed");
    if failed + refused == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
