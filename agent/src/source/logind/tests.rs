//! Both ends of the socket, with hostile ones. The bus itself: `tests/tests/logind.rs`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::ids::Pid;
use epitaph_core::input::Input;
use epitaph_core::node::{BusState, InhibitMode, Inhibitor, NodeEvent, OwnLock, ScheduledShutdown, ShutdownKind, SignalSender};
use epitaph_core::time::Wall;
use nix::unistd::geteuid;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::outbox::Outbox;
use super::session::FromLink;
use super::wire::{FromRole, PROTOCOL, frame};
use super::*;
use crate::waiting::LIMIT;

/// One event of each kind that the role writes.
pub(super) fn of_all_kinds() -> Vec<NodeEvent> {
    let text = |text: &str| text.to_owned();
    let lock = Inhibitor {
        what: text("shutdown:sleep"),
        who: text("kubelet"),
        why: text("Kubelet needs time to handle node shutdown"),
        mode: InhibitMode::Delay,
        uid: 0,
        pid: Pid(700),
    };
    let stranger = SignalSender::Other {
        name: text(":1.9"),
        pid: Some(Pid(9)),
        uid: Some(1_000),
        comm: Some(text("dbus-send")),
        unit: Some(text("session-3.scope")),
    };
    let prepare = |kind, sender| NodeEvent::Prepare {
        start: true,
        kind,
        sender,
    };
    let (unit, kind, at) = (text("reboot.target"), text("poweroff"), Wall(5));
    vec![
        NodeEvent::Bus {
            state: BusState::Unavailable { reason: text("no bus") },
        },
        NodeEvent::Bus {
            state: BusState::Connected {
                systemd: Some(252),
                preparing: false,
            },
        },
        prepare(Some(ShutdownKind::PowerOff), SignalSender::Logind),
        prepare(None, stranger),
        NodeEvent::Scheduled {
            shutdown: Some(ScheduledShutdown { kind, at }),
        },
        NodeEvent::Scheduled { shutdown: None },
        NodeEvent::Inhibitors {
            locks: vec![lock.clone(), lock],
        },
        NodeEvent::DelayLimit {
            limit: Duration::from_secs(30),
        },
        NodeEvent::OwnLock {
            state: OwnLock::Refused { reason: text("polkit") },
        },
        NodeEvent::OwnLock { state: OwnLock::Held },
        NodeEvent::Job { unit, removed: false },
        NodeEvent::SystemState { state: text("running") },
        NodeEvent::Lost {
            reason: text("logind_role_queue"),
            count: 3,
        },
    ]
}

struct Stage {
    directory: TempDir,
    logind: Option<Logind>,
}

impl Stage {
    fn new(uid: u32) -> Stage {
        let directory = tempfile::tempdir().unwrap();
        let mut stage = Stage { directory, logind: None };
        stage.restart(uid);
        stage
    }

    fn restart(&mut self, uid: u32) {
        self.logind = None;
        let options = AgentOptions {
            socket: self.socket(),
            inherited: None,
            uid,
            proc: self.directory.path().to_owned(),
        };
        self.logind = Some(Logind::start(options).unwrap());
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("logind.sock")
    }

    fn logind(&mut self) -> &mut Logind {
        self.logind.as_mut().unwrap()
    }

    async fn next(&mut self) -> NodeEvent {
        match timeout(LIMIT, self.logind().inputs.recv()).await {
            Ok(Some(Input::Node(event))) => event,
            other => panic!("not an event: {other:?}"),
        }
    }

    async fn expect(&mut self, events: &[NodeEvent]) {
        for event in events {
            let mut next = self.next().await;
            // On a slow machine the agent has waited too long for its first role.
            while next == off() && *event != off() {
                next = self.next().await;
            }
            assert_eq!(next, *event);
        }
    }

    fn dropped(&mut self, reason: LogindDropReason) -> u64 {
        self.logind().counters.dropped(reason)
    }
}

struct Role {
    outbox: Arc<Outbox>,
    link: JoinHandle<Infallible>,
    session: mpsc::Receiver<FromLink>,
}

impl Role {
    fn start(socket: &Path) -> Role {
        let outbox = Arc::new(Outbox::new());
        let (to, session) = mpsc::channel(16);
        let (socket, of_link) = (socket.to_owned(), outbox.clone());
        let link = tokio::spawn(async move { link::send(&socket, &of_link, to).await });
        Role { outbox, link, session }
    }

    fn put(&self, event: NodeEvent) {
        self.outbox.put(clock::now(), event);
    }

    async fn next(&mut self) -> FromLink {
        let next = timeout(LIMIT, self.session.recv()).await;
        next.unwrap().unwrap()
    }
}

