//! Servers of applications and their workers, in PHP, Python, Ruby, Perl and Erlang.

use nix::libc::{SIGINT, SIGQUIT, SIGTERM, SIGUSR1};

use crate::programs::{CLEAN, Installed, Ready, clean, not_pid_1, server, unclean, within};
use crate::story::{End, Expected, Story};

const PHP_FPM: Installed = Installed {
    name: "PHP-FPM",
    packages: &["php-fpm"],
    files: &["/usr/lib/php"],
    configuration: &[
        // The program's name has PHP's version.
        ("run", "#!/bin/sh\nexec /usr/sbin/php-fpm[0-9]* -F -n -y $DIR/php-fpm.conf\n"),
        (
            "php-fpm.conf",
            "[global]\npid = $DIR/fpm.pid\nerror_log = $DIR/error.log\ndaemonize = no\nprocess_control_timeout = 5\n\
         [www]\nuser = www-data\ngroup = www-data\nlisten = 127.0.0.1:$PORT\npm = static\npm.max_children = 2\n",
        ),
    ],
    command: &["$DIR/run"],
    ready: Ready::Listens,
    documented: "SIGINT, SIGTERM: immediate termination.",
};

const UWSGI: Installed = Installed {
    name: "uWSGI",
    packages: &["uwsgi-core", "uwsgi-plugin-python3"],
    files: &["/usr/bin/uwsgi-core", "/usr/lib/uwsgi/plugins/python3_plugin.so"],
    configuration: &[(
        "app.py",
        // The socket listens before there are workers.
        "import os, uwsgi\n\
         def application(environ, start_response):\n    start_response('200 OK', [])\n    return [b'']\n\
         def forked():\n    \
         open('$DIR/%d' % uwsgi.worker_id(), 'w').close()\n    \
         if os.path.exists('$DIR/1') and os.path.exists('$DIR/2'):\n        os.write(1, b'ready\\n')\n\
         uwsgi.post_fork_hook = forked\n",
    )],
    command: &[
        "/usr/bin/uwsgi-core",
        "--plugin",
        "python3",
        "--http-socket",
        "127.0.0.1:$PORT",
        "--master",
        "--die-on-term",
        "--processes",
        "2",
        "--chdir",
        "$DIR",
        "--module",
        "app",
    ],
    ready: Ready::Prints,
    documented: "SIGTERM: exits instead of a brutal reload, with --die-on-term.",
};

const PUMA: Installed = Installed {
    name: "Puma",
    packages: &["puma"],
    files: &["/usr/bin/puma"],
    configuration: &[("config.ru", "run ->(env) { [200, {}, ['']] }\n")],
    command: &[
        "/usr/bin/puma",
        "-b",
        "tcp://127.0.0.1:$PORT",
        "-e",
        "production",
        "$DIR/config.ru",
    ],
    ready: Ready::Listens,
    documented: "TERM: graceful stop, then a SignalException, unless raise_exception_on_sigterm is false.",
};

const UNICORN: Installed = Installed {
    name: "unicorn",
    packages: &["unicorn"],
    files: &["/usr/bin/unicorn"],
    command: &["/usr/bin/unicorn", "-l", "127.0.0.1:$PORT", "-E", "none", "$DIR/config.ru"],
    documented: "INT, TERM: quick shutdown, kills all workers immediately.",
    ..PUMA
};

const STARMAN: Installed = Installed {
    name: "Starman",
    packages: &["starman"],
    files: &["/usr/bin/starman"],
    configuration: &[("app.psgi", "sub { [200, [], ['']] };\n")],
    command: &[
        "/usr/bin/starman",
        "--listen",
        "127.0.0.1:$PORT",
        "--workers",
        "2",
        "$DIR/app.psgi",
    ],
    ready: Ready::Listens,
    documented: "QUIT: gracefully shuts down the workers.",
};

