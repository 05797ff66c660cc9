//! Epitaph: when it died, whether it died well, and if not, why, with proof from the kernel. See ARCHITECTURE.md.

pub mod attribute;
pub mod event;
pub mod termination;
pub mod verdict;
