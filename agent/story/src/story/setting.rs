//! The value of a setting to paste. Whoever pastes a value sets it, so a value is compared with the present one before it has a text:
//! a patch that should give more time must not take time away.

use std::time::Duration;

/// What a setting has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Present {
    /// Nothing, and nothing stands in for it: any value is more.
    Unset,
    Is(Duration),
    /// Nobody reported it. At least the default, unless somebody has lowered it.
    Unknown {
        default: Duration,
    },
}

/// Whole seconds to paste, compared with the present value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    seconds: u64,
    /// The present value is not known, and may be more.
    only_if_less: bool,
}

impl Value {
    /// For a setting that is too small. None if `seconds` are not more than it has.
    pub fn more(than: Present, seconds: u64) -> Option<Value> {
        let (least, only_if_less) = match than {
            Present::Unset => (Duration::ZERO, false),
            Present::Is(present) => (present, false),
            Present::Unknown { default } => (default, true),
        };
        (Duration::from_secs(seconds) > least).then_some(Value { seconds, only_if_less })
    }

    /// For a setting that a measurement showed to be many times what was needed. None if `seconds` are not less than it has.
    pub fn less(than: Present, seconds: u64) -> Option<Value> {
        let is_less = match than {
            Present::Unset => false,
            Present::Is(present) => Duration::from_secs(seconds) < present,
            Present::Unknown { .. } => true,
        };
        let only_if_less = false;
        is_less.then_some(Value { seconds, only_if_less })
    }

    /// A first attempt where the needed time was not measured, because SIGKILL ended the shutdown.
    pub fn twice(of: Duration, than: Present) -> Option<Value> {
        let seconds = of.as_secs() + u64::from(of.subsec_nanos() > 0);
        let is_sane = (1..=3_600).contains(&seconds);
        is_sane.then(|| Value::more(than, 2 * seconds)).flatten()
    }

    pub fn max(self, other: Value) -> Value {
        if self.seconds >= other.seconds { self } else { other }
    }

    pub fn seconds(self) -> u64 {
        self.seconds
    }

    /// The only text of a value: with it goes the condition under which to paste it. `setting`: its name, for the note.
    pub fn paste(self, setting: &str, notes: &mut Vec<String>) -> String {
        if self.only_if_less {
            notes.push(format!("{setting}: only if the present value is smaller"));
        }
        self.seconds.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{Present, Value};
    use std::time::Duration;

    const fn is(seconds: u64) -> Present {
        Present::Is(Duration::from_secs(seconds))
    }

    fn pasted(value: Option<Value>) -> Option<(String, Vec<String>)> {
        let mut notes = Vec::new();
        value.map(|value| (value.paste("TimeoutStopSec", &mut notes), notes))
    }

    #[test]
    fn more_is_never_less_than_the_present_value() {
        for present in 0..50 {
            for seconds in 0..50 {
                let more = Value::more(is(present), seconds).map(Value::seconds);
                assert_eq!(more, (seconds > present).then_some(seconds), "{seconds} for {present}");
                let less = Value::less(is(present), seconds).map(Value::seconds);
                assert_eq!(less, (seconds < present).then_some(seconds), "{seconds} for {present}");
            }
        }
        assert_eq!(Value::more(Present::Is(Duration::from_millis(5_001)), 5), None);
        assert_eq!(Value::more(Present::Unset, 0), None);
        assert_eq!(Value::less(Present::Unset, 5), None);
    }

    #[test]
    fn a_value_that_may_be_less_has_its_condition() {
        let unknown = Present::Unknown {
            default: Duration::from_secs(10),
        };
        assert_eq!(Value::more(unknown, 10), None, "not less than the default");
        let condition = "TimeoutStopSec: only if the present value is smaller".to_owned();
        assert_eq!(pasted(Value::more(unknown, 11)), Some(("11".to_owned(), vec![condition])));
        assert_eq!(pasted(Value::more(is(10), 11)), Some(("11".to_owned(), vec![])));
    }
}