const HYPNOTOAD: Installed = Installed {
    name: "Hypnotoad",
    packages: &["libmojolicious-perl"],
    files: &["/usr/bin/hypnotoad"],
    configuration: &[(
        "app.pl",
        "use Mojolicious::Lite;\n\
         app->config(hypnotoad => {listen => ['http://127.0.0.1:$PORT'], workers => 2, pid_file => '$DIR/pid'});\n\
         get '/' => {text => ''};\napp->start;\n",
    )],
    command: &["/usr/bin/hypnotoad", "-f", "$DIR/app.pl"],
    ready: Ready::Listens,
    documented: "INT, TERM: shuts down the server immediately.",
};

const TWISTED: Installed = Installed {
    name: "Twisted",
    packages: &["python3-twisted"],
    files: &["/usr/bin/twistd3"],
    configuration: &[],
    command: &[
        "/usr/bin/twistd3",
        "-n",
        "--pidfile=",
        "web",
        "--listen",
        "tcp:$PORT:interface=127.0.0.1",
        "--path",
        "$DIR",
    ],
    ready: Ready::Listens,
    documented: "SIGINT and SIGTERM: clean shutdown. The manual page does not name SIGTERM.",
};

const CELERY: Installed = Installed {
    name: "Celery",
    packages: &["python3-celery"],
    files: &["/usr/lib/python3/dist-packages/celery/__main__.py"],
    configuration: &[(
        "tasks.py",
        "import os\nfrom celery import Celery\nfrom celery.signals import worker_ready\n\
         app = Celery('tasks', broker='memory://')\n\
         worker_ready.connect(lambda **_: os.write(1, b'ready\\n'), weak=False)\n",
    )],
    command: &[
        "/usr/bin/python3",
        "-m",
        "celery",
        "--workdir",
        "$DIR",
        "-A",
        "tasks",
        "worker",
        "--concurrency",
        "2",
    ],
    ready: Ready::Prints,
    documented: "TERM: warm shutdown, which finishes the tasks under way.",
};

const ERLANG: Installed = Installed {
    name: "Erlang",
    packages: &["erlang-base"],
    files: &["/usr/bin/erl"],
    configuration: &[],
    command: &[
        "/usr/bin/erl",
        "-noinput",
        "-eval",
        "spawn(fun() -> {ok, _} = gen_tcp:listen($PORT, [{ip, {127,0,0,1}}, {reuseaddr, true}]), receive after infinity -> ok end end).",
    ],
    ready: Ready::Listens,
    documented: "SIGTERM has the same effect as init:stop/0, which stops all applications.",
};

/// PID 1 raises the signal again after its shutdown, and exits with an error because that did not end it.
const RAISED_IN_VAIN: Expected = Expected {
    end: End::Code(1),
    sentence: &["raised SIGTERM again", "exited with code 1"],
    remedy: &["exit with 0", "small init"],
    ..CLEAN
};

