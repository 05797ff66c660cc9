//! The truth of a history against what was reported: only what docs/verdicts.md, docs/traffic.md and docs/limits.md promise.
//!
//! A client *lost* something if it was refused, or if its connection ended with a request, or a part of one, under way. All that
//! counts, until a second after the exit of the first process: nothing but the end of a history makes a request fail. `undecided` and
//! `unknown` are not `quiet`. Counts begin where docs/json.md has them begin: at the stop, or at the end of the first process.

mod blame;

use blame::{wrong_blame, wrong_main, wrong_sender};
use nix::libc::SIGKILL;
use serde_json::Value;

use crate::client::{Attempt, Outcome};
use crate::history::named as name;
use crate::history::{Bind, Closes, Deed, Eater, Handling, History, Master, Pool, Program, Reaction, Stop, Target, Wrapper};
use crate::play::Played;
use crate::truth::{Stranger, Truth};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Missing,
    Twice,
    /// `exit` is `clean`, and the program did not finish: it was ended, or it crashed.
    FalseClean,
    /// `traffic` is `quiet`, and a client lost something.
    FalseQuiet,
    /// A deed is attributed to another than the one who did it, or a deed is reported that was not done.
    WrongCulprit,
    WrongExit,
    WrongCount,
    /// Allowed, but counted.
    Unknown,
    /// The same, and a row of docs/limits has it.
    Documented,
    /// The same: `undecided`, and the program ended each idle connection with shutdown(2), by which docs/traffic.md decides.
    Undecided,
}

impl Class {
    /// The others are counted.
    pub fn fails(self) -> bool {
        !matches!(self, Class::Unknown | Class::Documented | Class::Undecided)
    }

