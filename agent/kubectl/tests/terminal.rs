//! The plugin in a terminal: no control codes where the terminal has none, and help as wide as the terminal.

use std::process::{Command, Stdio};

/// What a terminal with so many columns gets, through a pseudo-terminal of util-linux.
fn on_a_terminal(kind: &str, columns: usize, args: &str) -> String {
    let program = env!("CARGO_BIN_EXE_kubectl-epitaph");
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command"])
        .arg(format!("stty cols {columns} rows 24 && exec {program} {args}"))
        .arg("/dev/null")
        .env_clear()
        .envs([("TERM", kind), ("PATH", "/usr/bin:/bin")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Open until the end: otherwise an end of input would be typed.
    let typed = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(typed);
    assert!(output.status.success(), "{args}: {output:?}");
    String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
}

#[test]
fn help_has_no_control_codes_in_a_dumb_terminal_and_its_width() {
    for args in ["--help", "why --help", "rollout --help"] {
        let widest = |columns| {
            let text = on_a_terminal("dumb", columns, args);
            assert!(!text.contains('\u{1b}') && text.lines().count() > 3, "{args}: {text}");
            // A word that is longer than the rest of its line is whole.
            let lines = text.lines().filter(|line| line.trim_start().contains(' '));
            lines.map(|line| line.chars().count()).max().unwrap_or_default()
        };
        let [narrow, wide] = [60, 100].map(widest);
        assert!(narrow <= 60, "{args}: {narrow}");
        assert!((61..=100).contains(&wide), "{args}: {wide}");
    }
}
