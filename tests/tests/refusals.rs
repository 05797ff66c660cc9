//! Failing starts: each exits with its own code and names the remedy.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::epitaph::{CommandOutput, Epitaph, run};
use epitaph_tests::machine::is_root;
use epitaph_tests::skip::skip;
use tempfile::TempDir;

struct Stage {
    directory: TempDir,
    epitaph: Epitaph,
}

impl Stage {
    fn new() -> anyhow::Result<Stage> {
        let players = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
        let directory = tempfile::tempdir()?;
        let epitaph = Epitaph::copied(&program(players.parent().context("no directory")?), directory.path())?;
        Ok(Stage { directory, epitaph })
    }

    fn file(&self, name: &str, content: &[u8]) -> anyhow::Result<PathBuf> {
        let path = self.directory.path().join(name);
        fs::write(&path, content)?;
        Ok(path)
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn run(&self, args: &[&str]) -> anyhow::Result<CommandOutput> {
        run(self.epitaph.command(), args)
    }
}

/// The code, each of the words on standard error in one short message (error, then remedy), and nothing on standard output.
#[track_caller]
fn refuses(output: &CommandOutput, code: i32, words: &[&str]) {
    assert_eq!(output.code, Some(code), "{output:?}");
    assert_eq!(output.out, "", "{output:?}");
    for word in words {
        assert!(output.err.contains(word), "no `{word}`: {output:?}");
    }
    assert!(!output.err.contains("panicked"), "{output:?}");
    let lines = output.err.lines().filter(|line| line.starts_with("error: "));
    assert_eq!(lines.count(), 1, "{output:?}");
}

/// Whether the test of that name can go on.
fn root(test: &str) -> bool {
    if !is_root() {
        skip(test, "only root can become another user");
    }
    is_root()
}

#[test]
fn an_unprivileged_user_sees_what_is_missing() -> anyhow::Result<()> {
    if !root("an_unprivileged_user_sees_what_is_missing") {
        return Ok(());
    }
    let stage = Stage::new()?;
    let remedy = "run as root, or grant it";
    let unprivileged = run(stage.epitaph.as_nobody(""), ["watch"])?;
    refuses(&unprivileged, 77, &["CAP_BPF and CAP_PERFMON", remedy]);
    let one = run(stage.epitaph.as_nobody("+bpf"), ["agent", "--listen", "off"])?;
    refuses(&one, 77, &["needs CAP_PERFMON", remedy]);
    let other = run(stage.epitaph.as_nobody("+perfmon"), ["watch"])?;
    refuses(&other, 77, &["needs CAP_BPF\n", remedy]);
    Ok(())
}

#[test]
fn a_failed_recording_does_not_block_the_next() -> anyhow::Result<()> {
    if !root("a_failed_recording_does_not_block_the_next") {
        return Ok(());
    }
    let stage = Stage::new()?;
    let own = stage.directory.path().join("own");
    fs::create_dir(&own)?;
    std::os::unix::fs::chown(&own, Some(65534), None)?;
    let file = own.join("recording");
    let output = run(
        stage.epitaph.as_nobody(""),
        [
            std::ffi::OsStr::new("record"),
            file.as_os_str(),
            "--output".as_ref(),
            "json".as_ref(),
        ],
    )?;
    refuses(&output, 77, &["CAP_BPF"]);
    assert!(!file.exists());
    Ok(())
}

#[test]
fn kubernetes_needs_a_node_name_and_an_address() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let run_without_node_name = |args: &[&str]| {
        let mut command = stage.epitaph.command();
        command.env_remove("NODE_NAME");
        run(command, args)
    };
    let missing = stage.path("no-such-kubeconfig");
    let agent = ["agent", "--listen", "off", "--kubeconfig", &missing];
    refuses(
        &run_without_node_name(&agent)?,
        78,
        &["set NODE_NAME", "fieldPath: spec.nodeName", "--node-name"],
    );
    refuses(
        &run_without_node_name(&[&agent[..], &["--node-name", "a,b"]].concat())?,
        78,
        &["cannot use node name `a,b`"],
    );
    refuses(
        &run_without_node_name(&[&agent[..], &["--node-name", "a"]].concat())?,
        78,
        &["cannot read kubeconfig", "no-such-kubeconfig", "--kubeconfig FILE"],
    );
    let odd = stage.file("odd", b"clusters: {")?.display().to_string();
    refuses(
        &run_without_node_name(&["watch", "--kubeconfig", &odd, "--node-name", "a"])?,
        78,
        &["cannot read kubeconfig"],
    );
    refuses(
        &run_without_node_name(&["agent", "--kubernetes", "maybe"])?,
        78,
        &["--kubernetes", "not one of auto, on, off"],
    );
    Ok(())
}

