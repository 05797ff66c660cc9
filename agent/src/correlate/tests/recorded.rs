//! The core under a script, and what it was fed as a file, from which `cargo xtask corpus` makes a recording of `tests/corpus`.
//!
//! A line per input, JSON: `{"now": NANOSECONDS, "record": HEX}` for a kernel record, `{"now": NANOSECONDS, "input": OBJECT}`
//! ([`StoredInput`]) for any other. Written where `EPITAPH_CORPUS` names a directory, one file per script, named after the test.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use crate::correlate::{Correlator, Limits};
use crate::decode::decode;
use crate::decode::encode::encode;
use crate::event::{Boot, Input};
use crate::stored::StoredInput;
use crate::termination::Output;

/// A [`Correlator`] with the limits that an agent has by default.
pub(super) struct Recorded {
    correlator: Correlator,
    lines: Option<Lines>,
}

impl Default for Recorded {
    fn default() -> Recorded {
        Recorded {
            correlator: Correlator::new(Limits::default()),
            lines: Lines::new(),
        }
    }
}

impl Recorded {
    pub(super) fn handle(&mut self, now: Boot, input: Input) -> Vec<Output> {
        let recorded = self.lines.is_some().then(|| input.clone());
        let outputs = self.correlator.handle(now, input);
        if let (Some(lines), Some(input)) = (&mut self.lines, recorded) {
            lines.add(now, &input, !outputs.is_empty());
        }
        outputs
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Some(lines) = self.lines.take().filter(|_| !std::thread::panicking()) {
            lines.write();
        }
    }
}

struct Lines {
    file: PathBuf,
    text: String,
    now: Boot,
    /// Time of the last line.
    last: Boot,
    ended: bool,
}

impl Lines {
    /// A tick at which the core said nothing is recorded so long after the input before it: a later version of the core, which
    /// may have something to say at another time, is asked often enough.
    const QUIET: Duration = Duration::from_secs(20);

    fn new() -> Option<Lines> {
        static SCRIPTS: LazyLock<Mutex<HashMap<String, u32>>> = LazyLock::new(Mutex::default);
        #[expect(
            clippy::disallowed_methods,
            reason = "a test's own switch: there is no configuration to read it in"
        )]
        let directory = PathBuf::from(std::env::var_os("EPITAPH_CORPUS")?);
        let thread = std::thread::current();
        let (_, test) = thread.name()?.split_once("correlate::tests::")?;
        // Those feed what chance gives.
        if test.contains("properties::") {
            return None;
        }
        let mut scripts = SCRIPTS.lock().expect("no panic while held");
        let number = scripts.entry(test.to_owned()).or_default();
        *number += 1;
        let name = test.replace("::", ".");
        Some(Lines {
            file: directory.join(match number {
                1 => format!("{name}.jsonl"),
                number => format!("{name}.{number}.jsonl"),
            }),
            text: String::new(),
            now: Boot(0),
            last: Boot(0),
            ended: false,
        })
    }

    fn add(&mut self, now: Boot, input: &Input, spoke: bool) {
        self.now = now;
        if *input == Input::Tick && !spoke && now < self.last.plus(Self::QUIET) {
            return;
        }
        self.last = now;
        self.ended = *input == Input::End;
        let line = match input {
            Input::Kernel { at, event } => {
                let record = encode(at.0, event);
                assert_eq!(
                    decode(&record),
                    Ok((*at, event.clone())),
                    "a record that the probes could not have written"
                );
                let hex = record.iter().fold(String::new(), |mut hex, byte| {
                    write!(hex, "{byte:02x}").expect("a string");
                    hex
                });
                serde_json::json!({ "now": now, "record": hex })
            }
            input => serde_json::json!({ "now": now, "input": StoredInput::new(input) }),
        };
        writeln!(self.text, "{line}").expect("a string");
    }

    fn write(mut self) {
        if !self.ended {
            let now = self.now;
            self.add(now, &Input::End, true);
        }
        std::fs::write(&self.file, self.text).expect("EPITAPH_CORPUS is a directory that can be written to");
    }
}
