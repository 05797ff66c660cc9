//! Finds the missing programs in the output of `execs.bt`.
//!
//! `execvp` tries one directory of PATH after the other, in one thread: a program is missing only if all of these attempts fail. A
//! shell searches PATH with stat(2) and executes nothing, so its message on standard error counts. Other programs that search
//! before they execute (Go's LookPath, `command -v`) leave no trace and are not seen.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Display, Formatter},
    fs,
};

use anyhow::{Context as _, Result, bail};

use crate::shell;

/// ENOENT and ENOTDIR.
const ABSENT: [&str; 2] = ["-2", "-20"];
/// How many ancestors are reported.
const GENERATIONS: usize = 6;

/// A program that was started and is not installed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    pub program: String,
    /// File names of the programs that started it, the nearest first.
    pub starters: Vec<String>,
    /// The name of the thread that started it: for a Rust test, the first 15 bytes of the test's name.
    pub thread: String,
}

impl Display for Missing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Missing {
            program,
            starters,
            thread,
        } = self;
        write!(f, "{program}, started by {} (thread `{thread}`)", starters.join(" < "))
    }
}

/// The missing programs in `trace`, once per starter.
pub fn of(trace: &str) -> Vec<Missing> {
    let mut reader = Reader::default();
    trace.lines().for_each(|line| reader.line(line));
    reader.end()
}

struct Process {
    file: String,
    parent: u32,
}

struct Attempt {
    program: String,
    pid: u32,
    parent: u32,
    thread: String,
    is_absent: bool,
}

#[derive(Default)]
struct Reader {
    /// Executed files, by process.
    running: HashMap<u32, Process>,
    /// Failed attempts, by thread, until one succeeds or the thread moves on.
    pending: BTreeMap<u32, Attempt>,
    missing: Vec<Missing>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |text: &str| text.parse::<u32>().unwrap_or(0);
        match fields[..] {
            ["exec", thread, pid, parent, file] => self.executed(number(thread), number(pid), number(parent), file),
            ["failed", thread, pid, parent, errno, comm, file] => {
                let attempt = Attempt {
                    program: file_name(file),
                    pid: number(pid),
                    parent: number(parent),
                    thread: comm.to_owned(),
                    is_absent: ABSENT.contains(&errno),
                };
                self.failed(number(thread), attempt);
            }
            ["shell", pid, parent, comm, text] => self.shell_message(number(pid), number(parent), comm, text),
            ["exit", thread, signal] => {
                // Killed during the search: whether the program is installed is unknown.
                if signal != "0" {
                    self.pending.remove(&number(thread));
                }
                self.conclude(number(thread));
                self.running.remove(&number(thread));
            }
            _ => {}
        }
    }

    fn executed(&mut self, thread: u32, pid: u32, parent: u32, file: &str) {
        if self
            .pending
            .get(&thread)
            .is_some_and(|attempt| attempt.program == file_name(file))
        {
            self.pending.remove(&thread);
        }
        self.conclude(thread);
        let file = file_name(file);
        self.running.insert(pid, Process { file, parent });
    }

    fn failed(&mut self, thread: u32, attempt: Attempt) {
        match self.pending.get_mut(&thread) {
            // No name: execve found the program, replaced the memory and then failed, for example because of a SIGKILL.
            Some(known) if known.program == attempt.program || attempt.program.is_empty() => {
                known.is_absent &= attempt.is_absent;
            }
            _ => {
                self.conclude(thread);
                self.pending.insert(thread, attempt);
            }
        }
    }

    /// `foo: not found` of dash, `bash: line 1: foo: command not found` of bash.
    fn shell_message(&mut self, pid: u32, parent: u32, thread: &str, text: &str) {
        let Some(before) = text.strip_suffix(": command not found").or(text.strip_suffix(": not found")) else {
            return;
        };
        let program = before.rsplit(": ").next().unwrap_or(before);
        if !program.is_empty() && !program.contains(char::is_whitespace) {
            self.report(&file_name(program), pid, parent, thread);
        }
    }

    /// `thread` makes no further attempt.
    fn conclude(&mut self, thread: u32) {
        if let Some(attempt) = self.pending.remove(&thread)
            && attempt.is_absent
        {
            self.report(&attempt.program, attempt.pid, attempt.parent, &attempt.thread);
        }
    }

    fn report(&mut self, program: &str, pid: u32, parent: u32, thread: &str) {
        let own = self.running.get(&pid);
        // The events of two processors may come out of order: this is the search that found the program that runs.
        if own.is_some_and(|process| process.file == program) {
            return;
        }
        let mut starters: Vec<String> = own.iter().map(|process| process.file.clone()).collect();
        let mut next = parent;
        while let Some(process) = self.running.get(&next).filter(|_| starters.len() < GENERATIONS) {
            starters.push(process.file.clone());
            next = process.parent;
        }
        if starters.is_empty() {
            starters.push(thread.to_owned());
        }
        self.missing.push(Missing {
            program: program.to_owned(),
            starters,
            thread: thread.to_owned(),
        });
    }

    fn end(mut self) -> Vec<Missing> {
        for thread in self.pending.keys().copied().collect::<Vec<_>>() {
            self.conclude(thread);
        }
        self.missing.sort();
        self.missing.dedup();
        self.missing
    }
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// The programs that may be missing: `tests/allowed-missing.txt`.
pub struct Allowed {
    /// Program, starter (both may end with the wildcard `*`), reason.
    rules: Vec<(String, String, String)>,
}

