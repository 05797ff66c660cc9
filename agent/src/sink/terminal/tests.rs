use epitaph_core::event::Kind;
use epitaph_core::fixtures::{self, sample};
use epitaph_core::report::{DropReason, Termination};
use expect_test::{Expect, expect};

use super::*;

const LIVE: Form = Form::Live {
    style: Style::Plain,
    columns: 60,
};

fn sink(form: Form, filter: Filter) -> Sink<Vec<u8>> {
    Sink::new(Vec::new(), form, filter)
}

fn terminated(t: Termination) -> Report {
    Report::Terminated(Box::new(t))
}

/// Every kind of output, in order.
fn play(sink: &mut Sink<Vec<u8>>) {
    let observation = sample::observation();
    let (subject, oom) = sample::child_oom();
    let mut flows = vec![sink.observing(&observation, &sample::probes())];
    for output in [
        Report::StopSignalIgnored(Box::new(sample::early())),
        Report::ChildOomKilled {
            subject,
            container: None,
            oom,
        },
        terminated(sample::ignored()),
        terminated(sample::unknown_unit()),
        Report::Dropped {
            reason: DropReason::FactCap,
            count: 2,
        },
    ] {
        flows.push(sink.report(&output, &observation, None));
    }
    flows.push(sink.lost(Kind::Tcp, 3));
    flows.push(sink.finish());
    assert!(flows.into_iter().all(|f| f.unwrap() == Flow::Continue));
}

fn text(sink: Sink<Vec<u8>>) -> String {
    String::from_utf8(sink.out).unwrap()
}

#[test]
fn json_is_one_object_per_line() {
    let mut sink = sink(Form::Json, Filter::default());
    play(&mut sink);
    let types: Vec<String> = text(sink)
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["type"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        types,
        [
            "observing",
            "stop-signal-ignored",
            "child-oom-killed",
            "termination",
            "termination",
            "lost"
        ]
    );
}

#[test]
fn filters_hide_other_terminations() {
    let filter = Filter {
        verdict: vec!["unknown".into()],
        ..Filter::default()
    };
    let mut sink = sink(Form::Json, filter);
    play(&mut sink);
    assert_eq!(sink.status.hidden, 1);
    let text = text(sink);
    // Lost items are not filtered: a filter cannot know them.
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("nginx.service"));
}

/// A terminal with the features that the live view uses: rows of `columns` that wrap, and four escape sequences.
struct Terminal {
    columns: usize,
    rows: Vec<String>,
    row: usize,
}

impl Terminal {
    fn show(&mut self, bytes: &[u8]) {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let mut rest = text.as_str();
        while let Some(c) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("\u{1b}[") {
                let end = after.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                let number: usize = after[..end].parse().unwrap_or(1);
                match &after[end..=end] {
                    "A" => self.row -= number,
                    "G" => self.column_zero(),
                    "J" => {
                        self.rows.truncate(self.row);
                        self.rows.push(String::new());
                    }
                    other => panic!("unexpected sequence {other}"),
                }
                rest = &after[end + 1..];
                continue;
            }
            rest = &rest[c.len_utf8()..];
            if c == '\n' {
                self.row += 1;
                self.rows.truncate(self.row);
                self.rows.push(String::new());
            } else {
                if self.rows[self.row].chars().count() == self.columns {
                    self.row += 1;
                    self.rows.push(String::new());
                }
                self.rows[self.row].push(c);
            }
        }
    }

    /// Always followed by clearing to the end, which removes the row's content.
    fn column_zero(&mut self) {}

    /// The content of the last row wraps again, as in real terminals.
    fn narrow(&mut self, columns: usize) {
        self.columns = columns;
        let last = self.rows.pop().unwrap();
        let chars: Vec<char> = last.chars().collect();
        self.rows.extend(chars.chunks(columns).map(|c| c.iter().collect()));
        self.row = self.rows.len() - 1;
    }
}

fn check_screen(terminal: &Terminal, expected: Expect) {
    expected.assert_eq(&(terminal.rows.join("\n") + "\n"));
}

