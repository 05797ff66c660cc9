//! docs/rooms.md holds: a room imports what its row allows, and every room has a row. The modules hold ARCHITECTURE.md and its pictures, and
//! the links of the pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/map.rs"]
mod map;
#[path = "architecture/pages.rs"]
mod pages;
#[path = "architecture/picture.rs"]
mod picture;
#[path = "architecture/times.rs"]
mod times;

/// Of one room, as docs/rooms.md has it.
struct Row {
    /// `epitaph-core`, `epitaph`.
    krate: String,
    may_import: BTreeSet<String>,
}

/// Where the code of each crate with rooms stands.
const CRATES: [(&str, &str); 4] = [
    ("epitaph-core", "agent/core"),
    ("epitaph-story", "agent/story"),
    ("kubectl-epitaph", "agent/kubectl"),
    ("epitaph", "agent"),
];

/// Not rooms: what joins them.
const NO_ROOMS: [&str; 2] = ["lib", "main"];

#[test]
fn rooms_import_only_what_their_rows_allow() {
    let rows = rows();
    let mut wrong = Vec::new();
    let mut found = BTreeSet::new();
    for (krate, dir) in CRATES {
        let dependencies = dependencies(&root().join(dir).join("Cargo.toml"));
        let src = root().join(dir).join("src");
        let test_only = test_modules(&src.join("lib.rs"));
        for file in rust_files(&src) {
            let module = module_of(&src, &file);
            if module
                .first()
                .is_none_or(|first| NO_ROOMS.contains(&first.as_str()) || test_only.contains(first))
            {
                continue;
            }
            let Some((name, row)) = row_of(&rows, krate, &module) else {
                wrong.push(format!("{krate}: `{}` has no row", module.join("/")));
                continue;
            };
            found.insert((krate.to_owned(), name.clone()));
            for path in paths(&file, &module) {
                let Some(import) = import(&path, krate, &rows, &dependencies) else {
                    continue;
                };
                if import != *name && !row.may_import.contains("*") && !row.may_import.contains(&import) {
                    let file = file.strip_prefix(root()).unwrap_or(&file).display();
                    wrong.push(format!("{file}: room `{name}` imports `{import}` ({})", path.join("::")));
                }
            }
        }
    }
    for (name, row) in &rows {
        for row in row {
            if !found.contains(&(row.krate.clone(), name.clone())) {
                wrong.push(format!("{}: the row `{name}` has no code", row.krate));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "docs/rooms.md and the code differ:\n{}", wrong.join("\n"));
}

/// The rooms of the core are in an order: none imports another that imports it, by whatever way.
#[test]
fn the_rooms_of_the_core_are_no_circle() {
    let rows = rows();
    let core: BTreeMap<&String, &BTreeSet<String>> = rows
        .iter()
        .flat_map(|(name, rows)| rows.iter().map(move |row| (name, row)))
        .filter(|(_, row)| row.krate == "epitaph-core")
        .map(|(name, row)| (name, &row.may_import))
        .collect();
    let mut done: BTreeSet<&String> = BTreeSet::new();
    while done.len() < core.len() {
        let ready: Vec<&String> = core
            .iter()
            .filter(|(name, imports)| {
                let open = |import: &&String| core.contains_key(import) && !done.contains(import) && import != *name;
                !done.contains(*name) && !imports.iter().any(|import| open(&import))
            })
            .map(|(name, _)| *name)
            .collect();
        let left: Vec<_> = core.keys().filter(|name| !done.contains(**name)).collect();
        assert!(!ready.is_empty(), "these rooms import each other in a circle: {left:?}");
        done.extend(ready);
    }
}

/// An oracle that shares code with what it judges shares its faults.
#[test]
fn the_random_histories_depend_on_no_crate_of_the_product() {
    let manifest = fs::read_to_string(root().join("tests/random/Cargo.toml")).expect("tests/random/Cargo.toml");
    let shared: Vec<&str> = manifest
        .lines()
        .filter(|line| line.starts_with("epitaph") || line.contains("path ="))
        .collect();
    assert!(manifest.contains("[dependencies]") && shared.is_empty(), "{shared:?}");
}

/// Where the waits of all tests poll, with a deadline each.
const WAITS: [&str; 4] = [
    "agent/src/waiting.rs",
    "tests/random/src/sys.rs",
    "tests/src/timeout.rs",
    "xtask/src/shell.rs",
];

/// Most sleeps of tests, whose subject is time: a test waits for an event (`tests/src/timeout.rs`), a marker behind what must not come proves
/// that it does not (`tests/src/watch.rs`), and where a component only waits, the runtime's time is paused. A pace or a story's pause that has
/// a function of its own counts once; absence that is waited for ([`WAITED_FOR`]) counts with each call. Scripts in strings are not counted.
const SLEEPS: usize = 30;
const WAITED_FOR: &str = "nothing_more_within(";

#[test]
fn a_test_sleeps_only_where_its_subject_is_time() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (file, part) in code_of_tests() {
        let name = file.strip_prefix(root()).expect("in the workspace").display().to_string();
        if WAITS.contains(&&*name) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a file of ours");
        let lines: Vec<&str> = text.lines().collect();
        for (at, _) in lines
            .iter()
            .enumerate()
            .filter(|(at, line)| part.contains(at) && sleeps(line))
        {
            let reason = |begin: &str| lines[at.saturating_sub(4)..at].iter().any(|line| line.contains(begin));
            // In no time.
            let is_paused = reason("// Time is paused") && text.contains("start_paused = true");
            count += usize::from(!is_paused);
            if !is_paused && !reason("// The subject is time: ") {
                wrong.push(format!("{name}:{}", at + 1));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "wait for an event, or begin the comment above with `The subject is time: ` and the reason:\n{}",
        wrong.join("\n")
    );
    assert!(count <= SLEEPS, "{count} sleeps of tests, at most {SLEEPS}");
}

/// Files with code of tests and of the tasks that run them, and its lines.
fn code_of_tests() -> Vec<(PathBuf, Range<usize>)> {
    let whole = [
        "tests/src",
        "tests/tests",
        "tests/examples",
        "tests/random/src",
        "xtask/src",
        "xtask/image/src",
    ];
    let whole = whole.iter().flat_map(|dir| files_but(&root().join(dir), |_| false, "rs"));
    let mut found: Vec<_> = whole.map(|file| (file, 0..usize::MAX)).collect();
    for file in files_but(&root().join("agent"), |_| false, "rs") {
        let below = file.strip_prefix(root()).expect("in the workspace");
        if below.iter().any(|part| is_of_tests(&part.to_string_lossy())) {
            found.push((file, 0..usize::MAX));
            continue;
        }
        let text = fs::read_to_string(&file).expect("a file of ours");
        let lines: Vec<&str> = text.lines().collect();
        let is_block = |at: &usize| lines[*at] == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|next| next.ends_with('{'));
        for begin in (0..lines.len()).filter(is_block) {
            let end = (begin..lines.len()).find(|at| lines[*at] == "}").unwrap_or(lines.len());
            found.push((file.clone(), begin..end));
        }
    }
    assert!(found.len() > 300, "{} files", found.len());
    found
}

/// Whether it calls such a function, outside of a string and of a comment.
fn sleeps(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let calls = code.match_indices("sleep(").chain(code.match_indices(WAITED_FOR));
    calls.map(|(at, _)| at).any(|at| {
        let before = &code[..at];
        // A method's name is Python's: a program in a string.
        let is_name = before.ends_with(|c: char| c.is_alphanumeric() || "_.".contains(c));
        !is_name && !before.ends_with("fn ") && before.matches('"').count().is_multiple_of(2)
    })
}

const MAP: &str = "ARCHITECTURE.md";
const ROOMS: &str = "docs/rooms.md";

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_path_buf()
}

/// The tables of rooms: below a heading that names the crate in backticks, rows `| room | what | may import |`; `*` allows all.
fn rows() -> BTreeMap<String, Vec<Row>> {
    let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    let mut krate = None;
    for line in page(ROOMS).lines() {
        if line.starts_with('#') {
            krate = CRATES
                .iter()
                .find(|(name, _)| line.contains(&format!("`{name}`")))
                .map(|(name, _)| (*name).to_owned());
        }
        let Some(krate) = &krate else { continue };
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", rooms, _, imports, ""] = cells[..]
            && rooms.starts_with('`')
        {
            for room in quoted(rooms) {
                let may_import = quoted(imports).map(str::to_owned).collect();
                let krate = krate.clone();
                rows.entry(room.to_owned()).or_default().push(Row { krate, may_import });
            }
        }
    }
    assert!(rows.len() > 20, "the tables of rooms were not found");
    rows
}

/// What is in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// `sink/otlp` where there is such a row, else `sink`.
fn row_of<'a>(rows: &'a BTreeMap<String, Vec<Row>>, krate: &str, module: &[String]) -> Option<(&'a String, &'a Row)> {
    (1..=module.len()).rev().find_map(|depth| {
        let (name, rows) = rows.get_key_value(&module[..depth].join("/"))?;
        Some((name, rows.iter().find(|row| row.krate == krate)?))
    })
}

