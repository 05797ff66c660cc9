//! Expected against judged: what the agent reported about each termination, compared with what the players know.

use std::fmt;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::play::{Played, Role};
use crate::runtime::{Did, Kill, Stop};
use crate::story::{self, Bystander, Expected, Story};
use crate::victim::Totals;

/// A clean exit without knowledge of what clients saw.
const WITHOUT_SOCKETS: &str = "clean-exit";

/// All that a run of the demo found out.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The agent's first line, as it was.
    pub observing: Value,
    /// All later output, unchanged.
    pub lines: Vec<String>,
    pub cases: Vec<Case>,
    /// Stories that this machine cannot play: name and reason.
    pub unplayable: Vec<(&'static str, String)>,
    /// Terminations of subjects that are not the demo's.
    pub others: u64,
    /// What was wrong with the agent as a process: its end, its output.
    pub problems: Vec<String>,
}

/// One story as it was played, and as the agent saw it.
#[derive(Clone, Debug)]
pub struct Case {
    pub role: Role,
    /// None until the story was played; Err if a player failed.
    pub played: Option<Result<Played, String>>,
    /// Early warnings, with their place in the agent's output.
    pub early: Vec<(u64, Value)>,
    /// Terminations (there should be one), with their place in the agent's output.
    pub terminations: Vec<(u64, Value)>,
}

impl Case {
    pub fn new(role: Role) -> Case {
        Case {
            role,
            played: None,
            early: Vec::new(),
            terminations: Vec::new(),
        }
    }

