//! The kernel's BTF: offsets of the fields that the probes read, and the tracepoints with their arguments.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use btf_rs::{Btf, BtfType, EnumMember, FuncProto, Struct, Type};
use epitaph_ebpf::{ABSENT, Field};

/// Size of a pointer on every architecture that has the probes.
const POINTER: u32 = 8;

pub const SYS_BTF: &str = "/sys/kernel/btf/vmlinux";

#[derive(Debug, thiserror::Error)]
#[error("cannot read the kernel's type information from {path}: {source}")]
pub struct BtfError {
    path: PathBuf,
    source: btf_rs::Error,
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
    /// `bpf_get_current_task_btf` (5.11 and later).
    pub current_task_btf: bool,
    /// Of cgroup controllers built into this kernel: by name, the place in a `css_set`.
    controllers: HashMap<String, u32>,
}

impl Layout {
    /// # Errors
    /// If the file does not exist or is not BTF. A missing field or tracepoint is not an error here.
    pub fn read(path: &Path, tracepoints: &[&'static str]) -> Result<Layout, BtfError> {
        // Read into memory: btf-rs would seek in the file for each of 100 000 types.
        let btf = fs::read(path)
            .map_err(btf_rs::Error::IO)
            .and_then(|bytes| Btf::from_bytes(&bytes))
            .map_err(|source| BtfError {
                path: path.to_owned(),
                source,
            })?;
        Ok(Layout {
            offsets: std::array::from_fn(|i| {
                let (strukt, path) = Field::ALL[i].place();
                offset(&btf, strukt, path).unwrap_or(ABSENT)
            }),
            tracepoints: tracepoints
                .iter()
                .filter_map(|&name| Some((name, arguments(&btf, name)?)))
                .collect(),
            current_task_btf: enumerator(&btf, "bpf_func_id", "BPF_FUNC_get_current_task_btf").is_some(),
            controllers: controllers(&btf),
        })
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
}

/// Byte offset of the member at `path` in `strukt`, or the structure's size if `path` is empty.
fn offset(btf: &Btf, strukt: &str, path: &str) -> Option<u32> {
    // Several types can share a name (a typedef, an unrelated structure of another file): take the first that has the path.
    btf.resolve_types_by_name(strukt).ok()?.into_iter().find_map(|found| {
        let Type::Struct(found) = found else { return None };
        if path.is_empty() {
            return u32::try_from(found.size()).ok();
        }
        let bits = path_offset(btf, &found, path)?;
        // A bit field has no address.
        bits.is_multiple_of(8).then_some(bits / 8)
    })
}

fn path_offset(btf: &Btf, strukt: &Struct, path: &str) -> Option<u32> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    strukt.members.iter().find_map(|member| {
        let member_name = btf.resolve_name(member).ok()?;
        let at = member.bit_offset();
        if member_name.is_empty() {
            let inner = structure(btf, member)?;
            return Some(at + path_offset(btf, &inner, path)?);
        }
        if member_name != name {
            return None;
        }
        match rest {
            None => Some(at),
            Some(rest) => Some(at + path_offset(btf, &structure(btf, member)?, rest)?),
        }
    })
}

/// The structure or union that a member holds, through typedefs and qualifiers; None for anything else, pointers too.
fn structure(btf: &Btf, of: &dyn BtfType) -> Option<Struct> {
    match bare(btf, of)? {
        Type::Struct(inner) | Type::Union(inner) => Some(inner),
        _ => None,
    }
}

fn bare(btf: &Btf, of: &dyn BtfType) -> Option<Type> {
    btf.chained_type_iter(of).find(|found| {
        !matches!(
            found,
            Type::Typedef(_) | Type::Const(_) | Type::Volatile(_) | Type::Restrict(_) | Type::TypeTag(_)
        )
    })
}

/// `btf_trace_NAME` is a typedef of a pointer to the tracepoint's function type: the kernel itself uses this type.
fn arguments(btf: &Btf, name: &str) -> Option<Vec<Argument>> {
    let typedef = btf
        .resolve_types_by_name(&format!("btf_trace_{name}"))
        .ok()?
        .into_iter()
        .find(|found| matches!(found, Type::Typedef(_)))?;
    let Type::FuncProto(FuncProto { parameters, .. }) = btf
        .chained_type_iter(typedef.as_btf_type()?)
        .find(|found| matches!(found, Type::FuncProto(_)))?
    else {
        return None;
    };
    Some(
        parameters
            .iter()
            .skip(1)
            .map(|parameter| match bare(btf, parameter) {
                Some(Type::Ptr(_)) => Argument::Pointer,
                _ => Argument::Value,
            })
            .collect(),
    )
}

/// `memory_cgrp_id = 4` of `enum cgroup_subsys_id`, by `memory`.
fn controllers(btf: &Btf) -> HashMap<String, u32> {
    let of = |member: &EnumMember| {
        Some((
            btf.resolve_name(member).ok()?.strip_suffix("_cgrp_id")?.to_owned(),
            member.val(),
        ))
    };
    enumeration(btf, "cgroup_subsys_id").iter().filter_map(of).collect()
}

fn enumerator(btf: &Btf, name: &str, member: &str) -> Option<u32> {
    let members = enumeration(btf, name);
    let found = members
        .iter()
        .find(|found| btf.resolve_name(*found).is_ok_and(|name| name == member));
    found.map(EnumMember::val)
}

fn enumeration(btf: &Btf, name: &str) -> Vec<EnumMember> {
    let found = btf.resolve_types_by_name(name).unwrap_or_default();
    let enums = found.into_iter().filter_map(|found| match found {
        Type::Enum(found) => Some(found.members),
        _ => None,
    });
    enums.flatten().collect()
}
