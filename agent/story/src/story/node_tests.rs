//! Shutdowns of the node, as `why` and `list` show them.

use epitaph_core::fixtures::script::play_all;
use epitaph_core::fixtures::shutdowns;
use epitaph_core::render::json as core_json;
use epitaph_core::render::text::Style;
use epitaph_core::report::Report as CoreReport;
use expect_test::{Expect, expect};

use super::*;
use crate::history::{self, Counts, Line, Search, Wanted};

/// The lines of the objects, read as `why` and `list` read them.
fn found(what: &str, lines: &[String]) -> Option<Story> {
    let mut search = Search::new(Wanted::new(what));
    let mut counts = Counts::default();
    for line in lines {
        let report = read(line);
        search.look(&report, line, &counts, Brief::of);
        counts.add(&report);
    }
    let (found, others, more) = search.finish()?;
    Some(Story {
        report: read(&found.line),
        found,
        others,
        more,
        ahead: 0,
        program: "epitaph",
    })
}

fn read(line: &str) -> Report {
    match history::parse(line.as_bytes()) {
        Some(Line::Report(report)) => *report,
        _ => panic!("not a report: {line}"),
    }
}

fn check(what: &str, lines: &[String], expected: Expect) {
    let story = found(what, lines).expect("a match");
    expected.assert_eq(&text(&story, Columns(80), Style::Plain, false));
}

fn truncated() -> String {
    core_json::line(&core_json::node_shutdown(&shutdowns::truncated()))
}

/// A poweroff on systemd 219, and the next boot.
fn bypassed() -> Vec<String> {
    let script = "
        -90 node bus connected
        -90 node limit 60
        -90 node locks kubelet:delay:812
        -90 node kubelet 60 20
        -60 api synced
        pod web priority=0 grace=30 app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        -58 pod web app=running
        +1 node job shutdown.target
        +1 node job poweroff.target
        +1.1 node state stopping
        +3 node bus gone the_bus_was_closed
        +4 reboot back=+40
        ";
    let line = |report: CoreReport| match report {
        CoreReport::NodeShutdown(of) => Some(core_json::line(&core_json::node_shutdown(&of))),
        CoreReport::NodeDown(of) => Some(core_json::line(&core_json::node_down(&of))),
        _ => None,
    };
    let reports = play_all(script).reports.into_iter().map(|(_, report)| report);
    reports.filter_map(line).collect()
}

