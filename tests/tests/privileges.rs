//! The least privileges that suffice, the privileges that a running agent drops, and the messages if too few are granted.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::demo::{Options, run as demo};
use epitaph_tests::epitaph::{CommandOutput, Epitaph, run};
use epitaph_tests::machine::is_root;
use epitaph_tests::play::Players;
use epitaph_tests::privileges::{self, SYS_PTRACE, executable, launcher, may_keep, nobody_with, root_with, too_much};
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::timeout::TO_END;
use epitaph_tests::watch::Watch;
use serde_json::Value;
use tempfile::TempDir;

/// A handler, a refused client after the listener closed (the sockets are armed by the kernel, and disarmed by us), a signal that
/// was dropped, a child.
const STORIES: [&str; 4] = [
    "handler-exits-0",
    "refuses",
    "ignored-without-handler",
    "killed-by-a-neighbour",
];

struct Stage {
    directory: TempDir,
    epitaph: Epitaph,
}

impl Stage {
    /// None, and a skip, if the test of that name cannot be played.
    fn set(test: &str) -> anyhow::Result<Option<Stage>> {
        if !is_root() {
            skip(test, "only root has privileges to give up");
            return Ok(None);
        }
        let directory = tempfile::tempdir()?;
        let epitaph = Epitaph::copied(&program(&binaries()), directory.path())?;
        Ok(Some(Stage { directory, epitaph }))
    }

    fn launcher(&self, name: &str, with: &str) -> anyhow::Result<PathBuf> {
        launcher(self.directory.path(), name, "", with, self.epitaph.binary())
    }

    fn run(&self, name: &str, with: &str, args: &[&str]) -> anyhow::Result<CommandOutput> {
        run(Command::new(self.launcher(name, with)?), args)
    }
}

/// As xtask asks it for its conditions.
fn succeeds(unshare: &[&str]) -> bool {
    let asked = Command::new("unshare").args(unshare).output();
    asked.is_ok_and(|done| done.status.success())
}

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

/// Stories are judged as with root and all privileges.
fn judges(test: &str, with: &str) -> anyhow::Result<()> {
    let Some(stage) = Stage::set(test)? else {
        return Ok(());
    };
    let mut options = Options::new(stage.launcher("epitaph-with-little", with)?, binaries());
    options.only = STORIES.map(str::to_owned).into();
    let report = demo(&options, &mut |_| {})?;
    ensure!(report.passed(), "{report}");
    Ok(())
}

#[test]
fn two_capabilities_judge_as_all_do() -> anyhow::Result<()> {
    judges("two_capabilities_judge_as_all_do", &root_with("+bpf,+perfmon"))
}

#[test]
fn nobody_with_two_ambient_capabilities_judges_as_root_does() -> anyhow::Result<()> {
    let test = "nobody_with_two_ambient_capabilities_judges_as_root_does";
    judges(test, &nobody_with("+bpf,+perfmon"))
}

#[test]
fn what_is_missing_is_named_by_the_agent_and_by_doctor() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("what_is_missing_is_named_by_the_agent_and_by_doctor")? else {
        return Ok(());
    };
    for (keeps, missing) in [
        ("", "needs CAP_BPF and CAP_PERFMON"),
        ("+bpf", "needs CAP_PERFMON"),
        ("+perfmon", "needs CAP_BPF"),
        // All that a container's root has by default.
        (
            "+chown,+dac_override,+setuid,+net_raw,+sys_chroot",
            "needs CAP_BPF and CAP_PERFMON",
        ),
    ] {
        for (who, with) in [("root", root_with(keeps)), ("nobody", nobody_with(keeps))] {
            let output = stage.run("agent", &with, &["agent", "--listen", "off"])?;
            assert_eq!(
                (output.code, output.out.as_str()),
                (Some(77), ""),
                "{who} {keeps}: {output:?}"
            );
            let words = format!("{missing}\nremedy: run as root, or grant it");
            assert!(output.err.contains(&words), "{who} {keeps}: {output:?}");

            let output = stage.run("doctor", &with, &["doctor", "--output", "json"])?;
            assert_eq!(
                (output.code, output.err.as_str()),
                (Some(77), ""),
                "{who} {keeps}: {output:?}"
            );
            let report: Value = serde_json::from_str(&output.out)?;
            let finding = finding(&report, "capabilities")?;
            assert_eq!(
                (&report["exit_code"], &finding["status"]),
                (&77.into(), &"problem".into()),
                "{report}"
            );
            let (message, remedy) = (text(&finding["message"]), text(&finding["remedy"]));
            assert!(message.ends_with(missing) && remedy.contains("grant it"), "{finding}");
            // What could be loaded is known all the same.
            assert_eq!(probes(&report).len(), 11, "{report}");
        }
    }
    Ok(())
}

