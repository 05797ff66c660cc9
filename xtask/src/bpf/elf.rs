//! Just enough of 64-bit ELF to see which sections an object of this machine's byte order has.

/// Whether `elf` has a section of that name that is not empty. Anything malformed has none.
pub fn has_section(elf: &[u8], name: &str) -> bool {
    sections(elf).is_some_and(|sections| sections.iter().any(|(found, size)| *found == name.as_bytes() && *size > 0))
}

fn sections(elf: &[u8]) -> Option<Vec<(&[u8], u64)>> {
    if !elf.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let headers = usize::try_from(u64_at(elf, 0x28)?).ok()?;
    let (size, count, names) = (u16_at(elf, 0x3a)?, u16_at(elf, 0x3c)?, u16_at(elf, 0x3e)?);
    let header = |index: u16| elf.get(headers.checked_add(usize::from(index) * usize::from(size))?..);
    let strings = usize::try_from(u64_at(header(names)?, 0x18)?).ok()?;
    let section = |index| {
        let header = header(index)?;
        let name = usize::try_from(u32::from_ne_bytes(header.get(..4)?.try_into().ok()?)).ok()?;
        let name = elf.get(strings.checked_add(name)?..)?.split(|byte| *byte == 0).next()?;
        Some((name, u64_at(header, 0x20)?))
    };
    (0..count).map(section).collect()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::has_section;

    #[test]
    fn sections_of_this_very_program() {
        let me = std::fs::read("/proc/self/exe").unwrap();
        assert!(has_section(&me, ".text"));
        assert!(!has_section(&me, ".BTF"));
    }

    #[test]
    fn a_cut_or_foreign_file_has_none() {
        let me = std::fs::read("/proc/self/exe").unwrap();
        for len in [0, 4, 5, 0x28, 0x40, me.len() / 2] {
            assert!(!has_section(&me[..len], ".text"), "{len}");
        }
        assert!(!has_section(b"#!/bin/sh\n", ".text"));
    }
}