#[test]
fn without_usable_btf_the_error_names_the_option() -> anyhow::Result<()> {
    if !root("without_usable_btf_the_error_names_the_option") {
        return Ok(());
    }
    let stage = Stage::new()?;
    let missing = stage.path("no-such-btf");
    refuses(
        &stage.run(&["watch", "--btf", &missing])?,
        69,
        &[&missing, "--btf FILE", "/sys/kernel/btf/vmlinux"],
    );
    for (name, content) in [
        ("garbage", &b"this is not BTF"[..]),
        ("empty", b""),
        ("torn", b"\x9f\xeb\x01\x00\x18\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"),
    ] {
        stage.file(name, content)?;
        let path = stage.path(name);
        refuses(&stage.run(&["watch", "--btf", &path])?, 69, &[&path, "--btf FILE"]);
    }
    Ok(())
}

#[test]
fn a_port_in_use_is_named() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let output = stage.run(&["agent", "--listen", &address])?;
    refuses(&output, 69, &[&address, "another process uses this port", "--listen"]);
    Ok(())
}

#[test]
fn a_wrong_setting_is_named_with_its_place_and_remedy() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    stage.file("typo.toml", b"[otlp]\nendpiont = \"http://collector:4317\"\n")?;
    let typo = stage.path("typo.toml");
    let output = stage.run(&["agent", "--config", &typo])?;
    refuses(&output, 78, &["otlp.endpiont", "did you mean `otlp.endpoint`?", &typo]);
    stage.file("torn.toml", b"listen = \"127.0.0.1:1\"\n[otlp\n")?;
    let torn = stage.path("torn.toml");
    refuses(&stage.run(&["agent", "--config", &torn])?, 78, &[&torn, "line 2"]);
    let none = stage.path("none.toml");
    refuses(&stage.run(&["agent", "--config", &none])?, 78, &[&none, "--config FILE"]);

    for (name, value, words) in [
        ("EPITAPH_LIMITS_LINGER", "soon", ["limits.linger", "write for example"]),
        ("EPITAPH_LISTEN", "everywhere", ["listen", "write ADDRESS:PORT"]),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "ftp://c:1",
            ["otlp.endpoint", "write http://HOST:PORT"],
        ),
    ] {
        let mut command = stage.epitaph.command();
        command.env(name, value);
        let output = run(command, ["agent"])?;
        refuses(&output, 78, &[name, words[0], words[1]]);
    }
    let output = stage.run(&["agent", "--otlp", "http://user:passw0rd@collector:4317"])?;
    refuses(&output, 78, &["otlp.endpoint", "put them into a header"]);
    assert!(!output.err.contains("passw0rd"), "{output:?}");
    let output = stage.run(&["agent", "--set", "limits.timeline=1"])?;
    refuses(&output, 78, &["--set", "did you mean `limits.timelines`?"]);
    Ok(())
}

#[test]
fn the_printed_configuration_has_no_secret_and_is_one() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let mut command = stage.epitaph.command();
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret,x-tenant=t3nant");
    let printed = run(
        command,
        [
            "agent",
            "--print-config",
            "--otlp",
            "http://collector:4317",
            "--set",
            "limits.linger=3s",
        ],
    )?;
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""), "{printed:?}");
    for secret in ["s3cret", "t3nant"] {
        assert!(!printed.out.contains(secret), "{}", printed.out);
    }
    for kept in ["authorization", "collector:4317", "linger = \"3s\""] {
        assert!(printed.out.contains(kept), "{}", printed.out);
    }
    stage.file("printed.toml", printed.out.as_bytes())?;
    let again = stage.run(&["agent", "--print-config", "--config", &stage.path("printed.toml")])?;
    assert_eq!(again.out, printed.out, "{}", again.err);
    Ok(())
}