/// What was put before the end of the role is with the agent, and the agent says whether the role is to stay.
#[tokio::test]
async fn everything_is_with_the_agent_before_the_role_ends() {
    let mut stage = Stage::new(me());
    let mut role = Role::start(&stage.socket());
    assert!(matches!(role.next().await, FromLink::Connected));
    assert!(
        role.outbox.stays(),
        "a socket of the agent's own: nothing ends the role first"
    );
    let job = |n| NodeEvent::Job {
        unit: "reboot.target".to_owned(),
        removed: n % 2 == 1,
    };
    for n in 0..50 {
        role.put(job(n));
    }
    timeout(LIMIT, role.outbox.is_with_agent()).await.unwrap();
    role.link.abort();
    let expected: Vec<NodeEvent> = (0..50).map(job).chain([off()]).collect();
    stage.expect(&expected).await;
    // Nobody reads any more: nothing is waited for.
    role.outbox.link(false);
    role.put(limit(99));
    timeout(LIMIT, role.outbox.is_with_agent()).await.unwrap();
    assert!(!role.outbox.stays());
}

/// systemd's stop signal can be faster than its job on the bus.
#[tokio::test]
async fn a_role_that_a_shutdown_stops_waits_for_the_job() {
    let mut stage = Stage::new(me());
    let mut role = Role::start(&stage.socket());
    assert!(matches!(role.next().await, FromLink::Connected));
    // As with the package: systemd stops the role before the agent.
    role.outbox.agent_stays(false);
    let preparing = NodeEvent::Bus {
        state: BusState::Connected {
            systemd: Some(252),
            preparing: true,
        },
    };
    role.put(preparing.clone());
    let (to, mut session) = mpsc::channel(1);
    let of_end = role.outbox.clone();
    let end = tokio::spawn(async move { end(&of_end, &to).await });
    assert!(matches!(session.recv().await, Some(FromLink::Settle(_))));
    stage.expect(&[preparing]).await;
    // Whoever waits for nothing but that has ended when the agent has what came behind it.
    role.put(limit(5));
    stage.expect(&[limit(5)]).await;
    assert!(!end.is_finished(), "the job is not on the bus yet");
    let job = NodeEvent::Job {
        unit: "reboot.target".to_owned(),
        removed: false,
    };
    role.put(job.clone());
    timeout(LIMIT, end).await.unwrap().unwrap();
    role.link.abort();
    stage.expect(&[job, off()]).await;
}

fn me() -> u32 {
    geteuid().as_raw()
}

fn connected() -> NodeEvent {
    let state = BusState::Connected {
        systemd: Some(252),
        preparing: false,
    };
    NodeEvent::Bus { state }
}

fn off() -> NodeEvent {
    NodeEvent::Bus { state: BusState::Off }
}

fn limit(seconds: u64) -> NodeEvent {
    let limit = Duration::from_secs(seconds);
    NodeEvent::DelayLimit { limit }
}

fn lost(reason: LogindDropReason) -> NodeEvent {
    let reason = reason.name().to_owned();
    NodeEvent::Lost { reason, count: 1 }
}

fn hello() -> Vec<u8> {
    let version = "test".to_owned();
    frame(&FromRole::Hello {
        protocol: PROTOCOL,
        version,
    })
}

