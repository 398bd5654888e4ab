// SPDX-License-Identifier: Apache-2.0
//! Requests for objects. An object that cannot be decoded causes an error that names it.

use std::fmt::Debug;

use cinder_operator_core::cluster::{GuardedObject, LONGEST_NAME, UndecodableObject, is_object_name};
use csi_sources::UntrustedText;
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams, PostParams},
    core::{DynamicResourceScope, request::Error as RequestError},
};
use serde::{Serialize, de::DeserializeOwned, de::Error as _};

/// [`Api`] with every object guarded. All requests of the operator and of the kubectl plugin for objects that other
/// clients write use it.
///
/// Names and namespaces often come from objects of tenants. A name that is not a DNS subdomain never becomes part of a
/// request: the request fails with an error about the name.
#[derive(Debug, Clone)]
pub struct GuardedApi<K> {
    api: Api<GuardedObject<K>>,
    namespace: Option<String>,
}

impl<K: Resource> GuardedApi<K> {
    /// An API for objects without a namespace, or in all namespaces.
    pub fn all(client: Client) -> Self
    where
        K::DynamicType: Default,
    {
        Self {
            api: Api::all(client),
            namespace: None,
        }
    }

    /// Like [`GuardedApi::all`], for objects whose kind is a value.
    pub fn all_with(client: Client, resource: &K::DynamicType) -> Self {
        Self {
            api: Api::all_with(client, resource),
            namespace: None,
        }
    }

    /// An API for the objects of a namespace.
    pub fn namespaced(client: Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: Some(namespace.to_owned()),
        }
    }

    /// Like [`GuardedApi::namespaced`], for objects whose kind is a value.
    pub fn namespaced_with(client: Client, namespace: &str, resource: &K::DynamicType) -> Self
    where
        K: Resource<Scope = DynamicResourceScope>,
    {
        Self {
            api: Api::namespaced_with(client, namespace, resource),
            namespace: Some(namespace.to_owned()),
        }
    }

    /// For a watch. Its namespace comes from the command line.
    pub fn into_inner(self) -> Api<GuardedObject<K>> {
        self.api
    }
}

impl<K> GuardedApi<K> {
    /// The API for requests that concern all objects of the namespace.
    fn validated_api(&self) -> kube::Result<&Api<GuardedObject<K>>> {
        self.namespace.as_deref().map_or(Ok(()), check_name)?;
        Ok(&self.api)
    }

    /// The API for a request that concerns the object of this name.
    fn validated_api_for(&self, name: &str) -> kube::Result<&Api<GuardedObject<K>>> {
        check_name(name)?;
        self.validated_api()
    }
}

/// Rejects text that is not a name, because the client inserts it into the path of a request.
pub fn check_name(name: &str) -> kube::Result<()> {
    if is_object_name(name) {
        return Ok(());
    }
    let name = UntrustedText::with_limit(name, LONGEST_NAME).quoted();
    let reason = format!("{name} is an invalid name of an object, and no request was sent");
    Err(kube::Error::BuildRequest(RequestError::Validation(reason)))
}

#[expect(clippy::disallowed_methods, reason = "the names are checked here")]
impl<K: Clone + Debug + DeserializeOwned> GuardedApi<K> {
    /// Lists the objects. An object that cannot be decoded is reduced to its known part.
    pub(crate) async fn list_guarded(&self, params: &ListParams) -> kube::Result<ObjectList<GuardedObject<K>>> {
        self.validated_api()?.list(params).await
    }

    /// Lists the objects. An object that cannot be decoded causes an error that names it.
    pub async fn list(&self, params: &ListParams) -> kube::Result<Vec<K>> {
        let list = self.list_guarded(params).await?;
        list.items.into_iter().map(unguard).collect()
    }

    /// Lists the objects that can be decoded. Adds a note about each other object, and about a list that exceeds its
    /// limit.
    pub async fn list_readable(&self, params: &ListParams, notes: &mut Vec<String>) -> kube::Result<Vec<K>> {
        let (objects, next) = self.list_page(params, notes).await?;
        if next.is_some() {
            notes.push(format!("only the first {} objects are included", objects.len()));
        }
        Ok(objects)
    }

    /// Lists one page of the objects that can be decoded, and returns the token of the next page. Adds a note about
    /// each other object.
    pub async fn list_page(
        &self,
        params: &ListParams,
        notes: &mut Vec<String>,
    ) -> kube::Result<(Vec<K>, Option<String>)> {
        let list = self.list_guarded(params).await?;
        let readable = list
            .items
            .into_iter()
            .filter_map(|object| object.0.map_err(|undecodable| notes.push(undecodable.to_string())).ok());
        let objects = readable.collect();
        Ok((objects, list.metadata.continue_.filter(|token| !token.is_empty())))
    }

