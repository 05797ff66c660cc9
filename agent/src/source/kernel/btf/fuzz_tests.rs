//! Type information: `--btf FILE` is any file.

use super::types::tests::written;
use super::{Argument, Layout, kind};
use crate::fuzz::{outcome, run, shape};
use epitaph_ebpf::ABSENT;

/// `task_struct` with an unnamed member, a tracepoint's typedef, a function, and an enumeration. The names of members are those of types.
fn seed() -> Vec<u8> {
    written(&[
        ("pid", kind::INT, 0, 4, &[0]),
        ("", kind::STRUCT, 1, 4, &[1, 1, 0]),
        ("task_struct", kind::STRUCT, 2, 16, &[0, 2, 64, 1, 1, 0]),
        ("", kind::PTR, 0, 3, &[]),
        ("", kind::FUNC_PROTO, 3, 0, &[0, 4, 0, 1, 0, 4]),
        ("", kind::PTR, 0, 5, &[]),
        ("btf_trace_signal_generate", kind::TYPEDEF, 0, 6, &[]),
        ("tcp_v4_send_reset", kind::FUNC, 0, 5, &[]),
        ("memory_cgrp_id", kind::FWD, 0, 0, &[]),
        ("cgroup_subsys_id", kind::ENUM, 1, 4, &[1, 4]),
    ])
}

#[test]
fn kernel_types() {
    run("kernel_types", vec![seed()], |bytes| {
        let layout = match Layout::of(bytes, &["signal_generate"], &["tcp_v4_send_reset"]) {
            Ok(layout) => layout,
            Err(error) => return outcome(shape(&error)),
        };
        let found = layout.offsets().iter().filter(|&&offset| offset != ABSENT).count();
        let pointers = |arguments: &[Argument]| arguments.iter().filter(|&&of| of == Argument::Pointer).count();
        outcome((
            found,
            layout.tracepoint("signal_generate").map(pointers).map(|count| count.min(4)),
            layout.function("tcp_v4_send_reset").map(pointers).map(|count| count.min(4)),
            layout.controllers.len().min(4),
            layout.programs_types().len().min(64),
        ))
    });
}
