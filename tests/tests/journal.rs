//! The journal of a real agent: killed and restarted in the middle of terminations, and while its collector is down.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use epitaph::journal::reader::Reader;
use epitaph_tests::agent::program;
use epitaph_tests::epitaph::{Epitaph, run};
use epitaph_tests::http::{free_port, get};
use epitaph_tests::machine::is_root;
use epitaph_tests::play::Players;
use epitaph_tests::runtime::Stop;
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::story::Story;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// For a loaded machine: the agent has two seconds.
const TO_END: Duration = Duration::from_secs(10);

struct Stage {
    players: Players,
    directory: TempDir,
    epitaph: Epitaph,
}

impl Stage {
    /// None, and a skip, if the test of that name cannot be played.
    fn set(test: &str) -> anyhow::Result<Option<Stage>> {
        if !is_root() {
            skip(test, "observing needs root");
            return Ok(None);
        }
        let directory = tempfile::tempdir()?;
        Ok(Some(Stage {
            players: Players::new(&binaries())?,
            epitaph: Epitaph::copied(&program(&binaries()), directory.path())?,
            directory,
        }))
    }

    fn journal(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    /// An agent with a journal, and with a collector at that port.
    fn agent(&self, collector: u16) -> anyhow::Result<Service> {
        let journal = format!("journal.directory={}", self.journal().display());
        let url = format!("http://127.0.0.1:{collector}");
        let args = [
            "--set",
            &journal,
            "--otlp",
            &url,
            "--otlp-protocol",
            "http/protobuf",
            "--set",
            "otlp.metrics=false",
        ];
        Service::start(&self.epitaph, self.directory.path(), &args)
    }

    /// Plays the story; returns the id of its container.
    fn play(&self, story: &'static Story) -> anyhow::Result<String> {
        let role = self.players.cast(story)?;
        let differs = self.players.play(&role)?.differs(&role);
        ensure!(differs.is_empty(), "{}: {}", story.name, differs.join("\n"));
        Ok(role.subject.as_str().to_owned())
    }
}

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

fn story(name: &str) -> &'static Story {
    stories().find(|s| s.name == name).expect("a story of that name")
}

/// A finished report.
struct Report {
    json: Value,
    request: Vec<u8>,
}

/// Trace id and span id.
type RootId = (Vec<u8>, Vec<u8>);

/// The finished reports by trace and root span; one that is there twice must be identical.
fn reports(journal: &Path) -> anyhow::Result<BTreeMap<RootId, Report>> {
    let mut reader = Reader::open(journal)?;
    let mut found: BTreeMap<_, Report> = BTreeMap::new();
    while let Some(report) = reader.next_report() {
        let json: Value = serde_json::from_slice(report.json)?;
        let request = report.request.to_vec();
        let key = (report.id.trace.to_vec(), report.id.span.to_vec());
        if let Some(first) = found.get(&key) {
            ensure!(
                first.request == request,
                "two requests for one root span: {json} {}",
                first.json
            );
        }
        found.insert(key, Report { json, request });
    }
    Ok(found)
}

/// The reports about each container.
fn by_subject(journal: &Path) -> anyhow::Result<HashMap<String, Vec<Value>>> {
    let mut subjects: HashMap<String, Vec<Value>> = HashMap::new();
    for report in reports(journal)?.into_values() {
        let id = report.json["subject"]["id"].as_str().unwrap_or_default().to_owned();
        subjects.entry(id).or_default().push(report.json);
    }
    Ok(subjects)
}

type Bodies = Arc<Mutex<Vec<Vec<u8>>>>;

/// Accepts every request, and keeps its body.
fn collector(port: u16) -> anyhow::Result<Bodies> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let bodies = Bodies::default();
    let kept = bodies.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let kept = kept.clone();
            std::thread::spawn(move || {
                while let Some(body) = request(&mut stream) {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(body);
                    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                }
            });
        }
    });
    Ok(bodies)
}

