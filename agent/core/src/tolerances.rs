//! Every constant of time by which the facts and verdicts of terminations and shutdowns are made, once, with what was measured for it. Where
//! nothing was measured, the number is chosen: its comment has only the reason.

use std::time::Duration;

// How far apart two observations of one fact can be.

/// Two agents measure the time of the same event themselves: at most so far apart.
pub const BETWEEN_AGENTS: Duration = Duration::from_millis(1);
/// `/proc` gives a start in clock ticks of 10 ms; twice that allows for the conversion between clocks.
pub const START_SLACK: Duration = Duration::from_millis(20);
/// The kernel takes a listener out of its table before it records the close.
pub const UNHASHED: Duration = Duration::from_millis(20);
/// Between the records of both ends of a connection within one host.
pub const SAME_MOMENT: Duration = Duration::from_millis(100);
/// Messages of two senders on the bus may arrive in either order within this.
pub const BUS_APART: Duration = Duration::from_secs(1);
/// systemd-oomd emits its signal as soon as it has sent every SIGKILL.
pub const OOMD: Duration = Duration::from_secs(2);
/// A wall clock that moves by less was adjusted, and did not step.
pub const CLOCK_STEP: Duration = Duration::from_secs(1);
/// logind's timer and the arrival of its effects.
pub const LOGIND_TIMER: Duration = Duration::from_millis(250);
/// The kubelet's clock is the node's; its times are of its own begin of the shutdown.
pub const KUBELET_CLOCK: Duration = Duration::from_secs(10);
/// The times of Events are converted from a clock that is corrected now and then.
pub const EVENT_SLACK: Duration = Duration::from_secs(1);
/// A working watch shows a deletion within this time, even on a busy node.
pub const WATCH_DELAY: Duration = Duration::from_secs(1);

// How far a cause reaches to its effect.

/// A process that was running when the observation began and ends this soon may have been asked to stop before, whatever its grace period.
pub const LATE_REACH: Duration = Duration::from_secs(600);
/// Signals further apart than this are different requests.
pub const RUN_GAP: Duration = Duration::from_secs(600);
/// A stop signal this long before the exit did not cause the exit, unless the runtime's SIGKILL followed.
pub const STOP_REACH: Duration = Duration::from_secs(3600);
/// The same with that SIGKILL: the longest plausible grace period.
pub const GRACE_REACH: Duration = Duration::from_secs(24 * 3600);
/// The same of a signal that mostly means something else, as "reload".
pub const HANDLED_REACH: Duration = Duration::from_secs(10);
/// abort(3) goes on at once after a signal in vain.
pub const ABORT_REACH: Duration = Duration::from_millis(100);
/// If the main process exits this soon after the OOM kill of a child, the OOM kill is the reason.
pub const OOM_CHILD_REACH: Duration = Duration::from_secs(10);
/// `mark_victim` comes just after the SIGKILL and possibly just after the exit.
pub const OOM_SLACK: Duration = Duration::from_secs(1);
/// An init or a wrapper passes the status of its child on this soon: the same status shows that.
pub const CHILD_REACH: Duration = Duration::from_secs(1);
/// A wrapper that only waited for its child exits this soon after it: nothing but the time shows that.
pub const ONLY_WAITED: Duration = Duration::from_millis(300);
/// The same of a wrapper that cleans up.
pub const PASSED_ON: Duration = Duration::from_secs(10);
/// An exit so soon after a second signal that the kernel discarded follows from it.
pub const AFTER_DISCARD: Duration = Duration::from_millis(100);
/// A process that sends itself the stop signal again so soon after its handler has entered has finished no work in between.
pub const REFLEX: Duration = Duration::from_millis(10);
/// A process that got the stop signal so short a time before its SIGKILL need not have run in between.
pub const NO_TIME: Duration = Duration::from_millis(100);
/// A handler that entered later than this after its signal was late, as the sentence states.
pub const HANDLER_LATE: Duration = Duration::from_millis(100);
/// A program that is younger may not have installed its handlers yet, and was never ready.
pub const YOUNG: Duration = Duration::from_secs(1);
/// systemd signals all processes of a unit in one go; without CPU time that takes longer.
pub const TOGETHER: Duration = Duration::from_secs(5);
/// A lost message explains a later shutdown no longer than this, or than logind's limit: a shutdown takes minutes.
pub const BUS_REACH: Duration = Duration::from_secs(600);
/// systemd sends the stop signals of a shutdown to all units that do not wait for others, one after the other.
pub const STOP_SWEEP: Duration = Duration::from_secs(10);
/// The watch shows a deletion, after which a hook begins, this much later at most.
pub const HOOK_AFTER: Duration = Duration::from_secs(5);

