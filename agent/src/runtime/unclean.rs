//! The log line of an unclean termination, and of one that could not be judged: what people find where they look first, without a
//! collector.
//!
//! Where the line goes is decided by `logging`: fields of the journal under systemd, JSON on standard output in Kubernetes, otherwise a
//! message like any other.

use std::time::Duration;

use epitaph_core::attribute::Subject;
use epitaph_core::input::Observation;
use epitaph_core::kubernetes::PodContext;
use epitaph_core::pod::PodIdentity;
use epitaph_core::render::id;
use epitaph_core::report::Report;
use epitaph_core::text::escape;
use epitaph_core::time::Boot;
use epitaph_core::verdict::{Verdict, table};

use super::throttle::Throttle;

/// Of the lines, so that they can be sent elsewhere or turned off (`log.filter`: `info,epitaph::termination=off`).
pub const TARGET: &str = "epitaph::termination";

/// Lines per interval: a rollout that goes wrong shows more than its first pod.
const MOST: u64 = 20;
const INTERVAL: Duration = Duration::from_secs(10);

/// Lines about the verdict `unknown` per interval: an agent that has just started, or has lost records, cannot judge many.
const MOST_UNKNOWN: u64 = 5;
const INTERVAL_UNKNOWN: Duration = Duration::from_secs(60);

/// The headline of a termination whose evidence is not sufficient: not unclean, and not to be missed.
const UNKNOWN: &str = "unknown";

/// Counts what was not logged as `epitaph_dropped_total{reason="log_rate"}`.
pub const DROPPED: &str = "log_rate";

pub struct UncleanLog {
    throttle: Throttle,
    unknown: Throttle,
    /// `epitaph list` shows what is not logged.
    has_journal: bool,
}

/// What the line is about.
struct Named<'a> {
    pod: Option<&'a PodIdentity>,
    container: Option<&'a str>,
    image: Option<&'a str>,
    subject: Option<&'a Subject>,
    begin: Boot,
    end: Boot,
    trace: String,
}

impl UncleanLog {
    pub fn new(has_journal: bool) -> UncleanLog {
        UncleanLog {
            throttle: Throttle::burst(MOST, INTERVAL),
            unknown: Throttle::burst(MOST_UNKNOWN, INTERVAL_UNKNOWN),
            has_journal,
        }
    }

    /// Logs the report if it is an unclean termination, or one that could not be judged. Returns how many lines were suppressed by this call: 0 or 1.
    pub fn report(&self, now: Boot, report: &Report, observation: &Observation) -> u64 {
        let (verdict, named) = match report {
            Report::Terminated(t) => {
                let context: Option<&PodContext> = t.kubernetes.as_deref();
                // What the spec of the pod does not name, the files of the runtime may.
                let described = t.container.as_deref();
                let named = Named {
                    pod: context.map(|context| &*context.pod),
                    container: context
                        .and_then(|context| context.container.as_deref())
                        .or_else(|| described?.name.as_deref()),
                    image: context
                        .and_then(|context| context.image.as_deref())
                        .or_else(|| described?.image.as_deref()),
                    subject: Some(&t.subject),
                    begin: t.begin,
                    end: t.end,
                    trace: id::of(t).to_string(),
                };
                (&t.verdict, named)
            }
            Report::PodTerminated(p) => {
                let named = Named {
                    pod: Some(&p.pod),
                    container: None,
                    image: None,
                    subject: None,
                    begin: p.begin,
                    end: p.end,
                    trace: id::of_pod(&p.pod, &p.boot_id).to_string(),
                };
                (&p.verdict, named)
            }
            _ => return 0,
        };
        let throttle = match (verdict.unclean, verdict.headline) {
            (true, _) => &self.throttle,
            (false, UNKNOWN) => &self.unknown,
            (false, _) => return 0,
        };
        let Some(suppressed) = throttle.admit(now) else {
            return 1;
        };
        log(verdict, &named, suppressed, observation);
        0
    }

