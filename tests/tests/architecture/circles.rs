//! Within the rooms of the core, files are in an order, too: none imports another that imports it, by whatever way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};

use super::{attributes, is_test, module_of, root, rust_files, test_modules};

/// From the crate's root.
type Module = Vec<String>;

/// Of each module the modules whose items it names, with these items.
type Imports = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

#[test]
fn no_file_of_the_core_imports_itself_by_way_of_another() {
    let imports = imports(&root().join("agent/core/src"));
    let found: usize = imports.values().map(BTreeMap::len).sum();
    assert!(imports.len() > 150 && found > 500, "{} files, {found} imports", imports.len());
    let mut wrong = String::new();
    for circle in circles(&imports) {
        wrong += &format!("a circle of {} files:\n", circle.len());
        for module in &circle {
            let within = imports[module].iter().filter(|(other, _)| circle.contains(*other));
            for (other, items) in within {
                let items = Vec::from_iter(items.iter().map(String::as_str)).join(", ");
                wrong += &format!("  {} imports {} ({items})\n", module.join("/"), other.join("/"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn files_that_import_each_other_are_found() {
    let of = |name: &str, others: &[&str]| {
        let others = others.iter().map(|other| (vec![(*other).to_owned()], BTreeSet::new()));
        (vec![name.to_owned()], others.collect())
    };
    let imports = Imports::from([of("a", &["b", "d"]), of("b", &["c"]), of("c", &["a"]), of("d", &[])]);
    let circle = ["a", "b", "c"].map(|name| vec![name.to_owned()]);
    assert_eq!(circles(&imports), [BTreeSet::from(circle)]);
}

/// An item counts where it is declared, not where a `use` passes it on. A method counts by its type only.
fn imports(src: &Path) -> Imports {
    let test_only = test_modules(&src.join("lib.rs"));
    let files: BTreeMap<Module, File> = rust_files(src)
        .iter()
        .map(|file| (module_of(src, file), File::read(file)))
        .map(|(module, file)| (if module == ["lib"] { Vec::new() } else { module }, file))
        .filter(|(module, _)| module.first().is_none_or(|first| !test_only.contains(first)))
        .collect();
    let mut imports = Imports::new();
    for (module, file) in &files {
        let found = imports.entry(module.clone()).or_default();
        // A name alone is no module's: a variable can have the same.
        let is_name = |path: &&Vec<String>| path.len() == 1 && files.contains_key(&[&module[..], &path[..]].concat());
        for path in file.paths.iter().filter(|path| !is_name(path)) {
            if let Some((other, item)) = declared(&files, module, path)
                && other != *module
            {
                found.entry(other).or_default().insert(item);
            }
        }
    }
    imports
}

/// Where an item is declared, by its path in `module`. None: in another crate.
fn declared(files: &BTreeMap<Module, File>, module: &Module, path: &[String]) -> Option<(Module, String)> {
    let mut at = module.clone();
    let mut first = true;
    let mut path = path.iter();
    while let Some(name) = path.next() {
        match name.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            name => {
                let file = files.get(&at)?;
                let below = [&at[..], &[name.to_owned()]].concat();
                if files.contains_key(&below) {
                    at = below;
                } else if let Some(used) = file.uses.get(name) {
                    let rest: Vec<String> = used.iter().cloned().chain(path.cloned()).collect();
                    return (rest.as_slice() != [name]).then(|| declared(files, &at, &rest))?;
                } else if file.items.contains(name) {
                    return Some((at, name.to_owned()));
                } else if first {
                    return None;
                } else {
                    let globs = file.globs.iter().filter(|glob| **glob != at);
                    let whole = |glob: &Vec<String>| glob.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
                    return globs.map(whole).find_map(|path| declared(files, &at, &path));
                }
            }
        }
        first = false;
    }
    Some((at, "*".to_owned()))
}

/// What a file declares and names, without its tests. A module in a block is a part of its file.
#[derive(Default)]
struct File {
    items: BTreeSet<String>,
    /// By the name that the file has for it.
    uses: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    paths: BTreeSet<Vec<String>>,
}

impl File {
    fn read(path: &Path) -> File {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut file = File::default();
        file.visit_file(&parsed);
        file
    }

    fn add_use(&mut self, before: &[String], tree: &syn::UseTree, passes_on: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let (path, name) = match tree {
            syn::UseTree::Path(path) => return self.add_use(&with(&path.ident), &path.tree, passes_on),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_use(before, tree, passes_on));
            }
            syn::UseTree::Glob(_) => {
                self.globs.push(before.to_vec());
                (before.to_vec(), None)
            }
            syn::UseTree::Name(name) if name.ident == "self" => (before.to_vec(), before.last().cloned()),
            syn::UseTree::Name(name) => (with(&name.ident), Some(name.ident.to_string())),
            syn::UseTree::Rename(name) => (with(&name.ident), Some(name.rename.to_string())),
        };
        if !passes_on {
            self.paths.insert(path.clone());
        }
        self.uses.extend(name.map(|name| (name, path)));
    }
}

impl<'ast> Visit<'ast> for File {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes(item)) {
            return;
        }
        let name = match item {
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        self.items.extend(name.map(syn::Ident::to_string));
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(&[], &item.tree, !matches!(item.vis, syn::Visibility::Inherited));
    }

    /// `pub(in crate::correlate)` names no item.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths
            .insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// Sets of modules that import each other.
fn circles(imports: &Imports) -> Vec<BTreeSet<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|module| (module, reached(imports, module))).collect();
    let mut circles: Vec<BTreeSet<Module>> = Vec::new();
    for (module, to) in &reached {
        let circle = || {
            to.iter()
                .filter(|other| reached[*other].contains(*module))
                .map(|other| (*other).clone())
        };
        if to.contains(*module) && !circles.iter().any(|known| known.contains(*module)) {
            circles.push(circle().collect());
        }
    }
    circles
}

fn reached<'a>(imports: &'a Imports, from: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Module> = imports[from].keys().collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(imports.get(next).into_iter().flat_map(BTreeMap::keys));
        }
    }
    found
}
