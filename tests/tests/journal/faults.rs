//! Disks in trouble, for real: the agent degrades to memory, reports the trouble, and recovers by itself.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use epitaph_tests::disk::{Disk, Hanging, Mounted};
use epitaph_tests::http::{free_port, get};
use epitaph_tests::service::Service;
use epitaph_tests::timeout::TO_END;
use nix::libc::ENOSPC;
use serde_json::Value;

use crate::stage::{Collector, Stage, by_subject, reports, story, times, until};

/// A story of half a second.
const QUICK: &str = "default-action";

/// Terminations that fill more than one segment, so many at once.
const MANY: usize = 10;
const AT_ONCE: usize = 6;

/// The journal's state and its reason, on `/readyz`.
fn state(agent: &Service) -> anyhow::Result<(String, Option<String>)> {
    let (status, body) = get(agent.port, "/readyz")?;
    ensure!(status == 200, "a disk in trouble makes no agent unready: {status} {body}");
    let ready: Value = serde_json::from_str(&body)?;
    let text = |key: &str| ready["journal"][key].as_str().map(str::to_owned);
    Ok((text("state").context("no state")?, text("reason")))
}

/// In memory only, by `/readyz`, metric and log.
fn is_in_trouble(agent: &Service, reason: &str) -> anyhow::Result<()> {
    until("the trouble on /readyz", || {
        state(agent).is_ok_and(|state| state == ("memory_only".to_owned(), Some(reason.to_owned())))
    })
    .with_context(|| agent.log())?;
    agent.until("epitaph_journal_state", &[&format!("state=\"{reason}\"")], 1.0)?;
    let log = agent.log();
    ensure!(
        log.contains("the journal is in memory only") && log.contains(reason),
        "no {reason} in the log: {log}"
    );
    Ok(())
}

/// Written again, by `/readyz`, metric and log.
fn recovers(agent: &Service) -> anyhow::Result<()> {
    until("the recovery on /readyz", || {
        state(agent).is_ok_and(|state| state == ("written".to_owned(), None))
    })
    .with_context(|| agent.log())?;
    agent.until("epitaph_journal_state", &["state=\"written\""], 1.0)?;
    ensure!(agent.log().contains("the journal is written again"), "{}", agent.log());
    Ok(())
}

/// Plays a termination; its trace must come to the collector.
fn delivered(stage: &Stage, collector: &Collector) -> anyhow::Result<String> {
    let subject = stage.play(story(QUICK))?;
    let is_sent = || collector.bodies().iter().any(|body| times(body, subject.as_bytes()) > 0);
    until("the trace at the collector", is_sent)?;
    Ok(subject)
}

fn is_kept(journal: &Path, subject: &str) -> anyhow::Result<()> {
    let kept = || by_subject(journal).is_ok_and(|found| found.contains_key(subject));
    until("the report in the journal", kept).with_context(|| format!("{:?}", reports(journal).map(|all| all.len())))
}

fn fill(file: &Path) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    loop {
        match file.write_all(&[0; 4096]) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(ENOSPC) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[test]
fn a_disk_that_fills_up_costs_no_trace_and_is_used_again() -> anyhow::Result<()> {
    let test = "a_disk_that_fills_up_costs_no_trace_and_is_used_again";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    let disk = Mounted::memory(&stage.directory.path().join("small"), 4 << 20)?;
    let (journal, filler) = (disk.root().join("journal"), disk.root().join("filler"));
    let port = free_port()?;
    let collector = Collector::start(port)?;
    // Segments of 64 KiB: the disk is full at the end of one.
    let small = ["--set", "journal.max_bytes=1048576"];
    let mut agent = stage.agent_with(&journal, port, &small)?;
    let before = delivered(&stage, &collector)?;
    is_kept(&journal, &before).with_context(|| format!("before: {}", agent.log()))?;
    fill(&filler)?;
    std::thread::scope(|scope| {
        let play = || (0..MANY).try_for_each(|_| stage.play(story(QUICK)).map(drop));
        let players: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(play)).collect();
        players
            .into_iter()
            .try_for_each(|player| player.join().map_err(|_| anyhow::anyhow!("the players panicked"))?)
    })?;
    is_in_trouble(&agent, "full")?;
    let meanwhile = delivered(&stage, &collector)?;
    fs::remove_file(&filler)?;
    recovers(&agent)?;
    let after = delivered(&stage, &collector)?;
    is_kept(&journal, &after).with_context(|| format!("after: {}", agent.log()))?;
    assert!(agent.end(TO_END)?.success(), "{}", agent.log());
    let found = by_subject(&journal)?;
    ensure!(found.contains_key(&before), "what was kept before is gone");
    // The next agent knows that it was reported, although the disk was full then.
    let deliveries = || {
        let bodies = collector.bodies();
        bodies.iter().filter(|body| times(body, meanwhile.as_bytes()) > 0).count()
    };
    let delivered_before = deliveries();
    let mut agent = stage.agent_with(&journal, port, &small)?;
    let again = delivered(&stage, &collector)?;
    is_kept(&journal, &again).with_context(|| format!("again: {}", agent.log()))?;
    assert!(agent.end(TO_END)?.success(), "{}", agent.log());
    assert_eq!(deliveries(), delivered_before, "exported by the next agent again");
    let held = by_subject(&journal)?
        .remove(&meanwhile)
        .context("held on the full disk, and lost")?;
    assert_eq!(held.len(), 1, "reported twice: {held:?}");
    Ok(())
}