    fn story(&self) -> &'static Story {
        self.role.story
    }

    /// What the clients of a load saw.
    fn load(&self) -> Option<&Totals> {
        self.played.as_ref()?.as_ref().ok()?.load.as_deref()
    }

    /// The termination that counts.
    pub fn judged(&self) -> Option<&Value> {
        self.terminations.first().map(|(_, value)| value)
    }

    /// Each thing that is not as it should be, in a line; empty if all is.
    pub fn differs(&self) -> Vec<String> {
        let mut differs = Vec::new();
        match &self.played {
            None => differs.push("the story was not played to the end".into()),
            Some(Err(e)) => differs.push(format!("a player failed: {e}")),
            Some(Ok(played)) => differs.extend(
                played
                    .differs(&self.role)
                    .into_iter()
                    .map(|d| format!("the story did not happen as written: {d}")),
            ),
        }
        let Some(judged) = self.judged() else {
            differs.push("the agent reported no termination".into());
            return differs;
        };
        if self.terminations.len() > 1 {
            differs.push(format!("the agent reported {} terminations", self.terminations.len()));
        }
        self.check_verdict(judged, &mut differs);
        self.check_words(judged, &mut differs);
        self.check_early(&mut differs);
        if let Some(Ok(played)) = &self.played {
            self.check_facts(judged, played, &mut differs);
            self.check_times(judged, played, &mut differs);
            self.check_connections(judged, played, &mut differs);
        }
        differs
    }

    fn check_verdict(&self, judged: &Value, differs: &mut Vec<String>) {
        let expected = &self.story().expected;
        let counted = |what: &str| judged["connections"][what].as_u64().unwrap_or(0);
        let (verdict, traffic) = match (self.load(), expected.traffic) {
            _ if !self.role.sockets_attributable => (self.verdict_without_sockets(), "unknown"),
            // Of many clients one may be in the queue when the listener closes, or send a request at that moment. A request that crosses
            // the end of its connection is undecided: the server had got nothing.
            (Some(load), "refused") if load.reset > counted("undecided") || load.reset > 0 && counted("reset") > 0 => {
                ("reset-connections", "reset")
            }
            (_, traffic) => (expected.verdict, traffic),
        };
        for (axis, wanted) in [
            ("verdict", verdict),
            ("cause", expected.cause),
            ("exit", expected.exit),
            ("traffic", traffic),
        ] {
            if judged[axis] != wanted {
                differs.push(format!("{axis}: expected {wanted}, judged {}", judged[axis]));
            }
        }
        // Of a unit, which has no replica, refused clients are usual.
        let is_usual = self.story().subject == story::Kind::Unit && verdict == "refused-connections";
        let unclean = !is_usual && !["clean", "unknown", "undecided-connections", WITHOUT_SOCKETS].contains(&verdict);
        if judged["unclean"] != unclean {
            differs.push(format!("unclean: expected {unclean}, judged {}", judged["unclean"]));
        }
        if self.evidence().is_empty() {
            differs.push("the verdict names no evidence".into());
        }
        let trace = judged["trace_id"].as_str().unwrap_or_default();
        if trace.len() != 32 || !trace.bytes().all(|b| b.is_ascii_hexdigit()) {
            differs.push(format!("trace_id: {trace:?} is not 32 hex digits"));
        }
    }

    /// Only the sockets distinguish a clean termination from one that clients suffered from.
    fn verdict_without_sockets(&self) -> &'static str {
        match self.story().expected {
            Expected { exit: "clean", .. } => WITHOUT_SOCKETS,
            Expected { verdict, .. } => verdict,
        }
    }

    fn check_words(&self, judged: &Value, differs: &mut Vec<String>) {
        let expected = &self.story().expected;
        let (sentence, remedy): (&[&str], &[&str]) = match (self.role.sockets_attributable, expected.exit, self.story().stop) {
            (false, "clean", Stop::Signal { .. }) => (
                &["the sockets of the container were not observed: socket tracking needs a cgroup v2 of its own"],
                &[],
            ),
            (false, ..) if expected.traffic != "quiet" => (&[], &[]),
            _ => (expected.sentence, expected.remedy),
        };
        for (field, words) in [("sentence", sentence), ("remedy", remedy)] {
            let text = judged[field].as_str().unwrap_or_default();
            for word in words.iter().filter(|word| !text.contains(**word)) {
                differs.push(format!("{field}: no `{word}` in {text:?}"));
            }
            if !self.story().pid_namespace && text.contains("PID 1") {
                differs.push(format!("{field}: nothing here is PID 1: {text:?}"));
            }
            if text.chars().any(char::is_control) {
                differs.push(format!("{field}: a control character in {text:?}"));
            }
        }
        if let Some(id) = &self.role.neighbour
            && !self.sentence().contains(&id[..12])
        {
            differs.push(format!(
                "sentence: the sender's container {} is not in {:?}",
                &id[..12],
                self.sentence()
            ));
        }
        if self.sentence().is_empty() {
            differs.push("the sentence is empty".into());
        }
    }

    fn check_early(&self, differs: &mut Vec<String>) {
        let first = self.early.first().map(|(place, _)| *place);
        let end = self.terminations.first().map(|(place, _)| *place);
        match (self.story().expected.early_warning, first) {
            (true, None) => differs.push("no early warning about the discarded stop signal".into()),
            (true, Some(_)) if first > end => differs.push("the early warning came after the termination".into()),
            (false, Some(_)) => differs.push("an early warning, but no stop signal was discarded".into()),
            _ => {}
        }
        if self.early.len() > 1 {
            differs.push(format!("{} early warnings", self.early.len()));
        }
    }

    /// What both know exactly: ids, senders, the status.
    fn check_facts(&self, judged: &Value, played: &Played, differs: &mut Vec<String>) {
        let mut same = |what: &str, pointer: &str, known: Value| {
            let reported = judged.pointer(pointer).unwrap_or(&Value::Null);
            if *reported != known {
                differs.push(format!(
                    "{what}: {known} according to the players, {reported} according to the agent"
                ));
            }
        };
        for did in &played.did {
            match did {
                Did::Created { cgroup_id, cgroup, .. } => {
                    same("cgroup", "/cgroup", json!(cgroup));
                    same("cgroup id", "/cgroup_id", json!(cgroup_id));
                }
                Did::Started { pid, ns_pid, .. } => {
                    same("main process", "/main/pid", json!(pid));
                    same("pid in its namespace", "/main/ns_pid", json!(ns_pid));
                }
                Did::Signalled { signal, sender, .. } => {
                    same("stop signal", "/stop/signal", json!(name(*signal)));
                    same("sender of the stop signal", "/stop/sender/pid", json!(sender));
                    same("role of that sender", "/stop/sender/role", json!("runtime"));
                }
                Did::Killed { by, sender, .. } => {
                    same("the killer", "/kill/sender/pid", json!(sender));
                    same("the killer's role", "/kill/sender/role", json!("runtime"));
                    same("by cgroup.kill", "/kill/cgroup_kill", json!(*by == Kill::Cgroup));
                }
                Did::Ended {
                    code,
                    signal,
                    core_dumped,
                    ..
                } => {
                    same("exit code", "/status/code", json!(code));
                    same("signal", "/status/signal", json!(signal.map(name)));
                    same("core", "/status/core_dumped", json!(core_dumped));
                }
                Did::Ready { .. } | Did::Frozen { .. } | Did::OtherEnded { .. } | Did::Removed { .. } | Did::Failed { .. } => {}
            }
        }
    }

    /// The kernel's times lie between the players' own, on the same clock.
    fn check_times(&self, judged: &Value, played: &Played, differs: &mut Vec<String>) {
        let (begin, end) = (judged["begin_boot_ns"].as_u64(), judged["end_boot_ns"].as_u64());
        let (Some(begin), Some(end)) = (begin, end) else {
            differs.push("begin_boot_ns or end_boot_ns is missing".into());
            return;
        };
        let in_order = played.signalled_at().unwrap_or(0) <= begin && begin <= end;
        if !in_order || played.ended_at().is_some_and(|reaped| end > reaped) {
            differs.push(format!(
                "times: the stop signal at {:?}, begin {begin}, end {end}, reaped at {:?}",
                played.signalled_at(),
                played.ended_at()
            ));
        }
    }

    fn check_connections(&self, judged: &Value, played: &Played, differs: &mut Vec<String>) {
        if !self.role.sockets_attributable {
            if judged["connections"]["observed"] != false {
                differs.push(format!(
                    "connections: the agent cannot attribute them here, but reported {}",
                    judged["connections"]
                ));
            }
            return;
        }
        let counted = |what: &str| judged["connections"][what].as_u64();
        let mut wanted = |what: &str, low: u64, high: u64| {
            if !counted(what).is_some_and(|n| (low..=high).contains(&n)) {
                differs.push(format!(
                    "connections {what}: clients saw {low} to {high}, the agent {:?}",
                    counted(what)
                ));
            }
        };
        if let Some(load) = &played.load {
            // Requests of HTTP/1.1 with nothing between them: the counts of the kernel decide each loss.
            let lost = load.lost();
            // 2 %, and at least one.
            let slack = (lost / 50).max(1);
            let all: u64 = ["refused", "reset", "cut"].iter().filter_map(|&what| counted(what)).sum();
            if all.abs_diff(lost) > slack {
                differs.push(format!(
                    "connections lost: clients saw {lost} (±{slack}), the agent {all}: {}",
                    judged["connections"]
                ));
            }
            // Only an idle connection looks like one that waits, and its client finds it closed before the next request.
            let (undecided, idle) = (counted("undecided").unwrap_or(0), load.found_closed);
            if undecided > idle + slack {
                differs.push(format!(
                    "connections undecided: clients found {idle} closed (+{slack}), the agent reports {undecided}: {}",
                    judged["connections"]
                ));
            }
            return;
        }
        let (low, high) = played.refused();
        wanted("refused", low, high);
        let rejected = match self.story().bystander {
            Bystander::Rejected { count } => count as u64,
            _ => 0,
        };
        wanted("rejected", rejected, rejected);
        let what_happened = match (self.story().bystander, self.story().expected.traffic) {
            (Bystander::Client { verb: "connect", .. }, "quiet") => "idle_closed",
            (_, traffic) => traffic,
        };
        let clients = match self.story().bystander {
            Bystander::Client { count, .. } | Bystander::Unheard { count, .. } => count as u64,
            _ => 0,
        };
        for (what, of) in [
            ("reset", "reset"),
            ("cut", "cut"),
            ("cut_unanswered", "cut"),
            ("undecided", "undecided"),
            ("idle_closed", "idle_closed"),
        ] {
            let count = if of == what_happened { clients } else { 0 };
            wanted(what, count, count);
        }
    }

    pub fn sentence(&self) -> &str {
        self.judged().and_then(|j| j["sentence"].as_str()).unwrap_or_default()
    }

    /// The probes that the verdict rests on, each once, in order of time.
    pub fn evidence(&self) -> Vec<&str> {
        let all = self.judged().and_then(|j| j["evidence"].as_array());
        let mut sources: Vec<&str> = Vec::new();
        for source in all.into_iter().flatten().filter_map(|e| e["source"].as_str()) {
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        sources
    }
}

