//! `graceful_node_shutdown_state`: the times of the last shutdown that the kubelet managed. Pure.

use epitaph_core::node::KubeletState;
use epitaph_core::time::Wall;
use serde::Deserialize;

pub const FILE: &str = "graceful_node_shutdown_state";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Times<'a> {
    #[serde(borrow, default)]
    start_time: Option<&'a str>,
    #[serde(borrow, default)]
    end_time: Option<&'a str>,
}

/// # Errors
/// As text: not what the kubelet writes.
pub fn parse(bytes: &[u8]) -> Result<KubeletState, String> {
    // A list would be read as the object's values.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err("not what the kubelet writes: not an object".to_owned());
    }
    let times: Times =
        serde_json::from_slice(bytes).map_err(|error| format!("not what the kubelet writes: line {}", error.line()))?;
    Ok(KubeletState {
        started: times.start_time.map(time).transpose()?.flatten(),
        ended: times.end_time.map(time).transpose()?.flatten(),
    })
}

/// Go's zero time, of the year 1, is no time.
fn time(text: &str) -> Result<Option<Wall>, String> {
    let time: jiff::Timestamp = text
        .parse()
        .map_err(|_| "not what the kubelet writes: not a time".to_owned())?;
    Ok(u64::try_from(time.as_nanosecond()).ok().filter(|nanos| *nanos > 0).map(Wall))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_any_offset() {
        let state = parse(br#"{"startTime":"2026-11-21T12:44:10.123456789+01:00","endTime":"2026-11-21T11:44:20Z"}"#).unwrap();
        let started = state.started.unwrap();
        assert_eq!(started.rfc3339(), "2026-11-21T11:44:10.123456789Z");
        assert_eq!(state.ended.unwrap().rfc3339(), "2026-11-21T11:44:20.000000000Z");
    }

    #[test]
    fn a_zero_time_is_none() {
        let state = parse(br#"{"startTime":"2026-11-21T12:44:10Z","endTime":"0001-01-01T00:00:00Z"}"#).unwrap();
        assert!(state.started.is_some() && state.ended.is_none());
        assert_eq!(parse(b"{}"), Ok(KubeletState::default()));
    }

    #[test]
    fn other_text_is_an_error_without_the_text() {
        for bytes in [
            &b"secret"[..],
            b"",
            b"[]",
            br#"{"startTime":"secret"}"#,
            br#"{"startTime":7}"#,
            b"\xff",
        ] {
            let error = parse(bytes).unwrap_err();
            assert!(
                error.starts_with("not what the kubelet writes") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