    pub(crate) async fn get(&self, name: &str) -> kube::Result<K> {
        self.validated_api_for(name)?.get(name).await.and_then(unguard)
    }

    /// Gets the object with this name; `None` if it does not exist.
    pub async fn get_opt(&self, name: &str) -> kube::Result<Option<K>> {
        self.validated_api_for(name)?
            .get_opt(name)
            .await?
            .map(unguard)
            .transpose()
    }

    pub(crate) async fn patch<P: Serialize + Debug>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> kube::Result<K> {
        self.validated_api_for(name)?
            .patch(name, params, patch)
            .await
            .and_then(unguard)
    }

    pub(crate) async fn patch_status<P: Serialize + Debug>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> kube::Result<()> {
        self.validated_api_for(name)?
            .patch_status(name, params, patch)
            .await
            .map(drop)
    }

    pub(crate) async fn create(&self, params: &PostParams, object: &K) -> kube::Result<K>
    where
        K: Serialize,
    {
        let object = GuardedObject(Ok(object.clone()));
        self.validated_api()?.create(params, &object).await.and_then(unguard)
    }

    pub(crate) async fn replace(&self, name: &str, params: &PostParams, object: &K) -> kube::Result<K>
    where
        K: Serialize,
    {
        let object = GuardedObject(Ok(object.clone()));
        self.validated_api_for(name)?
            .replace(name, params, &object)
            .await
            .and_then(unguard)
    }

    pub(crate) async fn delete(&self, name: &str, params: &DeleteParams) -> kube::Result<()> {
        self.validated_api_for(name)?.delete(name, params).await.map(drop)
    }
}

fn unguard<K>(object: GuardedObject<K>) -> kube::Result<K> {
    object.0.map_err(|undecodable| undecodable_error(&undecodable))
}

/// The error about an object that cannot be decoded.
pub(crate) fn undecodable_error(undecodable: &UndecodableObject) -> kube::Error {
    kube::Error::SerdeError(serde_json::Error::custom(undecodable))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::kubernetes::answer;

    /// Files that use kube's own `Api`: for objects that only this program writes, and for logs.
    const EXCEPTIONS: [&str; 4] = [
        "kubectl/src/bundle.rs",
        "src/events.rs",
        "src/kubernetes/guarded_api.rs",
        "src/scrape/access.rs",
    ];

    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, files);
            } else {
                files.push(path);
            }
        }
    }

    #[tokio::test]
    async fn invalid_names_cause_no_request() {
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let client = Client::new(service, "default");
        let nodes = GuardedApi::<Node>::all(client.clone());
        let params = (PatchParams::default(), Patch::Merge(json!({})));
        for name in ["n1/../../../../api/v1/secrets?x=", "n1/proxy/configz", "..", ""] {
            let errors = [
                nodes.get(name).await.err(),
                nodes.get_opt(name).await.err(),
                nodes.patch(name, &params.0, &params.1).await.err(),
                nodes.patch_status(name, &params.0, &params.1).await.err(),
                nodes
                    .replace(name, &PostParams::default(), &Node::default())
                    .await
                    .err(),
                nodes.delete(name, &DeleteParams::default()).await.err(),
                GuardedApi::<Pod>::namespaced(client.clone(), name)
                    .list(&ListParams::default())
                    .await
                    .err(),
                GuardedApi::<Pod>::namespaced(client.clone(), name)
                    .get("pod")
                    .await
                    .err(),
            ];
            for error in errors {
                let text = answer(&error.expect("an error"));
                assert!(text.starts_with(&format!("\"{name}\" is an invalid name")), "{text}");
            }
        }
        drop((nodes, client));
        assert!(handle.next_request().await.is_none(), "a request was sent");
    }

    #[test]
    fn operator_and_plugin_guard_requests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        collect(&root.join("src"), &mut files);
        collect(&root.join("kubectl/src"), &mut files);
        assert!(files.len() > 50, "{} files", files.len());
        for path in files {
            let name = path
                .strip_prefix(root)
                .expect("below the folder")
                .to_string_lossy()
                .into_owned();
            if name.contains("tests") || EXCEPTIONS.contains(&name.as_str()) {
                continue;
            }
            let text = fs::read_to_string(&path).expect("text");
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            for part in ["Api<", "Api::"] {
                let whole = code.matches(part).count();
                let guarded = code.matches(&format!("Guarded{part}")).count();
                // The enum of APIs that a cluster may lack.
                let others = code.matches(&format!("Optional{part}")).count();
                assert_eq!(whole, guarded + others, "{name}: use GuardedApi");
            }
        }
    }
}
