//! What people type after a look at `kubectl`, `docker` or a shell: exit codes, signals, reasons. The table behind `epitaph explain 137`
//! and the last section of docs/verdicts.md.

/// Something that another tool shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The first one is the title.
    pub names: &'static [&'static str],
    pub meaning: &'static str,
    /// Verdicts of terminations for which the word is shown; the likelier ones first.
    pub verdicts: &'static [&'static str],
}

/// Signals that a process causes itself.
const FAULT: &[&str] = &["crashed", "killed-by-other", "nonzero-exit"];

/// Ways to a SIGKILL.
const KILLED: &[&str] = &[
    "oom-killed",
    "ignored-stop-signal",
    "killed-after-grace",
    "blocked-stop-signal",
    "prestop-overran",
    "sidecar-starved",
    "force-killed",
    "killed-by-other",
];

/// Without names of verdicts, causes and traffic values.
pub const WORDS: [Word; 27] = [
    Word {
        names: &["137", "SIGKILL", "signal 9"],
        meaning: "Exit code 137 is 128 + 9: SIGKILL ended the process. The code alone shows neither the sender nor the reason: the OOM \
                  killer, the container runtime after the grace period, or another process. In a pod's status the code can also be made up by the kubelet.",
        verdicts: KILLED,
    },
    Word {
        names: &["143", "SIGTERM", "signal 15"],
        meaning: "Exit code 143 is 128 + 15: SIGTERM. Either the process has no handler and SIGTERM ended it at once, or its handler ran and \
                  the program (Java, many others) then exited with this code, which is clean.",
        verdicts: &[
            "default-action",
            "clean",
            "clean-exit",
            "refused-connections",
            "cut-connections",
            "nonzero-exit",
        ],
    },
    Word {
        names: &["OOMKilled", "OOM"],
        meaning: "The OOM killer killed a process of the container: not necessarily the main process, and not necessarily at its end, because \
                  the reason stays in the status once any process was killed. A kill of the main process can also be missing there.",
        verdicts: &["oom-killed", "oom-child"],
    },
    Word {
        names: &["Error"],
        meaning: "The reason in a pod's status for every exit code other than 0, where no other reason is known. Look at the exit code, which \
                  `epitaph explain` knows too.",
        verdicts: &[
            "nonzero-exit",
            "ignored-stop-signal",
            "killed-after-grace",
            "default-action",
            "crashed",
            "oom-child",
            "killed-by-other",
        ],
    },
    Word {
        names: &["CrashLoopBackOff", "BackOff"],
        meaning: "Not a termination: the container terminated again and again, also with exit code 0, and the kubelet waits before the next \
                  start. Ask for the terminations before it.",
        verdicts: &[
            "nonzero-exit",
            "crashed",
            "oom-killed",
            "oom-child",
            "runtime-failed",
            "clean",
        ],
    },
    Word {
        names: &["Completed", "0"],
        meaning: "The main process exited with code 0, by itself or after a stop signal. Connections of clients may still have been \
                  refused, reset or cut.",
        verdicts: &[
            "clean",
            "clean-exit",
            "refused-connections",
            "reset-connections",
            "cut-connections",
            "proxy-rejected",
            "prestop-failed",
        ],
    },
    Word {
        names: &["Terminating"],
        meaning: "Deletion was requested, and the pod still exists: a preStop hook or the shutdown takes its time, the stop signal was ignored \
                  and the grace period runs, a process cannot be killed, or a finalizer keeps the object after all processes have exited.",
        verdicts: &[
            "ignored-stop-signal",
            "killed-after-grace",
            "prestop-overran",
            "blocked-stop-signal",
            "stuck",
        ],
    },
    Word {
        names: &["ContainerStatusUnknown"],
        meaning: "The kubelet did not find the container any more and made up exit code 137: no SIGKILL is implied. Often the node was \
                  restarted, or the container runtime lost its state.",
        verdicts: &["unknown", "runtime-failed"],
    },
    Word {
        names: &["1"],
        meaning: "The program reported an error of its own: read its log. After a stop signal it often means that the shutdown failed.",
        verdicts: &["nonzero-exit", "oom-child"],
    },
    Word {
        names: &["2"],
        meaning: "The program reported an error of its own. A Go program as PID 1 that has no handler for SIGTERM exits with 2, and a shell \
                  for wrong usage.",
        verdicts: &["nonzero-exit", "oom-child"],
    },
    Word {
        names: &["126"],
        meaning: "By a shell's convention: the command was found and could not be executed (not executable, wrong architecture).",
        verdicts: &["nonzero-exit", "runtime-failed", "prestop-failed"],
    },
    Word {
        names: &["127"],
        meaning: "By a shell's convention: the command was not found in the image.",
        verdicts: &["nonzero-exit", "runtime-failed", "prestop-failed"],
    },
    Word {
        names: &[
            "128",
            "StartError",
            "RunContainerError",
            "ContainerCannotRun",
            "CreateContainerError",
        ],
        meaning: "The container runtime did not start the program: the command, a mount or the image is wrong. No process ran.",
        verdicts: &["runtime-failed"],
    },
    Word {
        names: &["130", "SIGINT", "signal 2"],
        meaning: "Exit code 130 is 128 + 2: SIGINT, as by Ctrl-C or `STOPSIGNAL SIGINT`. Either no handler ran, or the handler exited with \
                  this code.",
        verdicts: &["default-action", "clean", "nonzero-exit", "killed-by-other"],
    },
    Word {
        names: &["131", "SIGQUIT", "signal 3"],
        meaning: "Exit code 131 is 128 + 3: SIGQUIT, the stop signal of nginx, php-fpm and others. Either no handler ran, or the handler exited \
                  with this code.",
        verdicts: &["default-action", "clean", "nonzero-exit", "killed-by-other"],
    },
    Word {
        names: &["129", "SIGHUP", "signal 1"],
        meaning: "Exit code 129 is 128 + 1: SIGHUP. Many programs read their configuration anew at SIGHUP; without a handler it ends them.",
        verdicts: &["killed-by-other", "default-action", "nonzero-exit"],
    },
    Word {
        names: &["139", "SIGSEGV", "signal 11"],
        meaning: "Exit code 139 is 128 + 11: a segmentation fault, an invalid access to memory in the program or one of its libraries.",
        verdicts: FAULT,
    },
    Word {
        names: &["134", "SIGABRT", "signal 6"],
        meaning: "Exit code 134 is 128 + 6: the program aborted itself: a failed assertion, a panic, an uncaught exception.",
        verdicts: FAULT,
    },
    Word {
        names: &["132", "SIGILL", "signal 4"],
        meaning: "Exit code 132 is 128 + 4: an instruction that this CPU does not have, or a trap of the compiler.",
        verdicts: FAULT,
    },
    Word {
        names: &["135", "SIGBUS", "signal 7"],
        meaning: "Exit code 135 is 128 + 7: a bus error, often a file mapped into memory that was truncated, or a full disk below it.",
        verdicts: FAULT,
    },
    Word {
        names: &["136", "SIGFPE", "signal 8"],
        meaning: "Exit code 136 is 128 + 8: an arithmetic fault, such as a division by zero.",
        verdicts: FAULT,
    },
    Word {
        names: &["141", "SIGPIPE", "signal 13"],
        meaning: "Exit code 141 is 128 + 13: the program wrote to a pipe or connection that its reader had closed.",
        verdicts: FAULT,
    },
    Word {
        names: &["255", "Unknown"],
        meaning: "Exit code 255 with the reason Unknown: the container runtime lost the container, for example when the node was restarted. \
                  Without that reason: the program's own code (-1).",
        verdicts: &["unknown", "nonzero-exit", "runtime-failed"],
    },
    Word {
        names: &["Evicted"],
        meaning: "The kubelet evicted the pod because the node ran out of memory, disk or process ids; the causes evicted-node-pressure, \
                  evicted-api, evicted-taint and evicted-preempted are the other evictions.",
        verdicts: &["killed-after-grace", "ignored-stop-signal", "force-killed", "clean"],
    },
    Word {
        names: &["NodeShutdown", "Terminated"],
        meaning: "The kubelet stopped the pod because the node was shutting down: the cause node-shutdown.",
        verdicts: &["killed-after-grace", "ignored-stop-signal", "clean"],
    },
    Word {
        names: &["DeadlineExceeded"],
        meaning: "The pod exceeded `activeDeadlineSeconds`: the cause deadline.",
        verdicts: &["killed-after-grace", "ignored-stop-signal", "default-action", "clean"],
    },
    Word {
        names: &["ImagePullBackOff", "ErrImagePull"],
        meaning: "Not a termination: the image cannot be pulled, and no process has run. `kubectl describe pod` shows the error.",
        verdicts: &["runtime-failed"],
    },
];