    /// Logs the number of suppressed lines once the interval is over, where no other line does.
    pub fn overdue(&self, now: Boot) {
        if let Some(suppressed) = self.throttle.overdue(now) {
            let not_logged = self.not_logged(suppressed, "--unclean");
            tracing::warn!(target: TARGET, suppressed, "{suppressed} more unclean {not_logged}");
        }
        if let Some(suppressed) = self.unknown.overdue(now) {
            let not_logged = self.not_logged(suppressed, "--verdict unknown");
            tracing::info!(target: TARGET, suppressed, "{suppressed} more unknown {not_logged}");
        }
    }

    fn not_logged(&self, suppressed: u64, filter: &str) -> String {
        let (are, them) = match suppressed {
            1 => ("termination is", "it"),
            _ => ("terminations are", "them"),
        };
        match self.has_journal {
            true => format!("{are} not logged: `epitaph list {filter}` shows {them}"),
            false => format!("{are} neither logged nor kept: `journal.directory` is not set"),
        }
    }
}

fn log(verdict: &Verdict, named: &Named<'_>, suppressed: u64, observation: &Observation) {
    let time = |at| observation.wall_offset.wall(at).rfc3339_millis();
    let text = |text: &str| Some(escape(text));
    let (mut container_id, mut unit) = (None, None);
    match named.subject {
        Some(Subject::Container { id, .. }) => container_id = text(&id.0),
        Some(Subject::Unit { name }) => unit = text(name),
        None => {}
    }
    // An absent field is not written. A macro, because the level is of the line's place in the code.
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                target: TARGET,
                $level,
                verdict = verdict.headline,
                severity = severity(verdict),
                cause = table::name(verdict.cause),
                exit = table::name(verdict.exit),
                traffic = table::name(verdict.traffic),
                namespace = named.pod.map(|pod| escape(&pod.namespace)),
                pod = named.pod.map(|pod| escape(&pod.name)),
                workload = named.pod.map(|pod| format!("{}/{}", escape(&pod.workload.kind), escape(&pod.workload.name))),
                container = named.container.map(escape),
                image = named.image.map(escape),
                container_id,
                unit,
                begin = time(named.begin),
                end = time(named.end),
                trace_id = named.trace,
                remedy = verdict.remedy.as_deref().map(escape),
                suppressed = (suppressed > 0).then_some(suppressed),
                "{}",
                escape(&verdict.sentence)
            )
        };
    }
    match verdict.unclean {
        true => line!(tracing::Level::WARN),
        false => line!(tracing::Level::INFO),
    }
}