impl Allowed {
    pub fn read() -> Result<Allowed> {
        let path = shell::root().join("tests/allowed-missing.txt");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Allowed::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Allowed> {
        let mut rules = Vec::new();
        for line in text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let mut words = line.split_whitespace();
            let (Some(program), Some(starter)) = (words.next(), words.next()) else {
                bail!("`{line}`: want PROGRAM STARTER WHY");
            };
            let why = words.collect::<Vec<_>>().join(" ");
            if why.is_empty() {
                bail!("`{line}`: want PROGRAM STARTER WHY");
            }
            rules.push((program.to_owned(), starter.to_owned(), why));
        }
        Ok(Allowed { rules })
    }

    /// The reason of the rule that names `missing` and one of its starters.
    pub fn reason(&self, missing: &Missing) -> Option<&str> {
        let matches = |rule: &str, name: &str| rule.strip_suffix('*').map_or(rule == name, |start| name.starts_with(start));
        let rule = self.rules.iter().find(|(program, starter, _)| {
            matches(program, &missing.program) && missing.starters.iter().any(|name| matches(starter, name))
        });
        rule.map(|(_, _, why)| &**why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: &str =
        "exec\t10\t10\t1\t/root/.cargo/bin/cargo\nexec\t11\t11\t10\t/root/epitaph/target/debug/deps/tests-0123\n";

    fn shown(events: &str) -> Vec<String> {
        of(&format!("{TESTS}{events}")).iter().map(Missing::to_string).collect()
    }

    #[test]
    fn a_name_in_no_directory_of_path_is_missing() {
        assert_eq!(
            shown(
                "failed\t12\t12\t11\t-2\tcpio::tests::un\t/usr/bin/cpio\n\
                 failed\t12\t12\t11\t-20\tcpio::tests::un\t/bin/cpio\nexit\t12\t0\n"
            ),
            ["cpio, started by tests-0123 < cargo (thread `cpio::tests::un`)"]
        );
    }

    #[test]
    fn a_name_in_a_later_directory_is_found() {
        let found = "failed\t12\t12\t11\t-2\tt\t/usr/local/bin/ls\nexec\t12\t12\t11\t/usr/bin/ls\nexit\t12\t0\n";
        assert_eq!(shown(found), [""; 0]);
        // execve in a thread other than the main one: the thread takes over the process's pid.
        let by_a_thread = "failed\t13\t11\t10\t-2\tt\t/usr/local/bin/ls\nexec\t13\t11\t10\t/usr/bin/ls\n";
        assert_eq!(shown(by_a_thread), [""; 0]);
    }

    #[test]
    fn a_search_that_comes_after_its_success_found_the_program() {
        let events = "exec\t12\t12\t11\t/usr/bin/ls\nfailed\t12\t12\t11\t-2\tt\t/usr/local/bin/ls\nexit\t12\t0\n";
        assert_eq!(shown(events), [""; 0]);
    }

    #[test]
    fn a_fallback_does_not_hide_a_missing_program() {
        let events = "failed\t12\t12\t11\t-2\tt\t/bin/gawk\nfailed\t12\t12\t11\t-2\tt\t/usr/local/bin/awk\n\
                      exec\t12\t12\t11\t/bin/awk\n";
        assert_eq!(shown(events), ["gawk, started by tests-0123 < cargo (thread `t`)"]);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let events = "failed\t12\t12\t11\t-2\tt\t/bin/ls\nexit\t12\t0\nexec\t12\t12\t11\t/usr/bin/ls\n";
        assert_eq!(shown(events), ["ls, started by tests-0123 < cargo (thread `t`)"]);
    }

    #[test]
    fn a_file_that_cannot_be_executed_is_not_missing() {
        let events = "failed\t12\t12\t11\t-2\tt\t/usr/local/bin/x\nfailed\t12\t12\t11\t-13\tt\t/usr/bin/x\nexit\t12\t0\n";
        assert_eq!(shown(events), [""; 0]);
    }

    #[test]
    fn a_program_that_is_killed_while_it_starts_is_not_missing() {
        let found = "failed\t12\t12\t11\t-2\tt\t/usr/sbin/sleep\nfailed\t12\t12\t11\t-14\tsleep\t\nexit\t12\t0\n";
        assert_eq!(shown(found), [""; 0]);
        let unknown = "failed\t12\t12\t11\t-2\tt\t/usr/sbin/sleep\nexit\t12\t9\n";
        assert_eq!(shown(unknown), [""; 0]);
    }

    #[test]
    fn unfinished_attempts_count_and_duplicates_count_once() {
        let events = "failed\t12\t12\t11\t-2\tt\t/bin/x\nfailed\t14\t14\t11\t-2\tt\t/bin/x\n";
        assert_eq!(shown(events), ["x, started by tests-0123 < cargo (thread `t`)"]);
    }

    #[test]
    fn a_shells_message_names_the_program() {
        let events = "exec\t12\t12\t11\t/usr/bin/sh\nshell\t12\t11\tsh\tsh: 1: \nshell\t12\t11\tsh\tfoo: not found\n\
                      shell\t12\t11\tsh\tthe page was: not found\n\
                      shell\t15\t12\tbash\tbash: line 1: bar: command not found\n";
        assert_eq!(
            shown(events),
            [
                "bar, started by sh < tests-0123 < cargo (thread `bash`)",
                "foo, started by sh < tests-0123 < cargo (thread `sh`)"
            ]
        );
    }

    #[test]
    fn a_rule_allows_a_program_for_its_starter() {
        let allowed = Allowed::parse("# names\nip tests-* what needs it is skipped\n").unwrap();
        let missing = |program: &str, starter: &str| Missing {
            program: program.into(),
            starters: vec![starter.into(), "cargo".into()],
            thread: "t".into(),
        };
        assert_eq!(allowed.reason(&missing("ip", "tests-0123")), Some("what needs it is skipped"));
        assert_eq!(allowed.reason(&missing("ip", "xtask")), None);
        assert_eq!(allowed.reason(&missing("ipset", "tests-0123")), None);
        assert!(Allowed::parse("ip xtask").is_err(), "a reason is wanted");
    }

    #[test]
    fn the_committed_list_is_read() {
        Allowed::read().unwrap();
    }
}
