//! A reader of BTF: only what offsets and arguments need, and without a copy. A kernel has 100 000 types, and a few dozen are read. A
//! writer of the few that aya needs.
//!
//! Format: <https://docs.kernel.org/bpf/btf.html>, in the byte order of the machine.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CStr;
use std::iter::successors;

const MAGIC: u16 = 0xeb9f;

/// Pointers, typedefs and qualifiers that are followed from one type; a kernel has a handful in a row, a damaged file may have a ring.
const LONGEST_CHAIN: usize = 64;

/// Unnamed structures and unions within one structure; a kernel has some dozens.
const MOST_UNNAMED: usize = 1_024;

/// include/uapi/linux/btf.h
pub mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const FWD: u32 = 7;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const RESTRICT: u32 = 11;
    pub const FUNC: u32 = 12;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const FLOAT: u32 = 16;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FormatError {
    #[error("not BTF")]
    NotBtf,
    #[error("the file ends within the {0}")]
    Truncated(&'static str),
    #[error("type {id} is of an unknown kind, {kind}")]
    Kind { id: usize, kind: u32 },
}

pub struct Types<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins in `bytes`; the first has id 1, and id 0 is `void`.
    begins: Vec<u32>,
    /// Ids of the structures, enumerations, typedefs and functions of these names. Several can share a name: a typedef, an unrelated
    /// structure of another file.
    by_name: HashMap<&'a str, Vec<u32>>,
}

#[derive(Clone, Copy)]
pub struct Type<'a> {
    pub kind: u32,
    /// Size in bytes of a structure; id of the type that a pointer, typedef or qualifier refers to.
    pub size_or_type: u32,
    /// The offsets of members hold the size of a bit field as well.
    has_bit_fields: bool,
    /// Members, parameters or values.
    list: &'a [u8],
}

impl<'a> Types<'a> {
    /// `names`: those that can be asked for.
    ///
    /// # Errors
    /// If `bytes` are not BTF, or have types of a size that is not known here.
    pub fn parse(bytes: &'a [u8], names: &HashSet<String>) -> Result<Types<'a>, FormatError> {
        if bytes.get(..2) != Some(&MAGIC.to_ne_bytes()) {
            return Err(FormatError::NotBtf);
        }
        let types = section(bytes, 2, "types")?;
        let strings = section(bytes, 4, "strings")?;
        let mut found = Types {
            bytes: types,
            strings,
            begins: Vec::new(),
            by_name: HashMap::new(),
        };
        let mut rest = types;
        while !rest.is_empty() {
            let id = found.begins.len() + 1;
            let (name, this, after) = split(rest, id)?;
            found.begins.push((types.len() - rest.len()) as u32);
            if matches!(this.kind, kind::STRUCT | kind::ENUM | kind::TYPEDEF | kind::FUNC)
                && let name = found.string(name)
                && names.contains(name)
            {
                found.by_name.entry(name).or_default().push(id as u32);
            }
            rest = after;
        }
        Ok(found)
    }

    /// Structures, enumerations, typedefs or functions.
    pub fn named(&self, name: &str, kind: u32) -> impl Iterator<Item = Type<'a>> {
        self.ids(name, kind).map(|(_, found)| found)
    }

    fn ids(&self, name: &str, kind: u32) -> impl Iterator<Item = (u32, Type<'a>)> {
        let ids = self.by_name.get(name).into_iter().flatten();
        let found = ids.filter_map(|&id| Some((id, self.get(id)?)));
        found.filter(move |(_, found)| found.kind == kind)
    }

    /// BTF in which the typedefs or functions of these names have the ids that they have here. All types in between are nameless: aya looks
    /// for a name's id, and would keep all that it reads in memory.
    pub fn only(&self, named: &[(String, u32)]) -> Vec<u8> {
        let kept = named
            .iter()
            .flat_map(|(name, kind)| self.ids(name, *kind).map(move |found| (found, name)));
        let kept: BTreeMap<u32, (Type<'a>, &String)> = kept.map(|((id, found), name)| (id, (found, name))).collect();
        let last = kept.last_key_value().map_or(0, |(&id, _)| id);
        let mut strings = vec![0];
        let mut types = Vec::with_capacity(12 * last as usize);
        for id in 1..=last {
            let words = match kept.get(&id) {
                None => [0, kind::FWD << 24, 0],
                Some((found, name)) => {
                    let at = strings.len() as u32;
                    strings.extend(name.bytes().chain([0]));
                    [at, found.kind << 24, found.size_or_type]
                }
            };
            types.extend(words.into_iter().flat_map(u32::to_ne_bytes));
        }
        file(&types, &strings)
    }

    /// None for `void`.
    pub fn get(&self, id: u32) -> Option<Type<'a>> {
        let before = (id as usize).checked_sub(1)?;
        let begin = *self.begins.get(before)?;
        let (_, found, _) = split(&self.bytes[begin as usize..], id as usize).ok()?;
        Some(found)
    }