#[test]
fn a_shutdown_that_cut_a_pod() {
    check(
        "node-7",
        &[truncated()],
        expect![[r#"
            node node-7
            truncated  UNCLEAN  critical

            the reboot did not wait for the shutdown of 1 of 2 pods:
            shop/cart-7d9f8b6c5-x2x4z (had 40.0 s of its 120 s) (normal phase took 40.0 s of
            40 s, critical phase took 2.0 s of 20 s); logind's delay of 60 s expired before
            the kubelet released its lock; at least 2 pods stayed Ready in the API until the
            node was back, and a Service sends clients to Ready pods

              2023-11-14 UTC  after |0                64.0 s|
              23:36:40.000      0 s |*                      | logind announces: reboot
              23:36:40.000      0 s |====================== | logind waits for delay locks,
                                    |                       |   at most 60 s: expired
              23:36:40.000      0 s |=======================| delay lock of kubelet
              23:36:40.000      0 s |=====================  | delay lock of epitaph
              23:36:40.000      0 s |+++++++++++++++        | kubelet's phase from priority
                                    |                       |   0, 40 s: overran
              23:37:20.000   40.0 s |              +        | kubelet's phase from priority
                                    |                       |   2000000000, 20 s
              23:37:20.100   40.1 s |              #        | pod shop/cart-7d9f8b6c5-x2x4z:
                                    |                       |   SIGKILL before the end of
                                    |                       |   its grace period
              23:37:20.100   40.1 s |              *        | pod kube-system/dns-x2x1z
                                    |                       |   ended
              23:37:40.000   60.0 s |                     * | systemd has a job for
                                    |                       |   reboot.target
              23:37:40.050   60.0 s |                     * | systemd stops the services
              23:37:43.000   63.0 s |                      *| SIGTERM to all processes

            Remedy
              raise shutdownGracePeriod to 140 s, and logind's InhibitDelayMaxSec to at
              least 140 s, or shorten the shutdown of shop/cart-7d9f8b6c5-x2x4z, which may
              take 120 s

            kind      reboot
            ended     2023-11-14 23:37:44 UTC
            before    no earlier shutdown of node node-7 is known
            trace     e4e73e15a3dc9179fe4a3d4e42c0949d
            meaning   `epitaph explain truncated`
        "#]],
    );
}

#[test]
fn a_poweroff_that_bypassed_logind() {
    let lines = bypassed();
    assert_eq!(lines.len(), 2, "a shutdown, and the time after it");
    let node = read(&lines[0]).node.to_string();
    check(
        &node,
        &lines,
        expect![[r#"
            node host
            bypassed  UNCLEAN  critical

            the power-off bypassed logind: systemd began a job for shutdown.target, and
            logind sent no PrepareForShutdown; the kubelet held its lock, but got no
            announcement; 1 pod ran at that time

              1970-01-01 UTC  after |0                 2.8 s|
              01:00:01.000      0 s |=======================| delay lock of kubelet
              01:00:01.000      0 s |#                      | pod shop/web: still ran when
                                    |                       |   systemd stopped everything
              01:00:01.000      0 s |*                      | systemd has a job for
                                    |                       |   shutdown.target
              01:00:01.100   100 ms | *                     | systemd stops the services

            Remedy
              use `systemctl poweroff` or `systemctl reboot`, without `--force`; with
              systemd before version 251 neither `shutdown now` nor `reboot` goes through
              logind, and with systemd before version 227 no command does: then drain the
              node first

            kind      power-off
            ended     1970-01-01 01:00:03 UTC
            before    no earlier shutdown of node host is known; the records begin at
                      1970-01-01 01:00:40 UTC
            trace     1b663d512554c7acdb9cb0b7da9897ae
            meaning   `epitaph explain bypassed`
        "#]],
    );
}

#[test]
fn the_trace_and_the_name_find_the_shutdown_and_not_the_time_after_it() {
    let lines = bypassed();
    let shutdown = lines
        .iter()
        .map(|line| read(line))
        .find(|report| !report.is_down())
        .expect("one");
    for what in [shutdown.trace_id.to_string(), format!("node/{}", shutdown.node)] {
        let story = found(&what, &lines).expect("a match");
        assert_eq!(&*story.report.r#type, Report::NODE_SHUTDOWN, "{what}");
    }
    assert!(found("another-node", &lines).is_none());
    // Of a journal that has dropped the shutdown.
    let down: Vec<String> = lines.into_iter().filter(|line| read(line).is_down()).collect();
    let story = found(&shutdown.node, &down).expect("a match");
    assert_eq!(&*story.report.verdict, "down");
}

#[test]
fn lines_of_a_list() {
    let mut list = List::new(None, Style::Plain);
    let lines = std::iter::once(truncated()).chain(bypassed());
    let shown: String = lines.map(|line| list.line(&Brief::of(&read(&line)))).collect();
    expect![[r#"
        ! 2023-11-14 23:37:44Z e4e73e15 node node-7                      truncated: the reboot did not wait for the shutdown of 1 of 2 pods: shop/cart-7d9f8b6c5-x2x4z (had 40.0 s of its 120 s) (normal phase took 40.0 s of 40 s, critical phase took 2.0 s of 20 s); logind's delay of 60 s expired before the kubelet released its lock; at least 2 pods stayed Ready in the API until the node was back, and a Service sends clients to Ready pods
          1970-01-01 01:00:40Z 1b663d51 node host                        down: the node was down for 36.2 s until its next boot
        ! 1970-01-01 01:00:03Z 1b663d51 node host                        bypassed: the power-off bypassed logind: systemd began a job for shutdown.target, and logind sent no PrepareForShutdown; the kubelet held its lock, but got no announcement; 1 pod ran at that time
    "#]].assert_eq(&shown);
}
