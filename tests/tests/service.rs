//! The agent as it runs for weeks: its endpoints, collectors that are down, silent or refusing, its end, and its restart in the
//! middle of a termination.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::demo::{Options, run};
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::http::{free_port, get};
use epitaph_tests::machine::is_root;
use epitaph_tests::play::Players;
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::story::Story;
use epitaph_tests::sys::kill;
use epitaph_tests::timeout::TO_END;
use epitaph_tests::watch::Watch;
use serde_json::Value;
use tempfile::TempDir;

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

    fn agent(&self, args: &[&str]) -> anyhow::Result<Service> {
        Service::start(&self.epitaph, self.directory.path(), args)
    }

    /// Plays the story; returns the id of its container.
    fn play(&self, story: &'static Story) -> anyhow::Result<String> {
        let role = self.players.cast(story)?;
        let differs = self.players.play(&role)?.differs(&role);
        ensure!(differs.is_empty(), "{}: {}", story.name, differs.join("\n"));
        Ok(role.subject)
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

#[test]
fn the_endpoints_report_probes_and_terminations() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("the_endpoints_report_probes_and_terminations")? else {
        return Ok(());
    };
    let mut agent = stage.agent(&[])?;
    let (status, body) = get(agent.port, "/healthz")?;
    assert_eq!((status, body.as_str()), (200, "ok\n"));
    let (status, body) = get(agent.port, "/readyz")?;
    let ready: Value = serde_json::from_str(&body)?;
    assert_eq!((status, &ready["ready"]), (200, &Value::Bool(true)));
    let probes = ready["probes"].as_array().context("no probes")?;
    let named = |name: &str| probes.iter().any(|p| p["name"] == name && p["state"].is_string());
    for probe in [
        "signal_generate",
        "signal_deliver",
        "sched_process_exit",
        "sched_process_exec",
        "mark_victim",
        "cgroup_mkdir",
        "cgroup_rmdir",
        "inet_sock_set_state",
        "tcp_send_reset",
    ] {
        assert!(named(probe), "no {probe} in {body}");
        agent.metric("epitaph_probe_state", &[&format!("probe=\"{probe}\"")])?;
    }
    // No directory is given.
    assert_eq!(ready["journal"]["reason"], "not_configured", "{body}");
    assert_eq!(agent.metric("epitaph_journal_state", &["state=\"not_configured\""])?, 1.0);
    assert!(
        agent
            .log()
            .contains("the journal is in memory only: `journal.directory` is not set"),
        "{}",
        agent.log()
    );

    let labels = [r#"verdict="crashed""#, r#"runtime="containerd""#, r#"unclean="true""#];
    let before = agent.count("epitaph_terminations_total", &labels)?;
    stage.play(story("abort"))?;
    agent.until("epitaph_terminations_total", &labels, before + 1.0)?;
    assert_eq!(get(agent.port, "/")?.0, 404);
    let status = agent.end(TO_END)?;
    assert!(status.success(), "{status}: {}", agent.log());
    Ok(())
}

/// A kernel that was built without type information has no directory of them.
const NO_BTF: &str = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";

#[test]
fn without_probes_an_agent_observes_what_else_there_is() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("without_probes_an_agent_observes_what_else_there_is")? else {
        return Ok(());
    };
    let socket = stage.directory.path().join("logind.sock");
    let with_role = format!("{NO_BTF} --set logind.socket={}", socket.display());
    let mut agent = Service::inside(
        &["unshare", "-m", "sh", "-c", &with_role, "sh"],
        &stage.epitaph,
        stage.directory.path(),
    )?;
    let (_, body) = get(agent.port, "/readyz")?;
    let ready: Value = serde_json::from_str(&body)?;
    let probes = ready["probes"].as_array().context("no probes")?;
    assert!(probes.len() > 8, "{body}");
    for probe in probes {
        let name = probe["name"].as_str().context("no name")?;
        assert_eq!(probe["state"], "unsupported", "{body}");
        assert!(body.contains("has no type information"), "{body}");
        let labels = [&*format!("probe=\"{name}\""), "state=\"unsupported\""];
        assert_eq!(agent.metric("epitaph_probe_state", &labels)?, 1.0, "{name}");
    }
    assert_eq!(get(agent.port, "/healthz")?.0, 200);
    assert!(socket.exists(), "the agent listens for the role");
    assert!(agent.log().contains("no probe runs"), "{}", agent.log());
    let status = agent.end(TO_END)?;
    assert!(status.success(), "{status}: {}", agent.log());

    // Without another source there is nothing to observe, and for a person neither.
    for args in [&["agent", "--listen", "off"][..], &["watch", "--output", "json"]] {
        let mut command = stage.epitaph.command_of("unshare");
        command
            .args(["-m", "sh", "-c", NO_BTF, "sh"])
            .arg(stage.epitaph.binary())
            .args(args);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains("cannot read the kernel's type information"), "{text}");
    }
    Ok(())
}

/// Accepts and reads, and never answers.
fn silent_collector() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut sink = [0; 4096];
                while stream.read(&mut sink).is_ok_and(|n| n > 0) {}
            });
        }
    });
    Ok(port)
}

/// Reads each request's head, and answers with `status`.
fn refusing_collector(status: &'static str) -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
                let mut request = [0; 65536];
                while stream.read(&mut request).is_ok_and(|n| n > 0) {}
                let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            });
        }
    });
    Ok(port)
}