    /// The type, and what the pointers, typedefs and qualifiers in front refer to.
    pub fn chain(&self, id: u32) -> impl Iterator<Item = Type<'a>> {
        let refers = |of: &Type| of.kind == kind::PTR || is_alias(of);
        successors(self.get(id), move |of| refers(of).then(|| self.get(of.size_or_type))?).take(LONGEST_CHAIN)
    }

    /// The type without typedefs and qualifiers.
    pub fn bare(&self, id: u32) -> Option<Type<'a>> {
        self.chain(id).find(|found| !is_alias(found))
    }

    /// Bit offset and type of the member `name`, also within unnamed structures and unions.
    pub fn member(&self, of: Type<'a>, name: &str) -> Option<(u32, u32)> {
        let mut unnamed = vec![(of, 0_u32)];
        for _ in 0..MOST_UNNAMED {
            let (outer, base) = unnamed.pop()?;
            for member in outer.list.chunks_exact(12) {
                let (member_name, id, bits) = (word(member, 0)?, word(member, 1)?, word(member, 2)?);
                let at = base.checked_add(if outer.has_bit_fields { bits & 0xff_ffff } else { bits })?;
                match self.string(member_name) {
                    found if found == name => return Some((at, id)),
                    "" if unnamed.len() < MOST_UNNAMED => unnamed.extend(self.structure(id).map(|inner| (inner, at))),
                    _ => {}
                }
            }
        }
        None
    }

    /// The structure or union behind typedefs and qualifiers; None for anything else, pointers too.
    pub fn structure(&self, id: u32) -> Option<Type<'a>> {
        self.bare(id).filter(|found| matches!(found.kind, kind::STRUCT | kind::UNION))
    }

    /// An array without a stated length, as the last member of a structure may be.
    pub fn is_open_array(&self, id: u32) -> bool {
        let array = self.bare(id).filter(|found| found.kind == kind::ARRAY);
        array.is_some_and(|array| word(array.list, 2) == Some(0))
    }

    /// Ids of a function's parameters.
    pub fn parameters(&self, of: Type<'a>) -> impl Iterator<Item = u32> {
        of.list.chunks_exact(8).filter_map(|parameter| word(parameter, 1))
    }

    /// Names and values of an enumeration.
    pub fn enumerators(&self, of: Type<'a>) -> impl Iterator<Item = (&'a str, u32)> {
        let pairs = of.list.chunks_exact(8);
        pairs.filter_map(|pair| Some((self.string(word(pair, 0)?), word(pair, 1)?)))
    }

    /// Empty if there is none.
    fn string(&self, offset: u32) -> &'a str {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        let text = CStr::from_bytes_until_nul(rest).unwrap_or_default();
        text.to_str().unwrap_or_default()
    }
}

/// BTF of these sections.
fn file(types: &[u8], strings: &[u8]) -> Vec<u8> {
    const VERSION: u8 = 1;
    const FLAGS: u8 = 0;
    const HEADER_LENGTH: usize = 24;
    let mut bytes = Vec::with_capacity(HEADER_LENGTH + types.len() + strings.len());
    bytes.extend(MAGIC.to_ne_bytes());
    bytes.extend([VERSION, FLAGS]);
    let sections = [HEADER_LENGTH, 0, types.len(), types.len(), strings.len()];
    bytes.extend(sections.into_iter().flat_map(|number| (number as u32).to_ne_bytes()));
    bytes.extend(types);
    bytes.extend(strings);
    bytes
}

fn is_alias(of: &Type) -> bool {
    matches!(
        of.kind,
        kind::TYPEDEF | kind::CONST | kind::VOLATILE | kind::RESTRICT | kind::TYPE_TAG
    )
}

/// The part of the file whose offset and length are in the header from the number at index `at` on; offsets begin after the header.
fn section<'a>(bytes: &'a [u8], at: usize, name: &'static str) -> Result<&'a [u8], FormatError> {
    const HEADER_LENGTH: usize = 1;
    let number = |at| {
        word(bytes, at)
            .map(|number| number as usize)
            .ok_or(FormatError::Truncated("header"))
    };
    let begin = number(HEADER_LENGTH)? + number(at)?;
    let length = number(at + 1)?;
    bytes.get(begin..begin + length).ok_or(FormatError::Truncated(name))
}

/// The name and the type at the beginning of `bytes`, and the bytes after the type.
fn split(bytes: &[u8], id: usize) -> Result<(u32, Type<'_>, &[u8]), FormatError> {
    const HEAD: usize = 12;
    let head = |at| word(bytes, at).ok_or(FormatError::Truncated("types"));
    let (name, info, size_or_type) = (head(0)?, head(1)?, head(2)?);
    let (count, kind) = ((info & 0xffff) as usize, info >> 24 & 0x1f);
    let length = match kind {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * count,
        kind::ENUM | kind::FUNC_PROTO => 8 * count,
        kind::PTR
        | kind::FWD
        | kind::TYPEDEF
        | kind::VOLATILE
        | kind::CONST
        | kind::RESTRICT
        | kind::FUNC
        | kind::FLOAT
        | kind::TYPE_TAG => 0,
        kind => return Err(FormatError::Kind { id, kind }),
    };
    let list = bytes.get(HEAD..HEAD + length).ok_or(FormatError::Truncated("types"))?;
    let this = Type {
        kind,
        size_or_type,
        has_bit_fields: info >> 31 != 0,
        list,
    };
    Ok((name, this, &bytes[HEAD + length..]))
}

/// The 32-bit number at index `at`.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let number = bytes.get(4 * at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*number))
}

#[cfg(test)]
#[path = "types_tests.rs"]
pub(super) mod tests;
