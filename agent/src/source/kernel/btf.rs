//! The kernel's BTF: offsets of the fields that the probes read, and the tracepoints with their arguments.

mod types;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use epitaph_ebpf::{ABSENT, Field};
pub use types::FormatError;
use types::{Types, kind};

/// Size of a pointer on every architecture that has the probes.
const POINTER: u32 = 8;

/// The tracepoint's record in tracefs. Until it reported resets without a full socket, `tcp_send_reset` shared the record of
/// `tcp_retransmit_skb` ("trace: tcp: fully support trace_tcp_send_reset", 6.10).
const OWN_RECORD: &str = "trace_event_raw_tcp_send_reset";

/// `enum bpf_func_id`: what a program can call.
const FUNCTIONS_OF_PROGRAMS: &str = "bpf_func_id";

const CONTROLLERS: &str = "cgroup_subsys_id";

pub const SYS_BTF: &str = "/sys/kernel/btf/vmlinux";

#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    #[error("cannot read the kernel's type information from {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} does not hold the kernel's type information: {source}")]
    Format { path: PathBuf, source: FormatError },
}

/// Kind of a tracepoint's argument, as far as the choice of a program depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    Pointer,
    Value,
}

/// What was found in one kernel's BTF.
pub struct Layout {
    offsets: [u32; Field::COUNT],
    /// By name, the arguments after the first, which is the tracer's own.
    tracepoints: HashMap<&'static str, Vec<Argument>>,
    /// The same of functions, with all of their arguments.
    functions: HashMap<&'static str, Vec<Argument>>,
    /// Whether `tcp_send_reset` reports the resets that no full socket sends, such as that of a closed port (6.10 and later).
    pub resets_without_socket: bool,
    /// `bpf_get_current_task_btf` (5.11 and later).
    pub current_task_btf: bool,
    /// The entries of `pid.numbers` are an array without a stated length, in which the verifier lets a program read (6.5 and later).
    pub open_numbers: bool,
    /// Of cgroup controllers built into this kernel: by name, the place in a `css_set`.
    controllers: HashMap<String, u32>,
    /// See [`Layout::programs_types`].
    programs_types: Vec<u8>,
}

impl Layout {
    /// # Errors
    /// If the file does not exist or is not BTF. A missing field or tracepoint is not an error here.
    pub fn read(path: &Path, tracepoints: &[&'static str], functions: &[&'static str]) -> Result<Layout, BtfError> {
        let bytes = fs::read(path).map_err(|source| BtfError::Read {
            path: path.to_owned(),
            source,
        })?;
        let layout = Layout::of(&bytes, tracepoints, functions);
        layout.map_err(|source| BtfError::Format {
            path: path.to_owned(),
            source,
        })
    }

    fn of(bytes: &[u8], tracepoints: &[&'static str], functions: &[&'static str]) -> Result<Layout, FormatError> {
        let structures = Field::ALL.iter().map(|field| field.place().0);
        let fixed = structures.chain([OWN_RECORD, FUNCTIONS_OF_PROGRAMS, CONTROLLERS]);
        let names = fixed.chain(functions.iter().copied()).map(str::to_owned);
        let names = names.chain(tracepoints.iter().map(|name| type_of(name))).collect();
        let types = &Types::parse(bytes, &names)?;
        let resets_without_socket = types.named(OWN_RECORD, kind::STRUCT).next().is_some();
        let attached = tracepoints.iter().map(|name| (type_of(name), kind::TYPEDEF));
        // Functions are behind all else in a kernel's types, and replace this one tracepoint.
        let at_functions = functions.iter().filter(|_| !resets_without_socket);
        let attached: Vec<_> = attached
            .chain(at_functions.map(|&name| (name.to_owned(), kind::FUNC)))
            .collect();
        Ok(Layout {
            offsets: std::array::from_fn(|i| {
                let (strukt, path) = Field::ALL[i].place();
                offset(types, strukt, path).unwrap_or(ABSENT)
            }),
            tracepoints: tracepoints
                .iter()
                .filter_map(|&name| Some((name, arguments(types, name)?)))
                .collect(),
            functions: functions
                .iter()
                .filter_map(|&name| Some((name, function(types, name)?)))
                .collect(),
            resets_without_socket,
            current_task_btf: enumeration(types, FUNCTIONS_OF_PROGRAMS)
                .any(|(name, _)| name == "BPF_FUNC_get_current_task_btf"),
            open_numbers: has_open_numbers(types),
            controllers: controllers(types),
            programs_types: types.only(&attached),
        })
    }