/// The room or crate that a path leads to; None for the standard library, and for what is declared in the file itself.
fn import(path: &[String], krate: &str, rows: &BTreeMap<String, Vec<Row>>, dependencies: &BTreeSet<String>) -> Option<String> {
    let first = path.first()?.as_str();
    let of = match first {
        "crate" => krate,
        "epitaph_core" => "epitaph-core",
        "epitaph_story" => "epitaph-story",
        _ => {
            return dependencies.contains(first).then(|| first.replace('_', "-"));
        }
    };
    let room = row_of(rows, of, &path[1..]);
    Some(room.map_or_else(|| path[1..].join("/"), |(name, _)| name.clone()))
}

/// As the code writes them.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
    let mut names = BTreeSet::new();
    let mut within = false;
    for line in text.lines() {
        if line.starts_with('[') {
            within = line.trim() == "[dependencies]";
        } else if within && let Some(name) = line.split(['=', '.']).next().map(str::trim).filter(|name| !name.is_empty()) {
            names.insert(name.replace('-', "_"));
        }
    }
    names.remove("epitaph_core");
    names.remove("epitaph_story");
    names
}

/// Tests may look into any room.
fn rust_files(dir: &Path) -> Vec<PathBuf> {
    files_but(dir, is_of_tests, "rs")
}

