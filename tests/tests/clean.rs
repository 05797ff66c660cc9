//! After every exit and every failed start of the agent, nothing of it is left in the kernel, and no other process is delayed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context as _, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::bpf::{Kind, Object, held_by, is_ours, left_since, loaded, perf_events, pins};
use epitaph_tests::cgroup::{Memory, Mounts, Scope};
use epitaph_tests::epitaph::{Epitaph, run};
use epitaph_tests::machine::is_root;
use epitaph_tests::play::Players;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::sys::{kill, set_default};
use epitaph_tests::timeout::{ended, holds, line, until};
use nix::libc::{SIGHUP, SIGINT, SIGKILL, SIGTERM};
use nix::sys::resource::{Resource, setrlimit};
use tempfile::TempDir;

/// What the kernel held before.
struct Stage {
    directory: TempDir,
    epitaph: Epitaph,
    loaded: BTreeSet<Object>,
    pins: BTreeSet<PathBuf>,
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
            epitaph: Epitaph::copied(&program(&binaries()), directory.path())?,
            directory,
            loaded: loaded().context("list what is loaded")?,
            pins: pins(),
        }))
    }

    /// One that observes.
    fn agent(&self) -> anyhow::Result<Agent> {
        Agent::observing(self.epitaph.command())?
            .map_err(|(status, output)| anyhow::anyhow!("it ended with {status}: {output}"))
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// The kernel frees in its own time. `held` is what one that has ended had.
    fn nothing_is_left(&self, after: &str, held: &BTreeSet<Object>) -> anyhow::Result<()> {
        until(&format!("nothing to be left after {after}"), || {
            let mut left = left_since(&self.loaded)?;
            left.extend(held.intersection(&loaded()?));
            Ok(holds(left.is_empty(), || format!("{left:?}")))
        })?;
        let pinned: Vec<_> = pins().difference(&self.pins).cloned().collect();
        ensure!(pinned.is_empty(), "after {after} these pins are left: {pinned:?}");
        Ok(())
    }
}

/// `epitaph watch --output json`; killed when dropped.
struct Agent {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
    held: BTreeSet<Object>,
}

impl Agent {
    /// Err with its exit status and the end of its log if it exits before it observes.
    fn observing(mut command: Command) -> anyhow::Result<Result<Agent, (ExitStatus, String)>> {
        #[expect(unsafe_code, reason = "a signal's action of the child's own is set between fork and exec")]
        // SAFETY: sigaction(2) is async-signal-safe, and nothing is allocated.
        unsafe {
            // nohup(1) has it ignored.
            command.pre_exec(|| set_default(SIGHUP));
        }
        let child = command
            .args(["watch", "--output", "json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (out, held) = (None, BTreeSet::new());
        let mut agent = Agent { child, out, held };
        let (first, out) = line(BufReader::new(agent.child.stdout.take().context("no stdout")?))?;
        if !first.contains(r#""type":"observing""#) {
            let status = ended(&mut agent.child)?;
            let mut output = String::new();
            agent.child.stderr.take().context("no stderr")?.read_to_string(&mut output)?;
            return Ok(Err((status, output)));
        }
        agent.out = Some(out);
        agent.held = held_by(agent.child.id());
        Ok(Ok(agent))
    }

    fn signal(&self, signal: i32) -> anyhow::Result<()> {
        Ok(kill(self.child.id().cast_signed(), signal)?)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Killed where it does not end.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.args(["--signal=KILL", "120"]).arg(command.get_program());
    limited.args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

#[test]
fn nothing_is_left_after_any_signal() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("nothing_is_left_after_any_signal")? else {
        return Ok(());
    };
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGKILL] {
        let mut agent = stage.agent()?;
        // The objects must exist first, or the test would prove nothing.
        let there = loaded()?;
        for kind in [Kind::Program, Kind::Map, Kind::Link] {
            let of_kind = agent.held.iter().filter(|(of, _)| *of == kind).count();
            assert!(of_kind >= 8, "{of_kind} of {kind:?}: {:?}", agent.held);
        }
        assert!(agent.held.is_subset(&there), "{:?}", agent.held);
        let strange: Vec<_> = agent
            .held
            .iter()
            .filter(|held| held.0 != Kind::Btf && !is_ours(**held))
            .collect();
        assert!(strange.is_empty(), "not known by its name: {strange:?}");
        assert_eq!(perf_events(agent.child.id()), 0);
        assert!(pins().is_subset(&stage.pins));

        agent.signal(signal)?;
        let status = ended(&mut agent.child)?;
        let graceful = [SIGTERM, SIGINT].contains(&signal);
        assert_eq!((status.success(), status.signal()), (graceful, (!graceful).then_some(signal)));
        stage.nothing_is_left(&format!("signal {signal}"), &agent.held)?;
    }
    Ok(())
}

#[test]
fn nothing_is_left_after_its_reader_has_gone() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("nothing_is_left_after_its_reader_has_gone")? else {
        return Ok(());
    };
    let players = Players::new(&binaries())?;
    let role = players.cast(stories().find(|s| s.name == "completed").context("no such story")?)?;
    let mut agent = stage.agent()?;
    agent.out = None;
    let differs = players.play(&role)?.differs(&role);
    ensure!(differs.is_empty(), "{}", differs.join("\n"));
    let status = ended(&mut agent.child)?;
    assert!(status.success(), "{status}");
    stage.nothing_is_left("a broken pipe", &agent.held)
}

#[test]
fn nothing_is_left_of_a_start_that_failed() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("nothing_is_left_of_a_start_that_failed")? else {
        return Ok(());
    };
    fs::write(stage.path("garbage"), "this is not BTF")?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let (garbage, proc) = (stage.path("garbage"), stage.path("proc"));
    // Enough memory to identify cgroups, but not for the requests after the probes are attached.
    fs::create_dir_all(format!("{proc}/self"))?;
    for name in ["mountinfo", "cgroup"] {
        fs::copy(format!("/proc/self/{name}"), format!("{proc}/self/{name}"))?;
    }
    for (why, args, words) in [
        ("a wrong BTF file", &["watch", "--btf", &garbage][..], "--btf FILE"),
        (
            "a port in use",
            &["agent", "--listen", &address],
            "another process uses this port",
        ),
        ("half a /proc", &["watch", "--proc", &proc], "boot_id"),
    ] {
        let output = run(limited(&stage.epitaph.command()), args)?;
        assert!(
            output.code.is_some_and(|code| code != 0) && output.err.contains(words),
            "{why}: {output:?}"
        );
        stage.nothing_is_left(why, &BTreeSet::new())?;
    }
    let output = run(limited(&stage.epitaph.as_nobody("+bpf")), ["watch"])?;
    assert!(output.err.contains("CAP_PERFMON"), "{output:?}");
    stage.nothing_is_left("a missing capability", &BTreeSet::new())
}

