//! What the kernel shows of a shutdown: signals to PID 1, those of systemd-shutdown, which is PID 1 by then, and systemd's own stop signals
//! to pods and services alike.

use super::NodeMachine;
use super::parts::FromNode;
use super::sweep::{Known, Stop};
use crate::attribute::{Attribution, Subject};
use crate::event::{Event, Kind, SignalGenerate};
use crate::ids::{CgroupId, Pid, Signal};
use crate::ledger::Whose;
use crate::node::ShutdownKind;
use crate::shutdown::{InitSignal, Signs};
use crate::time::Boot;

/// glibc's SIGRTMIN.
const RTMIN: u8 = 34;

impl NodeMachine {
    /// PID 1 sent a main process its stop signal. When systemd began to stop pods and services alike, if it has.
    pub fn stopped_by_init(&mut self, at: Boot, own: CgroupId, subject: &Subject) -> Option<Boot> {
        let pod = match subject {
            Subject::Container { pod: None, .. } => return None,
            Subject::Container { pod, .. } => pod.clone(),
            Subject::Unit { .. } => None,
        };
        let known = Known {
            held: self.bus.kubelet_holds(),
            doubt: self.bus.doubt(at, self.bus.limit),
        };
        self.sweep.add(Stop { at, own, pod, known })
    }

    pub fn swept(&mut self, since: Boot, out: &mut FromNode) {
        // Without a source about the node there is nothing to report.
        if !self.active {
            return;
        }
        let known = self.sweep.known(since).filter(|_| !self.is_shutting_down());
        let open = self.real(since, out);
        let first = open.facts.signs.swept.get_or_insert(since);
        *first = since.min(*first);
        if let Some(known) = known {
            open.facts.kubelet.held = known.held.or(open.facts.kubelet.held);
            open.doubt = known.doubt;
        }
    }

    pub fn kernel(&mut self, at: Boot, event: &Event, out: &mut FromNode) {
        let Event::SignalGenerate(signal) = event else { return };
        if is_to_init(signal) {
            self.asked_init(at, signal, out);
        } else if by_shutdown(signal) && matches!(signal.signal, Signal::TERM | Signal::KILL) {
            let signs = &mut self.real(at, out).facts.signs;
            let first = match signal.signal {
                Signal::TERM => signs.terminated.get_or_insert(at),
                _ => signs.killed.get_or_insert(at),
            };
            *first = at.min(*first);
        }
    }

    /// Whether the record is a sign that is not known yet: kept in the journal.
    pub fn is_news(&self, event: &Event) -> bool {
        let Event::SignalGenerate(signal) = event else { return false };
        let signs = self.open.as_ref().map(|open| &open.facts.signs);
        let is_known = |of: fn(&Signs) -> Option<Boot>| signs.is_some_and(|signs| of(signs).is_some());
        if is_to_init(signal) {
            return asks(signal.signal).is_some() && !is_known(|signs| signs.signal.map(|signal| signal.at));
        }
        if by_shutdown(signal) {
            return match signal.signal {
                Signal::TERM => !is_known(|signs| signs.terminated),
                Signal::KILL => !is_known(|signs| signs.killed),
                _ => false,
            };
        }
        by_init(signal) && !is_known(|signs| signs.swept)
    }

    /// Records were lost: exits may be missing, of this subject or of any. systemd-shutdown signals every process: a container that loses its own
    /// records hides none of the signals to the others.
    pub fn lost_records(&mut self, kind: Kind, whose: Whose, within: Option<&Attribution>) {
        let Some(open) = &mut self.open else { return };
        let is_container = matches!(within, Some(Attribution::Subject(Subject::Container { .. }, _)));
        open.facts.gaps.signals |= kind == Kind::SignalGenerate && !is_container;
        let matters = matches!(kind, Kind::ProcessExit | Kind::SignalGenerate | Kind::CgroupRmdir);
        if matters && whose == Whose::Any {
            match within.and_then(Attribution::own) {
                Some(own) => open.runs.doubt(own),
                None => open.facts.gaps.exits = true,
            }
        }
    }

    /// The kernel lost records, perhaps of the only pods.
    pub fn lost_begins(&mut self, kind: Kind, within: Option<&Attribution>) {
        self.hidden.lost(kind, within);
    }

    /// All that exists was shown.
    pub fn scanned(&mut self) {
        self.hidden.all_shown();
    }

    fn asked_init(&mut self, at: Boot, signal: &SignalGenerate, out: &mut FromNode) {
        // PID 1 of the machine has a handler; only root can send it a signal.
        let Some(kind) = asks(signal.signal) else { return };
        let open = self.real(at, out);
        open.facts.kind = open.facts.kind.or(Some(kind));
        open.facts.signs.signal.get_or_insert(InitSignal {
            at,
            signal: signal.signal,
            pid: signal.sender.tgid,
            comm: signal.sender.comm,
        });
    }
}

/// Whether the machine has to see the record: nearly none.
pub(in crate::correlate) fn may_be_sign(event: &Event) -> bool {
    matches!(event, Event::SignalGenerate(signal) if is_to_init(signal) || signal.sender.tgid == Pid::INIT)
}

fn is_to_init(signal: &SignalGenerate) -> bool {
    signal.target.tgid == Pid::INIT && signal.target.ns_level == 0
}

/// systemd(1): SIGRTMIN+3 to +7 start a target, +13 to +17 end the machine at once.
fn asks(signal: Signal) -> Option<ShutdownKind> {
    let number = signal.number().checked_sub(RTMIN)?;
    Some(match number {
        3 | 13 => ShutdownKind::Halt,
        4 | 14 => ShutdownKind::PowerOff,
        5 | 15 => ShutdownKind::Reboot,
        6 | 16 => ShutdownKind::Kexec,
        7 | 17 => ShutdownKind::SoftReboot,
        _ => return None,
    })
}

fn by_shutdown(signal: &SignalGenerate) -> bool {
    by_init(signal) && signal.sender.comm.is_systemd_shutdown()
}

fn by_init(signal: &SignalGenerate) -> bool {
    signal.sender.tgid == Pid::INIT && signal.sender.ns_level == 0 && !signal.from_kernel
}
