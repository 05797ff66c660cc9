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
        "nothing: without `daemon on` the master ignores the signal in its handler",
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
        "no handler",
        APACHE.documented("\"Stopping and Restarting\" names TERM, USR1, HUP and WINCH only."),
        SIGQUIT,
        &[
            "`apache2` is PID 1 and has no SIGQUIT handler, so the kernel discarded the signal; the container runtime sent SIGKILL",
        ],
    ),
    discarded(
        "redis-quit",
        "no handler",
        REDIS.documented("\"Redis signal handling\" names SIGTERM, SIGINT and the signals of faults only."),
        SIGQUIT,
        &[
            "`redis-server` is PID 1 and has no SIGQUIT handler, so the kernel discarded the signal; the container runtime sent SIGKILL",
        ],
    ),
    discarded(
        "redis-usr1",
        "no handler",
        REDIS.documented("SIGUSR1: ends a child that saves or rewrites; Redis itself has no handler."),
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
        "nothing: the signal of the server's own processes",
        POSTGRESQL.documented(
            "SIGUSR1: between the server's own processes; its documentation names SIGTERM, SIGINT, SIGQUIT and SIGHUP.",
        ),
        SIGUSR1,
        &[
            "The container runtime sent SIGUSR1 to PID 1 `postgres`, the handler started",
            "but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    discarded(
        "haproxy-quit",
        "nothing: the master ignores the signal",
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
        "nothing: gunicorn is no daemon",
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
        "the log is reopened",
        SUPERVISORD.documented("SIGUSR2: closes and reopens its log and the logs of its programs."),
        SIGUSR2,
        &["The container runtime sent SIGUSR2 to PID 1 `supervisord`, the handler started and sent no signal to `victim`"],
    ),
    runs_on(
        "java-quit",
        "thread dump",
        JAVA.documented("SIGQUIT: prints the stack traces of all threads, and goes on."),
        SIGQUIT,
        &[
            "The container runtime sent SIGQUIT to PID 1 `java`, the handler started, but the process did not exit: the container runtime sent SIGKILL",
        ],
    ),
    discarded(
        "java-usr1",
        "no handler",
        JAVA.documented("SIGUSR1 is reserved on Linux."),
        SIGUSR1,
        &["`java` is PID 1 and has no SIGUSR1 handler, so the kernel discarded the signal; the container runtime sent SIGKILL"],
    ),
];
