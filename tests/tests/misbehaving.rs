//! A demo is worth something only if it can fail: agents that report nothing, too much, too late, or wrongly.
//!
//! The agents are shell scripts; the terminations are real.

use std::path::{Path, PathBuf};
use std::time::Duration;

use epitaph_tests::demo::{Options, run};
use epitaph_tests::machine::is_root;
use epitaph_tests::privileges::executable;
use epitaph_tests::report::Report;
use epitaph_tests::skip::skip;

const OBSERVING: &str = r#"echo '{"type":"observing","boot_id":"b","kernel":"k","probes":[]}'"#;

/// The story of an agent whose script does not look for it.
const SHORT: &str = "completed";

/// The story that a script must see, which looks now and then: three seconds long. A loaded machine lets a shell wait for longer than the
/// other one lasts.
const LONG: &str = "slow-handler-with-time";

/// Of a script that reports what it sees, on a loaded machine.
const TO_REPORT: Duration = Duration::from_secs(30);

/// Exits with 0 at SIGTERM, as the agent must.
const AND_WAIT: &str = "trap 'exit 0' TERM; while :; do sleep 0.05; done";

/// Prints a termination of every scope that appears, `times` over, with `fields` in it.
fn terminating(times: usize, fields: &str) -> String {
    let each = ["once"; 8][..times].join(" ");
    format!(
        r#"{OBSERVING}
trap 'exit 0' TERM
seen=
while :; do
  for scope in /sys/fs/cgroup/epitaph-demo.slice/cri-containerd-*.scope /sys/fs/cgroup/*/epitaph-demo.slice/cri-containerd-*.scope; do
    [ -e "$scope" ] || continue
    id=${{scope##*/cri-containerd-}}; id=${{id%.scope}}
    case "$seen" in *"$id"*) continue;; esac
    seen="$seen $id"
    for _ in {each}; do
      printf '{{"type":"termination","subject":{{"kind":"container","id":"%s"}},{fields}}}\n' "$id"
    done
  done
  # Without find(1), which a loaded machine would have to start each time.
  sleep 0.01
done"#
    )
}

const AS_EXPECTED: &str = r#""verdict":"clean","cause":"stopped","exit":"clean","traffic":"quiet","sentence":"It exited 0.""#;

/// Whether the test of that name can go on.
fn can_play(test: &str) -> bool {
    if !is_root() {
        skip(test, "playing needs root");
    }
    is_root()
}

fn play(script: &str) -> anyhow::Result<Report> {
    play_within(SHORT, script, Duration::from_millis(500))
}

/// `to_judge`: see [`Options`].
fn play_within(story: &str, script: &str, to_judge: Duration) -> anyhow::Result<Report> {
    let directory = tempfile::tempdir()?;
    let agent = executable(&directory.path().join("agent"), &format!("#!/bin/sh\n{script}\n"))?;
    let options = Options {
        only: vec![story.into()],
        to_judge,
        ..options(agent)
    };
    run(&options, &mut |_| {})
}

fn options(agent: PathBuf) -> Options {
    let players = Path::new(env!("CARGO_BIN_EXE_victim"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf);
    Options {
        only: vec![SHORT.into()],
        ..Options::new(agent, players)
    }
}

fn differs(report: &Report, story: &str) -> Vec<String> {
    assert!(!report.passed());
    report.case(story).map(|c| c.differs()).unwrap_or_default()
}

#[test]
fn a_silent_agent_fails() -> anyhow::Result<()> {
    if !can_play("a_silent_agent_fails") {
        return Ok(());
    }
    let report = play(&format!("{OBSERVING}\n{AND_WAIT}"))?;
    assert_eq!(differs(&report, SHORT), ["the agent reported no termination"]);
    assert!(
        report
            .to_string()
            .ends_with("1 stories: 0 judged as expected, 1 not, 0 not playable on this machine"),
        "{report}"
    );
    Ok(())
}

#[test]
fn a_wrong_verdict_fails_by_axis() -> anyhow::Result<()> {
    if !can_play("a_wrong_verdict_fails_by_axis") {
        return Ok(());
    }
    let wrong = AS_EXPECTED.replace("stopped", "unknown").replace("quiet", "cut");
    let differs = differs(&play_within(LONG, &terminating(1, &wrong), TO_REPORT)?, LONG);
    for expected in [
        r#"cause: expected stopped, judged "unknown""#,
        r#"traffic: expected quiet, judged "cut""#,
        "the verdict names no evidence",
    ] {
        assert!(differs.iter().any(|d| d == expected), "no `{expected}` in {differs:#?}");
    }
    assert!(!differs.iter().any(|d| d.starts_with("exit:")), "{differs:#?}");
    Ok(())
}

#[test]
fn two_reports_of_one_termination_fail() -> anyhow::Result<()> {
    if !can_play("two_reports_of_one_termination_fail") {
        return Ok(());
    }
    let differs = differs(&play_within(LONG, &terminating(2, AS_EXPECTED), TO_REPORT)?, LONG);
    assert!(
        differs.iter().any(|d| d == "the agent reported 2 terminations"),
        "{differs:#?}"
    );
    Ok(())
}

#[test]
fn an_agent_that_exits_is_an_error_with_its_log() {
    if !can_play("an_agent_that_exits_is_an_error_with_its_log") {
        return;
    }
    let error = play(&format!("{OBSERVING}\necho 'no such probe' >&2; exit 3"))
        .map(|r| r.to_string())
        .unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("exited by itself (exit status: 3)") && error.contains("no such probe"),
        "{error}"
    );
}

#[test]
fn an_agent_that_never_observes_is_an_error_with_its_log() {
    if !can_play("an_agent_that_never_observes_is_an_error_with_its_log") {
        return;
    }
    let error = format!(
        "{:#}",
        play("echo 'cannot load' >&2; exit 77").map(|r| r.to_string()).unwrap_err()
    );
    assert!(
        error.contains("before it observed") && error.contains("cannot load"),
        "{error}"
    );
}

#[test]
fn an_agent_that_fails_at_sigterm_is_a_problem() -> anyhow::Result<()> {
    if !can_play("an_agent_that_fails_at_sigterm_is_a_problem") {
        return Ok(());
    }
    let report = play(&format!("{OBSERVING}\n{}", AND_WAIT.replace("exit 0", "exit 9")))?;
    assert!(
        report.problems.iter().any(|p| p.contains("exit status: 9")),
        "{:?}",
        report.problems
    );
    Ok(())
}

#[test]
fn an_unknown_story_is_an_error_that_lists_them() {
    let mut options = options("/bin/true".into());
    options.only = vec!["nonsense".into()];
    let error = format!("{:#}", run(&options, &mut |_| {}).map(|r| r.to_string()).unwrap_err());
    assert!(
        error.contains("unknown story `nonsense`") && error.contains("completed"),
        "{error}"
    );
}