    pub fn shown(self) -> &'static str {
        match self {
            Class::Missing => "missing",
            Class::Twice => "twice",
            Class::FalseClean => "false clean",
            Class::FalseQuiet => "false quiet",
            Class::WrongCulprit => "wrong culprit",
            Class::WrongExit => "wrong exit",
            Class::WrongCount => "wrong count",
            Class::Unknown => "unknown",
            Class::Documented => "unknown by docs/limits",
            Class::Undecided => "undecided",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub class: Class,
    /// What was said, and what is true.
    pub what: String,
    /// So many clients too few were counted.
    pub short: usize,
}

/// Refusals count for so long after the exit of the first process, by docs/limits.md; a part of it, for a slow machine.
const AFTER_NS: u64 = 1_000_000_000;
const WATCHED_NS: u64 = 2_000_000_000;

/// All that is wrong with `reports`, the reports on the container that was played.
pub fn score(played: &Played, reports: &[Value]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |class, what: String, short| findings.push(Finding { class, what, short });
    let truth = &played.truth;
    let [report, more @ ..] = reports else {
        add(Class::Missing, "no report".into(), 0);
        return findings;
    };
    if !more.is_empty() {
        add(Class::Twice, format!("{} reports", reports.len()), 0);
    }
    if let Some(what) = false_clean(&played.history, truth, report) {
        add(Class::FalseClean, what, 0);
    }
    // By docs/limits the refused clients of a Unix socket are not seen where the program has a TCP port, too.
    let of_tcp = truth.of_first_address();
    let of_clients = if played.history.bind == Bind::TcpAndUnix {
        &of_tcp
    } else {
        truth
    };
    if let Some(what) = false_quiet(&played.history, of_clients, report) {
        add(Class::FalseQuiet, what, 0);
    }
    if let Some(what) = wrong_exit(truth, report) {
        add(Class::WrongExit, what, 0);
    }
    for what in [
        wrong_main(truth, report),
        wrong_sender(&played.history, truth, report),
        wrong_blame(&played.history, truth, report),
    ]
    .into_iter()
    .flatten()
    {
        add(Class::WrongCulprit, what, 0);
    }
    if let Some((what, short)) = wrong_count(&played.history, truth, report).filter(|_| is_tcp(&played.history)) {
        add(Class::WrongCount, what, short);
    }
    let unknown: Vec<&str> = ["verdict", "exit", "traffic", "cause"]
        .into_iter()
        .filter(|axis| report[*axis] == "unknown")
        .collect();
    if !unknown.is_empty() {
        let is_documented = unknown.iter().all(|axis| is_documented(axis, &played.history, truth, report));
        let class = if is_documented { Class::Documented } else { Class::Unknown };
        let what = format!("{} unknown: {}", unknown.join(" and "), text(report, "sentence"));
        add(class, what, 0);
    }
    if report["traffic"] == "undecided" && is_surely_idle(&played.history, truth) {
        add(Class::Undecided, text(report, "sentence").to_owned(), 0);
    }
    findings
}

/// What docs/limits has as unknown, by what was played.
fn is_documented(axis: &str, history: &History, truth: &Truth, report: &Value) -> bool {
    let is_below = !history.entry.is_empty() || matches!(history.program.pool, Pool::Serving { .. });
    let by_inside = !truth.inside.is_empty();
    let shells = history.entry.iter().filter(|wrapper| wrapper.is_shell()).count();
    let has_pool = history.program.pool != Pool::None && truth.workers_ended() > 0;
    // Or a shell below a shell: they have one name, too.
    let has_lost_pool = signals_group(history) && (has_pool || shells > 1);
    let is_stopped = truth.runtime_sent(|_| true) || !truth.strangers.is_empty() || by_inside;
    let raises_strangers = history.program.reaction == Reaction::ReRaise && truth.read_signal();
    let to_program = truth.strangers.iter().any(|by| by.target == Target::Program);
    // Without a stop, no signal between the processes of the container is recorded.
    let has_ended_pool = ends_its_pool(history) && !is_stopped;
    let is_unrecorded = has_ended_pool || raises_strangers && to_program;
    match axis {
        // Clients of other sockets than TCP's. After a stop from inside, sockets are recorded from the exit on.
        "traffic" => !is_tcp(history) || by_inside || is_gone_before(history, truth),
        "cause" => by_inside && (is_below || report["stop"]["sender"]["role"] == "inside") || is_unrecorded,
        // Below an init, after a stop from inside. A process of a pool without a handler, which an init that signals its group ended.
        _ => by_inside && is_below || has_lost_pool || is_unrecorded,
    }
}

fn text<'a>(report: &'a Value, key: &str) -> &'a str {
    report[key].as_str().unwrap_or("none")
}

fn false_clean(history: &History, truth: &Truth, report: &Value) -> Option<String> {
    // The headline is that of the axes.
    if report["verdict"] == "clean" && (report["exit"] != "clean" || report["traffic"] != "quiet") {
        return Some(format!(
            "reported `clean`, with exit `{}` and traffic `{}`",
            text(report, "exit"),
            text(report, "traffic")
        ));
    }
    // A program that was not there yet, or no more, has lost nothing.
    if report["exit"] != "clean" || truth.program_pid == 0 || is_gone_before(history, truth) {
        return None;
    }
    if truth.finished() {
        let lost = if ends_its_pool(history) { 0 } else { truth.jobs_lost() };
        let of_pool = || (lost > 0).then(|| format!("{lost} processes of the program's pool were ended in a job"));
        return hidden_failure(history, truth).or_else(of_pool);
    }
    if truth.raised_late() {
        return None;
    }
    // By docs/limits a fault that a wrapper hides is seen of a program with TCP sockets, and for 2 s of others.
    let is_old = truth.left().is_some_and(|at| at + WATCHED_NS < truth.ended);
    // And of one that the first process waits for: PID 1 gets nothing of the end of a daemon.
    let is_hidden = !is_tcp(history) && is_old || is_orphan(history);
    if truth.crashed() && truth.code == Some(0) && is_hidden && !truth.runtime_sent(|_| true) {
        return None;
    }
    let how = match (truth.crashed(), truth.read_signal()) {
        (true, _) => "had a fault",
        (_, true) => "was ended before it had finished",
        (_, false) => "got no signal that it could read, and was ended",
    };
    Some(format!(
        "reported `{}`, and the program {how}: {}",
        text(report, "verdict"),
        text(report, "sentence")
    ))
}

