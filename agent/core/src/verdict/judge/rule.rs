//! A rule, and the first of a list that applies.

use super::finding::Finding;
use crate::verdict::Exit::{self, *};
use crate::verdict::case::Case;

pub struct Rule {
    /// What was observed.
    pub observed: &'static str,
    /// What follows; `unknown` too, where a record that it rests on may be missing.
    pub exits: &'static [Exit],
    /// None: the rule does not apply. The second argument is what the lists before have found.
    pub(super) find: Find,
}

pub(super) type Find = fn(&Case<'_>, &Finding) -> Option<Finding>;

pub struct Rules {
    pub of: &'static str,
    pub rules: &'static [Rule],
}

pub(super) const fn rule(observed: &'static str, exits: &'static [Exit], find: Find) -> Rule {
    Rule { observed, exits, find }
}

pub(super) fn first(rules: &[Rule], case: &Case<'_>, found: Finding) -> Finding {
    let apply = |rule: &Rule| {
        let next = (rule.find)(case, &found)?;
        debug_assert!(
            next.exit == Unknown || rule.exits.contains(&next.exit),
            "{}: {:?}",
            rule.observed,
            next.exit
        );
        Some(next)
    };
    rules.iter().find_map(apply).unwrap_or(found)
}
