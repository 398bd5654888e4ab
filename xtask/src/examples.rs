// SPDX-License-Identifier: Apache-2.0
//! Copies the files of `config/samples` into the pages that link to them.
//!
//! A code block in YAML after a paragraph that ends with a link to a file of `config/samples` has the text of this file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::paths::ROOT;

/// The end of a paragraph, and the beginning of its code block.
const BEGINNING: &str = ":\n\n```yaml\n";
/// The end of a code block.
const END: &str = "```\n";
const SAMPLES: &str = "config/samples/";

/// Returns the pages with outdated examples, by their paths in the repository, with the text of the files.
pub(crate) fn pages() -> Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    for path in markdown_files(&Path::new(ROOT).join("docs"))? {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if text.contains(SAMPLES) {
            let name = path.strip_prefix(ROOT)?.display().to_string();
            let page = insert_examples(&text, read_sample).with_context(|| name.clone())?;
            if page != text {
                pages.push((name, page));
            }
        }
    }
    Ok(pages)
}

/// Lists the pages of a folder and of its folders.
fn markdown_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let list = || format!("cannot list {}", folder.display());
    for entry in fs::read_dir(folder).with_context(list)? {
        let path = entry.with_context(list)?.path();
        if path.is_dir() {
            files.extend(markdown_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_sample(name: &str) -> Result<String> {
    let path = Path::new(ROOT).join(SAMPLES).join(name);
    fs::read_to_string(path).with_context(|| format!("cannot read {SAMPLES}{name}"))
}

/// Replaces each example of a page by the text of its file.
fn insert_examples(page: &str, read: impl Fn(&str) -> Result<String>) -> Result<String> {
    let (mut result, mut rest) = (String::new(), page);
    while let Some((paragraph, block)) = rest.split_once(BEGINNING) {
        let (example, next) = block.split_once(END).context("a code block has no end")?;
        result.extend([paragraph, BEGINNING]);
        match linked_sample(paragraph) {
            Some(name) => result.push_str(&read(name)?),
            None => result.push_str(example),
        }
        result.push_str(END);
        rest = next;
    }
    result.push_str(rest);
    Ok(result)
}

/// Returns the name of the sample in the link at the end of a paragraph.
fn linked_sample(paragraph: &str) -> Option<&str> {
    let (_, target) = paragraph.strip_suffix(')')?.rsplit_once('(')?;
    Some(target.split_once(SAMPLES)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_block_after_link_gets_text_of_file() {
        let page = "[`a`](../config/samples/a.yaml):\n\n```yaml\nold\n```\n\nAn object:\n\n```yaml\nb: 1\n```\nend\n";

        let inserted = insert_examples(page, |name| Ok(format!("# {name}\nnew: 2\n"))).expect("a page");

        assert_eq!(inserted, page.replace("old\n", "# a.yaml\nnew: 2\n"));
    }

    #[test]
    fn missing_sample_is_reported() {
        let page = "[a](config/samples/a.yaml):\n\n```yaml\n```\n";

        assert!(insert_examples(page, |_| anyhow::bail!("missing")).is_err());
    }
}
