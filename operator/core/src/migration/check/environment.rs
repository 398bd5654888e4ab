// SPDX-License-Identifier: Apache-2.0
//! The environment of a container, and its substitution into command lines by the kubelet.

use std::{collections::BTreeMap, fmt};

use secrecy::{ExposeSecret as _, SecretString};

/// Maximum length of an argument with its values, in bytes.
const LONGEST_WORD: usize = 64 << 10;

pub(super) const HTTPS_PROXY: &str = "HTTPS_PROXY";
pub(super) const HTTP_PROXY: &str = "HTTP_PROXY";
pub(super) const NO_PROXY: &str = "NO_PROXY";

/// The variables of proxies, with their second names.
const PROXIES: [(&str, &str); 3] = [
    (HTTPS_PROXY, "https_proxy"),
    (HTTP_PROXY, "http_proxy"),
    (NO_PROXY, "no_proxy"),
];

/// The proxy variables of a container that have a value, by their names in capitals.
pub type ProxyVariables = BTreeMap<&'static str, Argument>;

/// The value of a variable.
#[derive(Debug, Clone)]
pub enum VariableValue {
    /// Text that may be shown.
    Plain(String),
    /// Text that is compared and never shown.
    Secret(SecretString),
    /// The value is unknown, with the reason.
    Unknown(String),
}

/// The variables of a container.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    values: BTreeMap<String, VariableValue>,
    /// Why other variables may exist: a source of unknown keys cannot be read.
    hidden: Option<String>,
}

/// An argument of a command line with the values of the environment. `Debug` does not show text of Secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Argument {
    pub(super) text: String,
    /// Variables with values of Secrets in the text.
    pub(super) secrets: Vec<String>,
    /// Variables of unknown value, each with the reason. They remain in the text as `$(NAME)`.
    pub(super) unknown: BTreeMap<String, String>,
}

impl fmt::Debug for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.secrets.is_empty() {
            f.debug_tuple("Argument").field(&self.text).finish()
        } else {
            write!(f, "Argument with {}", self.secrets.join(", "))
        }
    }
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::default()
        }
    }
}

impl From<Argument> for VariableValue {
    /// The value of a variable that refers to other variables.
    fn from(word: Argument) -> Self {
        if let Some((name, why)) = word.unknown.first_key_value() {
            return Self::Unknown(format!("it refers to variable {name}: {why}"));
        }
        if word.secrets.is_empty() {
            Self::Plain(word.text)
        } else {
            Self::Secret(word.text.into())
        }
    }
}

impl Argument {
    /// Returns the text, unless it has values of Secrets or unknown values.
    pub fn plain(&self) -> Option<&str> {
        (self.secrets.is_empty() && self.unknown.is_empty()).then_some(self.text.as_str())
    }

    /// Whether the argument is this program or a path to it.
    pub fn is_program(&self, program: &str) -> bool {
        self.plain()
            .is_some_and(|text| text.rsplit('/').next() == Some(program))
    }
}

impl Variables {
    pub fn set(&mut self, name: impl Into<String>, value: VariableValue) {
        self.values.insert(name.into(), value);
    }

    /// Records that a source of variables cannot be read.
    pub fn hide_source(&mut self, why: impl Into<String>) {
        self.hidden.get_or_insert_with(|| why.into());
    }

    /// Returns the proxy variables that cinder-csi-plugin uses. A variable that may be in an unreadable source is unknown.
    pub fn proxies(&self) -> ProxyVariables {
        let proxies = PROXIES.iter().filter_map(|(name, second)| {
            let names: Vec<&str> = [*name, *second]
                .into_iter()
                .filter(|name| self.get(name).is_some())
                .collect();
            if names.is_empty() {
                let is_hidden = self.hidden.is_some();
                return is_hidden.then(|| (*name, self.expand(&format!("$({name})"))));
            }
            let mut values = names.into_iter().map(|name| self.expand(&format!("$({name})")));
            values.find(|value| !value.text.is_empty()).map(|value| (*name, value))
        });
        proxies.collect()
    }

    pub fn get(&self, name: &str) -> Option<&VariableValue> {
        self.values.get(name)
    }

    /// Substitutes the values for `$(NAME)`. `$$` becomes one dollar sign, as in `$$(NAME)`.
    pub fn expand(&self, text: &str) -> Argument {
        let mut word = Argument::default();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            word.text.push_str(before);
            rest = after;
            if let Some(after) = rest.strip_prefix('$') {
                word.text.push('$');
                rest = after;
            } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
                self.fill(&mut word, name);
                rest = after;
            } else {
                word.text.push('$');
            }
            if word.text.len() > LONGEST_WORD {
                break;
            }
        }
        word.text.push_str(rest);
        if word.text.len() > LONGEST_WORD {
            let why = format!("the word is longer than {LONGEST_WORD} bytes");
            word.text = text.chars().take(80).collect();
            word.secrets.clear();
            word.unknown.insert("(all)".to_owned(), why);
        }
        word
    }

    fn fill(&self, word: &mut Argument, name: &str) {
        let unknown = match self.values.get(name) {
            Some(VariableValue::Plain(value)) => {
                word.text.push_str(value);
                return;
            }
            Some(VariableValue::Secret(value)) => {
                word.text.push_str(value.expose_secret());
                word.secrets.push(name.to_owned());
                return;
            }
            Some(VariableValue::Unknown(why)) => why.clone(),
            None => match &self.hidden {
                Some(why) => why.clone(),
                None => "the container has no such variable".to_owned(),
            },
        };
        word.text.push_str("$(");
        word.text.push_str(name);
        word.text.push(')');
        word.unknown.insert(name.to_owned(), unknown);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mk_variables() -> Variables {
        let mut variables = Variables::default();
        variables.set("A", VariableValue::Plain("one".to_owned()));
        variables.set("S", VariableValue::Secret("hunter2".to_owned().into()));
        variables.set("U", VariableValue::Unknown("it is a field of each pod".to_owned()));
        variables
    }

    #[rstest]
    #[case("--x=$(A)-$(A)", "--x=one-one")]
    #[case("--x=$$(A)", "--x=$(A)")]
    #[case("--x=$$$(A)", "--x=$one")]
    #[case("$", "$")]
    #[case("--x=$(A", "--x=$(A")]
    #[case("--x=$A", "--x=$A")]
    fn references_expand_as_in_kubernetes(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(mk_variables().expand(text).plain(), Some(expected));
    }

    #[test]
    fn unknown_variable_remains_with_its_reason() {
        let mut variables = mk_variables();
        let word = variables.expand("--x=$(U)$(NONE)");
        assert_eq!(word.text, "--x=$(U)$(NONE)");
        assert_eq!(word.unknown["U"], "it is a field of each pod");
        assert_eq!(word.unknown["NONE"], "the container has no such variable");
        variables.hide_source("ConfigMap n/c: Forbidden");
        assert_eq!(variables.expand("$(NONE)").unknown["NONE"], "ConfigMap n/c: Forbidden");
    }

    #[test]
    fn text_of_secrets_is_not_shown() {
        let word = mk_variables().expand("--x=$(S)");
        assert_eq!((word.text.as_str(), word.plain()), ("--x=hunter2", None));
        assert!(!format!("{word:?}").contains("hunter2"));
    }

    #[test]
    fn long_word_is_unknown() {
        let mut variables = Variables::default();
        variables.set("A", VariableValue::Plain("x".repeat(40_000)));
        assert!(!variables.expand("$(A)$(A)").unknown.is_empty());
    }
}
