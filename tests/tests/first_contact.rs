//! The first minutes of an agent: containers that ran before, and the names of containers without any API.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context as _, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::cgroup::{Mounts, Scope};
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::machine::is_root;
use epitaph_tests::play::{Players, Role};
use epitaph_tests::runtime::Stop;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::story::{Program, Story};
use epitaph_tests::sys::{kill, random_hex};
use epitaph_tests::timeout::{TIMEOUT, holds, until};
use epitaph_tests::watch::Watch;
use serde_json::{Value, json};

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

fn story(name: &str) -> Story {
    *stories().find(|s| s.name == name).expect("a story of that name")
}

/// `epitaph record`, with the lines that it shows.
struct Recording {
    child: Child,
    lines: Receiver<Value>,
}

impl Recording {
    fn start(epitaph: &Epitaph, file: &Path, directories: &[PathBuf]) -> anyhow::Result<Recording> {
        let directories: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
        let mut child = epitaph
            .command()
            .arg("record")
            .arg(file)
            .args(["--output", "json"])
            .env("EPITAPH_CONTAINERS_DIRECTORIES", directories.join(","))
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = serde_json::from_str(&line).map(|line: Value| to.send(line));
            }
        });
        Ok(Recording { child, lines })
    }

    fn next(&self, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT).context("no such line")?;
            if wanted(&line) {
                return Ok(line);
            }
        }
    }

    /// The terminations of these, whichever comes first.
    fn terminations_of(&self, roles: &[&Role]) -> anyhow::Result<Vec<Value>> {
        let mut found = vec![Value::Null; roles.len()];
        while let Some(missing) = found.iter().position(Value::is_null) {
            let place = |line: &Value| roles.iter().position(|role| line["subject"]["id"] == role.subject.as_str());
            let line = self.next(|line| line["type"] == "termination" && place(line).is_some());
            let line = line.with_context(|| format!("container {}", roles[missing].subject))?;
            let at = place(&line).context("one of these")?;
            found[at] = line;
        }
        Ok(found)
    }

    fn end(mut self) -> anyhow::Result<()> {
        kill(self.child.id().cast_signed(), nix::libc::SIGTERM)?;
        ensure!(self.child.wait()?.success(), "the recording failed");
        Ok(())
    }
}

fn write(file: &Path, text: &Value) -> anyhow::Result<()> {
    std::fs::create_dir_all(file.parent().context("a file in a directory")?)?;
    Ok(std::fs::write(file, text.to_string())?)
}

