//! The program as a process, without an API server: help, usage, and a cluster that is not there.

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubectl-epitaph"))
        .args(args)
        .env_clear()
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn help_names_commands_and_exit_codes() {
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let help = text(&help.stdout);
    for part in [
        "kubectl epitaph",
        "list",
        "why",
        "node",
        "rollout",
        "watch",
        "doctor",
        "--context",
        "Exit codes: 0 done",
    ] {
        assert!(help.contains(part), "{part} is not in {help}");
    }
    assert!(!help.contains("__complete"), "{help}");
    let rollout = text(&run(&["rollout", "--help"]).stdout);
    for part in ["--revision", "--wait", "--fail-on", "lost", "markdown"] {
        assert!(rollout.contains(part), "{part} is not in {rollout}");
    }
}

/// As kubectl: any failure is 1.
#[test]
fn wrong_usage_and_no_cluster_are_failures() {
    for args in [
        &[][..],
        &["unknown"],
        &["why"],
        &["rollout"],
        &["list", "--since", "90"],
        &["rollout", "deployment/web", "--timeout", "1m"],
    ] {
        let ran = run(args);
        assert_eq!(ran.status.code(), Some(1), "{args:?}");
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{args:?}: {ran:?}");
    }
    for args in [
        &["list"][..],
        &["list", "--kubeconfig", "/does/not/exist"],
        &["list", "--context", "far"],
    ] {
        let ran = run(args);
        assert_eq!(ran.status.code(), Some(1), "{args:?}");
        let err = text(&ran.stderr);
        assert!(err.starts_with("error: ") && err.contains("\nremedy: "), "{args:?}: {err}");
    }
}

/// A shell shows nothing, rather than an error within the line.
#[test]
fn a_completion_without_a_cluster_is_empty() {
    let ran = run(&["__complete", "why", ""]);
    assert_eq!(
        (ran.status.code(), text(&ran.stdout)),
        (Some(0), ":4\n".to_owned()),
        "{ran:?}"
    );
}

/// docs/kubectl.md names every command and flag.
#[test]
fn the_page_has_the_commands() {
    use clap::CommandFactory as _;
    let page = include_str!("../../../docs/kubectl.md");
    for command in kubectl_epitaph::cli::Cli::command()
        .get_subcommands()
        .filter(|of| !of.is_hide_set())
    {
        assert!(
            page.contains(&format!("kubectl epitaph {}", command.get_name())),
            "{}",
            command.get_name()
        );
        for flag in command.get_arguments().filter_map(|arg| arg.get_long()) {
            assert!(
                page.contains(&format!("--{flag}")),
                "--{flag} of {} is not in docs/kubectl.md",
                command.get_name()
            );
        }
    }
}
