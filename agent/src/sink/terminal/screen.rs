//! The tty of the live view: keys without echo, the size, and the original state restored at every exit.
//!
//! Only line editing and echo are turned off (`cbreak`): Ctrl-C and Ctrl-Z stay signals, and log lines on standard error keep
//! their line ends.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEventKind};
use nix::sys::termios::{self, LocalFlags, SetArg, Termios};
use tokio::sync::mpsc;

/// Action of the user at the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Quit,
    Resize { columns: u16 },
}

/// Original state of the terminal; taken by the first code that restores it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal of the live view. A drop, and a panic anywhere, restores the original state.
pub struct Screen {
    stop: Arc<AtomicBool>,
}

impl Screen {
    /// True if standard output and input are our terminal: a background job that changes the terminal would be stopped.
    pub fn available() -> bool {
        io::stdout().is_terminal()
            && io::stdin().is_terminal()
            && nix::unistd::tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == nix::unistd::getpgrp())
    }

    /// Columns of the terminal; 80 if unknown.
    pub fn columns() -> u16 {
        crossterm::terminal::size()
            .ok()
            .map(|(columns, _)| columns)
            .filter(|&c| c > 0)
            .unwrap_or(80)
    }

    /// Takes the terminal. Acts arrive on the receiver; a full queue drops resizes only (the next resize reads the size again).
    pub fn enter() -> io::Result<(Screen, mpsc::Receiver<Act>)> {
        restore_on_panic();
        let stdin = io::stdin();
        let before = termios::tcgetattr(stdin.as_fd())?;
        let mut ours = before.clone();
        ours.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        *lock() = Some(before);
        if let Err(e) = termios::tcsetattr(stdin.as_fd(), SetArg::TCSANOW, &ours) {
            restore();
            return Err(e.into());
        }
        let stop = Arc::new(AtomicBool::new(false));
        // Made before the thread, so that a failed spawn restores the terminal.
        let screen = Screen { stop: stop.clone() };
        let (acts, receiver) = mpsc::channel(16);
        std::thread::Builder::new()
            .name("keys".into())
            .spawn(move || read_keys(&stop, &acts))?;
        Ok((screen, receiver))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        restore();
    }
}

/// A terminal that cannot be read any more (hung up) ends the thread: the view continues without keys until a signal.
fn read_keys(stop: &AtomicBool, acts: &mpsc::Sender<Act>) {
    while !stop.load(Ordering::Relaxed) && !acts.is_closed() {
        let event = match event::poll(Duration::from_millis(200)) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(e) => Err(e),
        };
        match event.map(act) {
            Ok(Some(Act::Quit)) => {
                let _ = acts.blocking_send(Act::Quit);
                return;
            }
            Ok(Some(resize)) => drop(acts.try_send(resize)),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

fn act(event: Event) -> Option<Act> {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press && matches!(key.code, KeyCode::Char('q' | 'Q')) => Some(Act::Quit),
        // Our own peer announcement (SIGWINCH) arrives here, too; a terminal of unknown size then reports 0.
        Event::Resize(columns, _) if columns > 0 => Some(Act::Resize { columns }),
        _ => None,
    }
}

fn restore() {
    if let Some(before) = lock().take() {
        let _ = termios::tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &before);
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Restores the terminal before the panic's message, so that the message is readable.
fn restore_on_panic() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            next(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn q_ends_and_other_keys_do_nothing() {
        let key = |c| act(Event::Key(KeyEvent::from(KeyCode::Char(c))));
        assert_eq!(key('q'), Some(Act::Quit));
        assert_eq!(key('x'), None);
        assert_eq!(act(Event::Resize(40, 10)), Some(Act::Resize { columns: 40 }));
        assert_eq!(act(Event::Resize(0, 0)), None);
    }
}