// What clients meet at an end.

/// Refusals after the exit of a pod's container count for this long at most, and until a pause without refusals: a proxy or client
/// without CPU time for some seconds continues afterwards.
pub const REFUSED_ON: Duration = Duration::from_secs(30);
pub const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// For other subjects only early refusals count: refusals this late mean that clients still connect.
pub const REFUSED_LATE: Duration = Duration::from_millis(500);
/// The kernel closes the sockets of a process after the record of its exit: after seconds where others use the processors. The cgroup can
/// be removed after that only, and a runtime removes it at once.
pub const SOCKETS_CLOSED: Duration = Duration::from_secs(10);
/// A program that exits this long after a close has not closed the connection with its exit.
pub const EXIT_TAKES: Duration = Duration::from_secs(1);
/// A SYN without an answer is sent again after a second (TCP_TIMEOUT_INIT), and later ones later: where its sequence number is not known.
pub const SENT_AGAIN: Duration = Duration::from_millis(900);
/// The kernel gives a client the same port for the same server again, but not before this.
pub const PORTS_LAST: Duration = Duration::from_secs(60);
/// A preStop sleep that is longer than needed is advised against beyond this.
pub const LEAST_EXCESS: Duration = Duration::from_secs(10);
/// An answer that is written at once was prepared in less, mostly.
pub const ANSWERS: Duration = Duration::from_millis(100);
/// A stream or a download pauses for less, and a server that speaks first greets its client sooner.
pub const PAUSE: Duration = Duration::from_secs(1);

// What Kubernetes, its kubelet and systemd allow for.

/// The API's times, and the kubelet's counts, are whole seconds.
pub const RESOLUTION: Duration = Duration::from_secs(1);
/// `terminationGracePeriodSeconds` where the spec of a pod has none.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// The kubelet leaves at least this after the stop signal, however long the hook ran.
pub const KUBELET_MINIMUM: Duration = Duration::from_secs(2);
/// The kubelet's minimum plus the delay of a slow runtime.
pub const MINIMUM_AT_MOST: Duration = Duration::from_secs(3);
/// A busy kubelet and runtime may send the SIGKILL this long after the grace period.
pub const SLOW_KILL: Duration = Duration::from_secs(10);
/// A busy node does not explain a container that runs this long after its grace period.
pub const STUCK_AFTER: Duration = Duration::from_secs(10);
/// The kubelet's pod worker raises a shorter grace period to this.
pub const LEAST_GRACE: Duration = Duration::from_secs(1);
/// The cluster autoscaler announces an eviction once, and tries it for so long.
pub const RETRIES_EVICTION: Duration = Duration::from_secs(120);
/// systemd gives the processes of a unit 90 s by default, and some units more.
pub const UNITS_OTHERS: Duration = Duration::from_secs(600);
/// logind drops its plan when it begins the shutdown: the signal follows within this.
pub const PLAN_BEGINS: Duration = Duration::from_secs(5);
/// A shutdown that did not begin this long after its time is blocked, if a block lock is held.
pub const PLAN_LATE: Duration = Duration::from_secs(10);
/// A kubelet acts on a spoofed signal for its periods, and the runtime for a moment more.
pub const SPOOF_SLACK: Duration = Duration::from_secs(30);
/// A job for a shutdown that is gone, while the machine still runs after this: cancelled.
pub const STILL_UP: Duration = Duration::from_secs(30);
/// The same where systemd's jobs are not observed: after this time (JobTimeoutSec of its targets) systemd ends the machine by force.
pub const JOBS_DONE: Duration = Duration::from_secs(30 * 60);

