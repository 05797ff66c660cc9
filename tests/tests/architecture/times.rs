//! One home for each constant of time.

use std::fs;

use syn::visit::{self, Visit};
use syn::{BinOp, Expr};

use super::{attributes, is_test, root, rust_files};

/// `tolerances.rs`, and the bounds of memory and of patience.
const HOMES: [&str; 2] = ["tolerances.rs", "limits.rs"];

#[test]
fn every_constant_of_time_of_the_core_is_in_its_home() {
    let src = root().join("agent/core/src");
    let mut wrong = Vec::new();
    let mut looked = 0;
    for file in rust_files(&src) {
        if file.file_name().is_some_and(|name| HOMES.iter().any(|home| name == *home)) {
            continue;
        }
        looked += 1;
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let found = Durations::of(&text);
        wrong.extend(
            found
                .iter()
                .map(|found| format!("{}: {found}", file.strip_prefix(root()).unwrap_or(&file).display())),
        );
    }
    assert!(looked > 150, "{looked} files");
    assert!(
        wrong.is_empty(),
        "constants of time outside of {HOMES:?}:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_constant_of_time_and_one_in_a_comparison_are_found() {
    let text = "
        const LATE: Duration = Duration::from_secs(1);
        fn is_late(since: Duration) -> bool { since > std::time::Duration::from_millis(500) }
        fn of(seconds: u64, since: Duration) -> bool { since > Duration::from_secs(seconds) }
        #[cfg(test)]
        mod tests { const OTHER: Duration = Duration::from_secs(2); }
    ";
    assert_eq!(Durations::of(text), ["const LATE", "a comparison with from_millis"]);
}

/// Lengths of time in constants, and written out in comparisons.
#[derive(Default)]
struct Durations {
    found: Vec<String>,
}

impl Durations {
    fn of(text: &str) -> Vec<String> {
        let mut durations = Durations::default();
        durations.visit_file(&syn::parse_file(text).expect("Rust"));
        durations.found
    }
}

impl Visit<'_> for Durations {
    fn visit_item(&mut self, item: &syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &syn::ItemConst) {
        self.found.extend(first(&item.expr).map(|_| format!("const {}", item.ident)));
    }

    fn visit_impl_item_const(&mut self, item: &syn::ImplItemConst) {
        self.found.extend(first(&item.expr).map(|_| format!("const {}", item.ident)));
    }

    fn visit_expr_binary(&mut self, of: &syn::ExprBinary) {
        if matches!(of.op, BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_)) {
            let sides = [&of.left, &of.right];
            let found = sides.into_iter().filter_map(|side| written_out(side));
            self.found.extend(found.map(|how| format!("a comparison with {how}")));
        }
        visit::visit_expr_binary(self, of);
    }
}

/// The first length of time that is written out there.
fn first(expr: &Expr) -> Option<String> {
    #[derive(Default)]
    struct First(Option<String>);
    impl Visit<'_> for First {
        fn visit_expr(&mut self, expr: &Expr) {
            self.0 = self.0.take().or_else(|| written_out(expr));
            visit::visit_expr(self, expr);
        }
    }
    let mut first = First::default();
    first.visit_expr(expr);
    first.0
}

/// `from_secs` of `Duration::from_secs(1)`, if its argument is no variable.
fn written_out(expr: &Expr) -> Option<String> {
    let Expr::Call(call) = expr else { return None };
    let Expr::Path(path) = &*call.func else { return None };
    let mut names = path.path.segments.iter().rev().map(|segment| segment.ident.to_string());
    let (how, of) = (names.next()?, names.next()?);
    let is_constant = call
        .args
        .iter()
        .all(|argument| matches!(argument, Expr::Lit(_) | Expr::Binary(_)));
    (of == "Duration" && how.starts_with("from_") && is_constant).then_some(how)
}
