//! `epitaph explain`: the verdict table as a person reads it, and as `docs/verdicts.md`.

use std::fmt::Write as _;

use crate::config::settings::nearest_of;
use crate::error::{HasRemedy, Remedy};
use crate::verdict::Severity;
use crate::verdict::table::{self, CAUSES, Row, TABLE, TRAFFIC, by_headline};

/// The name of no verdict, cause or traffic value. Ends with [`super::SysExit::Usage`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} `{}`", name.escape_debug())]
pub struct UnknownWord {
    /// What kind of name was expected.
    pub what: &'static str,
    pub name: String,
    pub nearest: Option<String>,
}

impl UnknownWord {
    fn new<'a>(what: &'static str, name: &str, known: impl IntoIterator<Item = &'a str>) -> UnknownWord {
        // Typed names differ in case and separators as often as in letters.
        let normal = name.to_lowercase().replace(['_', ' '], "-");
        UnknownWord {
            what,
            name: name.to_owned(),
            nearest: nearest_of(&normal, known).map(str::to_owned),
        }
    }
}

impl HasRemedy for UnknownWord {
    fn remedy(&self) -> Option<Remedy> {
        let nearest = self.nearest.as_ref();
        let did_you_mean = nearest.map_or(String::new(), |nearest| format!("did you mean `{nearest}`? "));
        Some(format!("{did_you_mean}`epitaph explain` lists them all").into())
    }
}

/// Everything with this name in full (a verdict, a cause, a traffic value), or without a name a line for each.
pub fn explain(name: Option<&str>) -> Result<String, UnknownWord> {
    let Some(name) = name else { return Ok(list()) };
    let row = by_headline(name).map(in_full);
    let values = axes()
        .filter(|(_, value, _)| value == name)
        .map(|(axis, _, words)| format!("{axis} {name}\n{}", wrap(words, 78, "  ")));
    let found: Vec<String> = row.into_iter().chain(values).collect();
    if found.is_empty() {
        let values: Vec<String> = axes().map(|(_, value, _)| value).collect();
        let known = headlines().chain(values.iter().map(String::as_str));
        return Err(UnknownWord::new("verdict, cause or traffic", name, known));
    }
    Ok(found.join("\n"))
}

/// The verdict with this name; not a cause or a traffic value.
pub fn verdict(name: &str) -> Result<&'static Row, UnknownWord> {
    by_headline(name).ok_or_else(|| UnknownWord::new("verdict", name, headlines()))
}

fn headlines<'a>() -> impl Iterator<Item = &'a str> {
    TABLE.iter().map(|row| row.headline)
}

fn in_full(row: &Row) -> String {
    let mut out = format!(
        "{} ({}, severity {})\n",
        row.headline,
        cleanliness(row),
        severity(row.severity)
    );
    for (title, text) in [
        ("What it means", row.meaning),
        ("What proves it", row.proof),
        ("How to fix it", row.remedy),
    ] {
        if !text.is_empty() {
            let _ = write!(out, "\n{title}\n{}", wrap(text, 78, "  "));
        }
    }
    out
}

/// Axis, value, words.
fn axes() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    let causes = CAUSES.into_iter().map(|(value, words)| ("cause", table::name(value), words));
    causes.chain(
        TRAFFIC
            .into_iter()
            .map(|(value, words)| ("traffic", table::name(value), words)),
    )
}

fn list() -> String {
    let width = TABLE.iter().map(|e| e.headline.len()).max().unwrap_or(0);
    let mut out = String::new();
    for row in &TABLE {
        let mark = if row.unclean { '!' } else { ' ' };
        let _ = writeln!(out, "{mark} {:width$}  {}", row.headline, first_sentence(row.meaning));
    }
    out.push_str("\n! marks the unclean ones. `epitaph explain VERDICT` says what proves one and how to fix it.\n");
    let width = axes().map(|(_, value, _)| value.len()).max().unwrap_or(0);
    out.push_str("\nBeside it stand a cause (why it had to end) and a traffic (what clients saw):\n\n");
    for (axis, value, words) in axes() {
        let _ = writeln!(out, "{axis:7}  {value:width$}  {words}");
    }
    out
}

