// SPDX-License-Identifier: Apache-2.0
//! Checks that the code uses every reason. rustc does not report unused variants of a public enum.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;
use rstest::rstest;

use super::{conditions, events};

/// A type and one of its variants.
type Variant = (String, String);

/// Returns the code of one file, without its tests and comments.
fn code_of(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the variants that code constructs, by their full names or by their imported names. Variants in patterns do
/// not count.
fn constructed_variants(code: &str) -> BTreeSet<Variant> {
    let path = Regex::new(r"\b([A-Z]\w*)::([A-Z]\w*)\b").unwrap();
    let import = Regex::new(r"use (?:\w+::)*([A-Z]\w*)::(?:\{([^}]*)\}|(\w+));").unwrap();
    let word = Regex::new(r"\b[A-Z]\w*\b").unwrap();

    let mut made = BTreeSet::new();
    let body = import.replace_all(code, "");
    for found in path.captures_iter(&body) {
        if !is_pattern(&body[found.get_match().end()..]) {
            made.insert((found[1].to_owned(), found[2].to_owned()));
        }
    }
    let words = word.find_iter(&body).filter(|found| !is_pattern(&body[found.end()..]));
    let words: BTreeSet<&str> = words.map(|found| found.as_str()).collect();
    for found in import.captures_iter(code) {
        let names = found
            .get(2)
            .or(found.get(3))
            .unwrap()
            .as_str()
            .split(',')
            .map(str::trim);
        let used = names.filter(|name| words.contains(name));
        made.extend(used.map(|name| (found[1].to_owned(), name.to_owned())));
    }
    made
}

/// Whether the preceding text is a pattern, alone or among others.
fn is_pattern(rest: &str) -> bool {
    let rest = rest.trim_start_matches([')', ' ', '\n']);
    rest.starts_with("=>") || (rest.starts_with('|') && !rest.starts_with("||"))
}

fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name == "tests")
}

/// Collects the variants that each file below a directory constructs.
fn collect_constructed(folder: &Path, found: &mut Vec<(PathBuf, BTreeSet<Variant>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if is_test(&path) {
            continue;
        }
        if path.is_dir() {
            collect_constructed(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let made = constructed_variants(&code_of(&path));
            found.push((path, made));
        }
    }
}

/// Returns the variants of the reasons not to use credentials.
fn refusals(definition: &Path) -> Vec<String> {
    let code = code_of(definition);
    let (_, body) = code.split_once("pub enum Refusal {").unwrap();
    let (body, _) = body.split_once('}').unwrap();
    let names = body.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

#[test]
fn every_reason_is_used_in_code() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut made = Vec::new();
    collect_constructed(&source, &mut made);
    collect_constructed(&source.join("../../src"), &mut made);
    let file = |name: &str| source.join("reasons").join(name);
    let owned = |variants: &[&str]| -> Vec<String> { variants.iter().map(|&variant| variant.to_owned()).collect() };

    let conditions = conditions::VARIANTS.iter();
    let mut reasons: Vec<_> = conditions
        .map(|(name, variants)| (*name, file("conditions.rs"), owned(variants)))
        .collect();
    reasons.push(("Event", file("events.rs"), owned(events::VARIANTS)));
    reasons.push(("Refusal", file("refusal.rs"), refusals(&file("refusal.rs"))));

    let mut missing = Vec::new();
    for (name, definition, variants) in reasons {
        assert!(!variants.is_empty(), "{name}");
        for variant in variants {
            let wanted = (name.to_owned(), variant);
            let mut others = made.iter().filter(|(path, _)| *path != definition);
            if !others.any(|(_, made)| made.contains(&wanted)) {
                missing.push(wanted);
            }
        }
    }
    assert!(missing.is_empty(), "no code gives {missing:?}: take it out");
}

#[rstest]
#[case::whole("reason: Degraded::Young,", true)]
#[case::in_a_module("reason: reasons::Degraded::Young,", true)]
#[case::imported("use Degraded::{Old, Young};\nSome(Young)", true)]
#[case::imported_alone("use Degraded::Young;\nSome(Young)", true)]
#[case::imported_only("use Degraded::{Old, Young};\nSome(Old)", false)]
#[case::a_pattern("match reason { Degraded::Young | Degraded::Old => 1 }", false)]
#[case::a_pattern_inside("match reason { Some(Degraded::Young) => 1 }", false)]
#[case::others("reason: Degraded::Younger, Available::Young", false)]
fn only_expressions_use_variants(#[case] code: &str, #[case] expected: bool) {
    let wanted = ("Degraded".to_owned(), "Young".to_owned());
    assert_eq!(constructed_variants(code).contains(&wanted), expected);
}