    /// BTF with the types of the tracepoints and functions that programs can be attached to, under the ids that the kernel knows.
    pub fn programs_types(&self) -> &[u8] {
        &self.programs_types
    }

    /// By [`Field`], as the probes' `OFFSETS` has them.
    pub fn offsets(&self) -> &[u32; Field::COUNT] {
        &self.offsets
    }

    /// The first of `fields` that this kernel does not have.
    pub fn missing(&self, fields: &[Field]) -> Option<Field> {
        fields.iter().copied().find(|&field| self.offsets[field as usize] == ABSENT)
    }

    /// Offset in a `css_set` of the pointer to a controller's state (`memory`, as `/proc/cgroups` names it).
    pub fn controller(&self, name: &str) -> Option<u32> {
        let subsys = self.offsets[Field::CssSetSubsys as usize];
        let place = self.controllers.get(name)?;
        (subsys != ABSENT).then_some(subsys + place * POINTER)
    }

    /// None if the kernel has no such tracepoint.
    pub fn tracepoint(&self, name: &str) -> Option<&[Argument]> {
        self.tracepoints.get(name).map(Vec::as_slice)
    }

    /// None if the kernel has no such function, or has it only as a part of its callers.
    pub fn function(&self, name: &str) -> Option<&[Argument]> {
        self.functions.get(name).map(Vec::as_slice)
    }
}

/// Byte offset of the member at `path` in `strukt`, or the structure's size if `path` is empty.
fn offset(types: &Types, strukt: &str, path: &str) -> Option<u32> {
    types.named(strukt, kind::STRUCT).find_map(|found| {
        if path.is_empty() {
            return Some(found.size_or_type);
        }
        let (mut within, mut bits) = (Some(found), 0_u32);
        for name in path.split('.') {
            let (at, id) = types.member(within?, name)?;
            bits = bits.checked_add(at)?;
            within = types.structure(id);
        }
        // A bit field has no address.
        bits.is_multiple_of(8).then_some(bits / 8)
    })
}

fn has_open_numbers(types: &Types) -> bool {
    let (strukt, path) = Field::PidNumbers.place();
    let member = types.named(strukt, kind::STRUCT).find_map(|found| types.member(found, path));
    member.is_some_and(|(_, id)| types.is_open_array(id))
}

/// A typedef of a pointer to the tracepoint's function type: the kernel itself uses this type.
fn type_of(tracepoint: &str) -> String {
    format!("btf_trace_{tracepoint}")
}

fn arguments(types: &Types, name: &str) -> Option<Vec<Argument>> {
    let typedef = types.named(&type_of(name), kind::TYPEDEF).next()?;
    let function = types
        .chain(typedef.size_or_type)
        .find(|found| found.kind == kind::FUNC_PROTO)?;
    Some(types.parameters(function).skip(1).map(|id| argument(types, id)).collect())
}

fn function(types: &Types, name: &str) -> Option<Vec<Argument>> {
    let prototype = types.get(types.named(name, kind::FUNC).next()?.size_or_type)?;
    let is_one = prototype.kind == kind::FUNC_PROTO;
    is_one.then(|| types.parameters(prototype).map(|id| argument(types, id)).collect())
}

fn argument(types: &Types, id: u32) -> Argument {
    match types.bare(id) {
        Some(found) if found.kind == kind::PTR => Argument::Pointer,
        _ => Argument::Value,
    }
}

/// `memory_cgrp_id = 4` of `enum cgroup_subsys_id`, by `memory`.
fn controllers(types: &Types) -> HashMap<String, u32> {
    let of = |(name, number): (&str, u32)| Some((name.strip_suffix("_cgrp_id")?.to_owned(), number));
    enumeration(types, CONTROLLERS).filter_map(of).collect()
}

fn enumeration<'a>(types: &Types<'a>, name: &str) -> impl Iterator<Item = (&'a str, u32)> {
    types.named(name, kind::ENUM).flat_map(|found| types.enumerators(found))
}

#[cfg(test)]
#[path = "btf/fuzz_tests.rs"]
mod fuzz;
