//! What people type after a look at `kubectl`, `docker`, `systemctl` or a shell: exit codes, signals, reasons. The table behind
//! `epitaph explain 137` and the last section of docs/verdicts.md.

mod words;

use epitaph_core::ids::Signal;

pub use words::{Word, words};

/// The entry of a word, as people copy it: `oomkilled`, `TERM`, `Exit Code: 137`, `status=9/KILL`, `code=exited, status=203/EXEC`.
pub fn word(text: &str) -> Option<&'static Word> {
    let normal = peeled(text);
    if let Some((_, status)) = normal.rsplit_once("status=") {
        return of_status(status);
    }
    by_name(&normal)
        .or_else(|| by_name(code(&normal)))
        .or_else(|| by_name(&format!("sig{normal}")))
}

/// What is known of an exit code without an entry; None for text that is not an exit code.
pub fn other_code(text: &str) -> Option<(String, &'static [&'static str])> {
    let normal = peeled(text);
    let status = normal.rsplit_once("status=").map(|(_, status)| status);
    if let Some(signal) = status.and_then(of_signal) {
        return Some((
            format!("{signal} terminated the main process of the unit."),
            &["default-action", "killed-by-other", "crashed"],
        ));
    }
    let code = status.map_or_else(|| code(&normal), |status| status.split('/').next().unwrap_or_default());
    let code: u8 = code.trim().parse().ok()?;
    Some(match code {
        129..=192 => (
            format!(
                "Exit code {code} is 128 + {}: the number of a signal (`kill -l {}` names the signal).",
                code - 128,
                code - 128
            ),
            &["crashed", "killed-by-other", "default-action", "nonzero-exit"],
        ),
        200..=245 => (
            format!(
                "Exit code {code}: if the process belongs to a systemd unit, systemd itself may have failed to start the program; \
                 `systemctl status` shows \
                 the step (such as {code}/NAME), and systemd.exec(5) explains it. Otherwise the program reported an error of its own."
            ),
            &["nonzero-exit", "oom-child"],
        ),
        _ => (
            format!(
                "Exit code {code}: the program reported an error of its own. Read the program's log, and look for the code in the \
                 program's documentation.{}",
                as_signal(code)
            ),
            &["nonzero-exit", "oom-child"],
        ),
    })
}

/// `14/alrm`, as systemd writes a signal; `203/exec` is an exit code.
fn of_signal(status: &str) -> Option<Signal> {
    let (number, name) = status.split_once('/')?;
    let signal = Signal::new(number.parse().ok()?)?;
    let is_its = signal
        .to_string()
        .eq_ignore_ascii_case(&format!("SIG{}", name.trim_end_matches(')')));
    is_its.then_some(signal)
}

/// `9` is an exit code, but people also mean `kill -9`.
fn as_signal(number: u8) -> String {
    let name = by_name(&format!("signal {number}")).and_then(|word| word.names.iter().find(|name| name.starts_with("SIG")));
    name.map_or_else(String::new, |name| {
        format!(" As the number of a signal, {number} is {name}: `epitaph explain {name}`.")
    })
}

/// `9/kill` is a signal, `203/exec` and `1/failure` are exit codes.
fn of_status(status: &str) -> Option<&'static Word> {
    let (number, name) = status.split_once('/').unwrap_or((status, ""));
    let name = name.trim_end_matches(')');
    by_name(&format!("sig{name}")).or_else(|| by_name(number.trim_end_matches(')')))
}

/// [`normal`], without what other tools write around it: `Init:Error`, `Reason: OOMKilled`, `State: Terminated` (kubectl),
/// `Exited (137) 5 minutes ago` (docker), `nginx.service: Failed with result 'signal'.` (systemd).
fn peeled(text: &str) -> String {
    let normal = normal(text);
    if let Some(code) = normal.strip_prefix("exited (").and_then(|rest| rest.split(')').next()) {
        return code.trim().to_owned();
    }
    if let Some((_, result)) = normal.rsplit_once("failed with result ") {
        return result.trim_end_matches(['.', ' ']).to_owned();
    }
    let before = ["last state ", "state ", "reason ", "init "];
    let rest = before.iter().find_map(|before| normal.strip_prefix(before));
    rest.map_or_else(|| normal.clone(), str::to_owned)
}

/// Without the words before an exit code.
fn code(normal: &str) -> &str {
    let before = ["exit code ", "exitcode ", "exit status ", "exit ", "code "];
    before.iter().find_map(|before| normal.strip_prefix(before)).unwrap_or(normal)
}

/// `name`: [`normal`].
fn by_name(name: &str) -> Option<&'static Word> {
    words().find(|word| word.names.iter().any(|known| normal(known) == name))
}

