// SPDX-License-Identifier: Apache-2.0
//! A YAML document as PyYAML reads it: scalars with their text, aliases and merge keys resolved, in bounded size.

mod scalar;

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::refuse_yaml;
pub(super) use scalar::YamlScalar;

/// The maximum number of nodes in a document after its aliases are resolved. A cloud has about twenty.
const MOST_NODES: usize = 10_000;
/// The key that merges mappings into its own mapping.
const MERGE: &str = "<<";
/// The same text in quotes, which is an ordinary key. The parser returns keys without their quotes.
const QUOTED_MERGE: [&str; 2] = ["\"<<\"", "'<<'"];

/// A node of a document. It has no `Debug`, because it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum YamlNode {
    Scalar(YamlScalar),
    List(Vec<YamlNode>),
    Map(YamlMap),
    /// Merged mappings have different values for the key. Versions of PyYAML and Go differ in which of them counts.
    Ambiguous,
}

impl YamlNode {
    pub(super) fn as_map(&self) -> Option<&YamlMap> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Scalar(YamlScalar::Null))
    }
}

/// A mapping in the order of the document. The last of several equal keys counts.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct YamlMap(Vec<(String, YamlNode)>);

impl YamlMap {
    pub(super) fn get(&self, key: &str) -> Option<&YamlNode> {
        self.0.iter().find_map(|(name, node)| (name == key).then_some(node))
    }

    pub(super) fn insert(&mut self, key: String, node: YamlNode) {
        match self.0.iter_mut().find(|(name, _)| *name == key) {
            Some((_, old)) => *old = node,
            None => self.0.push((key, node)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &YamlNode)> {
        self.0.iter().map(|(key, node)| (key.as_str(), node))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The reason why a text is rejected. `line` is 0 for the document as a whole.
pub(super) struct YamlRefusal {
    pub(super) line: usize,
    pub(super) reason: String,
}

/// Parses a document. An error does not quote the text, which may contain secrets.
pub(super) fn parse(text: &str) -> Result<YamlNode, YamlRefusal> {
    let refuse = |line, reason: String| YamlRefusal { line, reason };
    if let Some(reason) = refuse_yaml(text) {
        return Err(refuse(0, reason));
    }
    if let Some(line) = text
        .lines()
        .position(|line| QUOTED_MERGE.iter().any(|key| line.contains(key)))
    {
        let reason = "<< in quotes merges nothing; remove the quotes".to_owned();
        return Err(refuse(line + 1, reason));
    }
    let nodes = Cell::new(0);
    let seed = ShapeSeed { text, nodes: &nodes };
    let shape = seed
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .map_err(|error| {
            if nodes.get() > MOST_NODES {
                return refuse(
                    0,
                    format!("it has more than {MOST_NODES} values after its aliases are resolved"),
                );
            }
            let line = error.location().map_or(0, |at| at.line());
            refuse(line, "this is not YAML; check indentation and quotes".to_owned())
        })?;
    let shape = shape
        .with_numbers(serde_yaml::Deserializer::from_str(text))
        .map_err(|_| refuse(0, "this is not YAML; check indentation and quotes".to_owned()))?;
    shape.merged().map_err(|reason| refuse(0, reason.to_owned()))
}

/// A node before merge keys are resolved.
enum Shape {
    /// A number. The parser returns its value without its text.
    Number,
    Scalar(YamlScalar),
    List(Vec<Shape>),
    Map(Vec<(String, Shape)>),
}

impl Shape {
    fn has_number(&self) -> bool {
        match self {
            Self::Number => true,
            Self::Scalar(_) => false,
            Self::List(items) => items.iter().any(Self::has_number),
            Self::Map(entries) => entries.iter().any(|(_, value)| value.has_number()),
        }
    }

    /// Reads the document a second time, for the text of its numbers.
    fn with_numbers<'de, D: Deserializer<'de>>(self, document: D) -> Result<Self, D::Error> {
        if self.has_number() {
            NumberSeed(self).deserialize(document)
        } else {
            Ok(self)
        }
    }

    /// Resolves merge keys. The result is never larger, because aliases are already resolved.
    fn merged(self) -> Result<YamlNode, &'static str> {
        Ok(match self {
            Self::Number => YamlNode::Ambiguous,
            Self::Scalar(scalar) => YamlNode::Scalar(scalar),
            Self::List(items) => YamlNode::List(items.into_iter().map(Self::merged).collect::<Result<_, _>>()?),
            Self::Map(entries) => {
                let mut inherited = YamlMap::default();
                let mut own = YamlMap::default();
                for (key, value) in entries {
                    let value = value.merged()?;
                    if key == MERGE {
                        inherit(&mut inherited, value)?;
                    } else {
                        own.insert(key, value);
                    }
                }
                for (key, value) in own.0 {
                    inherited.insert(key, value);
                }
                YamlNode::Map(inherited)
            }
        })
    }
}

/// Adds the mappings under a merge key.
fn inherit(inherited: &mut YamlMap, value: YamlNode) -> Result<(), &'static str> {
    const NO_MAPPING: &str = "the merge key << must name a mapping, or a list of mappings";
    let maps = match value {
        YamlNode::List(items) => items,
        one => vec![one],
    };
    for map in maps {
        let YamlNode::Map(map) = map else {
            return Err(NO_MAPPING);
        };
        for (key, value) in map.0 {
            let is_other = inherited.get(&key).is_some_and(|existing| *existing != value);
            inherited.insert(key, if is_other { YamlNode::Ambiguous } else { value });
        }
    }
    Ok(())
}

/// Reads everything except the text of numbers.
#[derive(Clone, Copy)]
struct ShapeSeed<'a> {
    text: &'a str,
    nodes: &'a Cell<usize>,
}

impl ShapeSeed<'_> {
    fn is_plain(self, scalar: &str) -> bool {
        scalar::is_plain(self.text, scalar)
    }
}

