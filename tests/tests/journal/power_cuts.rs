//! The power of the journal's disk is cut at any moment: what was written since the last flush is there, torn or missing, in any order.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_tests::disk::{Disk, Mounted, Position};
use epitaph_tests::epitaph::run;
use epitaph_tests::http::free_port;
use epitaph_tests::sys::locked;
use epitaph_tests::timeout::TO_END;
use serde_json::Value;

use crate::boots::{self, Cut};
use crate::stage::{Collector, Random, Report, Stage, fields, now, number, reports, story, until};

/// Cuts of the everyday tests. `EPITAPH_CUTS=50` for the long run.
const CUTS: usize = 10;

/// Of so many images, one is given to an agent of this boot.
const BOOTED: usize = 10;

const FILE_SYSTEM: &str = "ext4";

/// What terminates, one after the other.
const STORIES: [&str; 5] = [
    "default-action",
    "handler-exits-0",
    "ignored-without-handler",
    "completed",
    "exits-1-by-itself",
];

/// Its handler does not end in time: SIGKILL follows two seconds after the stop signal.
const SLOW: &str = "slow-handler";

/// Container → whether its end was clean, by the players' own account.
pub type Truth = HashMap<String, bool>;

/// A request that the first collector got, and the disk's position then: what was synced before.
pub type Received = (usize, Vec<u8>);

/// Of the images, so many are given to an agent in a machine that boots, if there is one.
const IN_A_MACHINE: usize = 5;

/// What the collector got is in the journal of every image: a trace leaves once it is synced. No image makes a termination clean that was
/// not. An agent that goes on with an image delivers what is left, the same bytes.
#[test]
fn nothing_synced_is_lost_to_a_power_cut() -> anyhow::Result<()> {
    let test = "nothing_synced_is_lost_to_a_power_cut";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    let cuts = number("EPITAPH_CUTS", CUTS)?;
    let disk = Disk::new(stage.directory.path(), FILE_SYSTEM, 24 << 20)?;
    let (journal, position) = (disk.root().join("journal"), disk.position());
    let port = free_port()?;
    let received = Arc::<Mutex<Vec<Received>>>::default();
    let _collector = Collector::with(port, {
        let (position, received) = (position.clone(), received.clone());
        move |body| {
            let at = (position.now(), body.to_vec());
            locked(&received).push(at);
        }
    })?;

    let mut truth = Truth::new();
    let mut first = None;
    let mut open = None;
    // The first run is killed, the second ends.
    for turn in 0..2 {
        let mut agent = stage.agent_at(&journal, port)?;
        first.get_or_insert(position.now());
        for name in STORIES {
            truth.insert(stage.play(story(name))?, story(name).expected.verdict == "clean");
        }
        match turn {
            0 => agent.kill()?,
            _ => {
                let (subject, at) = within(&stage, &position)?;
                truth.insert(subject.clone(), false);
                open = Some((subject, at));
                ensure!(agent.end(TO_END)?.success(), "{}", agent.log());
            }
        }
    }
    let (subject, within) = open.context("no termination was cut")?;
    let (first, last) = (first.context("no run")?, position.now());
    let received = locked(&received).clone();
    let sent = received.iter().flat_map(|(_, body)| fields(body)).count();
    ensure!(sent >= STORIES.len(), "the collector got {sent} traces");

    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut found, mut booted) = (0, 0);
    let program = boots::program();
    let mut for_machine = Vec::new();
    // The last one in any case within a termination.
    for cut in 0..=cuts {
        let is_within = cut == cuts;
        let at = match is_within {
            true => within,
            false => first + random.below(last - first) + 1,
        };
        let image = stage.directory.path().join(format!("image-{cut}"));
        std::fs::write(&image, disk.cut(at, &mut |below| random.below(below)))?;
        // One of each part of the cuts, as it is before anybody mounts it.
        let of_machine = program.is_some() && (is_within || cut % cuts.div_ceil(IN_A_MACHINE) == 0);
        let copy = image.with_extension("machine");
        if of_machine {
            std::fs::copy(&image, &copy)?;
        }
        let mounted = Mounted::new(&image, FILE_SYSTEM, &stage.directory.path().join("cut"))?;
        let journal = mounted.root().join("journal");
        let context = || format!("cut {cut}, at {at} of {first} to {last}");
        // Cut before the first segment: not even the directory is there.
        let kept: Vec<Report> = match journal.exists() {
            true => reports(&journal).with_context(context)?.into_values().collect(),
            false => Vec::new(),
        };
        found += kept.len();
        let synced = received.iter().filter(|(position, _)| *position <= at);
        holds(&kept, synced.map(|(_, body)| body.as_slice())).with_context(context)?;
        none_falsely_clean(kept.iter().map(|report| &report.json), &truth).with_context(context)?;
        replayed(&stage, &journal, &truth).with_context(context)?;
        if cut % BOOTED == 0 {
            resumed(&stage, &journal, &received, &truth).with_context(context)?;
            booted += 1;
        }
        drop(mounted);
        std::fs::remove_file(&image)?;
        if of_machine {
            for_machine.push(Cut {
                image: copy,
                context: context(),
                kept,
                open: is_within.then(|| subject.clone()),
            });
        }
    }
    println!(
        "{cuts} cuts within {} writes and flushes, {found} reports in them, {booted} with an agent",
        last - first
    );
    match program {
        Some(program) => boots::boot(&program, &for_machine, &received, &truth),
        None => Ok(()),
    }
}

