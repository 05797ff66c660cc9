//! The parts of `signal_generate`, for the profile of what each costs: `cargo xtask bench --only parts`.

macro_rules! parts {
    ($($name:ident = $what:literal,)*) => {
        /// In the order in which the program runs them. A program that was built with the feature `parts` returns after the one that the
        /// frozen global `STOP_AFTER` names, and runs all of them with 0.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Part { Nothing = 0, $($name,)* }

        impl Part {
            pub const ALL: &[(Part, &str)] = &[$((Part::$name, $what),)*];
        }
    };
}

parts! {
    Filter = "the filter of signal numbers",
    Ids = "ids of sender and target",
    Code = "si_code, by the helper",
    Cgroup = "the target's cgroup",
    Owner = "look-up of the target's owner",
    Remember = "a target in no watched cgroup: remember it",
    Sender = "the sender's cgroup, and look-up of its owner",
    Place = "the target's parent: whether it is a first process",
    Clock = "the clock",
    Account = "look-up of the account, the budget",
    Reserve = "room in the ring buffer, the header, submission",
    Arm = "arming, or whether anything is armed",
    OfSender = "the record's sender, with its parent and grandparent",
    OfTarget = "the record's target, with its namespace and pid there",
    Action = "the target's action, by the signal table",
    State = "the target's state and its pending signals",
}