#[test]
fn doctor_finds_nothing_wrong_and_leaves_nothing() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("doctor_finds_nothing_wrong_and_leaves_nothing")? else {
        return Ok(());
    };
    for (name, with) in [("root", root_with("+bpf,+perfmon")), ("nobody", nobody_with("+bpf,+perfmon"))] {
        let output = stage.run(name, &with, &["doctor", "--output", "json"])?;
        assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{name}: {output:?}");
        let report: Value = serde_json::from_str(&output.out)?;
        assert_eq!(report["exit_code"], 0);
        for probe in probes(&report) {
            let message = text(&probe["message"]);
            let known = message == "active"
                || ["unsupported: ", "substituted by "]
                    .iter()
                    .any(|state| message.starts_with(state));
            assert!(known, "{probe}");
        }
        for check in ["kernel", "btf", "capabilities", "proc", "cgroups", "clock"] {
            assert_eq!(finding(&report, check)?["status"], "ok", "{report}");
        }
    }
    let output = run(stage.epitaph.command(), ["doctor"])?;
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{output:?}");
    assert!(output.out.ends_with("\nthis machine can be observed\n"), "{}", output.out);
    Ok(())
}

#[test]
fn doctor_reports_what_else_is_missing() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("doctor_reports_what_else_is_missing")? else {
        return Ok(());
    };
    let none = stage.directory.path().join("none");
    let none = none.to_str().context("utf-8")?;
    for (flag, checks) in [
        ("--btf", &["btf"][..]),
        ("--proc", &["kernel", "cgroups"]),
        ("--sys", &["cgroups"]),
    ] {
        let output = run(stage.epitaph.command(), ["doctor", "--output", "json", flag, none])?;
        assert_eq!((output.code, output.err.as_str()), (Some(69), ""), "{output:?}");
        let report: Value = serde_json::from_str(&output.out)?;
        for check in checks {
            let finding = finding(&report, check)?;
            assert_eq!(finding["status"], "problem", "{report}");
            assert!(!finding["remedy"].is_null(), "{finding}");
        }
    }
    Ok(())
}

/// Root of a user namespace has every capability there, and none that bpf(2) asks for.
#[test]
fn a_user_namespace_is_named() -> anyhow::Result<()> {
    let test = "a_user_namespace_is_named";
    let Some(stage) = Stage::set(test)? else {
        return Ok(());
    };
    if !succeeds(&["--user", "--map-root-user", "--", "true"]) {
        skip(test, "this machine makes no user namespaces");
        return Ok(());
    }
    let inside = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--"]).arg(stage.epitaph.binary());
        run(command, args)
    };
    let output = inside(&["doctor", "--output", "json"])?;
    assert_eq!((output.code, output.err.as_str()), (Some(77), ""), "{output:?}");
    let report: Value = serde_json::from_str(&output.out)?;
    assert!(!finding(&report, "user namespace")?["remedy"].is_null(), "{report}");
    let bpf = finding(&report, "bpf")?;
    assert!(text(&bpf["message"]).contains("a user namespace"), "{bpf}");
    let output = inside(&["watch"])?;
    assert_eq!(output.code, Some(77), "{output:?}");
    assert!(
        output.err.contains("a user namespace") && output.err.contains("allow bpf(2)"),
        "{output:?}"
    );
    Ok(())
}

/// As in a container whose runtime's profile is older than CAP_BPF.
#[test]
fn a_seccomp_profile_is_named() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_seccomp_profile_is_named")? else {
        return Ok(());
    };
    let inside = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_without-bpf"));
        command.arg(nix::libc::EPERM.to_string()).arg(stage.epitaph.binary());
        run(command, args)
    };
    let output = inside(&["doctor", "--output", "json"])?;
    assert_eq!((output.code, output.err.as_str()), (Some(77), ""), "{output:?}");
    let report: Value = serde_json::from_str(&output.out)?;
    assert_eq!(finding(&report, "capabilities")?["status"], "ok", "{report}");
    let bpf = finding(&report, "bpf")?;
    assert!(text(&bpf["message"]).contains("denied by a seccomp profile"), "{bpf}");
    assert!(text(&bpf["remedy"]).contains("allow bpf(2)"), "{bpf}");
    let output = inside(&["watch"])?;
    assert_eq!(output.code, Some(77), "{output:?}");
    assert!(
        output.err.contains("a seccomp profile") && output.err.contains("allow bpf(2)"),
        "{output:?}"
    );
    Ok(())
}