// How long a verdict waits for what can still come.

/// Pods and the node wait for their containers' records if a busy caller is further behind: less than the shortest time after which a pod is
/// reported without a container's termination.
pub const BEHIND: Duration = Duration::from_secs(1);
/// On a slow machine the process that made a container's init may exit long before the init executes. The removal of the cgroup
/// shows that the container terminated; without a removal, this is the longest wait for a process whose name does not show what it is.
pub const STAGE_WAIT: Duration = Duration::from_secs(60);
/// How long a termination waits for the pod's status. Statuses arrive within 2 to 4 s of an exit, also when a whole pod is deleted; a
/// busy API server or kubelet needs longer.
pub const HOLD: Duration = Duration::from_secs(30);
/// A termination waits this long for an API that does not answer: the API server may be restarting, and the agent may have just started.
pub const HOLD_AWAY: Duration = Duration::from_secs(60);
/// The API server of a cluster that starts with its nodes may be late.
pub const NEXT_BOOT_PODS: Duration = Duration::from_secs(60);
/// The sources of the kubelet's files and of the pods begin with the agent.
pub const NEXT_BOOT_NODE: Duration = Duration::from_secs(30);
/// The Event that names the cause comes by another watch than the status that shows the restart.
pub const EVENTS_AFTER: Duration = Duration::from_secs(1);
/// The kubelet sets the terminal phase only when all of the pod is gone, which is slow on a busy node.
pub const PHASE_AFTER: Duration = Duration::from_secs(60);
/// Wait after a terminal phase, for reasons and conditions that are written with the phase or just after.
pub const TERMINAL_AFTER: Duration = Duration::from_secs(2);
/// For a container that still runs after its pod is gone from the API: a force delete kills within about 3 s of the request; a
/// longer grace period is added.
pub const ALIVE_AFTER_GONE: Duration = Duration::from_secs(60);
/// An exit that only the pod's status shows: after this time the kernel's record is lost.
pub const EXIT_LOST: Duration = Duration::from_secs(10);
/// The verdict is `stuck` 12 s after the grace period; this leaves room for a grace period of 0, which the kubelet raises to a
/// second, and for a late kubelet.
pub const OVERDUE: Duration = Duration::from_secs(15);
/// The caller announces the request with one of its next inputs, after the records that wait: no termination with an open question
/// is judged before.
pub const ANNOUNCED: Duration = Duration::from_millis(200);
/// A kubelet needs seconds for all that follows the last exit, and some tens of seconds for a slow volume.
pub const LINGERS: Duration = Duration::from_secs(60);
/// The Events are listed so long before: an answer takes seconds, and a second list may follow.
pub const LISTED_BEFORE: Duration = Duration::from_secs(15);
/// A kubelet tries to write an Event twelve times, ten seconds apart, the second time sooner (client-go's `maxTriesPerEvent` and
/// `defaultSleepDuration`; not measured): an outage of the API that is shorter loses none.
pub const EVENT_TRIED: Duration = Duration::from_secs(100);
/// Ten seconds between two of these tries, and five for a request: an API that answers for less may answer none.
pub const EVENT_RETRIED: Duration = Duration::from_secs(15);
/// A kubelet that cannot stop a pod tries again after 10 s to 15 s, each time with an Event: an older one may be of a try before the last, which
/// was successful.
pub const FRESH_EVENT: Duration = Duration::from_secs(30);

// How long something is kept, or how often it is looked at.

