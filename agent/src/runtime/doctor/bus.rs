//! What logind says on the bus, for `epitaph doctor`: asked by a process of its own (`epitaph logind --print`), because the person is
//! mostly root, and root on the bus could do anything there.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use epitaph_core::node::{BusState, NodeEvent};
use serde::Deserialize;

/// A busy machine starts a process and answers on the bus within this.
const PATIENCE: Duration = Duration::from_secs(5);

/// Events of a bus on which much happens.
const MOST: usize = 256;

/// Of the other process, one line.
#[derive(Deserialize)]
struct Line {
    node: NodeEvent,
}

/// The complete states, as far as they came in time.
///
/// # Errors
/// Why nothing is known, as text.
pub fn ask() -> Result<Vec<NodeEvent>, String> {
    // Not the program's path: that may be another file by now.
    let mut child = Command::new("/proc/self/exe")
        .args(["logind", "--print"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("the process that asks the bus did not start: {error}"))?;
    let (sender, lines) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    let mut events: Vec<NodeEvent> = Vec::new();
    while events.len() < MOST
        && !is_whole(&events)
        && let Ok(line) = lines.recv_timeout(PATIENCE)
    {
        // A line that is not an event is not of the bus.
        events.extend(serde_json::from_str(&line).ok().map(|line: Line| line.node));
    }
    let _ = child.kill();
    let _ = child.wait();
    if events.is_empty() {
        return Err(format!("the bus was asked, and nothing came within {PATIENCE:?}"));
    }
    Ok(events)
}

/// Whether nothing more is needed.
fn is_whole(events: &[NodeEvent]) -> bool {
    let has = |wanted: fn(&NodeEvent) -> bool| events.iter().any(wanted);
    has(|event| {
        matches!(
            event,
            NodeEvent::Bus {
                state: BusState::Unavailable { .. }
            }
        )
    }) || has(|event| matches!(event, NodeEvent::DelayLimit { .. }))
        && has(|event| matches!(event, NodeEvent::Inhibitors { .. }))
}
