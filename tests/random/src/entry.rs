//! How each wrapper starts what is below it.

use std::fs::{self, Permissions};
use std::io::Result;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::history::Wrapper;

/// The command of `program` below `entry`, the outermost wrapper first. `me` is this program; what a wrapper reads from files is in
/// `directory`.
///
/// # Errors
/// A file cannot be written.
pub fn command(entry: &[Wrapper], me: &str, directory: &Path, program: Vec<String>) -> Result<Vec<String>> {
    entry.iter().enumerate().rev().try_fold(program, |inner, (level, wrapper)| {
        wrapped(*wrapper, me, &directory.join(format!("level-{level}")), inner)
    })
}

fn wrapped(wrapper: Wrapper, me: &str, files: &Path, inner: Vec<String>) -> Result<Vec<String>> {
    const SIGNALS: &str = "TERM INT QUIT USR1 HUP WINCH 37";
    let trap = |action: &str| sh(&format!("trap '{action}' {SIGNALS}; \"$@\" & c=$!; wait $c; exit $?"));
    if wrapper.supervises() {
        return supervised(wrapper, files, &inner);
    }
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
        Wrapper::PidNamespace => words(&["unshare", "--pid", "--fork"]),
        Wrapper::Service => {
            let mut outer = sh("\"$@\"; sleep 1000 & wait");
            outer.extend(words(&[me, "double-fork"]));
            outer
        }
        Wrapper::TrapRaises => sh(&format!(
            "for s in {SIGNALS}; do trap \"kill -TERM \\$c; wait \\$c; trap - $s; kill -$s $$\" $s; done; \"$@\" & c=$!; wait $c; exit $?"
        )),
        Wrapper::Lingers { ms, zero } => {
            let code = if zero { "0" } else { "$c" };
            sh(&format!("\"$@\"; c=$?; sleep {}.{:03}; exit {code}", ms / 1_000, ms % 1_000))
        }
        Wrapper::Runit | Wrapper::S6 | Wrapper::Supervisord => Vec::new(),
    };
    outer.extend(inner);
    Ok(outer)
}

/// A supervisor with one service, which is started by a script.
fn supervised(wrapper: Wrapper, files: &Path, inner: &[String]) -> Result<Vec<String>> {
    let service = files.join("service");
    fs::create_dir_all(&service)?;
    let run = service.join("run");
    let quoted: Vec<String> = inner
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
        .collect();
    fs::write(&run, format!("#!/bin/sh\nexec {}\n", quoted.join(" ")))?;
    fs::set_permissions(&run, Permissions::from_mode(0o755))?;
    let shown = files.to_string_lossy();
    Ok(match wrapper {
        Wrapper::Runit => words(&["runsvdir", "-P", &shown]),
        Wrapper::S6 => words(&["s6-svscan", &shown]),
        _ => {
            let settings = format!(
                "[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile={shown}/pid\n\
                 [program:service]\ncommand={}\nautorestart=true\nstopwaitsecs=1\nstdout_logfile=NONE\nstderr_logfile=NONE\n",
                run.display()
            );
            fs::write(files.join("settings"), settings)?;
            words(&["supervisord", "-n", "-c", &format!("{shown}/settings")])
        }
    })
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
    missing(wrapper).is_none()
}

/// The program of `wrapper`, if this machine lacks it.
pub fn missing(wrapper: Wrapper) -> Option<&'static str> {
    let program = match wrapper {
        Wrapper::Tini | Wrapper::TiniGroup => "tini",
        Wrapper::DumbInit | Wrapper::DumbInitChild => "dumb-init",
        Wrapper::Runit => "runsvdir",
        Wrapper::S6 => "s6-svscan",
        Wrapper::Supervisord => "supervisord",
        Wrapper::Setsid | Wrapper::DoubleFork | Wrapper::Service => "setsid",
        Wrapper::PidNamespace => "unshare",
        _ => return None,
    };
    let is_here = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).is_file());
    (!is_here).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_comes_first() -> Result<()> {
        let command = command(
            &[Wrapper::Tini, Wrapper::Exec],
            "/me",
            Path::new("/nowhere"),
            words(&["/me", "program", "x y"]),
        )?;
        assert_eq!(
            command,
            ["tini", "--", "sh", "-c", "exec \"$@\"", "sh", "/me", "program", "x y"]
        );
        Ok(())
    }
}