/// How long a removed cgroup answers: longer than any reorder window and any lag of the reader.
pub const KEEP_REMOVED: Duration = Duration::from_secs(120);
/// What has terminated is remembered this long for its late events: a little longer than the index answers for its cgroups.
pub const KEEP_FINISHED: Duration = Duration::from_secs(150);
/// A replay, and an agent without directories of runtimes, take no questions.
pub const WANTED_FOR: Duration = Duration::from_secs(10);
/// Within this time a process that is no older than an announced one is not announced.
pub const ANNOUNCE: Duration = Duration::from_secs(10);
/// The same signal from the same sender again within this time is counted, not kept.
pub const FOLD: Duration = Duration::from_secs(60);
/// How long the kernel records the sockets for such an exit or close, if the subject goes on.
pub const OWN_WATCH: Duration = Duration::from_secs(2);
/// Times this close are kept as one span.
pub const OWN_EXITS_JOINED: Duration = Duration::from_secs(1);
/// Longer than a record may be late.
pub const OWN_EXITS_KEPT: Duration = Duration::from_secs(60);
/// If no termination follows a signal or an exit, the kernel stops watching the subject's sockets after this time.
pub const WATCH: Duration = Duration::from_secs(60);
/// Clients' connects are looked through this often.
pub const CLIENTS_SWEEP: Duration = Duration::from_secs(60);
/// How often the namespaces without a closed listener are dropped, if there is no room.
pub const CLOSERS_SWEEP: Duration = Duration::from_secs(1);
/// A timeline's place in the order of idleness is renewed at most this often.
pub const TOUCH: Duration = Duration::from_secs(1);

// The observer.

/// Within this time an interrupted watch, or a watch with a silently broken connection, is back or reported as interrupted again.
pub const BACK_WITHIN: Duration = Duration::from_secs(100);
/// A resumed watch sends the missed changes in one burst; a change later than this after the burst's first is new.
pub const WATCH_BURST: Duration = Duration::from_secs(2);
/// How long a pod that is gone is still known: the watches of slices and pods are not synchronised.
pub const POD_KEPT: Duration = BACK_WITHIN.saturating_add(Duration::from_secs(20));
/// An endpoint that moves between slices is in no slice for a moment.
pub const ENDPOINT_MOVES: Duration = Duration::from_secs(3);
/// An endpoint that was never terminating and was removed this long before its pod's termination has another reason.
pub const ENDPOINT_LAG: Duration = Duration::from_secs(30);
/// An endpoint that was ready for longer after its pod was seen being deleted sent clients to a pod that was stopping.
pub const ENDPOINT_LATE: Duration = Duration::from_secs(1);
/// Not ready this shortly before the pod's termination is part of it: the two watches report a container's exit in any order.
pub const ENDPOINT_NEAR: Duration = Duration::from_secs(5);
/// A ReplicaSet replaces at once. A pod that was removed by scaling down is not replaced: a pod created later has another reason.
pub const REPLACED_AT_ONCE: Duration = Duration::from_secs(10);
/// The other controllers wait until the old pod is gone; a Job then waits six minutes at most.
pub const REPLACED_AFTER_GONE: Duration = Duration::from_secs(600);
/// How long after its creation a replacement may take to become ready: a volume of a lost node is detached after six minutes at the
/// earliest, or when somebody sets the taint.
pub const READY_WITHIN: Duration = Duration::from_secs(3600);
/// A shorter loss of a node has no root, unless it harmed a pod.
pub const LASTING_LOSS: Duration = Duration::from_secs(60);
/// How long after a node's return its pods may take to be gone, and their replacements to be ready.
pub const RECOVERY: Duration = Duration::from_secs(600);
/// Nodes that fell silent within this time fell silent together.
pub const LOST_TOGETHER: Duration = Duration::from_secs(120);
/// How often the waits for lost nodes are checked.
pub const LOSS_CHECKED: Duration = Duration::from_secs(1);
/// The same of the waits for replacements.
pub const VACANCIES_CHECKED: Duration = Duration::from_secs(1);
/// A controller that evicts has begun that long after the kubelet's silence.
pub const EVICTIONS_HELD_BACK: Duration = Duration::from_secs(60);
/// A kubelet renews its Lease every 10 s, and a controller marks the node after 40 s, or as long as it is set to.
pub const PLAUSIBLE_SILENCE: Duration = Duration::from_secs(600);
/// How long after a kubelet's announcement of a shutdown the node's agent is asked again for the shutdown's number.
pub const NUMBERED_WITHIN: Duration = Duration::from_secs(60);
/// A node whose alarms count as flapping has one in so long, at most.
pub const ALARM_AGAIN: Duration = Duration::from_secs(600);
/// How much longer than its grace period a deleted pod may take on a healthy node, before it counts as held.
pub const HELD_SLACK: Duration = Duration::from_secs(2);
/// A pod that is not deleted that long after the evictions began tolerates the loss for longer than by default (300 s).
pub const TOLERATED_LOSS: Duration = Duration::from_secs(600);
/// Between the unanswered requests after which an agent counts as silent.
pub const AGENT_ASKED_AGAIN: Duration = Duration::from_secs(5);
/// Between later ones: an agent may answer again, or no longer.
pub const AGENT_ASKED_LATER: Duration = Duration::from_secs(60);
/// Without an answer by then, a question to an agent was dropped.
pub const AGENT_QUESTION_DROPPED: Duration = Duration::from_secs(300);
/// Without enough answers by then, nothing is known of the agent.
pub const AGENT_ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// Between two questions about one volume: longer than an answer takes, and an API server that loses a zone is spared.
pub const VOLUME_FIRST_PAUSE: Duration = Duration::from_secs(8);
pub const VOLUME_LONGEST_PAUSE: Duration = Duration::from_secs(512);

