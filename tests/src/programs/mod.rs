//! Real programs of Debian's packages, as containers: each with what its own documentation says of a stop signal, and the verdict.
//!
//! A program is a [`Story`] like any other: [`crate::play::Players`] starts it in a container, waits until it is ready, stops it with the
//! story's signal, and compares the report with [`Story::expected`]. `docs/programs.md` is the table of all of them.

mod inits;
mod other_signals;
mod place;
mod runtimes;
mod servers;
mod shared_pids;
mod supervisors;
mod table;
pub mod with_clients;

pub use place::Place;
pub use table::table;

use std::path::Path;
use std::time::Duration;

use crate::runtime::{Kill, Others, Stop};
use crate::story::{Bystander, End, Expected, Kind, Program, Story};

/// A program that Debian packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// As the table names it.
    pub name: &'static str,
    /// Debian's packages, those of the programs that it runs included.
    pub packages: &'static [&'static str],
    /// Files that must exist: the programs.
    pub files: &'static [&'static str],
    /// Configuration, written into the story's own directory: name, text.
    pub configuration: &'static [(&'static str, &'static str)],
    /// Program and arguments. In these and in the configuration `$DIR` is the story's own directory, `$PORT` a free port on the loopback,
    /// `$VICTIM` the path of the victim, and `$UPSTREAM` the address of the server behind a proxy.
    pub command: &'static [&'static str],
    pub ready: Ready,
    /// What its documentation says of this signal.
    pub documented: &'static str,
}

/// How the player knows that the program has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It prints `ready`, as the victims do.
    Prints,
    /// It accepts connections on `$PORT` of the loopback.
    Listens,
}

impl Installed {
    /// With what its documentation says of another signal.
    const fn documented(self, documented: &'static str) -> Installed {
        Installed { documented, ..self }
    }

    /// Err with the missing file.
    pub fn is_here(&self) -> Result<(), String> {
        match self.files.iter().find(|file| !Path::new(file).exists()) {
            Some(file) => Err(format!("{file} is missing: install {}", self.packages.join(" "))),
            None => Ok(()),
        }
    }
}

/// The inits, the language runtimes and the servers under load, whose stories take seconds: played by the everyday tests.
pub fn everyday() -> impl Iterator<Item = &'static Story> {
    inits::STORIES
        .iter()
        .chain(supervisors::STORIES)
        .chain(runtimes::STORIES)
        .chain(shared_pids::STORIES)
        .chain(with_clients::STORIES)
}

/// The programs of the everyday tests, the servers with clients among them.
pub fn everyday_programs() -> impl Iterator<Item = &'static Installed> {
    everyday().filter_map(installed).chain(with_clients::ALL)
}

/// All programs.
pub fn all() -> impl Iterator<Item = &'static Story> {
    everyday()
        .chain(servers::stories())
        .chain(other_signals::STORIES)
        .chain(with_clients::MORE)
}

/// The packages that the programs need, each once.
pub fn packages<'a>(of: impl Iterator<Item = &'a Installed>) -> Vec<&'static str> {
    let mut packages: Vec<_> = of.flat_map(|program| program.packages).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// The program of a story, if it is an installed one.
pub fn installed(story: &Story) -> Option<&Installed> {
    match &story.program {
        Program::Installed(installed) => Some(installed),
        Program::Victim(_) | Program::Shell(_) => None,
    }
}

/// A container in a pid namespace of its own that gets SIGTERM, a grace of 2 s, and SIGKILL.
const fn stopped(name: &'static str, what: &'static str, program: Installed, expected: Expected) -> Story {
    stopped_by(name, what, program, nix::libc::SIGTERM, expected)
}

/// With another signal.
const fn stopped_by(name: &'static str, what: &'static str, program: Installed, signal: i32, expected: Expected) -> Story {
    within(2, name, what, program, signal, expected)
}

/// With a grace far longer than a server without clients needs, or supervisord, which looks at its programs each second.
const fn server(name: &'static str, what: &'static str, program: Installed, signal: i32, expected: Expected) -> Story {
    within(8, name, what, program, signal, expected)
}

/// With a grace of so many seconds.
const fn within(
    grace: u64,
    name: &'static str,
    what: &'static str,
    program: Installed,
    signal: i32,
    expected: Expected,
) -> Story {
    Story {
        name,
        what,
        subject: Kind::Container,
        program: Program::Installed(program),
        pid_namespace: true,
        memory_limit: None,
        leaves_core: false,
        network_namespace: false,
        called_at: None,
        stop: by(signal, Duration::from_secs(grace)),
        bystander: Bystander::None,
        expected,
    }
}

/// In the pid namespace of others, as under `shareProcessNamespace`.
const fn not_pid_1(story: Story) -> Story {
    Story {
        pid_namespace: false,
        ..story
    }
}

const fn by(signal: i32, grace: Duration) -> Stop {
    Stop::Signal {
        signal,
        grace,
        frozen: false,
        kill: Kill::Main,
        others: Others::Nothing,
    }
}

const CLEAN: Expected = Expected {
    end: End::Code(0),
    verdict: "clean",
    cause: "stopped",
    exit: "clean",
    traffic: "quiet",
    sentence: &[],
    remedy: &[],
    early_warning: false,
};

/// With words that the sentence must have.
const fn clean(sentence: &'static [&'static str]) -> Expected {
    Expected { sentence, ..CLEAN }
}

const fn unclean(end: End, exit: &'static str, sentence: &'static [&'static str], remedy: &'static [&'static str]) -> Expected {
    Expected {
        end,
        verdict: exit,
        exit,
        sentence,
        remedy,
        ..CLEAN
    }
}

const fn ignored(sentence: &'static [&'static str], remedy: &'static [&'static str]) -> Expected {
    Expected {
        early_warning: true,
        ..unclean(End::Signal(nix::libc::SIGKILL), "ignored-stop-signal", sentence, remedy)
    }
}