impl Report {
    /// A line of the agent's output, the `place`th. The case and kind that it was about, where it was about one.
    pub fn take_line(&mut self, place: u64, line: &Value) -> Option<(usize, Kind)> {
        let kind = match line["type"].as_str() {
            Some("termination") => Kind::Termination,
            Some("stop-signal-ignored") => Kind::Early,
            Some(_) => return None,
            None => {
                self.problems
                    .push(format!("the agent's output has a line without a type: {line}"));
                return None;
            }
        };
        let subject = &line["subject"];
        let name = subject["id"].as_str().or_else(|| subject["name"].as_str());
        let Some(index) = self.cases.iter().position(|c| Some(c.role.subject.as_str()) == name) else {
            self.others += u64::from(kind == Kind::Termination);
            return None;
        };
        match kind {
            Kind::Termination => self.cases[index].terminations.push((place, line.clone())),
            Kind::Early => self.cases[index].early.push((place, line.clone())),
        }
        Some((index, kind))
    }

    /// Every playable story was judged as expected, once, and the agent behaved.
    pub fn passed(&self) -> bool {
        self.problems.is_empty() && !self.cases.is_empty() && self.cases.iter().all(|c| c.differs().is_empty())
    }

    /// The case of a story, where it could be played.
    pub fn case(&self, story: &str) -> Option<&Case> {
        self.cases.iter().find(|c| c.story().name == story)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Early,
    Termination,
}

/// As the agent writes it.
pub(crate) fn name(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) => format!("SIGRTMIN+{}", signal - 34),
    }
}