fn severity(verdict: &Verdict) -> String {
    table::name(verdict.severity)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use epitaph_core::fixtures::{pods, sample, terminations};
    use expect_test::expect;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The JSON lines, without the time.
    fn lines(log: impl FnOnce(&UncleanLog)) -> String {
        lines_with(true, log)
    }

    fn lines_with(has_journal: bool, log: impl FnOnce(&UncleanLog)) -> String {
        let paper = Paper::default();
        let writer = paper.clone();
        let layer = super::super::logging::json_lines(move || writer.clone()).without_time();
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || log(&UncleanLog::new(has_journal)));
        let bytes = paper.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_has_the_names_and_the_sentence() {
        let text = lines(|log| {
            let container = Report::Terminated(Box::new(sample::ignored()));
            assert_eq!(log.report(Boot(0), &container, &sample::observation()), 0);
            let pod = Report::PodTerminated(Box::new(pods::pod(1)));
            assert_eq!(log.report(Boot(0), &pod, &terminations::observation()), 0);
        });
        expect![[r#"
            {"level":"WARN","message":"`sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later","verdict":"ignored-stop-signal","severity":"warning","cause":"stopped","exit":"ignored-stop-signal","traffic":"refused","container_id":"3f1c0d4e5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f","begin":"2026-01-02T03:05:05.000Z","end":"2026-01-02T03:05:15.003Z","trace_id":"07f649481c0ee186cbdc87c2d986434c","remedy":"handle SIGTERM in PID 1 `sh`, use `exec` in the shell that starts the program, or run a small init such as tini","target":"epitaph::termination"}
            {"level":"WARN","message":"container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later","verdict":"ignored-stop-signal","severity":"critical","cause":"deleted","exit":"ignored-stop-signal","traffic":"cut","namespace":"shop","pod":"cart-7d9f8b6c5-x2x4z","workload":"Deployment/cart","begin":"2023-11-14T23:36:37.900Z","end":"2023-11-14T23:37:10.260Z","trace_id":"f413a7a4e46d1258ed4927cd46f8b039","remedy":"use `exec` in the shell that starts the server, so that the server is PID 1","target":"epitaph::termination"}
        "#]].assert_eq(&text);
    }

    #[test]
    fn a_container_outside_of_kubernetes_is_named_by_the_files_of_its_runtime() {
        let text = lines(|log| {
            let mut t = sample::ignored();
            t.facts.container = Some(Arc::new(sample::described()));
            log.report(Boot(0), &Report::Terminated(Box::new(t)), &sample::observation());
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["container"], &line["image"]), (&"checkout".into(), &"shop:1.4".into()));
    }

    #[test]
    fn a_clean_termination_is_not_logged() {
        let text = lines(|log| {
            let clean = Report::Terminated(Box::new(terminations::clean(1)));
            assert_eq!(log.report(Boot(0), &clean, &terminations::observation()), 0);
        });
        assert_eq!(text, "");
    }

    /// Not unclean, and not to be missed; but an agent that cannot judge does not fill the log.
    #[test]
    fn an_unknown_termination_is_logged_as_information_and_sparingly() {
        let text = lines(|log| {
            let unknown = Report::Terminated(Box::new(sample::unknown_unit()));
            let of = || log.report(Boot(0), &unknown, &sample::observation());
            assert_eq!((0..=MOST_UNKNOWN).map(|_| of()).sum::<u64>(), 1);
            log.overdue(Boot(INTERVAL_UNKNOWN.as_nanos() as u64));
        });
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len() as u64, MOST_UNKNOWN + 1, "{text}");
        assert_eq!(
            (&lines[0]["level"], &lines[0]["verdict"], &lines[0]["unit"]),
            (&"INFO".into(), &"unknown".into(), &"nginx.service".into())
        );
        assert_eq!(
            lines[MOST_UNKNOWN as usize]["message"],
            "1 more unknown termination is not logged: `epitaph list --verdict unknown` shows it"
        );
    }

    /// The table has the word.
    #[test]
    fn unknown_is_a_verdict_and_not_unclean() {
        assert!(!table::by_headline(UNKNOWN).expect("a verdict").unclean);
    }

    #[test]
    fn a_storm_is_cut_and_its_rest_is_counted() {
        let text = lines(|log| {
            let report = Report::Terminated(Box::new(sample::ignored()));
            let suppressed: u64 = (0..MOST + 5)
                .map(|_| log.report(Boot(0), &report, &sample::observation()))
                .sum();
            assert_eq!(suppressed, 5);
            log.overdue(Boot(1));
            log.overdue(Boot(INTERVAL.as_nanos() as u64));
            log.overdue(Boot(2 * INTERVAL.as_nanos() as u64));
        });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len() as u64, MOST + 1, "{text}");
        assert!(
            lines[MOST as usize].contains("5 more unclean terminations are not logged: `epitaph list --unclean` shows them"),
            "{text}"
        );
    }

    #[test]
    fn without_a_journal_no_command_shows_the_rest() {
        let text = lines_with(false, |log| {
            let report = Report::Terminated(Box::new(sample::ignored()));
            for _ in 0..=MOST {
                log.report(Boot(0), &report, &sample::observation());
            }
            log.overdue(Boot(INTERVAL.as_nanos() as u64));
        });
        let last = text.lines().last().unwrap();
        assert!(
            last.contains("1 more unclean termination is neither logged nor kept: `journal.directory` is not set"),
            "{last}"
        );
        assert!(!text.contains("epitaph list"), "{text}");
    }
}