fn is_of_tests(name: &str) -> bool {
    name == "tests" || name == "tests.rs" || name.ends_with("_tests.rs") || name == "fixtures"
}

fn files_but(dir: &Path, is_left_out: fn(&str) -> bool, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match path.is_dir() {
            _ if is_left_out(&name) => {}
            true => files.extend(files_but(&path, is_left_out, extension)),
            false if path.extension().is_some_and(|of| of == extension) => files.push(path),
            false => {}
        }
    }
    files
}

/// Modules that the crate has in its tests only.
fn test_modules(lib: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(lib).unwrap_or_else(|error| panic!("{}: {error}", lib.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", lib.display()));
    let modules = parsed.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if is_test(&module.attrs) => Some(module.ident.to_string()),
        _ => None,
    });
    modules.collect()
}

/// `source/kernel/mod.rs` is `[source, kernel]`, `decode.rs` `[decode]`.
fn module_of(src: &Path, file: &Path) -> Vec<String> {
    let below = file.strip_prefix(src).expect("below src").with_extension("");
    let mut module: Vec<String> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}

/// All paths in a file's code but its tests', from the crate's root where they begin with `super` or `self`.
fn paths(file: &Path, module: &[String]) -> Vec<Vec<String>> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut found = Paths {
        module: module.to_vec(),
        found: Vec::new(),
    };
    found.visit_file(&parsed);
    found.found
}

struct Paths {
    module: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Paths {
    fn add(&mut self, path: Vec<String>) {
        let mut rest = path.as_slice();
        let mut base = self.module.clone();
        let mut is_relative = false;
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "self" => {}
                "super" => drop(base.pop()),
                _ => break,
            }
            (rest, is_relative) = (after, true);
        }
        if is_relative {
            let whole = ["crate".to_owned()].into_iter().chain(base).chain(rest.iter().cloned());
            self.found.push(whole.collect());
        } else {
            self.found.push(path);
        }
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.add(with(&name.ident)),
            syn::UseTree::Rename(name) => self.add(with(&name.ident)),
            syn::UseTree::Glob(_) => self.add(before.to_vec()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        let list = attribute.meta.require_list().map(|list| list.tokens.to_string());
        is_cfg && list.is_ok_and(|tokens| tokens.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test"))
    })
}
