//! The waits of this crate's tests for another thread or task: for an event, with one deadline. A test that hangs gives no reason.

use std::time::Duration;

use epitaph_core::time::Boot;

use crate::clock;

/// Of every wait, also of those for a channel or a task: for a loaded machine of two cores, on which these tests get less than the others.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Between two looks.
const STEP: Duration = Duration::from_millis(5);

/// Looks until the event `what` has happened, as another thread makes it happen.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = clock::now();
    while !is_so() {
        give_up(what, begin);
        std::thread::sleep(STEP);
    }
}

/// The same of another task of this runtime.
pub async fn until_task(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = clock::now();
    while !is_so() {
        give_up(what, begin);
        tokio::time::sleep(STEP).await;
    }
}

fn give_up(what: &str, begin: Boot) {
    assert!(clock::now().since(begin) < LIMIT, "not within {} s: {what}", LIMIT.as_secs());
}