#[test]
fn containers_that_ran_before_the_agent_and_their_names() -> anyhow::Result<()> {
    if !is_root() {
        skip("containers_that_ran_before_the_agent_and_their_names", "observing needs root");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let players = Players::new(&binaries())?;
    let epitaph = Epitaph::copied(&program(&binaries()), directory.path())?;
    let go = directory.path().join("go");
    let runs = |code: u8| directory.path().join(format!("runs-{code}"));
    // Each waits until the agent observes, and then exits by itself.
    let cast = |code: u8| {
        let script = format!(
            "echo ready; : >'{}'; while [ ! -e '{}' ]; do sleep 0.05; done; exit {code}",
            runs(code).display(),
            go.display()
        );
        let waiting = Story {
            program: Program::Shell(Box::leak(script.into_boxed_str())),
            stop: Stop::Wait,
            ..story("exits-1-by-itself")
        };
        players.cast(Box::leak(Box::new(waiting)))
    };
    let codes = [3, 143];
    let before = [cast(codes[0])?, cast(codes[1])?];
    let after = players.cast(Box::leak(Box::new(story("default-action"))))?;
    let tasks = directory.path().join("io.containerd.runtime.v2.task");
    let docker = directory.path().join("docker/containers");
    for (role, name) in before.iter().zip(["checkout", "cart"]) {
        let annotations = json!({"io.kubernetes.cri.container-name": name, "io.kubernetes.cri.image-name": "shop:1.4"});
        let bundle =
            json!({"ociVersion": "1.2.0", "process": {"args": ["/shop"], "env": ["TOKEN=secret"]}, "annotations": annotations});
        write(&tasks.join("k8s.io").join(&role.subject).join("config.json"), &bundle)?;
    }
    let state =
        json!({"Name": "/front", "Path": "/front", "Args": [], "Config": {"Image": "front:2", "StopSignal": "SIGTERM"}});
    write(&docker.join(&after.subject).join("config.v2.json"), &state)?;

    let file = directory.path().join("evidence.epitaph");
    let terminations = std::thread::scope(|scope| -> anyhow::Result<Vec<Value>> {
        let played: Vec<_> = before.iter().map(|role| scope.spawn(|| players.play(role))).collect();
        let both_run = until("both containers to run", || {
            let missing: Vec<_> = codes.iter().filter(|code| !runs(**code).exists()).collect();
            Ok(holds(missing.is_empty(), || format!("not {missing:?}")))
        });
        let recording = Recording::start(&epitaph, &file, &[tasks, docker])?;
        let observing = recording.next(|line| line["type"] == "observing");
        // The containers must go on in any case.
        std::fs::write(&go, "")?;
        both_run?;
        observing?;
        let mut found = recording.terminations_of(&[&before[0], &before[1]])?;
        for of in played {
            of.join().map_err(|_| anyhow::anyhow!("the players panicked"))??;
        }
        players.play(&after)?;
        found.extend(recording.terminations_of(&[&after])?);
        recording.end()?;
        Ok(found)
    })?;
    let [error, signal_code, stopped] = &terminations[..] else {
        unreachable!("three were waited for")
    };
    // No stop signal explains the code. Whether one came before the agent, nobody knows.
    assert_eq!(
        (&error["verdict"], &error["cause"]),
        (&json!("nonzero-exit"), &json!("unknown")),
        "{error}"
    );
    assert_eq!(
        (&error["unclean"], &error["gaps"]["late_start"]),
        (&json!(true), &json!(true)),
        "{error}"
    );
    assert_eq!(
        error["container"],
        json!({"name": "checkout", "image": "shop:1.4"}),
        "{error}"
    );
    assert_eq!(
        (&signal_code["verdict"], &signal_code["unclean"]),
        (&json!("unknown"), &json!(false)),
        "{signal_code}"
    );
    assert_eq!(signal_code["container"]["name"], "cart", "{signal_code}");
    assert_eq!(stopped["verdict"], "default-action", "{stopped}");
    assert_eq!(
        stopped["container"],
        json!({"name": "front", "image": "front:2", "stop_signal": "SIGTERM"}),
        "{stopped}"
    );
    assert!(
        !std::fs::read(&file)?.windows(6).any(|bytes| bytes == b"secret"),
        "the environment is not kept"
    );

    // A person reads names; the recording has them.
    let replayed = epitaph
        .command()
        .arg("replay")
        .arg(&file)
        .args(["--output", "text"])
        .output()?;
    let replayed = String::from_utf8(replayed.stdout)?;
    for name in [
        "container checkout (image shop:1.4)",
        "container cart (image shop:1.4)",
        "container front (image front:2)",
    ] {
        assert!(replayed.contains(name), "{name} in {replayed}");
    }
    Ok(())
}

/// A server, as `Type=forking` has it: its launcher has exited, and PID 1 is its parent. None where an orphan gets another one.
fn daemon(of: &Scope) -> anyhow::Result<Option<i32>> {
    let script = format!(
        "echo 0 >'{}'; '{}' serve keep-alive 127.0.0.1:0 </dev/null & echo $!",
        of.home().join("cgroup.procs").display(),
        binaries().join("victim").display()
    );
    let mut launcher = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn()?;
    let out = BufReader::new(launcher.stdout.take().context("no stdout")?);
    // In either order.
    let lines: Vec<String> = out.lines().take(2).collect::<Result<_, _>>()?;
    ensure!(lines.iter().any(|line| line.starts_with("ready")), "{lines:?}");
    ensure!(launcher.wait()?.success(), "the launcher failed");
    let pid = lines.iter().find_map(|line| line.parse().ok()).context("no process id")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(status.lines().any(|line| line == "PPid:\t1").then_some(pid))
}

/// The launcher is no termination, and the daemon is the main process, for either.
#[test]
fn a_later_agent_judges_a_forking_daemon_as_one_that_saw_its_start() -> anyhow::Result<()> {
    let test = "a_later_agent_judges_a_forking_daemon_as_one_that_saw_its_start";
    if !is_root() {
        skip(test, "observing needs root");
        return Ok(());
    }
    let unit = format!("epitaph-demo-{}.service", random_hex(6)?);
    let mut early = Watch::start(&program(&binaries()))?;
    let scope = Scope::create(&Mounts::find()?, &unit, None)?;
    let Some(pid) = daemon(&scope)? else {
        scope.remove()?;
        skip(test, "orphans get another parent than PID 1");
        return Ok(());
    };
    let mut late = Watch::start(&program(&binaries()))?;
    // Of a signal that asks, the later agent cannot know whether another one came before it.
    kill(pid, nix::libc::SIGKILL)?;
    until("the daemon to exit", || {
        let left = scope.processes()?;
        Ok(holds(left.is_empty(), || format!("{left:?}")))
    })?;
    scope.remove()?;
    let is_of_unit = |line: &Value| line["type"] == "termination" && line["subject"]["name"] == unit.as_str();
    let [saw, later] = [early.next(is_of_unit)?, late.next(is_of_unit)?];
    for line in [&saw, &later] {
        assert_eq!(line["verdict"], "killed-by-other", "{line}");
        assert_eq!(line["main"]["pid"], pid, "{line}");
        assert_eq!(line["status"]["signal"], "SIGKILL", "{line}");
        assert_eq!(line["kill"]["sender"]["pid"], std::process::id(), "{line}");
    }
    assert_eq!(saw["sentence"], later["sentence"], "{saw}\n{later}");
    assert_eq!(
        (&saw["cause"], &later["cause"]),
        (&"external".into(), &"unknown".into()),
        "{later}"
    );
    early.end()?;
    late.end()?;
    Ok(())
}
