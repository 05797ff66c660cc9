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
    let mut closing = String::new();
    for line in output.split(b'\n') {
        let line = line.with_context(|| format!("{command}: reading its output"))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        if !line.trim().is_empty() {
            closing = line.trim().to_owned();
        }
    }
    let status = child.wait().with_context(|| command.to_owned())?;
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
