//! Random histories against an oracle: `cargo xtask test random`.
//!
//! A history is drawn from a seed, played with real processes, and judged twice: by `epitaph watch`, and by the logs of those who took
//! part. *Architecture invariant*: this crate has no dependency on the product's crates; it reads the product's JSON.
//!
//! One binary is every player: `run` draws and compares, the other words are its own children.

#![warn(unused_crate_dependencies)]

mod agents;
mod client;
mod draw;
mod entry;
mod handling;
mod history;
mod known;
mod play;
mod pool;
mod port;
mod program;
mod run;
mod score;
mod shim;
mod shrink;
mod sockets;
mod sys;
mod truth;
mod udp;
mod watch;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let code = match words[..] {
        ["program", directory] => program::main(Path::new(directory)),
        ["clients", order] => client::main(order),
        ["shim", order] => shim::main(order),
        ["init", ..] if words.len() > 1 => shim::init(&args[1..]),
        ["double-fork", ..] if words.len() > 1 => shim::double_fork(&args[1..]),
        ["stranger", deed] => stranger(deed),
        ["everybody", signal] => shim::everybody(signal),
        ["probe", server] => shim::probe(server),
        _ => return run::main(&args),
    };
    match code {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(e) => {
            eprintln!("random-histories {}: {e}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// Sends one signal: `PID SIGNAL`.
fn stranger(deed: &str) -> std::io::Result<i32> {
    let numbers: Vec<i32> = deed.split(' ').filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [pid, signal] => sys::kill(pid.cast_unsigned(), signal).map(|()| 0),
        _ => Err(std::io::Error::other("PID SIGNAL")),
    }
}