/// The entry of a word, in any case: `oomkilled`, `sigterm`, `exit code 137`.
pub fn word(text: &str) -> Option<&'static Word> {
    let normal = text.trim().to_ascii_lowercase().replace(['_', '-'], " ");
    let normal = ["exit code ", "exitcode ", "exit ", "code "]
        .iter()
        .find_map(|before| normal.strip_prefix(before))
        .unwrap_or(&normal);
    WORDS
        .iter()
        .find(|word| word.names.iter().any(|name| name.eq_ignore_ascii_case(normal)))
}

/// What is known of an exit code without an entry; None for text that is not an exit code.
pub fn other_code(text: &str) -> Option<(String, &'static [&'static str])> {
    let code: u8 = text.trim().parse().ok()?;
    Some(match code {
        129..=192 => (
            format!(
                "Exit code {code} is 128 + {}: the number of a signal (`kill -l {}` names the signal).",
                code - 128,
                code - 128
            ),
            &["crashed", "killed-by-other", "default-action", "nonzero-exit"],
        ),
        _ => (
            format!(
                "Exit code {code}: the program reported an error of its own. Read its log, and its documentation of the code."
            ),
            &["nonzero-exit", "oom-child"],
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use epitaph_core::verdict::table::by_headline;

    use super::*;

    #[test]
    fn every_word_is_there_once_and_names_verdicts() {
        let mut seen = HashSet::new();
        for Word { names, verdicts, .. } in WORDS {
            for name in names {
                assert!(seen.insert(name.to_lowercase()), "{name} is there twice");
                assert!(by_headline(name).is_none(), "{name} is a verdict");
            }
            assert!(!verdicts.is_empty(), "{names:?}");
            for verdict in verdicts {
                assert!(by_headline(verdict).is_some(), "{names:?}: {verdict}");
            }
        }
    }

    #[test]
    fn words_in_any_form() {
        for text in ["137", "sigkill", "SIGKILL", "exit code 137", "exit-code-137", " signal 9"] {
            assert_eq!(word(text).unwrap().names[0], "137", "{text}");
        }
        assert_eq!(word("oomkilled").unwrap().names[0], "OOMKilled");
        assert_eq!((word("9"), word("SIG"), word("")), (None, None, None));
    }

    #[test]
    fn any_exit_code_has_an_answer() {
        for code in 0..=255_u8 {
            let text = code.to_string();
            assert!(word(&text).is_some() || other_code(&text).is_some(), "{code}");
        }
        assert_eq!((other_code("256"), other_code("x")), (None, None));
        assert!(other_code("150").unwrap().0.contains("128 + 22"));
    }
}
