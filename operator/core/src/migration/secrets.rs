// SPDX-License-Identifier: Apache-2.0
//! Secrets that existing volumes, snapshots and classes reference, and whether the sidecars of this driver may read
//! them.
//!
//! The operator has no right to read Secrets in other namespaces, so it cannot grant one. A migration waits until an
//! administrator has granted it. A failed access review is not a grant.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{AdoptionFinding, AdoptionFindingReason, Sample, finding};
use crate::cluster::{SecretName, SecretReference};

/// Maximum number of namespaces with access reviews.
const MOST_NAMESPACES: usize = 32;
/// Maximum number of separate access reviews for Secrets of one namespace.
const MOST_SECRETS: usize = 16;
/// Maximum number of listed classes with unresolved references.
const MOST_UNRESOLVED: usize = 32;

/// Service account of the controller pods, which the sidecars use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SidecarAccount {
    pub namespace: String,
    pub name: String,
}

/// Result of an access review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretAccess {
    /// The sidecars may read the Secret.
    Allowed,
    /// The sidecars may not read the Secret.
    Denied,
    /// The review failed, with the cause.
    Unknown(String),
}

impl Default for SecretAccess {
    fn default() -> Self {
        Self::Unknown("it was not reviewed".to_owned())
    }
}

/// Scope of an access review: all Secrets of a scope, or one Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretScope {
    Cluster,
    Namespace(String),
    Secret(SecretName),
}