/// The table, what differs, what could not be played, and the count.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 5]> = self.cases.iter().map(row).collect();
        let head = ["", "story", "expected", "judged", "evidence"].map(str::to_owned);
        let width = |i: usize| rows.iter().chain([&head]).map(|r| r[i].chars().count()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3].map(width);
        for r in [&head].into_iter().chain(&rows) {
            let [mark, story, expected, judged, evidence] = r;
            let [a, b, c, d] = widths;
            writeln!(f, "{mark:a$}  {story:b$}  {expected:c$}  {judged:d$}  {evidence}")?;
        }
        for case in &self.cases {
            for line in case.differs() {
                writeln!(f, "differs: {}: {line}", case.story().name)?;
            }
        }
        for (story, reason) in &self.unplayable {
            writeln!(f, "not played: {story}: {reason}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        let good = self.cases.iter().filter(|c| c.differs().is_empty()).count();
        let unplayable = self.unplayable.len();
        write!(f, "{} stories: {good} judged as expected, ", self.cases.len() + unplayable)?;
        write!(
            f,
            "{} not, {unplayable} not playable on this machine",
            self.cases.len() - good
        )
    }
}

fn row(case: &Case) -> [String; 5] {
    let mark = if case.differs().is_empty() { "ok" } else { "DIFFERS" };
    let expected = &case.story().expected;
    let (verdict, traffic) = match case.role.sockets_attributable {
        true => (expected.verdict, expected.traffic),
        false => (case.verdict_without_sockets(), "unknown"),
    };
    let judged = case.judged().map_or_else(
        || "nothing".to_owned(),
        |j| axes(&["verdict", "cause", "traffic"].map(|axis| j[axis].as_str().unwrap_or("?"))),
    );
    [
        mark.into(),
        case.story().name.into(),
        axes(&[verdict, expected.cause, traffic]),
        judged,
        case.evidence().join(", "),
    ]
}

/// `ignored-stop-signal (stopped, quiet)`
fn axes([verdict, cause, traffic]: &[&str; 3]) -> String {
    format!("{verdict} ({cause}, {traffic})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stories::all;

    /// What differs for a load whose clients lost 100 requests and found three connections closed.
    fn connections(counted: u64, undecided: u64) -> Vec<String> {
        let load = Totals {
            refused: 90,
            cut: 10,
            found_closed: 3,
            ..Totals::default()
        };
        let played = Played {
            did: Vec::new(),
            seen: Vec::new(),
            load: Some(Box::new(load)),
            probes: None,
        };
        let case = Case::new(Role {
            story: all().find(|story| story.name == "load-abrupt-kept").expect("a story"),
            subject: String::new(),
            scope: String::new(),
            neighbour: None,
            sockets_attributable: true,
        });
        let judged = json!({"connections": {"refused": counted - 10, "reset": 0, "cut": 10, "undecided": undecided}});
        let mut differs = Vec::new();
        case.check_connections(&judged, &played, &mut differs);
        differs
    }

    #[test]
    fn losses_of_a_load_are_counted_within_two_percent() {
        assert!(connections(98, 0).is_empty() && connections(102, 0).is_empty());
        // Neither side: undecided connections excuse nothing.
        assert_eq!([connections(97, 3).len(), connections(103, 0).len()], [1, 1]);
    }

    #[test]
    fn undecided_connections_of_a_load_were_found_closed() {
        assert!(connections(100, 5).is_empty());
        assert_eq!(connections(100, 6).len(), 1);
    }
}