#[test]
fn a_read_only_disk_is_used_once_it_is_writable() -> anyhow::Result<()> {
    let test = "a_read_only_disk_is_used_once_it_is_writable";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    let disk = Mounted::memory(&stage.directory.path().join("small"), 16 << 20)?;
    let journal = disk.root().join("journal");
    fs::create_dir(&journal)?;
    disk.read_only(true)?;
    let port = free_port()?;
    let collector = Collector::start(port)?;
    let mut agent = stage.agent_at(&journal, port)?;
    is_in_trouble(&agent, "read_only")?;
    delivered(&stage, &collector)?;
    disk.read_only(false)?;
    recovers(&agent)?;
    let after = delivered(&stage, &collector)?;
    is_kept(&journal, &after).with_context(|| format!("after: {}", agent.log()))?;
    assert!(agent.end(TO_END)?.success(), "{}", agent.log());
    Ok(())
}

/// EIO, from a block device of the test's own.
#[test]
fn a_disk_that_fails_costs_no_trace_and_is_used_again() -> anyhow::Result<()> {
    let test = "a_disk_that_fails_costs_no_trace_and_is_used_again";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    // Without a journal of its own: with one, the file system gives up for good.
    let disk = Disk::new(stage.directory.path(), "ext2", 24 << 20)?;
    let journal = disk.root().join("journal");
    let port = free_port()?;
    let collector = Collector::start(port)?;
    let mut agent = stage.agent_at(&journal, port)?;
    let before = delivered(&stage, &collector)?;
    is_kept(&journal, &before)?;
    disk.fail(true);
    delivered(&stage, &collector)?;
    is_in_trouble(&agent, "failing")?;
    delivered(&stage, &collector)?;
    disk.fail(false);
    recovers(&agent)?;
    let after = delivered(&stage, &collector)?;
    is_kept(&journal, &after).with_context(|| format!("after: {}", agent.log()))?;
    assert!(agent.end(TO_END)?.success(), "{}", agent.log());
    ensure!(by_subject(&journal)?.contains_key(&before), "what was kept before is gone");
    Ok(())
}

/// As after an error of the disk on most machines: ext4 stops its own journal, and is read-only from then on, with files that are open.
#[test]
fn a_file_system_that_turns_read_only_costs_no_trace() -> anyhow::Result<()> {
    let test = "a_file_system_that_turns_read_only_costs_no_trace";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    let disk = Disk::new(stage.directory.path(), "ext4", 24 << 20)?;
    let journal = disk.root().join("journal");
    let port = free_port()?;
    let collector = Collector::start(port)?;
    let mut agent = stage.agent_at(&journal, port)?;
    let before = delivered(&stage, &collector)?;
    is_kept(&journal, &before)?;
    disk.fail(true);
    delivered(&stage, &collector)?;
    is_in_trouble(&agent, "read_only")?;
    disk.fail(false);
    delivered(&stage, &collector)?;
    is_in_trouble(&agent, "read_only")?;
    assert!(agent.end(TO_END)?.success(), "{}", agent.log());
    ensure!(by_subject(&journal)?.contains_key(&before), "what was kept before is gone");
    Ok(())
}

/// The agent observes all the same, and uses the disk once it answers.
#[test]
fn a_disk_that_hangs_at_the_start_costs_no_trace_and_is_used_later() -> anyhow::Result<()> {
    let test = "a_disk_that_hangs_at_the_start_costs_no_trace_and_is_used_later";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    let root = stage.directory.path().join("hanging");
    let disk = Hanging::new(&root)?;
    let journal = root.join("journal");
    let port = free_port()?;
    let collector = Collector::start(port)?;
    let mut agent = stage.agent_at(&journal, port)?;
    is_in_trouble(&agent, "failing")?;
    ensure!(agent.log().contains("did not answer"), "{}", agent.log());
    delivered(&stage, &collector)?;
    disk.end();
    recovers(&agent)?;
    let after = delivered(&stage, &collector)?;
    is_kept(&journal, &after).with_context(|| format!("after: {}", agent.log()))?;
    assert!(agent.end(TO_END)?.success(), "{}", agent.log());
    Ok(())
}