// Rollouts.

/// So long no old pod exists before a rollout has settled: the last reports are written in the meantime.
pub const SETTLE: Duration = Duration::from_secs(30);
/// Between two questions about one workload.
pub const ROLLOUT_LOOK: Duration = Duration::from_secs(5);
/// While pods without a report are left after a rollout, the reports are read again: so often, and for so long. An agent tries for 15 minutes to write
/// to an API server that answers with errors.
pub const ROLLOUT_LOOK_AGAIN: Duration = Duration::from_secs(30);
pub const ROLLOUT_LATE: Duration = Duration::from_secs(15 * 60);
/// A report has the earliest time of a deletion request, by the node's clock: the API server gives whole seconds, and how far its clock is from the
/// node's is known to about a second. A request so long before the creation of a ReplicaSet may have come after it.
pub const REQUEST_EARLY: Duration = Duration::from_secs(2);
/// With the strategy `Recreate` the new ReplicaSet is created when the last old pod is gone: within this time of its exit, unless a volume or a
/// finalizer holds it for longer. Not measured.
pub const RECREATED: Duration = Duration::from_secs(2 * 60);
/// So long a ReplicaSet is at zero at most when the strategy `Recreate` creates the next one: [`RECREATED`], and the default grace period of its
/// pods. After longer, how many pods were replaced is not known.
pub const AT_ZERO: Duration = Duration::from_secs(2 * 60 + 30);
/// Between the deletion requests for two pods of a ReplicaSet that is scaled to zero: its controller makes 20 requests a second by default.
pub const DELETED_TOGETHER: Duration = Duration::from_secs(10);
/// The clocks of API server and observer differ by less. Not measured.
pub const CLOCKS_APART: Duration = Duration::from_secs(10 * 60);
/// At the begin of an observation, a rollout to a ReplicaSet that is younger may have settled while nobody looked: it is looked at again.
pub const ROLLOUT_RECENT: Duration = Duration::from_secs(60 * 60);

// Other agents on the same machine.

/// How often an agent announces itself.
pub const PEER_PERIOD: Duration = Duration::from_secs(60);
/// Least time between two announcements of ours.
pub const PEER_ANSWER: Duration = Duration::from_secs(1);
/// Longer than three periods: announcements may be lost in a storm of signals.
pub const PEER_FORGOTTEN: Duration = Duration::from_secs(200);