/// In lower case, each run of separators as a space.
fn normal(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| c.is_whitespace() || matches!(c, '_' | '-' | ':' | '\'' | '`'))
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use epitaph_core::verdict::table::{self, by_headline};

    use super::*;

    #[test]
    fn every_word_is_there_once_and_names_verdicts() {
        let mut seen = HashSet::new();
        for &Word { names, verdicts, .. } in words() {
            for name in names {
                assert!(seen.insert(name.to_lowercase()), "{name} is there twice");
                assert!(by_headline(name).is_none(), "{name} is a verdict");
            }
            assert!(!verdicts.is_empty(), "{names:?}");
            for verdict in verdicts {
                assert!(super::super::explain::meaning_of(verdict).is_some(), "{names:?}: {verdict}");
            }
        }
    }

    /// Who sees the failure somewhere else finds the way to each verdict that is unclean.
    #[test]
    fn a_word_leads_to_every_unclean_verdict() {
        for row in table::TABLE.iter().filter(|row| row.unclean) {
            assert!(
                words().any(|word| word.verdicts.contains(&row.headline)),
                "no word leads to {}",
                row.headline
            );
        }
    }

    #[test]
    fn errors_of_clients_in_any_form() {
        for text in [
            "502",
            "503 service unavailable",
            "Connection refused",
            "connection reset by peer",
            "EPIPE",
        ] {
            assert!(word(text).is_some(), "{text}");
        }
    }

    #[test]
    fn words_in_any_form() {
        for text in [
            "137",
            "sigkill",
            "SIGKILL",
            "exit code 137",
            "exit-code-137",
            "Exit Code:    137",
            "exit status 137",
            " signal 9",
            "KILL",
            "kill",
            "Killed",
            "signal: killed",
            "status=9/KILL",
            "code=killed, status=9/KILL",
            "(code=killed, status=9/KILL)",
        ] {
            assert_eq!(word(text).unwrap().names[0], "137", "{text}");
        }
        assert_eq!(word("oomkilled").unwrap().names[0], "OOMKilled");
        for (text, name) in [
            ("TERM", "143"),
            ("signal: terminated", "143"),
            ("SEGV", "139"),
            ("segmentation fault", "139"),
            ("code=dumped, status=11/SEGV", "139"),
            ("status=1/HUP", "129"),
            ("status=1/FAILURE", "1"),
            ("status=143/n/a", "143"),
            ("status=203/EXEC", "203"),
            ("203/exec", "203"),
            ("core-dump", "core-dump"),
            ("core dump", "core-dump"),
            ("oom-kill", "OOMKilled"),
            ("sigrtmin+3", "SIGRTMIN+3"),
            ("RTMIN+3", "SIGRTMIN+3"),
            ("Exited (137)", "137"),
            ("Exited (137) 5 minutes ago", "137"),
            ("Init:Error", "Error"),
            ("Init:CrashLoopBackOff", "CrashLoopBackOff"),
            ("Init:OOMKilled", "OOMKilled"),
            ("Init:ExitCode:1", "1"),
            ("Init:Signal:9", "137"),
            ("Reason: OOMKilled", "OOMKilled"),
            ("Reason:       Error", "Error"),
            ("State: Terminated", "Terminated"),
            ("Last State:     Terminated", "Terminated"),
            ("Failed with result 'signal'.", "signal"),
            ("Failed with result 'oom-kill'.", "OOMKilled"),
            ("nginx.service: Failed with result 'exit-code'.", "exit-code"),
            ("nginx.service: Failed with result 'core-dump'.", "core-dump"),
            ("SIGUSR1", "138"),
            ("usr2", "140"),
            ("NodeLost", "NodeLost"),
        ] {
            assert_eq!(word(text).map(|word| word.names[0]), Some(name), "{text}");
        }
        for nothing in ["9", "SIG", "", "-", "status=", "status=/", "status=9/NONE", "x/KILL"] {
            assert_eq!(word(nothing), None, "{nothing}");
        }
        assert!(other_code("status=42/n/a").unwrap().0.starts_with("Exit code 42: "));
        assert!(other_code("Exit Code: 42").unwrap().0.starts_with("Exit code 42: "));
        assert!(other_code("Exited (42) 2 days ago").unwrap().0.starts_with("Exit code 42: "));
        assert!(other_code("Init:ExitCode:42").unwrap().0.starts_with("Exit code 42: "));
        assert_eq!(
            (word("Init:0/1"), other_code("Init:0/1"), word("Exited (")),
            (None, None, None)
        );
    }

    #[test]
    fn any_exit_code_has_an_answer() {
        for code in 0..=255_u8 {
            let text = code.to_string();
            assert!(word(&text).is_some() || other_code(&text).is_some(), "{code}");
        }
        assert_eq!((other_code("256"), other_code("x")), (None, None));
        assert!(other_code("150").unwrap().0.contains("128 + 22"));
        assert!(other_code("9").unwrap().0.contains("9 is SIGKILL"));
        assert!(other_code("218").unwrap().0.contains("systemd"));
    }

    #[test]
    fn unclean_names_every_unclean_verdict() {
        let unclean = table::TABLE.iter().filter(|row| row.unclean).map(|row| row.headline);
        assert_eq!(word("unclean").unwrap().verdicts, unclean.collect::<Vec<_>>());
    }

    /// A shutdown of the node kills with SIGKILL, and `Error` is the reason of every code but 0.
    #[test]
    fn the_lists_of_the_commonest_words_are_whole() {
        let killed = word("137").unwrap().verdicts;
        let error = word("Error").unwrap().verdicts;
        for text in ["137", "Error", "NodeShutdown", "Terminated"] {
            assert!(word(text).unwrap().verdicts.contains(&"truncated-by-shutdown"), "{text}");
        }
        for verdict in killed
            .iter()
            .chain(&["clean", "clean-exit", "default-action", "nonzero-exit"])
        {
            assert!(error.contains(verdict), "Error: {verdict}");
        }
        assert!(
            word("Terminated")
                .unwrap()
                .meaning
                .contains("every container that has exited")
        );
    }
}