/// Descriptors run out in the middle of loading, of attaching, and after it.
#[test]
fn nothing_is_left_where_descriptors_run_out() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("nothing_is_left_where_descriptors_run_out")? else {
        return Ok(());
    };
    let (mut refused, mut observed) = (0, 0);
    for limit in (12..=72).step_by(6).chain([128]) {
        let mut held = BTreeSet::new();
        let mut command = stage.epitaph.command();
        #[expect(unsafe_code, reason = "a limit of the child's own is set between fork and exec")]
        // SAFETY: setrlimit(2) is async-signal-safe, and nothing is allocated.
        unsafe {
            command.pre_exec(move || Ok(setrlimit(Resource::RLIMIT_NOFILE, limit, limit)?));
        }
        match Agent::observing(command)? {
            Ok(mut agent) => {
                observed += 1;
                agent.signal(SIGTERM)?;
                let status = ended(&mut agent.child)?;
                held.append(&mut agent.held);
                println!("{limit} descriptors: it observes, and ends with {status}");
            }
            Err((status, output)) => {
                refused += 1;
                println!("{limit} descriptors: {status}: {output}");
                assert!(
                    status.code().is_some_and(|code| code > 0),
                    "{limit} descriptors: {status}: {output}"
                );
                assert!(!output.contains("panicked"), "{limit} descriptors: {output}");
            }
        }
        stage.nothing_is_left(&format!("{limit} descriptors"), &held)?;
    }
    assert!(refused > 0 && observed > 0, "{refused} refused, {observed} observed");
    Ok(())
}

#[test]
fn nothing_is_left_after_an_oom_kill() -> anyhow::Result<()> {
    let test = "nothing_is_left_after_an_oom_kill";
    let Some(stage) = Stage::set(test)? else {
        return Ok(());
    };
    let mounts = Mounts::find()?;
    if let Memory::None(reason) = &mounts.memory {
        skip(test, reason);
        return Ok(());
    }
    let scope = Scope::create(&mounts, &format!("clean-{}.scope", std::process::id()), Some(64 << 20))?;
    let mut agent = stage.agent()?;
    // The agent moves in with the memory it has; another process there uses up the rest, and the agent is chosen to be killed.
    scope.join(agent.child.id())?;
    fs::write(format!("/proc/{}/oom_score_adj", agent.child.id()), "1000")?;
    let mut hog = Command::new("sh")
        .args(["-c", "read go && exec tail /dev/zero"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    scope.join(hog.id())?;
    hog.stdin.take().context("no stdin")?.write_all(b"go\n")?;
    let status = ended(&mut agent.child);
    hog.kill()?;
    ended(&mut hog)?;
    scope.remove()?;
    assert_eq!(status?.signal(), Some(SIGKILL));
    stage.nothing_is_left("an OOM kill", &agent.held)
}

/// The agent is killed while other processes exit; these exit as they would have without the agent.
#[test]
fn a_killed_agent_delays_no_other_process() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_killed_agent_delays_no_other_process")? else {
        return Ok(());
    };
    let mut players = Vec::new();
    for _ in 0..40 {
        let mut player = Command::new(env!("CARGO_BIN_EXE_probe-player"))
            .arg("default")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (ready, _) = line(BufReader::new(player.stdout.take().context("no stdout")?))?;
        ensure!(ready == "ready\n", "{ready}");
        players.push(player);
    }
    let mut agent = stage.agent()?;
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| {
            agent.signal(SIGKILL)?;
            ended(&mut agent.child)
        });
        for player in &mut players {
            kill(player.id().cast_signed(), SIGTERM)?;
            assert_eq!(ended(player)?.signal(), Some(SIGTERM));
        }
        let status = ending.join().map_err(|_| anyhow::anyhow!("the thread panicked"))??;
        assert_eq!(status.signal(), Some(SIGKILL));
        anyhow::Ok(())
    })?;
    stage.nothing_is_left("an exit among exits", &agent.held)
}