impl<'de> DeserializeSeed<'de> for ShapeSeed<'_> {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        self.nodes.set(self.nodes.get() + 1);
        if self.nodes.get() > MOST_NODES {
            return Err(D::Error::custom("too many values"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShapeSeed<'_> {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a tag")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Scalar(YamlScalar::Bool(value)))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Scalar(YamlScalar::Null))
    }

    fn visit_none<E>(self) -> Result<Shape, E> {
        Ok(Shape::Scalar(YamlScalar::Null))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Shape, E> {
        Ok(Shape::Scalar(if self.is_plain(value) {
            YamlScalar::of_plain(value)
        } else {
            YamlScalar::Text(value.to_owned())
        }))
    }

    /// Visits a text that differs from its source: it has escapes or several lines.
    fn visit_str<E>(self, value: &str) -> Result<Shape, E> {
        Ok(Shape::Scalar(YamlScalar::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Shape::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<String>()? {
            entries.push((key, access.next_value_seed(self)?));
        }
        Ok(Shape::Map(entries))
    }
}

/// Reads the text of the numbers of a shape.
struct NumberSeed(Shape);

impl<'de> DeserializeSeed<'de> for NumberSeed {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        match self.0 {
            Shape::Number => deserializer.deserialize_str(self),
            Shape::List(_) => deserializer.deserialize_seq(self),
            Shape::Map(_) => deserializer.deserialize_map(self),
            Shape::Scalar(_) => {
                deserializer.deserialize_ignored_any(IgnoredAny)?;
                Ok(self.0)
            }
        }
    }
}

impl<'de> Visitor<'de> for NumberSeed {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the same document")
    }

    fn visit_str<E>(self, text: &str) -> Result<Shape, E> {
        Ok(Shape::Scalar(YamlScalar::of_plain(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let Shape::List(items) = self.0 else {
            return Err(A::Error::custom("a list"));
        };
        let mut read = Vec::with_capacity(items.len());
        for item in items {
            let item = access.next_element_seed(NumberSeed(item))?;
            read.push(item.ok_or_else(|| A::Error::custom("a shorter list"))?);
        }
        Ok(Shape::List(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let Shape::Map(entries) = self.0 else {
            return Err(A::Error::custom("a mapping"));
        };
        let mut read = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            access.next_key::<IgnoredAny>()?;
            read.push((key, access.next_value_seed(NumberSeed(value))?));
        }
        Ok(Shape::Map(read))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Formats a node in one line: texts in brackets, numbers that differ from their text as `?`.
    fn show(node: &YamlNode) -> String {
        match node {
            YamlNode::Scalar(YamlScalar::Null) => "null".to_owned(),
            YamlNode::Scalar(YamlScalar::Bool(value)) => value.to_string(),
            YamlNode::Scalar(YamlScalar::Text(text)) => format!("<{text}>"),
            YamlNode::Scalar(YamlScalar::Inexact) => "?".to_owned(),
            YamlNode::Ambiguous => "ambiguous".to_owned(),
            YamlNode::List(items) => items.iter().map(show).collect::<Vec<_>>().join(" "),
            YamlNode::Map(map) => {
                let entries: Vec<String> = map
                    .iter()
                    .map(|(key, value)| format!("{key}={}", show(value)))
                    .collect();
                format!("{{{}}}", entries.join(" "))
            }
        }
    }

    fn read(text: &str) -> String {
        match parse(text) {
            Ok(node) => show(&node),
            Err(refusal) => format!("line {}: {}", refusal.line, refusal.reason),
        }
    }

    #[rstest]
    #[case("b: &b {r: R2}\na: {<<: *b, x: 1}", "{b={r=<R2>} a={r=<R2> x=<1>}}")]
    #[case("b: &b {r: R2}\na: {r: own, <<: *b}", "{b={r=<R2>} a={r=<own>}}")]
    #[case("b: &b {r: R2}\na: {!!merge <<: *b}", "{b={r=<R2>} a={r=<R2>}}")]
    #[case(
        "b: &b {r: R2}\nc: &c {<<: *b, s: S}\na: {<<: *c}",
        "{b={r=<R2>} c={r=<R2> s=<S>} a={r=<R2> s=<S>}}"
    )]
    #[case(
        "b: &b {r: 1}\nc: &c {r: 2}\na: {<<: [*b, *c]}",
        "{b={r=<1>} c={r=<2>} a={r=ambiguous}}"
    )]
    #[case(
        "b: &b {r: 1}\nc: &c {r: 2}\na: {<<: [*b, *c], r: 3}",
        "{b={r=<1>} c={r=<2>} a={r=<3>}}"
    )]
    #[case(
        "b: &b {r: 1}\nc: &c {s: 2}\na: {<<: [*b, *c]}",
        "{b={r=<1>} c={s=<2>} a={r=<1> s=<2>}}"
    )]
    fn merge_keys_are_resolved(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(read(text), expected);
    }

    #[rstest]
    #[case("a: {<<: text}", "the merge key << must name a mapping")]
    #[case("a: {<<: [1]}", "the merge key << must name a mapping")]
    #[case("b: &b {r: R2}\na: {\"<<\": *b}", "<< in quotes merges nothing")]
    #[case("b: &b {r: R2}\na:\n  '<<': *b", "<< in quotes merges nothing")]
    #[case("b: &b {r: R2}\na: {!!merge \"<<\": *b}", "<< in quotes merges nothing")]
    #[case("a: !tag x", "this is not YAML")]
    #[case("a: [", "this is not YAML")]
    #[case("a: 1\n---\nb: 2", "this is not YAML")]
    fn unreadable_documents_are_refused(#[case] text: &str, #[case] expected: &str) {
        assert!(read(text).contains(expected), "{}", read(text));
    }

    #[rstest]
    #[case("1e5", "<1e5>")]
    #[case("12345678901234567890123456789012", "<12345678901234567890123456789012>")]
    #[case(
        "123456789012345678901234567890123456789012345678",
        "<123456789012345678901234567890123456789012345678>"
    )]
    #[case("84071e63958204739158263940571826", "<84071e63958204739158263940571826>")]
    #[case("0123456", "?")]
    #[case("12.50", "?")]
    #[case("0x1F", "?")]
    #[case("0o17", "<0o17>")]
    #[case("+12345", "?")]
    #[case(".inf", "?")]
    #[case("2024-01-02", "<2024-01-02>")]
    #[case("no", "false")]
    #[case("'no'", "<no>")]
    #[case("\"0123\"", "<0123>")]
    #[case("'0123'", "<0123>")]
    #[case("\"\\x30123\"", "<0123>")]
    #[case("\"\\\n    0123\"", "<0123>")]
    #[case("|\n  0123", "<0123>")]
    #[case("~", "null")]
    #[case("", "null")]
    #[case("'~'", "<~>")]
    fn scalars_retain_text_or_are_marked(#[case] scalar: &str, #[case] expected: &str) {
        assert_eq!(read(&format!("a: {scalar}")), format!("{{a={expected}}}"));
        if !scalar.starts_with('|') && !scalar.is_empty() {
            assert_eq!(read(&format!("[{scalar}]")), expected);
            assert_eq!(read(&format!("{{\"a\":{scalar} }}")), format!("{{a={expected}}}"));
        }
    }

    #[test]
    fn aliases_are_bounded() {
        let levels = (1..8).map(|n| {
            let names = vec![format!("*a{}", n - 1); 10].join(", ");
            format!("a{n}: &a{n} [{names}]\n")
        });
        let text: String = std::iter::once("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned())
            .chain(levels)
            .collect();
        assert!(read(&text).contains("more than 10000 values"), "{}", read(&text));
        let merges = format!("b: &b {{k: v}}\n{}", "a: {<<: *b}\n".repeat(5_000));
        assert!(read(&merges).contains("more than 10000 values"), "{}", read(&merges));
    }
}
