//! The servers with signals that stop nothing, as when an image or a pod declares the wrong stop signal: the program reopens its logs,
//! reloads, dumps its state, or has no handler, and runs on until SIGKILL.

use std::time::Duration;

use nix::libc::{SIGHUP, SIGKILL, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};

use super::servers::common::{APACHE, GUNICORN, HAPROXY_LOADED, JAVA, NGINX, POSTGRESQL, REDIS};
use super::supervisors::SUPERVISORD;
use super::{Installed, by, ignored, stopped_by, unclean};
use crate::story::{End, Story};

/// The program runs on. Its remedy is another signal, and not more time.
const fn runs_on(
    name: &'static str,
    what: &'static str,
    program: Installed,
    signal: i32,
    sentence: &'static [&'static str],
) -> Story {
    let remedy = &["may not stop this program", "`STOPSIGNAL` in the image"];
    stopped_by(
        name,
        what,
        program,
        signal,
        unclean(End::Signal(SIGKILL), "killed-after-grace", sentence, remedy),
    )
}

/// Ignored, or neither handler nor default action: PID 1.
const fn discarded(
    name: &'static str,
    what: &'static str,
    program: Installed,
    signal: i32,
    sentence: &'static [&'static str],
) -> Story {
    stopped_by(
        name,
        what,
        program,
        signal,
        ignored(
            sentence,
            &["declare the signal that stops the program (`STOPSIGNAL` in the image"],
        ),
    )
}

pub(super) static STORIES: &[Story] = &[
    runs_on(
        "nginx-usr1",
        "logs are reopened",
        NGINX.documented("USR1: reopens log files."),
        SIGUSR1,
        &[
            "The container runtime sent SIGUSR1 to PID 1 `nginx`, the handler started and sent no signal to `nginx` (pid ",
            "but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    runs_on(
        "nginx-winch",
        "nothing happens: without `daemon on` the handler of the master does nothing",
        NGINX.documented("WINCH: gracefully shuts down the worker processes."),
        SIGWINCH,
        &[
            "The container runtime sent SIGWINCH to PID 1 `nginx`, the handler started and sent no signal to `nginx` (pid ",
            "but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    runs_on(
        "nginx-hup",
        "workers are replaced",
        NGINX.documented("HUP: reloads the configuration with new workers, and gracefully shuts down the old ones."),
        SIGHUP,
        &[
            "The container runtime sent SIGHUP to PID 1 `nginx`, the handler started",
            "but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    runs_on(
        "apache-usr1",
        "graceful restart",
        APACHE.documented("USR1: graceful restart; the parent replaces each child once its current request is served."),
        SIGUSR1,
        &[
            "SIGUSR1 to",
            "but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    runs_on(
        "apache-hup",
        "restart",
        APACHE.documented("HUP: restart; the parent kills its children, rereads its configuration, and starts new ones."),
        SIGHUP,
        &[
            "SIGHUP to",
            "but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    discarded(
        "apache-quit",
        "the program has no handler for this signal",
        APACHE.documented("The page \"Stopping and Restarting\" names only TERM, USR1, HUP and WINCH."),
        SIGQUIT,
        &[
            "`apache2` is PID 1 and has no SIGQUIT handler, so the kernel discarded the signal; the container runtime sent SIGKILL",
        ],
    ),
    discarded(
        "redis-quit",
        "the program has no handler for this signal",
        REDIS.documented("The page \"Redis signal handling\" names only SIGTERM, SIGINT and the signals of faults."),
        SIGQUIT,
        &[
            "`redis-server` is PID 1 and has no SIGQUIT handler, so the kernel discarded the signal; the container runtime sent SIGKILL",
        ],
    ),
    discarded(
        "redis-usr1",
        "the program has no handler for this signal",
        REDIS.documented("SIGUSR1 ends a child process that saves or rewrites data; Redis itself has no handler."),
        SIGUSR1,
        &[
            "`redis-server` is PID 1 and has no SIGUSR1 handler, so the kernel discarded the signal; the container runtime sent SIGKILL",
        ],
    ),
    runs_on(
        "postgresql-hup",
        "configuration is reloaded",
        POSTGRESQL.documented("SIGHUP: reloads the server configuration files."),
        SIGHUP,
        &[
            "SIGHUP to",
            "but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    runs_on(
        "postgresql-usr1",
        "nothing happens: the server's own processes use this signal",
        POSTGRESQL.documented(
            "SIGUSR1 is used between the server's own processes. The documentation names SIGTERM, SIGINT, SIGQUIT and SIGHUP.",
        ),
        SIGUSR1,
        &[
            "The container runtime sent SIGUSR1 to PID 1 `postgres`, the handler started",
            "but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    discarded(
        "haproxy-quit",
        "nothing happens: the master ignores the signal",
        HAPROXY_LOADED.documented("QUIT: dumps information about memory pools on stderr."),
        SIGQUIT,
        &["PID 1 `haproxy` ignores SIGQUIT (SIG_IGN), so the kernel discarded the signal; the container runtime sent SIGKILL"],
    ),
    runs_on(
        "haproxy-usr2",
        "reload",
        HAPROXY_LOADED
            .documented("USR2: in master-worker mode, reloads the configuration and sends a soft stop to the old processes."),
        SIGUSR2,
        &["SIGUSR2 to", "the container runtime sent SIGKILL"],
    ),
    runs_on(
        "gunicorn-usr1",
        "logs are reopened",
        GUNICORN.documented("USR1: reopens the log files."),
        SIGUSR1,
        &[
            "`gunicorn`",
            "forwarded SIGUSR1 to `gunicorn`",
            "whose handler ran, but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    runs_on(
        "gunicorn-winch",
        "nothing happens, because gunicorn does not run as a daemon",
        GUNICORN.documented("WINCH: gracefully shuts down the worker processes when gunicorn is daemonized."),
        SIGWINCH,
        &[
            "The container runtime sent SIGWINCH to PID 1 `gunicorn`, the handler started and sent no signal to `gunicorn` (pid ",
            "but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    // A worker looks for the signal each second.
    Story {
        stop: by(SIGHUP, Duration::from_secs(6)),
        ..runs_on(
            "gunicorn-hup",
            "workers are replaced",
            GUNICORN.documented("HUP: reloads the configuration, starts new workers and gracefully shuts down the old ones."),
            SIGHUP,
            &[
                "The container runtime sent SIGHUP to PID 1 `gunicorn`, the handler started and sent SIGTERM to 2 processes, which stopped",
                "but the process did not exit: the container runtime sent SIGKILL",
            ],
        )
    },
    runs_on(
        "supervisord-usr2",
        "supervisord reopens its log and continues to run",
        SUPERVISORD.documented("At SIGUSR2, supervisord closes and reopens its log and the logs of its programs."),
        SIGUSR2,
        &["The container runtime sent SIGUSR2 to PID 1 `supervisord`, the handler started and sent no signal to `victim`"],
    ),
    runs_on(
        "java-quit",
        "thread dump",
        JAVA.documented("SIGQUIT: prints the stack traces of all threads, and continues to run."),
        SIGQUIT,
        &[
            "The container runtime sent SIGQUIT to PID 1 `java`, the handler started, but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    discarded(
        "java-usr1",
        "the program has no handler for this signal",
        JAVA.documented("SIGUSR1 is reserved on Linux."),
        SIGUSR1,
        &["`java` is PID 1 and has no SIGUSR1 handler, so the kernel discarded the signal; the container runtime sent SIGKILL"],
    ),
];