/// Whether the agent has closed the connection.
async fn is_closed(stream: &mut UnixStream) -> bool {
    let mut rest = Vec::new();
    timeout(LIMIT, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_reach_the_agent_through_restarts_of_both() {
    let mut stage = Stage::new(me());
    let mut role = Role::start(&stage.socket());
    assert!(matches!(role.next().await, FromLink::Connected));
    role.put(connected());
    role.put(limit(30));
    stage.expect(&[connected(), limit(30)]).await;
    assert_eq!(stage.logind().counters.state(), LinkState::Connected);

    stage.logind().release();
    assert!(matches!(role.next().await, FromLink::Release));

    // The agent restarts: the states come again.
    stage.restart(me());
    assert!(matches!(role.next().await, FromLink::Gone));
    assert!(matches!(role.next().await, FromLink::Connected));
    stage.expect(&[connected(), limit(30)]).await;

    // The role is killed, and starts again.
    role.link.abort();
    stage.expect(&[off()]).await;
    assert_eq!(stage.logind().counters.state(), LinkState::Off);
    let mut role = Role::start(&stage.socket());
    assert!(matches!(role.next().await, FromLink::Connected));
    role.put(limit(5));
    stage.expect(&[limit(5)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_arrives_as_it_was_sent() {
    let mut stage = Stage::new(me());
    let mut role = Role::start(&stage.socket());
    assert!(matches!(role.next().await, FromLink::Connected));
    for event in of_all_kinds() {
        role.put(event.clone());
        stage.expect(&[event]).await;
    }
    assert_eq!(
        stage.dropped(LogindDropReason::RoleQueue),
        3,
        "what the role has dropped is counted"
    );
}

/// What anybody on the bus can provoke is counted, and is no gap in what logind says.
#[tokio::test(flavor = "multi_thread")]
async fn only_losses_that_can_hide_logind_are_evidence() {
    let mut stage = Stage::new(me());
    let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
    let all = LogindDropReason::ALL.map(|reason| frame(&FromRole::Event { node: lost(reason) }));
    stream.write_all(&[hello(), all.concat()].concat()).await.unwrap();
    stage
        .expect(&[
            lost(LogindDropReason::SignalQueue),
            lost(LogindDropReason::RoleQueue),
            lost(LogindDropReason::Oversize),
            lost(LogindDropReason::Undecodable),
        ])
        .await;
    // Not before: the agent answers the greeting, and ends with a role that is gone.
    drop(stream);
    stage.expect(&[off()]).await;
    assert_eq!(LogindDropReason::ALL.map(|reason| stage.dropped(reason)), [1; 8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_adds_the_process_that_only_it_sees() {
    let mut stage = Stage::new(me());
    std::fs::create_dir(stage.directory.path().join("9")).unwrap();
    std::fs::write(stage.directory.path().join("9/comm"), "\u{1b}[2Jx\n").unwrap();
    let sender = |comm: Option<&str>| SignalSender::Other {
        name: ":1.9".to_owned(),
        pid: Some(Pid(9)),
        uid: None,
        comm: comm.map(str::to_owned),
        unit: None,
    };
    let of = |sender| NodeEvent::Prepare {
        start: true,
        kind: None,
        sender,
    };
    let mut role = Role::start(&stage.socket());
    assert!(matches!(role.next().await, FromLink::Connected));
    role.put(of(sender(None)));
    stage.expect(&[of(sender(Some("\\u{1b}[2Jx")))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_is_refused() {
    let mut stage = Stage::new(me() + 1);
    let mode = std::fs::metadata(stage.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
    let _ = stream
        .write_all(&[hello(), frame(&FromRole::Event { node: limit(1) })].concat())
        .await;
    assert!(is_closed(&mut stream).await);
    assert_eq!(stage.dropped(LogindDropReason::Peer), 1);
    // Nothing of it was read: the first input is that there is no role.
    stage.expect(&[off()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_one_role() {
    let mut stage = Stage::new(me());
    let mut first = UnixStream::connect(stage.socket()).await.unwrap();
    first.write_all(&hello()).await.unwrap();
    first.write_all(&frame(&FromRole::Event { node: limit(1) })).await.unwrap();
    stage.expect(&[limit(1)]).await;
    let mut second = UnixStream::connect(stage.socket()).await.unwrap();
    assert!(is_closed(&mut second).await);
    assert_eq!(stage.dropped(LogindDropReason::Peer), 1);
    first.write_all(&frame(&FromRole::Event { node: limit(2) })).await.unwrap();
    stage.expect(&[limit(2)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversize_garbage_and_strange_protocols_end_the_connection_and_are_counted() {
    let kubelet = NodeEvent::KubeletState {
        state: Err("x".to_owned()),
    };
    let version = "9".to_owned();
    let future = FromRole::Hello { protocol: 99, version };
    let garbage = [3, 0, 0, 0, b'x', b'x', b'x'];
    for (bytes, reason, count) in [
        (
            [hello(), u32::MAX.to_le_bytes().to_vec()].concat(),
            LogindDropReason::Oversize,
            1,
        ),
        ([hello(), garbage.repeat(16)].concat(), LogindDropReason::Undecodable, 16),
        (
            [hello(), frame(&FromRole::Event { node: kubelet }).repeat(16)].concat(),
            LogindDropReason::Undecodable,
            16,
        ),
        (frame(&FromRole::Alive), LogindDropReason::Undecodable, 1),
        (frame(&future), LogindDropReason::Undecodable, 1),
        ([hello(), hello()].concat(), LogindDropReason::Undecodable, 1),
    ] {
        let mut stage = Stage::new(me());
        let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
        let _ = stream.write_all(&bytes).await;
        assert!(is_closed(&mut stream).await, "{reason:?}");
        for _ in 0..count {
            stage.expect(&[lost(reason)]).await;
        }
        stage.expect(&[off()]).await;
        assert_eq!(stage.dropped(reason), count);
        // The next role is welcome.
        let mut role = Role::start(&stage.socket());
        assert!(matches!(role.next().await, FromLink::Connected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_the_role_is_slowed_down() {
    let mut stage = Stage::new(me());
    let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
    let flood = tokio::spawn(async move {
        stream.write_all(&hello()).await?;
        let both = [
            frame(&FromRole::Event { node: limit(1) }),
            frame(&FromRole::Event { node: limit(2) }),
        ]
        .concat();
        loop {
            stream.write_all(&both).await?;
        }
        #[expect(unreachable_code, reason = "the type of the block")]
        std::io::Result::Ok(())
    });
    let mut count = 0;
    let _ = timeout(Duration::from_secs(2), async {
        loop {
            stage.next().await;
            count += 1;
        }
    })
    .await;
    // The burst, and what comes in two seconds; a machine that stands still gives less.
    assert!((1..3_000).contains(&count), "{count}");
    flood.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_does_not_exist_is_an_error_with_the_remedy() {
    let options = AgentOptions {
        socket: "/nonexistent/logind.sock".into(),
        inherited: None,
        uid: 0,
        proc: "/proc".into(),
    };
    let error = Logind::start(options).err().expect("no directory");
    let text = crate::error::line(&error);
    assert!(
        text.starts_with("cannot listen for the logind role at /nonexistent/logind.sock: No such file"),
        "{text}"
    );
    assert!(text.contains("logind.socket"), "{text}");
}