/// The program was ended before the stop, which came before a supervisor had started it again: how it had ended is of another time.
fn is_gone_before(history: &History, truth: &Truth) -> bool {
    if truth.lives() > 1 && !truth.has_listened() {
        return true;
    }
    let first = match history.stop {
        Stop::Two { first, .. } => first,
        Stop::Oom(Eater::Program) => {
            let is_gone = |at: u64| truth.life_began() < at && at < truth.began() && truth.runtime_sent(|_| true);
            return truth.ate().is_some_and(is_gone);
        }
        _ => return false,
    };
    let began = truth.began();
    let has_left = truth.left().is_some_and(|at| at < began);
    let Program { handling, reaction, .. } = history.program;
    let dies = |signal| match truth.read_signal() {
        true => reaction == Reaction::ReRaise,
        false => signal == SIGKILL || matches!(handling, Handling::Default | Handling::LateHandler | Handling::Drops),
    };
    let is_struck =
        |by: &Stranger| by.target == Target::Program && truth.life_began() < by.at && by.at < began && dies(by.signal);
    match first {
        Deed::Exit | Deed::Fault => has_left,
        Deed::Stranger {
            target: Target::Program, ..
        } => has_left || truth.strangers.iter().any(is_struck),
        _ => false,
    }
}

/// It sends the processes of its pool a signal that they have no handler for: by docs/limits.md that is its decision. An init that signals the
/// whole group is another party.
fn ends_its_pool(history: &History) -> bool {
    let Pool::Serving { master, drains } = history.program.pool else {
        return false;
    };
    master == Master::Forwards && !drains && !signals_group(history)
}

/// Another party than the program signals the processes of its pool, too.
fn signals_group(history: &History) -> bool {
    let to_all = matches!(history.stop, Stop::Runtime { to_all: true, .. } | Stop::InsideAll { .. });
    let signals = |wrapper: &Wrapper| matches!(wrapper, Wrapper::TiniGroup | Wrapper::DumbInit);
    to_all || history.entry.iter().any(signals)
}

/// The program exited with an error. Where its wrapper hides that, docs/verdicts.md promises to see it of a program with clients that nobody
/// had stopped, and that its wrapper had started itself.
fn hidden_failure(history: &History, truth: &Truth) -> Option<String> {
    let code = truth.exit_code().filter(|code| *code != 0 && !truth.is_code_of_stop(*code))?;
    let is_stopped = truth.runtime_sent(|_| true) || !truth.strangers.is_empty() || !truth.inside.is_empty();
    // By the code of the stop signal, too, which a wrapper passes on.
    let is_of_stop = |code: i32| history.stop.signals().iter().any(|signal| 128 + signal == code);
    let is_hidden = truth.code.is_some_and(|code| code == 0 || is_of_stop(code));
    let has_clients = is_tcp(history) && truth.count(&[Outcome::Answered]) > 0;
    // 128 + n may be the code of a signal that its wrapper sent.
    let is_seen = !is_stopped && has_clients && code <= 128 && !is_orphan(history);
    (truth.is_main() || !is_hidden || is_seen).then(|| format!("reported `clean`, and the program exited with {code}"))
}

/// A daemon, which no wrapper waits for.
fn is_orphan(history: &History) -> bool {
    let leaves = |wrapper: &Wrapper| matches!(wrapper, Wrapper::DoubleFork | Wrapper::Service);
    history.entry.iter().any(leaves)
}

fn is_tcp(history: &History) -> bool {
    !matches!(history.bind, Bind::Unix | Bind::Udp | Bind::TcpAndUnix | Bind::TcpAndUdp)
}

