//! The pure core of Epitaph: facts in, reports and commands out. No clock, no file, no network, no thread: the same inputs give
//! the same verdicts on any machine. See ARCHITECTURE.md.

#![warn(unused_crate_dependencies)]

/// The name of each variant, as exports have it; with `all` also the variants in order.
macro_rules! names {
    ($(#[$doc:meta])* all $of:ident: $($variant:ident => $name:literal,)+) => {
        impl $of {
            pub const ALL: [$of; [$($name),+].len()] = [$($of::$variant),+];
        }
        names! { $(#[$doc])* $of: $($variant => $name,)+ }
    };
    ($(#[$doc:meta])* $of:ident: $($variant:ident => $name:literal,)+) => {
        impl $of {
            $(#[$doc])*
            pub const fn name(self) -> &'static str {
                match self {
                    $($of::$variant => $name,)+
                }
            }
        }
    };
}

pub mod attribute;
pub mod axes;
pub mod container;
pub mod correlate;
pub mod decode;
pub mod duration;
pub mod event;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod ids;
pub mod input;
pub mod kubernetes;
pub mod ledger;
pub mod node;
pub mod observe;
pub mod peers;
pub mod pod;
pub mod render;
pub mod report;
pub mod rollout;
pub mod shutdown;
pub mod stored;
pub mod termination;
pub mod text;
pub mod time;
pub mod tolerances;
pub mod verdict;