/// The body of `docs/verdicts.md`.
pub fn markdown() -> String {
    let mut out = String::from("| verdict | unclean | severity | in short |\n|---|---|---|---|\n");
    for e in &TABLE {
        let unclean = if e.unclean { "yes" } else { "no" };
        let name = e.headline;
        let _ = writeln!(
            out,
            "| [`{name}`](#{name}) | {unclean} | {} | {} |",
            severity(e.severity),
            first_sentence(e.meaning)
        );
    }
    out.push_str(
        "\nA verdict is the headline of three axes: why it had to end (`epitaph.cause`), how it ended (`epitaph.exit`) and what clients\n\
         saw (`epitaph.traffic`). `exit` is the headline's own name, or `clean` under those that tell of clients; the others are:\n\n\
         | axis | value | in words |\n|---|---|---|\n",
    );
    for (axis, value, words) in axes() {
        let _ = writeln!(out, "| {axis} | `{value}` | {words} |");
    }
    for e in &TABLE {
        let _ = write!(out, "\n## {}\n\n{}\n\n**Proof.** {}\n", e.headline, e.meaning, e.proof);
        if !e.remedy.is_empty() {
            let _ = write!(out, "\n**Remedy.** {}\n", e.remedy);
        }
    }
    out
}

fn cleanliness(row: &Row) -> &'static str {
    if row.unclean { "unclean" } else { "not unclean" }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        }
        out.push_str(if column == 0 { indent } else { " " });
        column += length + if column == 0 { indent.len() } else { 1 };
        out.push_str(word);
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect, expect_file};

    use super::*;
    use crate::error;

    fn check(verdict: Option<&str>, expected: Expect) {
        expected.assert_eq(&explain(verdict).unwrap_or_else(|e| format!("error: {}\n", error::lines(&e))));
    }

    #[test]
    fn all_with_a_line_each() {
        check(
            None,
            expect![[r#"
                ! oom-killed           The kernel killed the main process because memory ran out.
                ! oom-child            The kernel killed a child for memory, and the main process ended with an error within ten seconds.
                ! crashed              A signal of its own making ended the main process: a fault, an abort, or a limit that it ran into.
                ! killed-by-other      Someone who is neither its runtime nor itself killed the main process.
                ! stuck                Its grace is long over, and it still runs.
                ! runtime-failed       The runtime did not start the container's program, or gave it up.
                ! killed-after-grace   The process was shutting down, but not done when the grace was over: the runtime killed it.
                ! prestop-overran      The preStop hook took the grace: it was cut, or what it left the main process was too short.
                ! sidecar-starved      A sidecar was killed because the main containers had used up the grace: it was asked to stop only then.
                ! force-killed         The runtime killed the main process without asking it to stop first, or its pod was deleted with a grace of 0.
                ! blocked-stop-signal  The stop signal was never read: the process was frozen or stopped, had it masked, or never came to its handler.
                ! ignored-stop-signal  The kernel dropped the stop signal, so that the process never knew: it ran on until the runtime killed it.
                ! default-action       The stop signal itself ended the process: no handler ran, and any work in flight was dropped.
                ! prestop-failed       The main process ended cleanly, but the preStop hook failed: its work was not done.
                ! nonzero-exit         The main process ended by itself with a code other than 0.
                ! cut-connections      It ended cleanly, but connections that were in use were open at its end and closed by it.
                ! reset-connections    It ended cleanly, but clients had their connections reset.
                ! refused-connections  It ended cleanly, but clients went on connecting after its listener was closed and were refused.
                ! proxy-rejected       It ended cleanly, but clients on this node were rejected on the way to it, and not by itself.
                  clean-exit           It ended cleanly; what its clients saw was not observed.
                  clean                It ended as it should, and no client was hurt.
                  unknown              The evidence does not suffice: something was lost, not observed, or came before the agent.

                ! marks the unclean ones. `epitaph explain VERDICT` says what proves one and how to fix it.

                Beside it stand a cause (why it had to end) and a traffic (what clients saw):

                cause    deleted                Its pod was deleted: a rollout, a scale-down, `kubectl delete`, or pod garbage collection, as the sentence then says.
                cause    evicted-api            The Eviction API: `kubectl drain`, the cluster autoscaler, a descheduler.
                cause    evicted-node-pressure  The kubelet: the node ran out of memory, disk or process ids, or the pod over its own ephemeral storage.
                cause    evicted-taint          A NoExecute taint that the pod does not tolerate, or not any longer.
                cause    evicted-preempted      Room was made for a pod of higher priority.
                cause    deadline               The pod's own `activeDeadlineSeconds` was over; over a Job's its pods are told `deleted`.
                cause    liveness               The kubelet, because the liveness probe failed.
                cause    startup                The kubelet, because the startup probe did not succeed in time.
                cause    restart                The kubelet restarted or ended the container alone: for a changed definition or a resize, where an Event says so; else no evidence names why.
                cause    node-shutdown          The node was shutting down.
                cause    oom                    Memory ran out: its own limit's, or the node's.
                cause    crash                  Its own fault: a signal of its own, or an exit code other than 0 that nobody asked for.
                cause    external               A signal from someone who is neither its runtime nor itself.
                cause    stopped                Its runtime or systemd asked it to stop; without Kubernetes nobody says why.
                cause    completed              It ended of its own accord with exit code 0.
                cause    unknown                The evidence does not say.
                traffic  cut                    Connections in use were open at its end and closed by it.
                traffic  reset                  Clients had their connections reset.
                traffic  refused                Clients connected after its listener was closed, and were refused.
                traffic  proxy-rejected         Clients on this node were rejected on the way to it (ICMP), and not by itself.
                traffic  quiet                  Its sockets were observed, and no client was seen to be cut off, reset, refused or rejected.
                traffic  unknown                Its sockets were not observed, or not all the time.
            "#]],
        );
    }

    #[test]
    fn one_in_full() {
        check(
            Some("ignored-stop-signal"),
            expect![[r#"
                ignored-stop-signal (unclean, severity warning)

                What it means
                  The kernel dropped the stop signal, so that the process never knew: it ran
                  on until the runtime killed it.

                What proves it
                  signal_generate's own result says ignored; the runtime's SIGKILL came later.

                How to fix it
                  Install a handler, exec the program in place of the shell, or put a small
                  init (tini, dumb-init) at PID 1.
            "#]],
        );
        check(
            Some("clean"),
            expect![[r#"
                clean (not unclean, severity info)

                What it means
                  It ended as it should, and no client was hurt.

                What proves it
                  Exit code 0, the stop signal's own (128 + n) after it was handled, or one
                  that an annotation expects; its sockets were observed and quiet.

                How to fix it
                  Nothing.
            "#]],
        );
    }

    #[test]
    fn a_cause_and_a_traffic_are_told_too() {
        check(
            Some("evicted-taint"),
            expect![[r#"
            cause evicted-taint
              A NoExecute taint that the pod does not tolerate, or not any longer.
        "#]],
        );
        check(
            Some("quiet"),
            expect![[r#"
                traffic quiet
                  Its sockets were observed, and no client was seen to be cut off, reset,
                  refused or rejected.
            "#]],
        );
    }

    #[test]
    fn a_name_of_several_is_told_for_each() {
        check(
            Some("unknown"),
            expect![[r#"
            unknown (not unclean, severity warning)

            What it means
              The evidence does not suffice: something was lost, not observed, or came
              before the agent.

            What proves it
              Nothing: the sentence says what is missing.

            How to fix it
              See what is missing: a probe that this kernel cannot have, a ring buffer too
              small, an agent started late.

            cause unknown
              The evidence does not say.

            traffic unknown
              Its sockets were not observed, or not all the time.
        "#]],
        );
        check(
            Some("proxy-rejected"),
            expect![[r#"
            proxy-rejected (unclean, severity warning)

            What it means
              It ended cleanly, but clients on this node were rejected on the way to it,
              and not by itself.

            What proves it
              Connects of this node's processes to its address ended with an ICMP error
              and without an RST.

            How to fix it
              Look for the network policy, proxy rule or missing route that rejected them
              before it was gone.

            traffic proxy-rejected
              Clients on this node were rejected on the way to it (ICMP), and not by
              itself.
        "#]],
        );
    }

    #[test]
    fn an_unknown_one_names_the_nearest() {
        check(
            Some("evicted-tain"),
            expect![[r#"
            error: there is no verdict, cause or traffic `evicted-tain`
            remedy: did you mean `evicted-taint`? `epitaph explain` lists them all
        "#]],
        );
        check(
            Some("quite"),
            expect![[r#"
            error: there is no verdict, cause or traffic `quite`
            remedy: did you mean `quiet`? `epitaph explain` lists them all
        "#]],
        );
        check(
            Some("ignored-signal"),
            expect![[r#"
                error: there is no verdict, cause or traffic `ignored-signal`
                remedy: did you mean `ignored-stop-signal`? `epitaph explain` lists them all
            "#]],
        );
        check(
            Some("IGNORED_STOP_SIGNAL"),
            expect![[r#"
                error: there is no verdict, cause or traffic `IGNORED_STOP_SIGNAL`
                remedy: did you mean `ignored-stop-signal`? `epitaph explain` lists them all
            "#]],
        );
        check(
            Some("\u{1b}[2Jx"),
            expect![[r#"
                error: there is no verdict, cause or traffic `\u{1b}[2Jx`
                remedy: `epitaph explain` lists them all
            "#]],
        );
    }

    #[test]
    fn the_documentation_lists_what_the_code_has() {
        let doc = format!(
            "# Verdicts\n\n\
             Made from the code by `UPDATE_EXPECT=1 cargo test -p epitaph --lib explain`; do not edit. `epitaph explain VERDICT` says\n\
             the same in a terminal.\n\n{}",
            markdown()
        );
        expect_file!["../../../docs/verdicts.md"].assert_eq(&doc);
    }
}