#[test]
fn an_unknown_command_or_verdict_is_wrong_usage() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let output = stage.run(&["explain", "ignored-stop-singal"])?;
    refuses(&output, 64, &["ignored-stop-singal", "did you mean `ignored-stop-signal`?"]);
    refuses(
        &stage.run(&["explain", "\u{1b}[31m"])?,
        64,
        &["`epitaph explain` lists all of them"],
    );
    refuses(&stage.run(&["wacth"])?, 64, &["wacth", "watch"]);
    Ok(())
}

#[test]
fn a_file_that_is_not_a_recording_is_not_replayed() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let newer = [b"EPITAPH\n".as_slice(), &7_u32.to_le_bytes(), b"records of a later version"].concat();
    stage.file("newer", &newer)?;
    stage.file("text", b"not a recording at all")?;
    stage.file("empty", b"")?;
    stage.file("header", b"EPITAPH\n\x01\x00\x00\x00\x10\x00\x00\x00")?;
    let replay = |name: &str| stage.run(&["replay", &stage.path(name), "--output", "json"]);
    refuses(
        &replay("newer")?,
        65,
        &[&stage.path("newer"), "version 7", "up to 2", "or a newer one"],
    );
    for name in ["text", "empty"] {
        refuses(&replay(name)?, 65, &[&stage.path(name), "`epitaph record`"]);
    }
    refuses(
        &replay("header")?,
        65,
        &[&stage.path("header"), "record, export or copy it again"],
    );
    refuses(&replay("none")?, 66, &[&stage.path("none"), "`epitaph record`"]);
    refuses(&stage.run(&["replay", &stage.path("")])?, 66, &[]);
    Ok(())
}

#[test]
fn evidence_is_never_overwritten() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let path = stage.file("recording", b"evidence")?;
    let output = stage.run(&["record", &stage.path("recording")])?;
    refuses(&output, 73, &[&stage.path("recording"), "a name that does not exist yet"]);
    assert_eq!(fs::read(path)?, b"evidence");
    refuses(&stage.run(&["record", &stage.path("no/such/place")])?, 73, &["no/such/place"]);
    Ok(())
}

#[test]
fn a_closed_output_pipe_is_not_an_error() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let mut calls = vec![
        vec!["explain"],
        vec!["explain", "crashed"],
        vec!["agent", "--print-config"],
        vec!["--help"],
    ];
    if is_root() {
        calls.push(vec!["watch", "--output", "json"]);
        calls.push(vec!["watch", "--output", "text"]);
    } else {
        skip("a_closed_output_pipe_is_not_an_error", "observing needs root");
    }
    for args in calls {
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let mut command = stage.epitaph.command();
        let output = command
            .args(&args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()?
            .wait_with_output()?;
        let err = String::from_utf8_lossy(&output.stderr);
        // `watch` may meet the epitaph of another test, and warns of it.
        let others = err.lines().filter(|line| !is_about_a_neighbour(line)).collect::<Vec<_>>();
        assert_eq!((output.status.code(), others), (Some(0), vec![]), "{args:?}");
    }
    Ok(())
}

fn is_about_a_neighbour(line: &str) -> bool {
    line.starts_with("warning: another epitaph observes this machine: ") || line.starts_with("remedy: run one agent per node; ")
}

/// The two capabilities are all that it needs: no root, no tracefs, no debugfs.
#[test]
fn two_capabilities_and_no_tracefs_are_enough() -> anyhow::Result<()> {
    if !root("two_capabilities_and_no_tracefs_are_enough") {
        return Ok(());
    }
    let stage = Stage::new()?;
    let script = "umount -l /sys/kernel/tracing /sys/kernel/debug/tracing /sys/kernel/debug 2>/dev/null\n\
                  grep -qE ' (tracefs|debugfs) ' /proc/self/mounts && exit 99\n\
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps +bpf,+perfmon \
                  --ambient-caps +bpf,+perfmon -- \"$0\" watch --output json";
    let mut child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(stage.path("epitaph"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().context("no stdout")?);
    std::io::BufRead::read_line(&mut out, &mut line)?;
    epitaph_tests::sys::kill(child.id().cast_signed(), nix::libc::SIGTERM)?;
    let ended = child.wait_with_output()?;
    let err = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "{:?}: {err}", ended.status);
    let observing: serde_json::Value = serde_json::from_str(&line).with_context(|| err.into_owned())?;
    let probes = observing["probes"].as_array().context("no probes")?;
    assert!(probes.iter().all(|p| p["state"] == "active"), "{probes:?}");
    Ok(())
}