/// Secrets by their namespaces, with the objects that reference them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretReferences {
    /// The account that needs access.
    pub account: SidecarAccount,
    namespaces: BTreeMap<String, ReferredNamespace>,
    /// Objects that reference Secrets of further namespaces.
    beyond: Sample,
    /// Classes and objects with an unknown Secret, by field and namespace.
    unresolved: BTreeMap<(String, Option<String>), Sample>,
    /// Whether the sidecars may read all Secrets of the cluster.
    may_read_all: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ReferredNamespace {
    secrets: BTreeMap<String, ReferredSecret>,
    /// Objects that reference further Secrets.
    beyond: Sample,
    /// Access to all Secrets of the namespace.
    access: SecretAccess,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ReferredSecret {
    objects: Sample,
    access: SecretAccess,
}

impl SecretReferences {
    /// Adds the references of an object, each Secret once.
    pub fn add(&mut self, object: &str, references: Vec<SecretReference>) {
        for reference in references.into_iter().collect::<BTreeSet<_>>() {
            match reference {
                SecretReference::Secret(secret) => self.add_secret(object, secret),
                SecretReference::Unresolved { field, namespace } => {
                    let key = (field, namespace);
                    if self.unresolved.len() < MOST_UNRESOLVED || self.unresolved.contains_key(&key) {
                        self.unresolved.entry(key).or_default().add(object);
                    } else {
                        self.beyond.add(object);
                    }
                }
            }
        }
    }

    fn add_secret(&mut self, object: &str, secret: SecretName) {
        let SecretName { namespace, name } = secret;
        if self.namespaces.len() >= MOST_NAMESPACES && !self.namespaces.contains_key(&namespace) {
            return self.beyond.add(object);
        }
        let namespace = self.namespaces.entry(namespace).or_default();
        if namespace.secrets.len() >= MOST_SECRETS && !namespace.secrets.contains_key(&name) {
            return namespace.beyond.add(object);
        }
        namespace.secrets.entry(name).or_default().objects.add(object);
    }

    /// Returns the next access reviews, the widest scope first. A granted scope covers all reviews within it.
    pub fn questions(&self) -> Vec<SecretScope> {
        if self.namespaces.is_empty() && self.unresolved.is_empty() && self.beyond.is_empty() {
            return Vec::new();
        }
        let mut questions = vec![SecretScope::Cluster];
        let of_unresolved = self.unresolved.keys().filter_map(|(_, namespace)| namespace.as_ref());
        let namespaces: BTreeSet<&String> = self.namespaces.keys().chain(of_unresolved).collect();
        for namespace in namespaces {
            questions.push(SecretScope::Namespace(namespace.clone()));
            let secrets = self
                .namespaces
                .get(namespace)
                .into_iter()
                .flat_map(|all| all.secrets.keys());
            questions.extend(secrets.map(|name| {
                SecretScope::Secret(SecretName {
                    namespace: namespace.clone(),
                    name: name.clone(),
                })
            }));
        }
        questions
    }

    /// Whether an earlier review covers this one.
    pub fn is_answered(&self, question: &SecretScope) -> bool {
        let is_allowed = |namespace: &String| {
            let known = self.namespaces.get(namespace);
            known.is_some_and(|known| known.access == SecretAccess::Allowed)
        };
        match question {
            SecretScope::Cluster | SecretScope::Namespace(_) => self.may_read_all,
            SecretScope::Secret(secret) => self.may_read_all || is_allowed(&secret.namespace),
        }
    }

    /// Records the result of a review.
    pub fn record(&mut self, question: &SecretScope, access: SecretAccess) {
        match question {
            SecretScope::Cluster => self.may_read_all = access == SecretAccess::Allowed,
            SecretScope::Namespace(name) => self.namespaces.entry(name.clone()).or_default().access = access,
            SecretScope::Secret(secret) => {
                let namespace = self.namespaces.get_mut(&secret.namespace);
                if let Some(known) = namespace.and_then(|namespace| namespace.secrets.get_mut(&secret.name)) {
                    known.access = access;
                }
            }
        }
    }
}

/// Returns findings for Secrets that the sidecars may not read, or with unknown access.
pub(super) fn findings(references: &SecretReferences) -> Vec<AdoptionFinding> {
    if references.may_read_all {
        return Vec::new();
    }
    let account = &references.account;
    let mut findings = Vec::new();
    for (namespace, referred) in &references.namespaces {
        if referred.access != SecretAccess::Allowed {
            findings.extend(of_namespace(account, namespace, referred));
        }
    }
    if !references.beyond.is_empty() {
        findings.push(finding(
            AdoptionFindingReason::SecretAccess,
            "further Secrets",
            &references.beyond,
            "the objects refer to more namespaces or fields than this check reviews, so that it is unknown whether the sidecars may read them",
            format!(
                "Let {} read all Secrets of the cluster: {}",
                describe(account),
                commands(account, None, &[])
            ),
        ));
    }
    for ((field, namespace), objects) in &references.unresolved {
        let may_read = |namespace: &String| {
            let known = references.namespaces.get(namespace);
            known.is_some_and(|known| known.access == SecretAccess::Allowed)
        };
        if !namespace.as_ref().is_some_and(may_read) {
            findings.push(unresolved(account, field, namespace.as_deref(), objects));
        }
    }
    findings
}

fn of_namespace(account: &SidecarAccount, namespace: &str, referred: &ReferredNamespace) -> Option<AdoptionFinding> {
    let open = referred
        .secrets
        .iter()
        .filter(|(_, secret)| secret.access != SecretAccess::Allowed);
    let open: Vec<(&String, &ReferredSecret)> = open.collect();
    let mut subjects: Sample = open
        .iter()
        .map(|(name, secret)| format!("Secret {namespace}/{name} of {}", secret.objects))
        .collect();
    let mut causes = open.iter().map(|(_, secret)| &secret.access).collect::<Vec<_>>();
    let mut names: Vec<&str> = open.iter().map(|(name, _)| name.as_str()).collect();
    if !referred.beyond.is_empty() {
        subjects.add(format!("further Secrets of {}", referred.beyond));
        causes.push(&referred.access);
        // One role covers all of them.
        names.clear();
    }
    if causes.is_empty() {
        return None;
    }
    let unknown = causes.iter().find_map(|access| match access {
        SecretAccess::Unknown(cause) => Some(cause),
        SecretAccess::Allowed | SecretAccess::Denied => None,
    });
    let consequence =
        "without the right the volumes and snapshots of these objects are not attached, detached, expanded or deleted";
    let message = match unknown {
        Some(cause) => format!(
            "it is unknown whether {} may read the Secrets: {cause}; {consequence}",
            describe(account)
        ),
        None => format!("{} may not read the Secrets; {consequence}", describe(account)),
    };
    let remedy = format!(
        "Grant the right, and check again: {}. Where the role exists, add the names to it",
        commands(account, Some(namespace), &names)
    );
    let subject = format!("Secrets in namespace {namespace}");
    Some(finding(
        AdoptionFindingReason::SecretAccess,
        subject,
        &subjects,
        message,
        remedy,
    ))
}

fn unresolved(account: &SidecarAccount, field: &str, namespace: Option<&str>, objects: &Sample) -> AdoptionFinding {
    finding(
        AdoptionFindingReason::SecretTemplate,
        match namespace {
            Some(namespace) => format!("{field} in namespace {namespace}"),
            None => field.to_owned(),
        },
        objects,
        format!(
            "the Secret depends on the claim, or its name is invalid, so that it is unknown which Secrets {} has to read",
            describe(account)
        ),
        format!(
            "Let it read the Secrets that new volumes need, for example all of the namespace: {}",
            commands(account, namespace, &[])
        ),
    )
}

fn describe(account: &SidecarAccount) -> String {
    format!("service account {}/{} of the sidecars", account.namespace, account.name)
}

/// Returns commands that grant the right to read these Secrets, or all Secrets without names. All parts are names of
/// objects.
fn commands(account: &SidecarAccount, namespace: Option<&str>, names: &[&str]) -> String {
    let SidecarAccount {
        namespace: home,
        name: account,
    } = account;
    let names: Vec<String> = names.iter().map(|name| format!(" --resource-name={name}")).collect();
    let names = names.concat();
    let (kind, place) = match namespace {
        Some(namespace) => ("role", format!(" -n {namespace}")),
        None => ("clusterrole", String::new()),
    };
    format!(
        "`kubectl create {kind} {account}-secrets{place} --verb=get --resource=secrets{names}` and `kubectl create {kind}binding \
         {account}-secrets{place} --{kind}={account}-secrets --serviceaccount={home}:{account}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(namespace: &str, name: &str) -> SecretReference {
        SecretReference::Secret(mk_name(namespace, name))
    }

    fn mk_name(namespace: &str, name: &str) -> SecretName {
        SecretName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn mk_references() -> SecretReferences {
        SecretReferences {
            account: SidecarAccount {
                namespace: "cinder-csi".to_owned(),
                name: "cinder-csi-controller".to_owned(),
            },
            ..SecretReferences::default()
        }
    }

    /// Answers the access reviews with the results of `allows`, in place of an API server.
    fn answer(references: &mut SecretReferences, allows: impl Fn(&SecretScope) -> SecretAccess) -> usize {
        let mut asked = 0;
        for question in references.questions() {
            if !references.is_answered(&question) {
                asked += 1;
                references.record(&question, allows(&question));
            }
        }
        asked
    }

    #[test]
    fn secrets_of_a_region_need_a_grant() {
        let mut references = mk_references();
        references.add(
            "PersistentVolume a",
            vec![secret("kube-system", "region-one"), secret("kube-system", "region-one")],
        );
        references.add("PersistentVolume b", vec![secret("kube-system", "region-two")]);
        references.add("StorageClass one", vec![secret("kube-system", "region-one")]);
        assert_eq!(answer(&mut references, |_| SecretAccess::Denied), 4);
        let found = findings(&references);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].reason, found[0].count),
            (AdoptionFindingReason::SecretAccess, 2)
        );
        assert_eq!(
            found[0].names,
            [
                "Secret kube-system/region-one of PersistentVolume a, StorageClass one",
                "Secret kube-system/region-two of PersistentVolume b"
            ]
        );
        let expected = "`kubectl create role cinder-csi-controller-secrets -n kube-system --verb=get --resource=secrets \
                        --resource-name=region-one --resource-name=region-two` and `kubectl create rolebinding cinder-csi-controller-secrets -n \
                        kube-system --role=cinder-csi-controller-secrets --serviceaccount=cinder-csi:cinder-csi-controller`";
        assert!(found[0].remedy.contains(expected), "{}", found[0].remedy);
    }

    #[test]
    fn only_granted_access_removes_the_finding() {
        let one = SecretScope::Secret(mk_name("n", "s"));
        for (access, expected) in [
            (SecretAccess::Allowed, ""),
            (SecretAccess::Denied, "may not read"),
            (SecretAccess::Unknown("no answer".to_owned()), "is unknown whether"),
        ] {
            let mut references = mk_references();
            references.add("PersistentVolume a", vec![secret("n", "s")]);
            let found = findings(&references);
            assert!(found[0].message.contains("not reviewed"), "{found:?}");
            answer(&mut references, |question| {
                if *question == one {
                    access.clone()
                } else {
                    SecretAccess::Denied
                }
            });
            let found = findings(&references);
            assert_eq!(found.is_empty(), expected.is_empty(), "{found:?}");
            assert!(found.iter().all(|one| one.message.contains(expected)), "{found:?}");
        }
    }

    #[test]
    fn access_to_a_scope_includes_its_secrets() {
        for (scope, questions) in [(SecretScope::Cluster, 1), (SecretScope::Namespace("n".to_owned()), 2)] {
            let mut references = mk_references();
            references.add("PersistentVolume a", vec![secret("n", "s"), secret("n", "t")]);
            let asked = answer(&mut references, |question| {
                if *question == scope {
                    SecretAccess::Allowed
                } else {
                    SecretAccess::Denied
                }
            });
            assert_eq!(asked, questions);
            assert_eq!(findings(&references), []);
        }
    }

    #[test]
    fn claim_dependent_secrets_have_separate_finding() {
        let template = |namespace: Option<&str>| SecretReference::Unresolved {
            field: "csi.storage.k8s.io/provisioner-secret-name".to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        let mut references = mk_references();
        references.add("StorageClass a", vec![template(Some("n"))]);
        references.add("StorageClass b", vec![template(None)]);
        answer(&mut references, |question| match question {
            SecretScope::Namespace(_) => SecretAccess::Allowed,
            _ => SecretAccess::Denied,
        });
        let found = findings(&references);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].reason, AdoptionFindingReason::SecretTemplate);
        assert_eq!(found[0].names, ["StorageClass b"]);
        assert!(found[0].remedy.contains("kubectl create clusterrole "), "{found:?}");
    }

    #[test]
    fn reviews_are_bounded() {
        let mut references = mk_references();
        for namespace in 0..MOST_NAMESPACES + 2 {
            for name in 0..MOST_SECRETS + 2 {
                let reference = secret(&format!("n{namespace}"), &format!("s{name}"));
                references.add("PersistentVolume a", vec![reference]);
            }
        }
        let asked = answer(&mut references, |_| SecretAccess::Denied);
        assert_eq!(asked, 1 + MOST_NAMESPACES * (1 + MOST_SECRETS));
        let found = findings(&references);
        assert_eq!(found.len(), MOST_NAMESPACES + 1);
        assert!(found.iter().all(|one| one.names.len() <= 10), "{found:?}");
        assert!(!found[0].remedy.contains("--resource-name"), "{}", found[0].remedy);
    }

    #[test]
    fn no_references_need_no_review() {
        let references = mk_references();
        assert_eq!(references.questions(), []);
        assert_eq!(findings(&references), []);
    }
}
