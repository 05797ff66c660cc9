//! Agents that are killed, wait for each other, or have no collector.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_tests::epitaph::run;
use epitaph_tests::http::{free_port, get};
use epitaph_tests::timeout::{TO_END, exit_within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::stage::{Collector, Stage, by_subject, reports, story, until};

#[test]
fn a_kill_while_the_collector_is_down_loses_no_report_and_changes_no_byte() -> anyhow::Result<()> {
    let test = "a_kill_while_the_collector_is_down_loses_no_report_and_changes_no_byte";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    let port = free_port()?;
    let mut agent = stage.agent(port)?;
    let mut subjects = Vec::new();
    for name in ["completed", "default-action", "handler-exits-0"] {
        subjects.push(stage.play(story(name))?);
    }
    let is_kept = |subjects: &[String]| {
        let kept = by_subject(&stage.journal()).unwrap_or_default();
        subjects.iter().all(|subject| kept.contains_key(subject))
    };
    until("the reports in the journal", || is_kept(&subjects))?;
    let (_, ready) = get(agent.port, "/readyz")?;
    let ready: Value = serde_json::from_str(&ready)?;
    assert_eq!(ready["journal"]["state"], "written", "{ready}");
    agent.kill()?;
    let before = reports(&stage.journal())?;

    let collector = Collector::start(port)?;
    let mut agent = stage.agent(port)?;
    let is_sent = || before.values().all(|report| collector.times(&report.request) > 0);
    until("the requests of the killed agent", is_sent).with_context(|| agent.log())?;
    for report in before.values() {
        assert_eq!(collector.times(&report.request), 1, "sent once: {}", report.json);
    }
    assert!(agent.end(TO_END)?.success(), "{}", agent.log());
    // What is answered is not sent again: not before what terminates later, which waits behind it.
    let mut agent = stage.agent(port)?;
    let marker = stage.play(story("completed"))?;
    until("the marker's request", || {
        let all = reports(&stage.journal()).unwrap_or_default();
        let mut requests = all
            .values()
            .filter(|report| report.subject() == marker)
            .map(|report| &report.request);
        requests.any(|request| collector.times(request) > 0)
    })
    .with_context(|| agent.log())?;
    assert!(agent.end(TO_END)?.success(), "{}", agent.log());
    for report in before.values() {
        assert_eq!(collector.times(&report.request), 1, "sent once: {}", report.json);
    }
    Ok(())
}

/// The first agent sees the stop signal and is killed; the second goes on with the evidence of the first.
#[test]
fn a_stop_that_began_before_a_kill_is_reported_with_its_stop_signal() -> anyhow::Result<()> {
    let test = "a_stop_that_began_before_a_kill_is_reported_with_its_stop_signal";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    let role = stage.players.cast_for_an_order(story("ignored-without-handler"))?;
    let (kill_now, order) = channel();
    let port = free_port()?;
    let _collector = Collector::start(port)?;
    let mut agent = stage.agent(port)?;
    std::thread::scope(|scope| {
        // Given up, this test orders nothing: the players end.
        let (kill_now, role, players) = (kill_now, &role, &stage.players);
        let played = scope.spawn(move || players.play_to_an_order(role, &order));
        stage.until_stopped(role).with_context(|| agent.log())?;
        agent.kill()?;
        let mut agent = stage.agent(port)?;
        ensure!(!played.is_finished(), "the container did not wait for the second agent");
        kill_now.send(())?;
        let played = played.join().map_err(|_| anyhow::anyhow!("the players panicked"))??;
        let differs = played.differs(role);
        ensure!(differs.is_empty(), "{}", differs.join("\n"));
        let subject = role.subject.as_str().to_owned();
        until("the report", || {
            by_subject(&stage.journal()).is_ok_and(|found| found.contains_key(&subject))
        })
        .with_context(|| agent.log())?;
        assert!(agent.end(TO_END)?.success(), "{}", agent.log());
        let found = by_subject(&stage.journal())?;
        let [termination] = &found[&subject][..] else {
            anyhow::bail!("not one report: {:?}", found[&subject]);
        };
        assert_eq!(termination["stop"]["signal"], "SIGTERM", "{termination}");
        assert_eq!(termination["kill"]["sender"]["role"], "runtime", "{termination}");
        // The kernel discarded the signal before the gap, but another one may have come in the gap.
        assert_ne!(termination["verdict"], "clean", "{termination}");
        Ok(())
    })
}

#[test]
fn an_agent_that_waits_for_the_journal_of_another_ends_at_sigterm() -> anyhow::Result<()> {
    let test = "an_agent_that_waits_for_the_journal_of_another_ends_at_sigterm";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    let mut first = stage.agent(free_port()?)?;
    let mut second = stage
        .epitaph
        .command()
        .args(["agent", "--listen", "off", "--kubernetes", "off", "--set"])
        .arg(format!("journal.directory={}", stage.journal().display()))
        .stderr(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(second.stderr.take().context("no standard error")?).lines();
    let waits = lines
        .map_while(Result::ok)
        .any(|line| line.contains("another agent (pid ") && line.contains("uses the journal"));
    let pid = Pid::from_raw(second.id().try_into()?);
    kill(pid, Signal::SIGTERM)?;
    // The wait for the other agent's end would be half a minute.
    let status = exit_within(&mut second, Duration::from_secs(25))?;
    ensure!(waits, "the second agent did not wait: {status:?}");
    ensure!(status.is_some_and(|status| status.success()), "it waited on: {status:?}");
    assert!(first.end(TO_END)?.success(), "{}", first.log());
    Ok(())
}

/// Whatever the cut of the part: the same exits, and never a cleaner verdict.
#[test]
fn an_exported_part_of_the_journal_is_judged_as_the_agent_judged_it_or_as_unknown() -> anyhow::Result<()> {
    let test = "an_exported_part_of_the_journal_is_judged_as_the_agent_judged_it_or_as_unknown";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    let journal = stage.journal();
    let mut ends = Vec::new();
    for (turn, names) in [&["default-action", "ignored-without-handler"][..], &["exits-1-by-itself"]]
        .into_iter()
        .enumerate()
    {
        let mut agent = stage.agent(free_port()?)?;
        for name in names {
            let subject = stage.play(story(name))?;
            until("the report in the journal", || {
                by_subject(&journal).is_ok_and(|found| found.contains_key(&subject))
            })
            .with_context(|| agent.log())?;
        }
        // The first run is killed, the second ends.
        match turn {
            0 => agent.kill()?,
            _ => assert!(agent.end(TO_END)?.success(), "{}", agent.log()),
        }
    }
    let judged = by_subject(&journal)?;
    for reports in judged.values() {
        let [report] = &reports[..] else {
            anyhow::bail!("not one report: {reports:?}")
        };
        ends.push(report["end"].as_str().context("a report without an end")?.to_owned());
    }
    let journal = journal.display().to_string();
    let export = |since: &str, to: &Path| {
        let file = to.display().to_string();
        run(
            stage.epitaph.command(),
            ["export", "--journal", &journal, "--since", since, &file],
        )
    };
    for (i, since) in ["1h"].into_iter().chain(ends.iter().map(String::as_str)).enumerate() {
        let file = stage.directory.path().join(format!("part-{i}.epitaph"));
        let exported = export(since, &file)?;
        if i > 0 && exported.code == Some(66) {
            // After the last evidence.
            ensure!(!file.exists(), "a file without evidence is left behind");
            continue;
        }
        ensure!(exported.code == Some(0), "{exported:?}");
        ensure!(export(since, &file)?.code == Some(73), "an export overwrote a file");
        let replayed = run(
            stage.epitaph.command(),
            ["replay", "--output", "json", &file.display().to_string()],
        )?;
        ensure!(replayed.code == Some(0), "{replayed:?}");
        let mut seen = 0;
        for line in replayed.lines() {
            let report: Value = serde_json::from_str(line)?;
            let id = report["subject"]["id"].as_str().filter(|_| report["type"] == "termination");
            let Some([of_agent]) = id.and_then(|id| judged.get(id)).map(Vec::as_slice) else {
                continue;
            };
            seen += 1;
            let (ours, theirs) = (&report["verdict"], &of_agent["verdict"]);
            ensure!(ours == theirs || ours == "unknown", "{since}: {report} after {of_agent}");
        }
        ensure!(
            i > 0 || seen == judged.len(),
            "{seen} of {} in {}",
            judged.len(),
            replayed.out
        );
    }
    Ok(())
}