/// The body of the next request.
fn request(stream: &mut std::net::TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    let mut body = vec![0; length.trim().parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

fn contains(bodies: &Bodies, request: &[u8]) -> usize {
    let bodies = bodies.lock().unwrap_or_else(PoisonError::into_inner);
    let times = |body: &Vec<u8>| body.windows(request.len()).filter(|part| *part == request).count();
    bodies.iter().map(times).sum()
}

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

    let bodies = collector(port)?;
    let mut agent = stage.agent(port)?;
    let is_sent = || before.values().all(|report| contains(&bodies, &report.request) > 0);
    until("the requests of the killed agent", is_sent).with_context(|| agent.log())?;
    for report in before.values() {
        assert_eq!(contains(&bodies, &report.request), 1, "sent once: {}", report.json);
    }
    assert!(agent.end(TO_END)?.success(), "{}", agent.log());
    // What is answered is not sent again.
    let mut agent = stage.agent(port)?;
    std::thread::sleep(Duration::from_secs(1));
    assert!(agent.end(TO_END)?.success(), "{}", agent.log());
    for report in before.values() {
        assert_eq!(contains(&bodies, &report.request), 1, "sent once: {}", report.json);
    }
    Ok(())
}

fn until(what: &str, mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
    for _ in 0..1_200 {
        if done() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("timed out waiting for {what}")
}

/// The first agent sees the stop signal and is killed; the second goes on with the evidence of the first.
#[test]
fn a_stop_that_began_before_a_kill_is_reported_with_its_stop_signal() -> anyhow::Result<()> {
    let test = "a_stop_that_began_before_a_kill_is_reported_with_its_stop_signal";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    // A grace in which even a loaded machine starts an agent.
    let mut long = *story("ignored-without-handler");
    if let Stop::Signal { grace, .. } = &mut long.stop {
        *grace = Duration::from_secs(10);
    }
    let role = stage.players.cast(Box::leak(Box::new(long)))?;
    let port = free_port()?;
    let _bodies = collector(port)?;
    let mut agent = stage.agent(port)?;
    let ignored = agent.count("epitaph_stop_signals_ignored_total", &[])?;
    std::thread::scope(|scope| {
        let played = scope.spawn(|| stage.players.play(&role));
        agent.until("epitaph_stop_signals_ignored_total", &[], ignored + 1.0)?;
        agent.kill()?;
        let mut agent = stage.agent(port)?;
        ensure!(!played.is_finished(), "the second agent came too late to prove anything");
        let played = played.join().map_err(|_| anyhow::anyhow!("the players panicked"))??;
        let differs = played.differs(&role);
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
        .any(|line| line.contains("another agent has the journal"));
    let pid = Pid::from_raw(second.id().try_into()?);
    kill(pid, Signal::SIGTERM)?;
    let begin = now();
    let status = second.wait()?;
    ensure!(waits, "the second agent did not wait: {status}");
    assert!(status.success(), "{status}");
    // The wait for the other agent's end would be half a minute.
    assert!(begin.elapsed() < TO_END, "{:?}", begin.elapsed());
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

/// Kills and restarts of the everyday tests; `EPITAPH_KILLS` for the long run.
const KILLS: u32 = 4;

/// Agents are killed at random moments while containers terminate: a container that terminated while an agent observed from begin to
/// end has exactly one root span, no container has two, and a container that was not stopped cleanly is never reported as clean.
#[test]
fn no_kill_makes_two_reports_of_one_termination_or_a_clean_one() -> anyhow::Result<()> {
    let test = "no_kill_makes_two_reports_of_one_termination_or_a_clean_one";
    let Some(stage) = Stage::set(test)? else { return Ok(()) };
    #[expect(clippy::disallowed_methods, reason = "a test's own setting: no configuration file holds it")]
    let kills = std::env::var("EPITAPH_KILLS").map_or(Ok(KILLS), |kills| kills.parse())?;
    let port = free_port()?;
    let bodies = collector(port)?;
    let over = std::sync::atomic::AtomicBool::new(false);
    let (plays, alive) = std::thread::scope(|scope| {
        let playing = scope.spawn(|| -> anyhow::Result<Vec<(String, &str, Instant, Instant)>> {
            let mut plays = Vec::new();
            for name in ["default-action", "completed", "handler-exits-0", "exits-1-by-itself"]
                .iter()
                .cycle()
            {
                if over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let begin = now();
                let subject = stage.play(story(name))?;
                plays.push((subject, *name, begin, now()));
            }
            Ok(plays)
        });
        let mut alive = Vec::new();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let killed = (|| {
            for _ in 0..kills {
                let mut agent = stage.agent(port)?;
                let begin = now();
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                std::thread::sleep(Duration::from_millis(random % 4_000));
                alive.push((begin, now()));
                agent.kill()?;
            }
            let mut last = stage.agent(port)?;
            let begin = now();
            std::thread::sleep(Duration::from_secs(3));
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(12));
            alive.push((begin, now()));
            ensure!(last.end(TO_END)?.success(), "{}", last.log());
            Ok(())
        })();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let plays = playing.join().map_err(|_| anyhow::anyhow!("the players panicked"))??;
        killed?;
        anyhow::Ok((plays, alive))
    })?;
    let found = by_subject(&stage.journal())?;
    let mut whole = 0;
    for (subject, name, begin, end) in &plays {
        let reports = found.get(subject).map_or(&[][..], Vec::as_slice);
        assert!(reports.len() <= 1, "{name}: {reports:?}");
        let verdict = reports.first().map(|report| report["verdict"].as_str().unwrap_or_default());
        if matches!(*name, "default-action" | "exits-1-by-itself") {
            assert_ne!(verdict, Some("clean"), "{name}: {reports:?}");
        }
        // The agent's own second: it waits for late records, and writes.
        let is_observed = alive
            .iter()
            .any(|(from, to)| from <= begin && *end + Duration::from_secs(1) <= *to);
        if is_observed {
            whole += 1;
            assert_eq!(reports.len(), 1, "{name} {subject} is not reported");
        }
    }
    let sent = reports(&stage.journal())?;
    for report in sent.values() {
        assert!(contains(&bodies, &report.request) > 0, "not sent: {}", report.json);
    }
    println!(
        "{} terminations, {whole} observed whole, {} reports, {kills} kills",
        plays.len(),
        sent.len()
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}