fn false_quiet(history: &History, truth: &Truth, report: &Value) -> Option<String> {
    // What the first of two deeds ended is of another time.
    let is_later = truth.lives() > 1 || matches!(history.stop, Stop::Two { .. } | Stop::Oom(_));
    let is_gone = is_gone_before(history, truth);
    if is_gone && !is_tcp(history) {
        return None;
    }
    let end = truth.ended + AFTER_NS;
    let lost = match is_later {
        true => truth.lost_since(truth.began(), end, is_gone),
        false => truth.lost(0..=end),
    };
    if report["traffic"] != "quiet" {
        return None;
    }
    // A client that had given up would not miss it.
    if truth.unanswered() > 0 && !is_gone {
        return Some(format!(
            "reported `quiet`, and the program left {} requests unanswered",
            truth.unanswered()
        ));
    }
    (lost > 0).then(|| {
        let (refused, reset) = (truth.count(&[Outcome::Refused]), truth.count(&[Outcome::Reset]));
        let cut = truth.count(&[Outcome::Cut]);
        format!("reported `quiet`, and clients were refused {refused} times, reset {reset} times and cut {cut} times")
    })
}

fn wrong_exit(truth: &Truth, report: &Value) -> Option<String> {
    let status = &report["status"];
    if status.is_null() {
        return (report["verdict"] != "unknown").then(|| "no status".into());
    }
    let code = status["code"].as_i64();
    let signal = status["signal"].as_str();
    let wanted_code = truth.code.map(i64::from);
    let wanted_signal = truth.signal.map(name);
    (code != wanted_code || signal != wanted_signal.as_deref())
        .then(|| format!("reported code {code:?} or signal {signal:?}, by wait(2) {wanted_code:?} or {wanted_signal:?}"))
}

/// No request was under way at the exit, by the clients.
fn is_surely_idle(history: &History, truth: &Truth) -> bool {
    let is_idle = |attempt: &Attempt| matches!(attempt.outcome, Outcome::Answered | Outcome::IdleClosed);
    let Program { closes, pool, .. } = history.program;
    let is_alone = !matches!(pool, Pool::Serving { .. });
    let ends_each = is_alone && closes == Closes::Shutdown && truth.finished() && truth.closed();
    ends_each && truth.attempts.iter().all(is_idle)
}

/// Never more than the clients lost; and what they lost is counted, or undecided: how many are short.
fn wrong_count(history: &History, truth: &Truth, report: &Value) -> Option<(String, usize)> {
    let connections = &report["connections"];
    let traffic = text(report, "traffic");
    if connections["observed"] != true || traffic == "unknown" || traffic == "quiet" {
        return None;
    }
    let number = |key: &str| usize::try_from(connections[key].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let [refused, reset, cut, undecided] = ["refused", "reset", "cut", "undecided"].map(number);
    let counted = refused + reset + cut;
    let all = truth.lost(0..=u64::MAX);
    // A reset of a connection without a request is one that the client does not miss; a client that gave up does not know.
    let spare = truth.count(&[Outcome::IdleReset, Outcome::GaveUp]);
    let surely = truth.lost_since(truth.began(), truth.ended + AFTER_NS, is_gone_before(history, truth));
    let is_more = counted > all + spare || refused > truth.count(&[Outcome::Refused]);
    let short = if is_more {
        0
    } else {
        surely.saturating_sub(counted + undecided)
    };
    (is_more || short > 0).then(|| {
        let seen = [
            Outcome::Refused,
            Outcome::Reset,
            Outcome::Cut,
            Outcome::IdleReset,
            Outcome::IdleClosed,
        ];
        let seen = seen
            .map(|outcome| format!("{outcome:?} {}", truth.count(&[outcome])))
            .join(", ");
        let reported = format!("refused {refused}, reset {reset}, cut {cut}, undecided {undecided}");
        (
            format!("reported {reported}; the clients lost {surely}, and saw {seen}"),
            short,
        )
    })
}

#[cfg(test)]
mod tests;