/// SELinux in force, in the default domain of containers: the kernel's answer is the one that a rejected program gets, too.
#[test]
fn a_security_module_is_named() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_security_module_is_named")? else {
        return Ok(());
    };
    for args in [&["watch"][..], &["doctor", "--output", "json"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_without-bpf"));
        command.arg(nix::libc::EACCES.to_string()).arg(stage.epitaph.binary());
        let output = run(command, args)?;
        assert_eq!(output.code, Some(77), "{output:?}");
        let shown = output.out.clone() + &output.err;
        for expected in ["denied by a security module", "agent.seLinuxOptions"] {
            assert!(shown.contains(expected), "no `{expected}` in {output:?}");
        }
    }
    Ok(())
}

#[test]
fn every_thread_drops_privileges_that_are_no_longer_needed() -> anyhow::Result<()> {
    let test = "every_thread_drops_privileges_that_are_no_longer_needed";
    let Some(stage) = Stage::set(test)? else {
        return Ok(());
    };
    let mut agent = Service::start(&stage.epitaph, stage.directory.path(), &["--otlp", "http://127.0.0.1:9"])?;
    let first = &privileges::threads(agent.pid())?[0];
    let bounding = first.sets["CapBnd"];
    assert_eq!(bounding, 0, "{first:?}");

    let players = Players::new(&binaries())?;
    let mut unclean = Vec::new();
    for name in STORIES {
        let role = players.cast(stories().find(|story| story.name == name).context("a story of that name")?)?;
        let differs = players.play(&role)?.differs(&role);
        ensure!(differs.is_empty(), "{name}: {}", differs.join("\n"));
        unclean.extend((role.story.expected.verdict != "clean").then_some(role.subject));
    }
    unclean.iter().try_for_each(|subject| agent.until_logged(subject))?;
    // The probes' maps are still writable for the agent.
    assert_eq!(agent.metric("epitaph_dropped_total", &[r#"reason="probe_map""#])?, 0.0);
    // Now that every thread that it will ever have has been started.
    let wrong = too_much(agent.pid(), may_keep()?)?;
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(privileges::threads(agent.pid())?.len() > 1);
    let status = agent.end(TO_END)?;
    assert!(
        status.success() && !agent.log().contains("more than is needed"),
        "{status}: {}",
        agent.log()
    );
    Ok(())
}

/// The host's `/proc` may hide processes from all but CAP_SYS_PTRACE: who has it keeps it then, and nothing else. (`hidepid=2` is not
/// like that: it shows all to the group of its `gid=`, which is root's by default.)
#[test]
fn a_proc_that_hides_processes_is_still_read_by_root() -> anyhow::Result<()> {
    let test = "a_proc_that_hides_processes_is_still_read_by_root";
    let Some(stage) = Stage::set(test)? else {
        return Ok(());
    };
    if !succeeds(&[
        "--mount",
        "--propagation",
        "private",
        "--",
        "mount",
        "-t",
        "proc",
        "-o",
        "hidepid=ptraceable",
        "proc",
        "/proc",
    ]) {
        skip(test, "this machine mounts no /proc with hidepid=ptraceable");
        return Ok(());
    }
    let proc = stage.directory.path().join("proc");
    fs::create_dir(&proc)?;
    let script = format!(
        "#!/bin/sh\nexec unshare --mount --propagation private sh -c 'mount -t proc -o hidepid=ptraceable proc {proc} && exec {epitaph} \"$@\" \
         --proc {proc}' sh \"$@\"\n",
        proc = proc.display(),
        epitaph = stage.epitaph.binary().display()
    );
    let program = executable(&stage.directory.path().join("hidden"), &script)?;
    let watch = Watch::start(&program)?;
    let agent = &watch.agent;
    let wrong = too_much(agent.pid(), may_keep()? | SYS_PTRACE)?;
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(privileges::threads(agent.pid())?[0].has() & SYS_PTRACE, SYS_PTRACE);
    watch.end()?;
    Ok(())
}

/// The observer only needs the network.
#[test]
fn an_observer_keeps_no_privilege() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("an_observer_keeps_no_privilege")? else {
        return Ok(());
    };
    let observer = Service::observer_alone(&stage.epitaph, stage.directory.path(), &[])?;
    let wrong = too_much(observer.pid(), 0)?;
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

fn finding<'f>(report: &'f Value, check: &str) -> anyhow::Result<&'f Value> {
    let findings = report["findings"].as_array().context("no findings")?;
    let found = findings.iter().find(|finding| finding["check"] == check);
    found.with_context(|| format!("no {check} in {report}"))
}

fn probes(report: &Value) -> Vec<&Value> {
    let findings = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    findings
        .iter()
        .filter(|finding| text(&finding["check"]).starts_with("probe "))
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
