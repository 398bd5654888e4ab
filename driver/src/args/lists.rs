// SPDX-License-Identifier: Apache-2.0
//! Splits flags with several values as pflag does in cinder-csi-plugin.
//!
//! A StringSlice is one line of CSV with quotes. A StringToString is one pair, or one such line of pairs. Each value
//! becomes a separate flag before the command line is parsed.

use std::ffi::OsString;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListKind {
    Slice,
    Map,
}

/// The flags of cinder-csi-plugin with several values.
const LISTS: [(&str, ListKind); 3] = [
    ("cloud-config", ListKind::Slice),
    ("cloud-name", ListKind::Slice),
    ("additional-topology", ListKind::Map),
];

fn kind_of(flag: &str) -> Option<ListKind> {
    LISTS.iter().find_map(|(name, kind)| (*name == flag).then_some(*kind))
}

/// Replaces each flag that has several values by one flag for each value.
///
/// An empty value is retained, because it selects the cloud without a name.
pub(super) fn split(argv: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut split = Vec::new();
    let mut argv = argv.into_iter();
    while let Some(word) = argv.next() {
        let flag = word
            .to_str()
            .and_then(|word| word.strip_prefix("--"))
            .map(str::to_owned);
        let (name, own_value) = match flag.as_deref().map(|flag| {
            flag.split_once('=')
                .map_or((flag, None), |(name, value)| (name, Some(value)))
        }) {
            Some((name, value)) => (name.to_owned(), value.map(OsString::from)),
            None => (String::new(), None),
        };
        let Some(kind) = kind_of(&name) else {
            split.push(word);
            continue;
        };
        let Some(value) = own_value.or_else(|| argv.next()) else {
            split.push(word);
            continue;
        };
        let Some(text) = value.to_str().filter(|text| !text.is_empty()) else {
            split.extend([OsString::from(format!("--{name}")), value]);
            continue;
        };
        let items = items(kind, text).map_err(|reason| format!("invalid value for --{name}: {reason}"))?;
        split.extend(items.into_iter().map(|item| format!("--{name}={item}").into()));
    }
    Ok(split)
}

/// Quotes the value of a flag so that [`split`] returns it unchanged.
pub(super) fn quote(flag: &str, value: &str) -> String {
    let is_line = match kind_of(flag) {
        None => return value.to_owned(),
        Some(ListKind::Slice) => true,
        Some(ListKind::Map) => value.matches('=').count() > 1,
    };
    if is_line && value.contains([',', '"']) {
        format!("\"{}\"", value.replace('"', "\"\""))
    } else {
        value.to_owned()
    }
}

fn items(kind: ListKind, text: &str) -> Result<Vec<String>, String> {
    if kind == ListKind::Map && text.matches('=').count() <= 1 {
        return Ok(vec![text.trim_matches('"').to_owned()]);
    }
    read_line(text)
}

/// Parses one line of CSV. Quotes are special only at the beginning of a value, and are doubled inside.
fn read_line(text: &str) -> Result<Vec<String>, String> {
    if text.contains(['\n', '\r']) {
        return Err("it has a line break".to_owned());
    }
    let mut items = Vec::new();
    let mut rest = text;
    loop {
        let (item, tail) = if let Some(quoted) = rest.strip_prefix('"') {
            read_quoted(quoted)?
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let (item, tail) = rest.split_at(end);
            if item.contains('"') {
                return Err(format!(
                    "{item} has a quote inside; put the whole value in quotes, or none of it"
                ));
            }
            (item.to_owned(), tail)
        };
        items.push(item);
        match tail.strip_prefix(',') {
            Some(tail) => rest = tail,
            None if tail.is_empty() => return Ok(items),
            None => return Err("there is text behind a closing quote".to_owned()),
        }
    }
}

/// Parses a quoted value after its opening quote. Returns the value and the text after its closing quote.
fn read_quoted(text: &str) -> Result<(String, &str), String> {
    let mut item = String::new();
    let mut rest = text;
    loop {
        let Some((before, behind)) = rest.split_once('"') else {
            return Err("a quote is not closed".to_owned());
        };
        item.push_str(before);
        let Some(tail) = behind.strip_prefix('"') else {
            return Ok((item, behind));
        };
        item.push('"');
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn split_words(words: &[&str]) -> Result<String, String> {
        let words = split(words.iter().map(OsString::from))?;
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        Ok(words.join(" "))
    }

    #[rstest]
    #[case(&["--cloud-name=\"region-one\""], "--cloud-name=region-one")]
    #[case(&["--cloud-name", "\"region-one\""], "--cloud-name=region-one")]
    #[case(&["--cloud-name=a,\"b,c\",\"d\"\"e\""], "--cloud-name=a --cloud-name=b,c --cloud-name=d\"e")]
    #[case(&["--cloud-name=a,"], "--cloud-name=a --cloud-name=")]
    #[case(&["--cloud-name="], "--cloud-name ")]
    #[case(&["--cloud-config=\"/etc/a.conf\",/etc/b.conf"], "--cloud-config=/etc/a.conf --cloud-config=/etc/b.conf")]
    #[case(&["--additional-topology=\"a=b\""], "--additional-topology=a=b")]
    #[case(&["--additional-topology=a=b,c"], "--additional-topology=a=b,c")]
    #[case(&["--additional-topology=a=b,\"c=d,e\""], "--additional-topology=a=b --additional-topology=c=d,e")]
    #[case(&["--cluster=\"x\"", "--endpoint", "\"y\""], "--cluster=\"x\" --endpoint \"y\"")]
    fn lists_parse_like_pflag(#[case] words: &[&str], #[case] expected: &str) {
        assert_eq!(split_words(words).as_deref(), Ok(expected));
    }

    #[rstest]
    #[case("--cloud-name=a\"b", "quote inside")]
    #[case("--cloud-name=\"a", "not closed")]
    #[case("--cloud-name=\"a\"b", "behind a closing quote")]
    #[case("--cloud-name=a\nb", "line break")]
    fn malformed_lists_are_refused(#[case] word: &str, #[case] expected: &str) {
        let error = split_words(&[word]).expect_err("refused");
        assert!(error.contains("--cloud-name") && error.contains(expected), "{error}");
    }

    #[rstest]
    #[case("cloud-name", "a,b \"c\"")]
    #[case("additional-topology", "k=v,w=x")]
    #[case("additional-topology", "k=v,w")]
    fn quoted_values_round_trip(#[case] flag: &str, #[case] value: &str) {
        let word = format!("--{flag}={}", quote(flag, value));
        assert_eq!(split_words(&[&word]), Ok(format!("--{flag}={value}")));
    }
}
