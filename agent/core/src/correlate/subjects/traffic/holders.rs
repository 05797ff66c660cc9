//! Which processes closed sockets.

use super::super::connection::Use;
use super::super::lists::push_one;
use crate::event::{Tcp, TcpOp, TcpState};
use crate::ids::Pid;
use crate::termination::Held;
use crate::time::{Boot, TickRate};

/// Processes of a server with a worker for each connection.
const HOLDERS: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::correlate::subjects) struct Holders {
    of: Vec<(Pid, Holder)>,
    /// The last close of a socket by a process that is not among these.
    over: Option<Boot>,
}

/// A process that closed sockets.
#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    at_exit: Held,
    /// The same of a connection with a request that was not answered.
    unanswered: Option<Boot>,
    /// The last close, also by close(2).
    last: Boot,
    /// The same of a listener.
    listener: Option<Boot>,
}

impl Holders {
    pub fn add(&mut self, at: Boot, tcp: &Tcp, rate: TickRate) {
        let TcpOp::State { old, new } = tcp.op else { return };
        // What the other side does is handled in the context of any process.
        let is_closed = matches!(new, TcpState::FinWait1 | TcpState::LastAck | TcpState::Close) && tcp.sk_err == 0;
        let is_listener = match old {
            TcpState::Listen => true,
            TcpState::Established | TcpState::CloseWait if is_closed && !tcp.close.unheld => false,
            _ => return,
        };
        let known = self.of.iter().position(|(tgid, _)| *tgid == tcp.tgid);
        let place = known.unwrap_or(self.of.len());
        if place >= HOLDERS {
            self.over = Some(at).max(self.over);
            return;
        }
        if known.is_none() {
            push_one(&mut self.of, (tcp.tgid, Holder::default()));
        }
        let holder = &mut self.of[place].1;
        holder.last = holder.last.max(at);
        if is_listener {
            holder.listener = Some(at).max(holder.listener);
        }
        let by_exit = match is_listener {
            true => &mut holder.at_exit.listener,
            false => &mut holder.at_exit.connection,
        };
        let at_exit = Some(at).filter(|_| tcp.close.by_exit);
        *by_exit = at_exit.max(*by_exit);
        if !is_listener && tcp.close.by_exit && Use::of(tcp, rate) == Use::Unanswered {
            holder.unanswered = at_exit.max(holder.unanswered);
        }
    }

    /// After that time the exit of the process cut a client's request.
    pub fn has_cut(&self, by: Pid, from: Boot) -> bool {
        self.holder(by).is_some_and(|holder| holder.unanswered >= Some(from))
    }

    /// What the exit of the process closed after that time.
    pub fn held(&self, by: Pid, from: Boot) -> Held {
        let Held {
            listener, connection, ..
        } = self.holder(by).map(|holder| holder.at_exit).unwrap_or_default();
        Held {
            listener: listener.filter(|at| *at >= from),
            connection: connection.filter(|at| *at >= from),
            other: None,
        }
    }

    /// The process closed a listener or a connection after that time, by its exit or itself.
    pub fn has_closed(&self, by: Pid, from: Boot) -> bool {
        self.holder(by).is_some_and(|holder| holder.last >= from)
    }

    /// The same of a listener.
    pub fn has_closed_listener(&self, by: Pid, from: Boot) -> bool {
        self.holder(by).is_some_and(|holder| holder.listener >= Some(from))
    }

    fn holder(&self, by: Pid) -> Option<&Holder> {
        self.of.iter().find(|(tgid, _)| *tgid == by).map(|(_, holder)| holder)
    }

    /// Every process that closed a socket after that time is among these.
    pub fn knows(&self, from: Boot) -> bool {
        self.over.is_none_or(|over| over < from)
    }

    /// Keeps only who closed after `before`.
    pub fn expire(&mut self, before: Boot) {
        self.of.retain(|(_, holder)| holder.last > before);
    }

    pub fn len(&self) -> usize {
        self.of.len()
    }

    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.of.capacity() * size_of::<(Pid, Holder)>()
    }
}
