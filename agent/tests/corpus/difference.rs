//! Two texts of blocks, line by line.

use std::fmt::Write as _;

/// Each line that is in one only, with the head of its block: `-` expected, `+` judged now.
pub fn of(expected: &str, judged: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), judged.lines().collect());
    // Length of the longest common subsequence of what follows, by the places in both.
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = if old[i] == new[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut text, mut head) = (String::new(), "");
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        let is_same = i < old.len() && j < new.len() && old[i] == new[j];
        let is_old = !is_same && i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]);
        let line = if is_same || is_old { old[i] } else { new[j] };
        if is_same {
            if !line.starts_with(' ') {
                head = line;
            }
        } else {
            if line.starts_with(' ') && !head.is_empty() {
                writeln!(text, "  {head}").expect("a string");
                head = "";
            }
            writeln!(text, "{} {line}", if is_old { '-' } else { '+' }).expect("a string");
        }
        i += usize::from(is_same || is_old);
        j += usize::from(is_same || !is_old);
    }
    text
}

#[test]
fn a_changed_field_is_shown_with_the_head_of_its_block() {
    let expected = "termination a\n  exit = clean\n  verdict = clean\ntermination b\n  verdict = clean\n";
    let judged = "termination a\n  exit = clean\n  verdict = unknown\ntermination b\n  verdict = clean\nspan 1\n";
    let shown = of(expected, judged);
    assert_eq!(
        shown,
        "  termination a\n-   verdict = clean\n+   verdict = unknown\n+ span 1\n"
    );
    assert_eq!(of(expected, expected), "");
}
