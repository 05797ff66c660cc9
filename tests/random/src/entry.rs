//! How each wrapper starts what is below it.

use std::path::Path;

use crate::history::Wrapper;

/// The command of `program` below `entry`, the outermost wrapper first. `me` is this program.
pub fn command(entry: &[Wrapper], me: &str, program: Vec<String>) -> Vec<String> {
    entry
        .iter()
        .rev()
        .fold(program, |inner, wrapper| wrapped(*wrapper, me, inner))
}

fn wrapped(wrapper: Wrapper, me: &str, inner: Vec<String>) -> Vec<String> {
    const SIGNALS: &str = "TERM INT QUIT USR1";
    let trap = |action: &str| sh(&format!("trap '{action}' {SIGNALS}; \"$@\" & c=$!; wait $c; exit $?"));
    let mut outer = match wrapper {
        Wrapper::Sh => sh("\"$@\"; exit $?"),
        Wrapper::Exec => sh("exec \"$@\""),
        Wrapper::ShZero => sh("\"$@\"; exit 0"),
        Wrapper::Background => sh("\"$@\" & wait"),
        Wrapper::TrapWaits => trap("kill -TERM $c; wait $c; exit $?"),
        Wrapper::TrapExits => trap("kill -TERM $c; exit 0"),
        Wrapper::TrapForgets => trap("exit 0"),
        Wrapper::Tini => words(&["tini", "--"]),
        Wrapper::TiniGroup => words(&["tini", "-g", "--"]),
        Wrapper::DumbInit => words(&["dumb-init", "--"]),
        Wrapper::DumbInitChild => words(&["dumb-init", "-c", "--"]),
        Wrapper::Setsid => words(&["setsid", "--wait"]),
        Wrapper::DoubleFork => words(&[me, "double-fork"]),
        Wrapper::Service => {
            let mut outer = sh("\"$@\"; sleep 1000 & wait");
            outer.extend(words(&[me, "double-fork"]));
            outer
        }
    };
    outer.extend(inner);
    outer
}

/// What `sh -c` runs has `"$@"` for the command below it.
fn sh(script: &str) -> Vec<String> {
    words(&["sh", "-c", script, "sh"])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Whether this machine has the program of `wrapper`.
pub fn is_here(wrapper: Wrapper) -> bool {
    let program = match wrapper {
        Wrapper::Tini | Wrapper::TiniGroup => "tini",
        Wrapper::DumbInit | Wrapper::DumbInitChild => "dumb-init",
        Wrapper::Setsid | Wrapper::DoubleFork | Wrapper::Service => "setsid",
        _ => return true,
    };
    ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_comes_first() {
        let command = command(&[Wrapper::Tini, Wrapper::Exec], "/me", words(&["/me", "program", "x y"]));
        assert_eq!(
            command,
            ["tini", "--", "sh", "-c", "exec \"$@\"", "sh", "/me", "program", "x y"]
        );
    }
}