/// Longer than [`TO_END`]: an agent that waits at its end for an answer is found.
const NEVER: &str = "otlp.timeout=10m";

/// One termination waits at most: of five, some must be dropped, counted; the agent observes all of them, and exits at SIGTERM.
fn counts_what_it_cannot_send(test: &str, port: u16) -> anyhow::Result<()> {
    let Some(stage) = Stage::set(test)? else {
        return Ok(());
    };
    let url = format!("http://127.0.0.1:{port}");
    let mut agent = stage.agent(&["--otlp", &url, "--set", "limits.export_queue=1", "--set", NEVER])?;
    let played: Vec<String> = (0..5)
        .map(|_| stage.play(story("exits-1-by-itself")))
        .collect::<anyhow::Result<_>>()?;
    played.iter().try_for_each(|subject| agent.until_logged(subject))?;
    agent.until("epitaph_export_spans_total", &[r#"outcome="queue_full""#], 1.0)?;
    assert_eq!(agent.metric("epitaph_export_spans_total", &[r#"outcome="exported""#])?, 0.0);
    assert_eq!(get(agent.port, "/healthz")?.0, 200);
    let status = agent.end(TO_END)?;
    assert!(status.success(), "{status}: {}", agent.log());
    assert!(!agent.log().contains("panicked"), "{}", agent.log());
    Ok(())
}

#[test]
fn a_silent_collector_holds_nothing_up() -> anyhow::Result<()> {
    counts_what_it_cannot_send("a_silent_collector_holds_nothing_up", silent_collector()?)
}

#[test]
fn a_collector_that_is_down_holds_nothing_up() -> anyhow::Result<()> {
    counts_what_it_cannot_send("a_collector_that_is_down_holds_nothing_up", free_port()?)
}

#[test]
fn a_collector_that_is_overloaded_holds_nothing_up() -> anyhow::Result<()> {
    let port = refusing_collector("503 Service Unavailable")?;
    counts_what_it_cannot_send("a_collector_that_is_overloaded_holds_nothing_up", port)
}

#[test]
fn what_a_collector_refuses_for_good_is_counted() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("what_a_collector_refuses_for_good_is_counted")? else {
        return Ok(());
    };
    let url = format!("http://127.0.0.1:{}", refusing_collector("400 Bad Request")?);
    let mut agent = stage.agent(&["--otlp", &url])?;
    stage.play(story("completed"))?;
    agent.until("epitaph_export_spans_total", &[r#"outcome="rejected""#], 1.0)?;
    let status = agent.end(TO_END)?;
    assert!(status.success(), "{status}: {}", agent.log());
    assert!(agent.log().contains("refused spans for good"), "{}", agent.log());
    Ok(())
}

/// The verdicts are printed in any state of the collector.
#[test]
fn verdicts_do_not_wait_for_a_collector() -> anyhow::Result<()> {
    if !is_root() {
        skip("verdicts_do_not_wait_for_a_collector", "observing needs root");
        return Ok(());
    }
    let mut options = Options::new(program(&binaries()), binaries());
    options.only = ["completed", "default-action", "handler-exits-0", "exits-1-by-itself"]
        .map(str::to_owned)
        .into();
    options.otlp = Some(format!("http://127.0.0.1:{}", silent_collector()?));
    let report = run(&options, &mut |_| {})?;
    ensure!(report.passed(), "{report}");
    Ok(())
}

/// The first agent sees the stop signal and is killed, the second sees the SIGKILL: it must not make up what it did not see,
/// and both must mean the same trace.
#[test]
fn a_restart_during_a_termination_claims_nothing_and_keeps_the_trace() -> anyhow::Result<()> {
    let test = "a_restart_during_a_termination_claims_nothing_and_keeps_the_trace";
    let Some(stage) = Stage::set(test)? else {
        return Ok(());
    };
    let role = stage.players.cast_for_an_order(story("ignored-without-handler"))?;
    let (kill_now, order) = channel();
    let mut first = Watch::start(&program(&binaries()))?;
    std::thread::scope(|scope| {
        // Given up, this test orders nothing: the players end.
        let (kill_now, role, players) = (kill_now, &role, &stage.players);
        let played = scope.spawn(move || players.play_to_an_order(role, &order));
        let ours = |line: &Value| line["subject"]["id"] == role.subject.as_str();
        let early = first.next(|line| ours(line) && line["type"] == "stop-signal-ignored")?;
        kill(first.agent.pid().cast_signed(), nix::libc::SIGKILL)?;
        first.agent.end(Duration::ZERO)?;

        let mut second = Watch::start(&program(&binaries()))?;
        ensure!(!played.is_finished(), "the container did not wait for the second agent");
        kill_now.send(())?;
        let termination = second.termination_of(&role.subject)?;
        assert_eq!(termination["trace_id"], early["trace_id"], "{termination}");
        assert_eq!(termination["gaps"]["late_start"], true, "{termination}");
        assert_eq!(termination["stop"], Value::Null, "{termination}");
        assert_eq!(termination["kill"]["sender"]["role"], "runtime", "{termination}");
        // The agent cannot know whether a stop was requested before: a forced kill is not proven, clean is not true.
        assert_eq!(termination["verdict"], "unknown", "{termination}");
        second.end()?;
        let played = played.join().map_err(|_| anyhow::anyhow!("the players panicked"))??;
        let differs = played.differs(role);
        ensure!(differs.is_empty(), "{}", differs.join("\n"));
        Ok(())
    })
}