#[test]
fn the_live_view_scrolls_above_its_status_line() {
    let mut sink = sink(
        LIVE,
        Filter {
            unit: vec!["*".into()],
            ..Filter::default()
        },
    );
    play(&mut sink);
    let mut terminal = Terminal {
        columns: 60,
        rows: vec![String::new()],
        row: 0,
    };
    terminal.show(text(sink).as_bytes());
    check_screen(
        &terminal,
        expect![[r#"
            2026-01-02T03:04:06.000Z observing node-1 (Linux 6.18.15), 1
             of 3 probes active
              tcp_send_reset unsupported: the kernel has no such tracepo
            int
              inet_sk_error_report substituted by inet_sock_set_state (t
            he error with which a connection closes)
            2026-01-02T03:04:06.500Z unit nginx.service  unknown
              How the main process terminated is unknown: the process st
            arted before the observation began, so a stop signal may hav
            e been missed
                gaps: the process started before the observation began; 
            3 signal_generate records lost; probes not active: tcp_send_
            reset; the wall clock stepped by +12.5 s, or the machine was
             paused: earlier times are wrong by as much
            1 of 3 probes | 1 not shown | 3 records LOST | 2 evidence it
            ems LOST | 1 termination: 1 unknown

        "#]],
    );
}

#[test]
fn a_narrower_terminal_leaves_no_part_of_the_status_line() {
    let mut sink = sink(
        LIVE,
        Filter {
            container: vec!["3f".into()],
            ..Filter::default()
        },
    );
    let mut terminal = Terminal {
        columns: 60,
        rows: vec![String::new()],
        row: 0,
    };
    let observation = sample::observation();
    let _ = sink.observing(&observation, &[]).unwrap();
    let _ = sink.report(&terminated(sample::unknown_unit()), &observation, None).unwrap();
    terminal.show(&std::mem::take(&mut sink.out));
    check_screen(
        &terminal,
        expect![[r#"
            2026-01-02T03:04:06.000Z observing node-1 (Linux 6.18.15), 0
             of 0 probes active
            q quits | 0 of 0 probes | 1 not shown | 0 terminations
        "#]],
    );
    terminal.narrow(20);
    let _ = sink.resize(20).unwrap();
    terminal.show(&std::mem::take(&mut sink.out));
    check_screen(
        &terminal,
        expect![[r#"
            2026-01-02T03:04:06.000Z observing node-1 (Linux 6.18.15), 0
             of 0 probes active
            q quits | 0 of 0 pr
        "#]],
    );
    for columns in [1, 0] {
        assert_eq!(sink.resize(columns).unwrap(), Flow::Continue);
    }
}

struct Failing(io::ErrorKind);

impl Write for Failing {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_is_the_end_and_a_full_disk_an_error() {
    let observation = sample::observation();
    let run = |kind| {
        let mut sink = Sink::new(Failing(kind), Form::Json, Filter::default());
        sink.report(&terminated(sample::ignored()), &observation, None)
    };
    assert_eq!(run(io::ErrorKind::BrokenPipe).unwrap(), Flow::ReaderGone);
    assert_eq!(
        run(io::ErrorKind::StorageFull).unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
}

#[test]
fn a_pod_is_one_termination() {
    let pod = Report::PodTerminated(Box::new(fixtures::pods::pod(1)));
    let observation = fixtures::terminations::observation();
    let mut json = sink(Form::Json, Filter::default());
    assert_eq!(json.report(&pod, &observation, None).unwrap(), Flow::Continue);
    let line: serde_json::Value = serde_json::from_str(&text(json)).unwrap();
    assert_eq!(line["type"], "pod-termination");
    assert_eq!(line["containers"].as_array().map(Vec::len), Some(2));

    let elsewhere = Filter {
        namespace: vec!["bank".into()],
        ..Filter::default()
    };
    for (filter, summary) in [
        (Filter::default(), "0 of 0 probes | 1 termination: 1 ignored-stop-signal\n"),
        (elsewhere, "0 of 0 probes | 1 not shown | 0 terminations\n"),
    ] {
        let mut live = sink(LIVE, filter);
        assert_eq!(live.report(&pod, &observation, None).unwrap(), Flow::Continue);
        assert_eq!(live.finish().unwrap(), Flow::Continue);
        assert!(text(live).ends_with(summary), "{summary}");
    }
}