pub static STORIES: &[Story] = &[
    server(
        "php-fpm-term",
        "immediate termination",
        PHP_FPM,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `php-fpm",
            "the handler ran and sent the signal on to 2 processes, and the process exited with code 0",
        ]),
    ),
    server(
        "php-fpm-quit",
        "graceful stop",
        PHP_FPM.documented("SIGQUIT: graceful stop."),
        SIGQUIT,
        clean(&[
            "The container runtime sent SIGQUIT to PID 1 `php-fpm",
            "the handler ran and sent the signal on to 2 processes, and the process exited with code 0",
        ]),
    ),
    server(
        "uwsgi-term",
        "stop, with --die-on-term",
        UWSGI,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `uwsgi-core`, the handler ran and sent SIGINT to 2 processes",
            "the process exited with code 0",
        ]),
    ),
    server(
        "uwsgi-int",
        "stop",
        UWSGI.documented("SIGINT, SIGQUIT: immediately kills the entire uWSGI stack."),
        SIGINT,
        clean(&[
            "The container runtime sent SIGINT to PID 1 `uwsgi-core`, the handler ran and sent",
            "the process exited with code 0",
        ]),
    ),
    server(
        "puma-term",
        "graceful stop as PID 1: SIGTERM cannot end PID 1, so the exception makes Puma exit with 1",
        PUMA,
        SIGTERM,
        RAISED_IN_VAIN,
    ),
    server(
        "puma-cluster",
        "graceful stop of a master with workers as PID 1",
        Installed {
            command: &[
                "/usr/bin/puma",
                "-w",
                "2",
                "-b",
                "tcp://127.0.0.1:$PORT",
                "-e",
                "production",
                "$DIR/config.ru",
            ],
            ..PUMA
        },
        SIGTERM,
        RAISED_IN_VAIN,
    ),
    server(
        "puma-int",
        "graceful stop",
        PUMA.documented("INT, which Ctrl-C sends: graceful stop."),
        SIGINT,
        clean(&["The container runtime sent SIGINT to PID 1 `puma`, the handler ran, and the process exited with code 0"]),
    ),
    not_pid_1(server(
        "puma-not-pid-1",
        "graceful stop, in the host's pid namespace: the exception ends Puma by SIGTERM",
        PUMA,
        SIGTERM,
        Expected {
            end: End::Signal(SIGTERM),
            sentence: &[
                "The container runtime sent SIGTERM to `puma` (pid ",
                "the handler ran, and the process then terminated itself with the same signal",
            ],
            ..CLEAN
        },
    )),
    server(
        "unicorn-term",
        "quick shutdown",
        UNICORN,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `unicorn`, the handler ran and sent the signal on to `unicorn` (pid ",
            "the process exited with code 0",
        ]),
    ),
    server(
        "unicorn-quit",
        "graceful shutdown",
        UNICORN.documented("QUIT: graceful shutdown, waits for workers to finish their current request."),
        SIGQUIT,
        clean(&["The container runtime sent SIGQUIT to PID 1 `unicorn`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "starman-quit",
        "graceful shutdown",
        STARMAN,
        SIGQUIT,
        clean(&[
            "The container runtime sent SIGQUIT to PID 1 `starman master`, the handler ran, and the process exited with code 0",
        ]),
    ),
    server(
        "hypnotoad-term",
        "immediate shutdown: the manager kills its workers",
        HYPNOTOAD,
        SIGTERM,
        unclean(
            End::Code(0),
            "force-killed",
            &[
                "The container runtime sent SIGTERM to PID 1 `",
                "the handler ran, and the process exited with code 0",
                "which never got the signal, with its listener open",
            ],
            &[],
        ),
    ),
    server(
        "hypnotoad-quit",
        "graceful shutdown",
        HYPNOTOAD.documented("QUIT: shuts down the server gracefully."),
        SIGQUIT,
        clean(&[
            "The container runtime sent SIGQUIT to PID 1 `",
            "the handler ran and sent the signal on to 2 processes, and the process exited with code 0",
        ]),
    ),
    not_pid_1(server(
        "twisted-not-pid-1",
        "clean shutdown in the host's pid namespace; Twisted then raises the signal again",
        TWISTED,
        SIGTERM,
        Expected {
            end: End::Signal(SIGTERM),
            sentence: &[
                "The container runtime sent SIGTERM to `twistd3` (pid ",
                "the handler ran, and the process then terminated itself with the same signal",
            ],
            ..CLEAN
        },
    )),
    within(
        30,
        "celery-term",
        "warm shutdown",
        CELERY,
        SIGTERM,
        clean(&["The container runtime sent SIGTERM to PID 1 `python3`, the handler ran, and the process exited with code 0"]),
    ),
    within(
        30,
        "celery-quit",
        "cold shutdown",
        CELERY.documented("QUIT: cold shutdown, which terminates as soon as possible."),
        SIGQUIT,
        clean(&[
            "The container runtime sent SIGQUIT to PID 1 `python3`, the handler ran and sent SIGTERM to 2 processes",
            "the process exited with code 0",
        ]),
    ),
    server(
        "erlang-term",
        "init:stop/0",
        ERLANG,
        SIGTERM,
        clean(&["The container runtime sent SIGTERM to PID 1 `beam.smp`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "erlang-usr1",
        "crash dump",
        ERLANG.documented("SIGUSR1: forces a crash dump."),
        SIGUSR1,
        unclean(End::Code(1), "nonzero-exit", &["SIGUSR1", "exited with code 1"], &["log"]),
    ),
];