/// Plays a termination; its container, and the disk's position a second before its end: between the stop signal and SIGKILL.
fn within(stage: &Stage, position: &Position) -> anyhow::Result<(String, usize)> {
    std::thread::scope(|scope| {
        let play = scope.spawn(|| stage.play(story(SLOW)));
        let mut positions = Vec::new();
        while !play.is_finished() {
            positions.push((now(), position.now()));
            // The subject is time: a position of the disk every now and then.
            std::thread::sleep(Duration::from_millis(20));
        }
        let end = now();
        let subject = play.join().map_err(|_| anyhow::anyhow!("the play panicked"))??;
        let before = positions.iter().rev().find(|(at, _)| end - *at >= Duration::from_secs(1));
        Ok((subject, before.context("the play was too short")?.1))
    })
}

fn holds<'a>(kept: &[Report], synced: impl Iterator<Item = &'a [u8]>) -> anyhow::Result<()> {
    let kept: HashSet<&[u8]> = kept.iter().flat_map(|report| fields(&report.request)).collect();
    for body in synced {
        for field in fields(body) {
            ensure!(
                kept.contains(field),
                "the collector got what is not in the journal: {}",
                String::from_utf8_lossy(field).escape_debug()
            );
        }
    }
    Ok(())
}

pub fn none_falsely_clean<'a>(reports: impl Iterator<Item = &'a Value>, truth: &Truth) -> anyhow::Result<()> {
    for report in reports {
        let subject = report["subject"]["id"].as_str().unwrap_or_default();
        let is_clean = report["verdict"] == "clean";
        ensure!(!is_clean || truth.get(subject) != Some(&false), "falsely clean: {report}");
    }
    Ok(())
}

/// The evidence of the image, judged again.
fn replayed(stage: &Stage, journal: &Path, truth: &Truth) -> anyhow::Result<()> {
    let file = stage.directory.path().join("cut.epitaph");
    let (journal, name) = (journal.display().to_string(), file.display().to_string());
    let exported = run(stage.epitaph.command(), ["export", "--journal", &journal, &name])?;
    if exported.code == Some(66) {
        // Cut before the first evidence.
        return Ok(());
    }
    ensure!(exported.code == Some(0), "{exported:?}");
    let listed = run(stage.epitaph.command(), ["list", "--output", "json", "--from", &name])?;
    std::fs::remove_file(&file)?;
    ensure!(listed.code == Some(0), "{listed:?}");
    let reports: Vec<Value> = listed.out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    none_falsely_clean(reports.iter(), truth)
}

/// An agent goes on with the image.
fn resumed(stage: &Stage, journal: &Path, received: &[Received], truth: &Truth) -> anyhow::Result<()> {
    let port = free_port()?;
    let collector = Collector::start(port)?;
    let mut agent = stage.agent_at(journal, port)?;
    let kept: Vec<Report> = reports(journal)?.into_values().collect();
    until("the delivery", || delivered(&kept, &collector, received)).with_context(|| agent.log())?;
    ensure!(agent.end(TO_END)?.success(), "{}", agent.log());
    let kept = reports(journal)?;
    let mut subjects = HashSet::new();
    for report in kept.values().filter(|report| truth.contains_key(report.subject())) {
        ensure!(subjects.insert(report.subject()), "two roots of {}", report.json);
    }
    none_falsely_clean(kept.values().map(|report| &report.json), truth)
}

/// Whether each report reached the one or the other collector.
pub fn delivered(kept: &[Report], collector: &Collector, received: &[Received]) -> bool {
    let bodies = collector.bodies();
    let all = bodies.iter().chain(received.iter().map(|(_, body)| body));
    let sent: HashSet<&[u8]> = all.flat_map(|body| fields(body)).collect();
    kept.iter()
        .all(|report| fields(&report.request).all(|field| sent.contains(field)))
}
